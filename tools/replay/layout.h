/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout that replayed blocks have in a pool: one group of full blocks, filled with stamps.
 *
 * Owned by the pool's handle, as every layout.
 */
#ifndef KVPOOL_TOOLS_REPLAY_LAYOUT_H
#define KVPOOL_TOOLS_REPLAY_LAYOUT_H

#include "client/kvpool.h"
#include "tools/replay/trace.h"

/* As kvpool_layout(). */
int kvpool_replay_layout(struct kvpool *pool, const struct kvpool_trace *trace,
			 uint64_t block_bytes, struct kvpool_layout **out);

#endif
