/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-replay: see options.h.
 *
 * Main thread.
 */
#include "tools/replay/options.h"

#include "client/kvpool.h"
#include "shm/base.h"
#include "shm/limits.h"
#include "tools/replay/board.h"
#include "tools/units.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_BYTES_DEFAULT (UINT64_C(64) << 10)
#define BLOCK_BYTES_MAX     (UINT64_C(64) << 20)
#define POOL_BYTES_DEFAULT  (UINT64_C(1) << 30)
#define PROCESSES_DEFAULT   4

/* What a pool's size is rounded up to when it is given in blocks: the smallest segment. */
#define POOL_STEP (UINT64_C(16) << 20)

enum {
	OPTION_PROCESSES = 1,
	OPTION_POOL,
	OPTION_POOL_BLOCKS,
	OPTION_PRIVATE,
	OPTION_BLOCK_BYTES,
	OPTION_REQUESTS,
	OPTION_SKIP_BAD_LINES,
	OPTION_SOCKET,
	OPTION_AGAINST,
	OPTION_JSON,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option names[] = {
	{"processes", required_argument, NULL, OPTION_PROCESSES},
	{"pool", required_argument, NULL, OPTION_POOL},
	{"pool-blocks", required_argument, NULL, OPTION_POOL_BLOCKS},
	{"private", no_argument, NULL, OPTION_PRIVATE},
	{"block-bytes", required_argument, NULL, OPTION_BLOCK_BYTES},
	{"requests", required_argument, NULL, OPTION_REQUESTS},
	{"limit", required_argument, NULL, OPTION_REQUESTS},
	{"skip-bad-lines", no_argument, NULL, OPTION_SKIP_BAD_LINES},
	{"socket", required_argument, NULL, OPTION_SOCKET},
	{"against", required_argument, NULL, OPTION_AGAINST},
	{"json", no_argument, NULL, OPTION_JSON},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const char help[] =
	"Usage: kvpool-replay [OPTIONS] TRACE\n"
	"\n"
	"Replays a request trace with real bytes: processes look up the prefix of each request in\n"
	"the pool, load and check what is there, store what is not. Formats: Mooncake, LMCache,\n"
	"weka (.jsonl, also compressed with xz); told apart by their content.\n"
	"\n"
	"Options:\n"
	"  --processes N      client processes, 1 to 64 (default 4)\n"
	"  --pool SIZE        memory of the pool (default 1G)\n"
	"  --pool-blocks N    the same in blocks, rounded up to 16 MiB\n"
	"  --private          each process has a pool of its own, with its part of that memory\n"
	"  --block-bytes SIZE bytes of a block (default 64K); real models need more, the hit rate\n"
	"                     depends only on how many blocks fit\n"
	"  --requests N       only the first N requests (--limit is the same)\n"
	"  --skip-bad-lines   count the trace's bad lines instead of ending at the first\n"
	"  --socket PATH      use the daemon there instead of starting one\n"
	"  --against FILE     show an earlier --json report beside this one\n"
	"  --json             one JSON object instead of a table\n"
	"  --help, --version\n"
	"\n"
	"Every word of every hit is checked against what its key says it must be.\n"
	"kvpoold is $KVPOOLD, or the one beside this program, or that in PATH.\n"
	"\n"
	"Examples:\n"
	"  kvpool-replay --requests 1000 trace.jsonl.xz\n"
	"  kvpool-replay --json trace.jsonl.xz > shared.json\n"
	"  kvpool-replay --private --against shared.json trace.jsonl.xz\n"
	"\n"
	"Exit codes: 0 fine, 1 failure (also: one byte was wrong), 2 usage or a bad trace,\n"
	"3 daemon unreachable, 4 refused, 6 version mismatch.\n";

static int wrong(const char *format, ...) KVPOOL_PRINTF(1, 2);

static int wrong(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "kvpool-replay: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "; see kvpool-replay --help\n");
	va_end(list);
	return KVPOOL_REPLAY_OPTIONS_E_USAGE;
}

static int size(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char low[KVPOOL_UNITS_BYTES];
	char high[KVPOOL_UNITS_BYTES];

	if (kvpool_units_parse_size(text, out) == 0 && *out >= min && *out <= max)
		return 0;
	return wrong("--%s %s: must be a size of %s to %s, such as 64K or 1.5G", name, text,
		     kvpool_units_bytes(min, low), kvpool_units_bytes(max, high));
}

static int number(const char *name, const char *text, uint64_t max, uint64_t *out)
{
	if (kvpool_units_parse_number(text, 1, max, out) == 0)
		return 0;
	return wrong("--%s %s: must be a whole number of 1 to %" PRIu64, name, text, max);
}

struct parsed {
	struct kvpool_replay_options options;
	uint64_t pool_blocks; /* 0: not given */
	bool pool_given;
};

static int take_number(struct parsed *parsed, int option, const char *text)
{
	uint64_t value = 0;
	int error;

	switch (option) {
	case OPTION_PROCESSES:
		error = number("processes", text, KVPOOL_BOARD_WORKERS_MAX, &value);
		parsed->options.processes = (uint32_t)value;
		return error;
	case OPTION_REQUESTS:
		error = number("requests", text, UINT32_MAX - 1, &value);
		parsed->options.read.requests_max = (uint32_t)value;
		return error;
	case OPTION_POOL_BLOCKS:
		return number("pool-blocks", text, UINT32_MAX, &parsed->pool_blocks);
	case OPTION_POOL:
		parsed->pool_given = true;
		return size("pool", text, POOL_STEP, UINT64_C(1) << 44,
			    &parsed->options.pool_bytes);
	default:
		return size("block-bytes", text, KVPOOL_UNIT_BYTES, BLOCK_BYTES_MAX,
			    &parsed->options.block_bytes);
	}
}

/* 0, or what kvpool_replay_options_read() returns. */
static int take(struct parsed *parsed, int option, char *const *argv)
{
	switch (option) {
	case OPTION_PRIVATE:
		parsed->options.private_pools = true;
		return 0;
	case OPTION_SKIP_BAD_LINES:
		parsed->options.read.skip_bad_lines = true;
		return 0;
	case OPTION_SOCKET:
		parsed->options.socket = optarg;
		return 0;
	case OPTION_AGAINST:
		parsed->options.against = optarg;
		return 0;
	case OPTION_JSON:
		parsed->options.json = true;
		return 0;
	case OPTION_HELP:
		fputs(help, stdout);
		return KVPOOL_REPLAY_OPTIONS_SHOWN;
	case OPTION_VERSION:
		printf("kvpool-replay %d.%d\n", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
		return KVPOOL_REPLAY_OPTIONS_SHOWN;
	case ':':
		return wrong("%s needs a value", argv[optind - 1]);
	case '?':
		return wrong("%s is no option", argv[optind - 1]);
	default:
		return take_number(parsed, option, optarg);
	}
}

/* What only shows when all options are known. */
static int check(struct parsed *parsed)
{
	struct kvpool_replay_options *options = &parsed->options;
	uint64_t stride = KVPOOL_ROUND_UP(options->block_bytes, KVPOOL_UNIT_BYTES);
	uint64_t pools = options->private_pools ? options->processes : 1;

	if (options->block_bytes % KVPOOL_UNIT_BYTES != 0)
		return wrong("--block-bytes must be a multiple of %u", KVPOOL_UNIT_BYTES);
	if (options->socket != NULL &&
	    (options->private_pools || parsed->pool_given || parsed->pool_blocks != 0))
		return wrong("--socket names a pool that is there already: --pool, --pool-blocks "
			     "and --private do not go with it");
	if (parsed->pool_given && parsed->pool_blocks != 0)
		return wrong("--pool and --pool-blocks say the same: give one");
	if (options->json && options->against != NULL)
		return wrong("--against is for the table, not for --json");
	if (parsed->pool_blocks != 0)
		options->pool_bytes =
			pools *
			KVPOOL_ROUND_UP(stride * ((parsed->pool_blocks + pools - 1) / pools),
					POOL_STEP);
	return 0;
}

int kvpool_replay_options_read(int argc, char **argv, struct kvpool_replay_options *out)
{
	struct parsed parsed = {
		.options =
			{
				.processes = PROCESSES_DEFAULT,
				.block_bytes = BLOCK_BYTES_DEFAULT,
				.pool_bytes = POOL_BYTES_DEFAULT,
			},
	};
	int option;
	int error = 0;

	opterr = 0;
	while (error == 0 && (option = getopt_long(argc, argv, ":", names, NULL)) != -1)
		error = take(&parsed, option, argv);
	if (error != 0)
		return error;
	if (optind + 1 != argc)
		return wrong(optind == argc ? "which trace?" : "one trace at a time");
	parsed.options.trace = argv[optind];
	error = check(&parsed);
	if (error != 0)
		return error;
	*out = parsed.options;
	return 0;
}
