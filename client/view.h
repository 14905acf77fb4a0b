/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of one shard of one block are in this process, kept mapped while it is looked at.
 *
 * Made on the stack of a call, by the channel's thread. No call to the daemon, except for a segment
 * or a layout that this process meets for the first time.
 *
 * While a view is open the memory under it stays mapped: session.h says how. So it is closed before
 * the call returns.
 */
#ifndef KVPOOL_CLIENT_VIEW_H
#define KVPOOL_CLIENT_VIEW_H

#include "client/kvpool.h"

#include <stdbool.h>

struct kvpool_session;

struct kvpool_view {
	struct kvpool_session *session; /* borrowed */
	bool guest;                     /* through the lock; else through the link's `busy` */
	uint8_t *address;
	uint64_t offset; /* in the segment */
	uint64_t slot_bytes;
};

/* -EOWNERDEAD, -EINVAL: what every block of a call has in common is not as it should be. */
int kvpool_view_check(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, uint32_t shard);

/* As kvpool_view_check(), or what kvpool_pointer() says. On success kvpool_view_close() ends it. */
int kvpool_view_open(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		     uint32_t group, const struct kvpool_block *block, uint32_t shard,
		     struct kvpool_view *view);

void kvpool_view_close(struct kvpool_channel *channel, struct kvpool_view *view);

/* What a call returns whose bytes may be another block's by now: -ESTALE, and the reason. */
int kvpool_view_unvouched(struct kvpool_channel *channel);

#endif
