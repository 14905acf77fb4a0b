/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one process does with one request of a trace: look up, wait for whoever is computing the
 * same prefix, load and check, store the rest, let go.
 *
 * Belongs to the worker's one thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_REQUEST_H
#define KVPOOL_TOOLS_REPLAY_REQUEST_H

#include "client/kvpool.h"
#include "tools/replay/board.h"
#include "tools/replay/engine.h"
#include "tools/replay/keys.h"
#include "tools/replay/trace.h"

/* Where requests are served: set up and torn down by the worker, which owns what it points to. */
struct kvpool_request_place {
	const struct kvpool_trace *trace; /* borrowed */
	struct kvpool_figures *figures;   /* borrowed: on the board */
	uint64_t block_bytes;
	struct kvpool *pool;
	struct kvpool_channel *channel;
	struct kvpool_layout *layout; /* borrowed from the pool */
	struct kvpool_engine *engine;
	struct kvpool_replay_keys *keys;
	uint8_t *key_bytes;          /* room for the keys of the longest request */
	struct kvpool_block *blocks; /* likewise */
	uint32_t *granted;           /* likewise: indexes of the keys that got a place */
};

/*
 * Serves the request and counts what happened. Whatever the daemon does, it is a hit or a miss;
 * -EIO only where no keys can be computed.
 */
int kvpool_request_serve(struct kvpool_request_place *place,
			 const struct kvpool_trace_request *request);

#endif
