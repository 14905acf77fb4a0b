/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of a replay: an engine that takes requests from the board, looks their prefixes up in
 * the pool, loads and checks what it finds, and stores the rest.
 *
 * Runs in a forked child with one thread; writes its own figures on the board.
 */
#ifndef KVPOOL_TOOLS_REPLAY_WORKER_H
#define KVPOOL_TOOLS_REPLAY_WORKER_H

#include "tools/replay/board.h"
#include "tools/replay/trace.h"

/* Everything is borrowed and outlives the worker. */
struct kvpool_worker_spec {
	const struct kvpool_trace *trace;
	struct kvpool_board *board;
	const char *socket;
	uint32_t number; /* of the worker, from 0 */
	uint64_t block_bytes;
	uint64_t spin_ns; /* as in struct kvpool_options */
};

/* Until the board has no more requests. The child's exit code, after a sentence on stderr. */
int kvpool_worker_run(const struct kvpool_worker_spec *spec);

#endif
