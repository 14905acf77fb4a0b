/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replay found: one JSON object, and a table for people made of one or two of them.
 *
 * The field names are a contract with scripts: KVPOOL_REPLAY_SCHEMA rises when one changes its
 * meaning or goes. Main thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_REPORT_H
#define KVPOOL_TOOLS_REPLAY_REPORT_H

#include "tools/replay/board.h"
#include "tools/replay/trace.h"

#include <jansson.h>

#define KVPOOL_REPLAY_SCHEMA 1

/* Everything is borrowed. */
struct kvpool_replay_run {
	const char *path; /* of the trace, as given */
	const struct kvpool_trace *trace;
	struct kvpool_board *board;
	uint32_t workers;
	uint32_t pools;
	uint64_t pool_bytes; /* 0: not known */
	uint64_t block_bytes;
	uint64_t took_ns;
};

/* NULL where memory is out. The caller owns it. */
json_t *kvpool_replay_report_make(const struct kvpool_replay_run *run);

/* Reads an earlier report from a file. NULL, with a sentence in `why`. */
json_t *kvpool_replay_report_load(const char *path, char *why, size_t why_bytes);

/* A table with a column for each report. */
void kvpool_replay_report_table(json_t *const *reports, size_t n);

/* Bytes that were not what they should be. */
uint64_t kvpool_replay_report_wrong(const json_t *report);

#endif
