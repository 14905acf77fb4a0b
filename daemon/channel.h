/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client thread's way to the cache: two rings and an arena in a memfd, and two doorbells.
 *
 * A channel is hot (polled every turn) or cold (its client must ring). Owned by the peer that asked
 * for it and ends with it at the latest. Service thread only. Everything the client writes is
 * copied before it is looked at; geometry and positions are in private memory.
 */
#ifndef KVPOOL_DAEMON_CHANNEL_H
#define KVPOOL_DAEMON_CHANNEL_H

#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/memory.h"
#include "daemon/sigbus.h"
#include "shm/channel.h"

#include <stdbool.h>

#define KVPOOL_CHANNEL_COLD UINT32_MAX

struct kvpool_cache;
struct kvpool_client;
struct kvpool_peer;
struct kvpool_server;

struct kvpool_channel {
	/* Every request touches these. */
	struct kvpool_consumer requests;
	struct kvpool_producer replies;
	struct kvpool_server *server; /* borrowed */
	struct kvpool_client *client; /* borrowed: outlives its channels */
	struct kvpool_cache *cache;   /* borrowed: the client's domain's */
	uint8_t *arena;               /* borrowed: in `memory` */
	uint64_t last_ns;             /* when its last request was seen */
	uint64_t head_published;      /* what the client was told of requests.head */
	uint32_t hot;                 /* place in server->hot, or KVPOOL_CHANNEL_COLD */
	bool read_only;               /* its member may not write blocks */
	bool rings;                   /* in server->bells */
	bool closing;                 /* goes as soon as its ring is empty */

	struct kvpool_list link;      /* in peer->channels */
	struct kvpool_list bell_link; /* in server->bells */
	struct kvpool_list waits;     /* WAITs without an answer */
	uint32_t n_waits;
	uint32_t number;          /* within the client */
	struct kvpool_peer *peer; /* borrowed: owns this */
	struct kvpool_channel_geometry geometry;
	struct kvpool_memory memory;       /* owned; its descriptor is closed once it was sent */
	struct kvpool_sigbus_range *guard; /* owned */
	struct kvpool_source *source;      /* owned: the daemon's doorbell */
	int bell_in;                       /* owned: eventfd that the client rings */
	int bell_out;                      /* owned: eventfd that the daemon rings */
	uint64_t n_requests;
};

/* A cold channel. KVPOOL_CHANNEL_E_SIZE; negative errno. */
int kvpool_channel_new(struct kvpool_peer *peer, uint32_t entries, uint64_t arena_bytes,
		       struct kvpool_channel **out);

/*
 * The client is done with it: what lies in the ring is still served, a RELEASE for one, in ordinary
 * turns; the first that finds the ring empty frees it.
 */
void kvpool_channel_close(struct kvpool_channel *channel);

/* Its waits end without an answer. Takes NULL. */
void kvpool_channel_free(struct kvpool_channel *channel);

/* Takes what is in the request ring, up to a budget. Returns whether there was anything. */
bool kvpool_channel_serve(struct kvpool_channel *channel);

/* Publishes a reply; kvpool_channel_ring_bells() wakes its reader if need be. */
void kvpool_channel_reply(struct kvpool_channel *channel, const struct kvpool_reply *reply);

/* Rings the doorbells of clients that sleep, of all channels that replied since the last call. */
void kvpool_channel_ring_bells(struct kvpool_server *server);

/*
 * Asks the client to ring from now on; a channel that is closing is freed instead. False: there is
 * a request already, it stays hot.
 */
bool kvpool_channel_cool(struct kvpool_channel *channel);

/*
 * `bytes` at `offset` of the arena, or NULL where that is not inside it or not a multiple of 16.
 */
static inline uint8_t *kvpool_channel_arena(const struct kvpool_channel *channel, uint64_t offset,
					    uint64_t bytes)
{
	uint64_t size = channel->geometry.arena_bytes;

	if (KVPOOL_UNLIKELY(offset % 16 != 0 || offset > size || bytes > size - offset))
		return NULL;
	return channel->arena + offset;
}

#endif
