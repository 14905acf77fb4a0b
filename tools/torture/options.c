/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-torture: see options.h.
 */
#include "tools/torture/options.h"

#include "client/kvpool.h"
#include "tools/torture/books.h"
#include "tools/units.h"

#include <getopt.h>
#include <stdio.h>

enum {
	OPTION_SECONDS = 1,
	OPTION_CLIENTS,
	OPTION_DAEMON_KILL_EVERY,
	OPTION_BLOW_MS,
	OPTION_SEED,
	OPTION_DAEMON,
	OPTION_JSON,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option names[] = {
	{"seconds", required_argument, NULL, OPTION_SECONDS},
	{"clients", required_argument, NULL, OPTION_CLIENTS},
	{"daemon-kill-every", required_argument, NULL, OPTION_DAEMON_KILL_EVERY},
	{"blow-ms", required_argument, NULL, OPTION_BLOW_MS},
	{"seed", required_argument, NULL, OPTION_SEED},
	{"daemon", required_argument, NULL, OPTION_DAEMON},
	{"json", no_argument, NULL, OPTION_JSON},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const char help[] =
	"Usage: kvpool-torture [OPTIONS]\n"
	"\n"
	"Processes read, write, hold and forget blocks of a small pool while they are killed,\n"
	"stopped, forked and left in the middle of a copy, and the daemon is killed too. Every "
	"byte\n"
	"that is read is checked against books that outlive them all.\n"
	"\n"
	"Options:\n"
	"  --seconds N            how long (default 60)\n"
	"  --clients N            client processes, 1 to 64 (default 8)\n"
	"  --daemon-kill-every N  seconds between two deaths of the daemon; 0: never (default 3)\n"
	"  --blow-ms N            milliseconds between two blows at clients, on average (default "
	"80)\n"
	"  --seed N               what is done to whom, and in which order (default 1)\n"
	"  --daemon PATH          the kvpoold to start; else $KVPOOLD, the one beside this "
	"program,\n"
	"                         or that in PATH\n"
	"  --json                 one JSON object instead of lines\n"
	"  --help, --version\n"
	"\n"
	"Figures:\n"
	"  kept_ratio       blocks after a death of the daemon for each one before it that could "
	"be\n"
	"                   found: `quiet` while clients rest, so that it must be 1; `busy` as "
	"the\n"
	"                   status page said just before, while they work\n"
	"  lease_return_ms  from the kill of a client that holds leases until the daemon has none "
	"of it\n"
	"  leaked_blocks    held by nobody that lives, at the end; with the leases\n"
	"  leaked_fds       of daemon and supervisor, against a life before; null: not to be seen\n"
	"\n"
	"Exit codes: 0 fine, 1 failure (also: anything wrong or leaked, or not all kept), 2 "
	"usage.\n";

static int number(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	if (kvpool_units_parse_number(text, min, max, out) == 0)
		return 0;
	fprintf(stderr,
		"kvpool-torture: --%s %s: must be a whole number of %llu to %llu; see "
		"kvpool-torture --help\n",
		name, text, (unsigned long long)min, (unsigned long long)max);
	return KVPOOL_TORTURE_OPTIONS_E_USAGE;
}

static int take_number(struct kvpool_torture_options *options, int option)
{
	uint64_t value = 0;
	int r;

	switch (option) {
	case OPTION_SECONDS:
		r = number("seconds", optarg, 1, 1000000, &value);
		options->seconds = (uint32_t)value;
		return r;
	case OPTION_CLIENTS:
		r = number("clients", optarg, 1, KVPOOL_BOOKS_CLIENTS_MAX, &value);
		options->clients = (uint32_t)value;
		return r;
	case OPTION_DAEMON_KILL_EVERY:
		r = number("daemon-kill-every", optarg, 0, 1000000, &value);
		options->daemon_kill_every = (uint32_t)value;
		return r;
	case OPTION_BLOW_MS:
		r = number("blow-ms", optarg, 1, 1000000, &value);
		options->blow_ms = (uint32_t)value;
		return r;
	default:
		return number("seed", optarg, 0, UINT64_MAX, &options->seed);
	}
}

static int take(struct kvpool_torture_options *options, int option, char *const *argv)
{
	switch (option) {
	case OPTION_DAEMON:
		options->daemon = optarg;
		return 0;
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_HELP:
		fputs(help, stdout);
		return KVPOOL_TORTURE_OPTIONS_SHOWN;
	case OPTION_VERSION:
		printf("kvpool-torture %d.%d\n", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
		return KVPOOL_TORTURE_OPTIONS_SHOWN;
	case ':':
	case '?':
		fprintf(stderr, "kvpool-torture: %s %s; see kvpool-torture --help\n",
			argv[optind - 1], option == ':' ? "needs a value" : "is no option");
		return KVPOOL_TORTURE_OPTIONS_E_USAGE;
	default:
		return take_number(options, option);
	}
}

int kvpool_torture_options_read(int argc, char **argv, struct kvpool_torture_options *out)
{
	struct kvpool_torture_options options = {
		.seed = 1,
		.seconds = 60,
		.clients = 8,
		.daemon_kill_every = 3,
		.blow_ms = 80,
	};
	int option, r;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", names, NULL)) != -1) {
		r = take(&options, option, argv);
		if (r != 0)
			return r;
	}
	if (optind < argc) {
		fprintf(stderr, "kvpool-torture: unexpected argument %s\n", argv[optind]);
		return KVPOOL_TORTURE_OPTIONS_E_USAGE;
	}
	*out = options;
	return 0;
}
