/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench: measures a pool beside the machine it runs on. The table of commands and main().
 *
 * A figure that misses its goal is printed as missed; the exit status says only whether the
 * measurement came about (0), could not (1), or was asked for wrongly (2).
 */
#include "tools/bench/bench.h"

#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/exit_codes.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct kvpool_bench_command commands[] = {
	{"pingpong", "one cache line between two processes and back", KVPOOL_BENCH_TAKES_SAMPLES,
	 kvpool_bench_pingpong},
	{"match", "lookups with lease and release beside the ping-pong",
	 KVPOOL_BENCH_TAKES_DAEMON | KVPOOL_BENCH_TAKES_RESIDENT | KVPOOL_BENCH_TAKES_KEYS |
		 KVPOOL_BENCH_TAKES_SAMPLES,
	 kvpool_bench_match},
	{"copy", "blocks into the pool and out of it beside memcpy",
	 KVPOOL_BENCH_TAKES_DAEMON | KVPOOL_BENCH_TAKES_BLOCKS, kvpool_bench_copy},
	{"scale", "many attached channels, a few of them busy",
	 KVPOOL_BENCH_TAKES_DAEMON | KVPOOL_BENCH_TAKES_CHANNELS | KVPOOL_BENCH_TAKES_SAMPLES,
	 kvpool_bench_scale},
	{"start", "from nothing to the first hit", KVPOOL_BENCH_TAKES_POOL, kvpool_bench_start},
	{"restart", "from the death of a daemon to the next hit, and what of the pool is kept",
	 KVPOOL_BENCH_TAKES_STORED, kvpool_bench_restart},
	{"idle", "what a daemon costs that nobody asks, and what waking it costs",
	 KVPOOL_BENCH_TAKES_DAEMON | KVPOOL_BENCH_TAKES_SECONDS | KVPOOL_BENCH_TAKES_SAMPLES,
	 kvpool_bench_idle},
	{"death", "from the death of a client until others have what it leased",
	 KVPOOL_BENCH_TAKES_CYCLES, kvpool_bench_death},
	{"compare", "the same lookups and copies on other stores, in the same run",
	 KVPOOL_BENCH_TAKES_KEYS | KVPOOL_BENCH_TAKES_PEERS | KVPOOL_BENCH_TAKES_RESIDENT |
		 KVPOOL_BENCH_TAKES_SAMPLES,
	 kvpool_bench_compare},
};

int kvpool_bench_interrupted(void)
{
	return kvpool_interrupt_asked() ? -EINTR : 0;
}

/* Main thread only. */
static bool failed;

bool kvpool_bench_failed(void)
{
	return failed;
}

int kvpool_bench_fail(int error, const char *format, ...)
{
	va_list arguments;

	failed = true;
	fputs("kvpool-bench: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (error < 0)
		fprintf(stderr, ": %s", strerror(-error));
	fputc('\n', stderr);
	return error;
}

static void print_usage(FILE *out)
{
	fputs("usage: kvpool-bench COMMAND [OPTIONS]\n\n", out);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\nkvpool-bench COMMAND --help lists the options of a command.\n", out);
}

static const struct kvpool_bench_command *find_command(const char *name)
{
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(commands); i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static int run(const struct kvpool_bench_command *command,
	       const struct kvpool_bench_options *options)
{
	struct kvpool_report *report;
	int r;

	r = kvpool_report_new(command->name, &report);
	if (r < 0)
		return kvpool_bench_fail(r, "cannot make a report");
	kvpool_interrupt_watch();
	signal(SIGPIPE, SIG_IGN);
	r = command->run(options, report);
	if (r == 0) {
		r = kvpool_report_print(report, options->json);
		if (r < 0)
			kvpool_bench_fail(r, "cannot print the report");
	} else if (r == -EINTR) {
		kvpool_bench_fail(0, "interrupted");
	}
	kvpool_report_free(report);
	return r;
}

int main(int argc, char **argv)
{
	const struct kvpool_bench_command *command;
	struct kvpool_bench_options options;
	int r;

	if (argc < 2) {
		print_usage(stderr);
		return KVPOOL_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return KVPOOL_EXIT_FINE;
	}
	command = find_command(argv[1]);
	if (!command) {
		kvpool_bench_fail(0, "unknown command %s", argv[1]);
		print_usage(stderr);
		return KVPOOL_EXIT_USAGE;
	}
	r = kvpool_bench_options_parse(command, argc - 1, argv + 1, &options);
	if (r == KVPOOL_BENCH_OPTIONS_E_HELP) {
		kvpool_bench_options_help(command);
		return KVPOOL_EXIT_FINE;
	}
	if (r != 0)
		return KVPOOL_EXIT_USAGE;
	return run(command, &options) == 0 ? KVPOOL_EXIT_FINE : KVPOOL_EXIT_FAILURE;
}
