/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout as the caller described it. What the daemon made of it is in each session.
 *
 * Owned by a handle until it is closed; never changes, so any thread may read it.
 */
#ifndef KVPOOL_CLIENT_LAYOUT_H
#define KVPOOL_CLIENT_LAYOUT_H

#include "client/kvpool.h"
#include "shm/wire.h"

struct kvpool_layout {
	struct kvpool_layout *next; /* in the handle's list; its lock */
	struct kvpool *pool;        /* borrowed: owns this */
	uint32_t index;             /* of the session's record of it */
	struct kvpool_wire_layout wire;
};

/* The most blocks that a match of n keys, of which `skip` are skipped, can report. */
uint64_t kvpool_layout_reported_max(const struct kvpool_layout *layout, uint32_t n, uint32_t skip);

#endif
