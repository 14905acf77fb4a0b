/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons of a replay: one for all processes, one for each, or one that runs already.
 *
 * What it starts lives on sockets in a temporary folder and is gone after
 * kvpool_pools_stop(). Main thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_POOLS_H
#define KVPOOL_TOOLS_REPLAY_POOLS_H

#include <stddef.h>
#include <stdint.h>

struct kvpool_pools;

struct kvpool_pools_spec {
	uint32_t n;         /* daemons to start: 1..KVPOOL_BOARD_WORKERS_MAX */
	uint64_t bytes;     /* of all together */
	const char *socket; /* borrowed; use the daemon there and start none; NULL: start */
};

/*
 * Starts the daemons and waits until their memory is there. 0, or an enum kvpool_exit with a
 * sentence in `why`; what the daemon said went to stderr.
 */
int kvpool_pools_start(const struct kvpool_pools_spec *spec, char *why, size_t why_bytes,
		       struct kvpool_pools **out);
void kvpool_pools_stop(struct kvpool_pools *pools); /* takes NULL */

/* The data socket for a worker; workers share the pools in turn. */
const char *kvpool_pools_socket(const struct kvpool_pools *pools, uint32_t worker);

uint32_t kvpool_pools_count(const struct kvpool_pools *pools);

/* Bytes of all pools, as the daemons say; 0 where one does not. */
uint64_t kvpool_pools_bytes(const struct kvpool_pools *pools);

#endif
