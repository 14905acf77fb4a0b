/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread's way to the daemon, over any number of daemon lives; and how every call begins.
 *
 * Owned by a handle; used by one thread at a time. `next` is under the handle's lock.
 */
#ifndef KVPOOL_CLIENT_CHANNEL_H
#define KVPOOL_CLIENT_CHANNEL_H

#include "client/pool.h"

struct kvpool_channel {
	struct kvpool *pool;      /* borrowed: owns this */
	struct kvpool_link *link; /* borrowed from a session; NULL: none yet */
	struct kvpool_failure failure;
	struct kvpool_failure no_space;
	struct kvpool_channel *next;
};

/*
 * Makes the channel ready for one call: attached, the arena free where it is needed, debts paid.
 * `layout` is registered with the daemon, and its id put in *id, unless it is NULL. 0, or what the
 * call returns.
 */
int kvpool_channel_begin(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			 bool arena, struct kvpool_deadline *deadline, uint16_t *id);

/* Sends the request of the call that has begun. 0 with the reply, whatever its status says. */
int kvpool_channel_call(struct kvpool_channel *channel, struct kvpool_request *request,
			struct kvpool_deadline *deadline, struct kvpool_reply *reply);

/* A reply that says what cannot be. The daemon is not believed any more. */
int kvpool_channel_disbelieve(struct kvpool_channel *channel, const char *why);

/* The status of a reply as an errno; a layout that the daemon forgot is registered anew later. */
int kvpool_channel_status(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			  const struct kvpool_reply *reply, const char *operation);

static inline uint64_t kvpool_channel_arena_bytes(const struct kvpool_channel *channel)
{
	return channel->link->arena_bytes;
}

#endif
