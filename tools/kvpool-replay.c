/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-replay: replays a request trace against one pool or against private ones, with real bytes.
 *
 * Reads the trace, starts the daemons, forks the processes, reports. One thread; the objects are in
 * tools/replay.
 */
#include "tools/exit_codes.h"
#include "tools/interrupt.h"
#include "tools/replay/crew.h"
#include "tools/replay/options.h"
#include "tools/replay/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WHY_BYTES 1024

static int complain(const char *what, int code)
{
	fprintf(stderr, "kvpool-replay: %s\n", what);
	return code;
}

/* `earlier` may be NULL. */
static int print(json_t *earlier, json_t *report, bool json)
{
	json_t *reports[2] = {earlier, report};
	size_t first = earlier != NULL ? 0 : 1;

	if (json) {
		json_dumpf(report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
		printf("\n");
	} else {
		kvpool_replay_report_table(reports + first, 2 - first);
	}
	if (fflush(stdout) != 0 || ferror(stdout))
		return complain("cannot write the report", KVPOOL_EXIT_FAILURE);
	if (kvpool_replay_report_wrong(report) != 0)
		return complain("a byte was wrong: see wrong_bytes", KVPOOL_EXIT_FAILURE);
	return KVPOOL_EXIT_FINE;
}

static int replay(const struct kvpool_replay_options *options, const struct kvpool_trace *trace,
		  const struct kvpool_pools *pools, json_t *earlier)
{
	struct kvpool_crew_spec crew = {trace, pools, NULL, options->processes,
					options->block_bytes};
	struct kvpool_replay_run run = {
		.path = options->trace,
		.trace = trace,
		.workers = options->processes,
		.pools = kvpool_pools_count(pools),
		.pool_bytes = kvpool_pools_bytes(pools),
		.block_bytes = options->block_bytes,
	};
	json_t *report;
	int code;

	if (kvpool_board_new(options->processes, trace->n, &crew.board) != 0)
		return complain(strerror(ENOMEM), KVPOOL_EXIT_FAILURE);
	run.board = crew.board;
	code = kvpool_crew_run(&crew, &run.took_ns);
	if (code == 0) {
		report = kvpool_replay_report_make(&run);
		code = report != NULL ? print(earlier, report, options->json)
				      : complain(strerror(ENOMEM), KVPOOL_EXIT_FAILURE);
		json_decref(report);
	}
	kvpool_board_free(crew.board);
	return code;
}

/* Everything that can be wrong with the input is found before a daemon is started. */
static int start(const struct kvpool_replay_options *options, const struct kvpool_trace *trace,
		 json_t *earlier)
{
	struct kvpool_pools_spec spec = {
		.n = options->private_pools ? options->processes : 1,
		.bytes = options->pool_bytes,
		.socket = options->socket,
	};
	struct kvpool_pools *pools = NULL;
	char why[WHY_BYTES] = "";
	int code;

	kvpool_interrupt_watch();
	code = kvpool_pools_start(&spec, why, sizeof(why), &pools);
	if (code != 0)
		return complain(why, code);
	code = replay(options, trace, pools, earlier);
	kvpool_pools_stop(pools);
	return code;
}

int main(int argc, char **argv)
{
	struct kvpool_replay_options options;
	struct kvpool_trace *trace = NULL;
	json_t *earlier = NULL;
	char why[WHY_BYTES] = "";
	int code = kvpool_replay_options_read(argc, argv, &options);

	if (code != 0)
		return code == KVPOOL_REPLAY_OPTIONS_SHOWN ? KVPOOL_EXIT_FINE : KVPOOL_EXIT_USAGE;
	if (options.against != NULL)
		earlier = kvpool_replay_report_load(options.against, why, sizeof(why));
	if (options.against != NULL && earlier == NULL)
		return complain(why, KVPOOL_EXIT_USAGE);
	if (kvpool_trace_read(options.trace, &options.read, why, sizeof(why), &trace) != 0) {
		json_decref(earlier);
		return complain(why, KVPOOL_EXIT_USAGE);
	}
	if (trace->skipped_lines > 0)
		fprintf(stderr, "kvpool-replay: %s: skipped %" PRIu64 " bad lines\n", options.trace,
			trace->skipped_lines);
	code = start(&options, trace, earlier);
	kvpool_trace_free(trace);
	json_decref(earlier);
	return code;
}
