/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-bench: one table of options, each with the commands that take it.
 * Main thread; no state.
 */
#include "tools/bench/options.h"

#include "tools/units.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_kind {
	OPTION_FLAG,
	OPTION_TEXT,
	OPTION_CPU,
	OPTION_COUNT32,
	OPTION_SIZE, /* uint64_t, with a unit or without */
	OPTION_LIST,
};

struct option_row {
	const char *name;
	const char *argument; /* shown in the help; NULL: takes none */
	const char *help;
	uint32_t takes; /* 0: every command */
	enum option_kind kind;
	size_t offset; /* of the field in struct kvpool_bench_options */
};

#define FIELD(name) offsetof(struct kvpool_bench_options, name)

static const struct option_row rows[] = {
	{"json", NULL, "print JSON instead of a table", 0, OPTION_FLAG, FIELD(json)},
	{"client-cpu", "N", "pin the measuring side to core N", 0, OPTION_CPU, FIELD(client_cpu)},
	{"daemon-cpu", "N", "pin the daemon (the other side) to core N", 0, OPTION_CPU,
	 FIELD(daemon_cpu)},
	{"rounds", "N", "repeat everything N times, taking turns", 0, OPTION_COUNT32,
	 FIELD(rounds)},
	{"samples", "N", "samples of each figure in a round", KVPOOL_BENCH_TAKES_SAMPLES,
	 OPTION_SIZE, FIELD(samples)},
	{"socket", "PATH", "measure the daemon that listens there", KVPOOL_BENCH_TAKES_DAEMON,
	 OPTION_TEXT, FIELD(socket)},
	{"admin-socket", "PATH", "its admin socket", KVPOOL_BENCH_TAKES_DAEMON, OPTION_TEXT,
	 FIELD(admin_socket)},
	{"kept", NULL, "start it under its supervisor: its pool outlives it",
	 KVPOOL_BENCH_TAKES_DAEMON, OPTION_FLAG, FIELD(kept)},
	{"daemon", "PATH", "the kvpoold to start", 0, OPTION_TEXT, FIELD(daemon)},
	{"resident", "N", "blocks that lie in the pool", KVPOOL_BENCH_TAKES_RESIDENT, OPTION_SIZE,
	 FIELD(resident)},
	{"keys", "N,N,...", "keys in one lookup", KVPOOL_BENCH_TAKES_KEYS, OPTION_LIST,
	 FIELD(keys)},
	{"blocks", "SIZE,...", "sizes of a block", KVPOOL_BENCH_TAKES_BLOCKS, OPTION_LIST,
	 FIELD(blocks)},
	{"blocks", "N", "blocks that lie in the pool", KVPOOL_BENCH_TAKES_STORED, OPTION_SIZE,
	 FIELD(resident)},
	{"pieces", "N,N,...", "pieces that a block lies in, in the engine's memory",
	 KVPOOL_BENCH_TAKES_BLOCKS, OPTION_LIST, FIELD(pieces)},
	{"buffer", "SIZE", "bytes of the engine's memory, and of the blocks of one round",
	 KVPOOL_BENCH_TAKES_BLOCKS, OPTION_SIZE, FIELD(buffer_bytes)},
	{"checksum", NULL, "what checksums at COMMIT and their verification cost, too",
	 KVPOOL_BENCH_TAKES_BLOCKS, OPTION_FLAG, FIELD(checksum)},
	{"channels", "N,N,...", "attached channels", KVPOOL_BENCH_TAKES_CHANNELS, OPTION_LIST,
	 FIELD(channels)},
	{"busy", "N", "at most so many of them busy", KVPOOL_BENCH_TAKES_CHANNELS, OPTION_COUNT32,
	 FIELD(busy)},
	{"pool", "SIZE", "size of the pool", KVPOOL_BENCH_TAKES_POOL, OPTION_SIZE,
	 FIELD(pool_bytes)},
	{"seconds", "N", "how long to watch the idle daemon", KVPOOL_BENCH_TAKES_SECONDS,
	 OPTION_COUNT32, FIELD(seconds)},
	{"cycles", "N", "clients that live and die", KVPOOL_BENCH_TAKES_CYCLES, OPTION_COUNT32,
	 FIELD(cycles)},
	{"peers", "NAME,...", "redis, memcached", KVPOOL_BENCH_TAKES_PEERS, OPTION_TEXT,
	 FIELD(peers)},
};

#define N_ROWS KVPOOL_ARRAY_SIZE(rows)

static bool row_taken(const struct option_row *row, const struct kvpool_bench_command *command)
{
	return row->takes == 0 || (row->takes & command->takes) != 0;
}

/* The row of this name that the command takes; else the first one. */
static const struct option_row *row_of(const struct kvpool_bench_command *command, size_t at)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		if (strcmp(rows[i].name, rows[at].name) == 0 && row_taken(&rows[i], command))
			return &rows[i];
	}
	return &rows[at];
}

static int parse_list(const char *text, struct kvpool_bench_list *out)
{
	struct kvpool_bench_list list = {0};
	const char *at = text;

	for (;;) {
		size_t length = strcspn(at, ",");
		char item[32];

		if (length == 0 || length >= sizeof(item) || list.n == KVPOOL_BENCH_LIST_MAX)
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		memcpy(item, at, length);
		item[length] = '\0';
		if (kvpool_units_parse_size(item, &list.values[list.n]) != 0 ||
		    list.values[list.n] == 0)
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		list.n++;
		if (at[length] == '\0')
			break;
		at += length + 1;
	}
	*out = list;
	return 0;
}

static int parse_value(const struct option_row *row, const char *text, void *field)
{
	uint64_t number;

	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)field = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)field = text;
		return 0;
	case OPTION_CPU:
		if (kvpool_units_parse_number(text, 0, 4095, &number) != 0)
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		*(int *)field = (int)number;
		return 0;
	case OPTION_COUNT32:
		if (kvpool_units_parse_number(text, 1, 1000000, &number) != 0)
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		*(uint32_t *)field = (uint32_t)number;
		return 0;
	case OPTION_SIZE:
		if (kvpool_units_parse_size(text, &number) != 0 || number == 0)
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		*(uint64_t *)field = number;
		return 0;
	case OPTION_LIST:
		return parse_list(text, field);
	}
	return KVPOOL_BENCH_OPTIONS_E_USAGE;
}

static int parse_rows(const struct kvpool_bench_command *command, int argc, char **argv,
		      const struct option *table, struct kvpool_bench_options *options)
{
	int index;
	int c;

	optind = 1;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", table, &index)) != -1) {
		const struct option_row *row;

		if (c == 'h')
			return KVPOOL_BENCH_OPTIONS_E_HELP;
		if (c == '?' || c == ':') {
			kvpool_bench_fail(0, c == ':' ? "%s needs a value" : "unknown option %s",
					  argv[optind - 1]);
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		}
		row = row_of(command, (size_t)c - 256);
		if (!row_taken(row, command)) {
			kvpool_bench_fail(0, "%s takes no option --%s", command->name, row->name);
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		}
		if (parse_value(row, optarg, (char *)options + row->offset) != 0) {
			kvpool_bench_fail(0, "--%s %s: not a %s (%s)", row->name, optarg,
					  row->kind == OPTION_LIST ? "list" : "number",
					  row->argument);
			return KVPOOL_BENCH_OPTIONS_E_USAGE;
		}
	}
	if (optind < argc) {
		kvpool_bench_fail(0, "unexpected argument %s", argv[optind]);
		return KVPOOL_BENCH_OPTIONS_E_USAGE;
	}
	return 0;
}

int kvpool_bench_options_parse(const struct kvpool_bench_command *command, int argc, char **argv,
			       struct kvpool_bench_options *out)
{
	struct kvpool_bench_options options = {.client_cpu = -1, .daemon_cpu = -1};
	struct option table[N_ROWS + 2] = {0};
	int r;

	for (size_t i = 0; i < N_ROWS; i++)
		table[i] =
			(struct option){rows[i].name, rows[i].argument ? 1 : 0, NULL, (int)i + 256};
	table[N_ROWS] = (struct option){"help", 0, NULL, 'h'};
	r = parse_rows(command, argc, argv, table, &options);
	if (r == 0)
		*out = options;
	return r;
}

void kvpool_bench_options_help(const struct kvpool_bench_command *command)
{
	printf("kvpool-bench %s: %s\n\n", command->name, command->summary);
	for (size_t i = 0; i < N_ROWS; i++) {
		char left[48];

		if (!row_taken(&rows[i], command))
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].argument ? " " : "",
			 rows[i].argument ? rows[i].argument : "");
		printf("  %-24s %s\n", left, rows[i].help);
	}
}
