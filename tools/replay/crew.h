/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker processes of a replay, from fork to reaping, and the progress bar over them.
 *
 * Main thread of the parent.
 */
#ifndef KVPOOL_TOOLS_REPLAY_CREW_H
#define KVPOOL_TOOLS_REPLAY_CREW_H

#include "tools/replay/board.h"
#include "tools/replay/pools.h"
#include "tools/replay/trace.h"

/* Everything is borrowed. */
struct kvpool_crew_spec {
	const struct kvpool_trace *trace;
	const struct kvpool_pools *pools;
	struct kvpool_board *board;
	uint32_t workers;
	uint64_t block_bytes;
};

/*
 * Forks the workers, lets them go at once when all are set up, and waits for them. The exit code of
 * the first that failed, after everybody has ended; else 0 and the nanoseconds it took.
 */
int kvpool_crew_run(const struct kvpool_crew_spec *spec, uint64_t *took_ns);

#endif
