/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine: one or more member processes that share leases, reservations and a token.
 *
 * Lives from the first attach until its last member is over (its process or its socket ended, or
 * the daemon ended it) and, where it left reservations behind, until every member is proven gone.
 * Owned by the server's list; service thread only.
 */
#ifndef KVPOOL_DAEMON_CLIENT_H
#define KVPOOL_DAEMON_CLIENT_H

#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/list.h"
#include "daemon/loop.h"
#include "shm/handshake.h"
#include "src/cache.h"

#include <stdbool.h>

/* Of all channels of a client together. */
#define KVPOOL_CLIENT_CHANNEL_BYTES_MAX (UINT64_C(1) << 30)

/* After the last process of a client with a GPU: its device may still finish what was queued. */
#define KVPOOL_CLIENT_GPU_GRACE_NS (2 * KVPOOL_NS_PER_S)

struct kvpool_peer;
struct kvpool_state_client;

struct kvpool_client {
	struct kvpool_list link;          /* in server->clients */
	struct kvpool_server *server;     /* borrowed */
	struct kvpool_domain *domain;     /* borrowed: outlives its clients */
	struct kvpool_holder *holder;     /* owned: what it holds in the cache */
	struct kvpool_list members;       /* peers: served, or only watched for their end */
	struct kvpool_state_client *kept; /* owned: what the next life is to know; NULL: nobody
					     keeps it */
	struct kvpool_source *grace; /* owned: its GPU may still be writing; NULL: not running */
	uint32_t id;
	uint32_t n_members; /* in `members` */
	uint32_t n_open;    /* of these, served */
	uint32_t n_channels;
	uint64_t channel_bytes;
	uint32_t next_member;
	uint32_t next_channel;
	uint64_t last_ns; /* when its last request was seen */
	bool gpu;         /* a member declared one */
	bool ended;       /* no member is served; what it reserved is quarantined */
	bool evicted;     /* by the operator */
	uint8_t token[KVPOOL_TOKEN_BYTES];
	char name[KVPOOL_NAME_BYTES];
};

/* Without members yet. KVPOOL_REFUSAL_LIMIT; negative errno. */
int kvpool_client_new(struct kvpool_domain *domain, const char *name, struct kvpool_client **out);

/* The living client of this domain with that token; NULL: none. */
struct kvpool_client *kvpool_client_find(struct kvpool_domain *domain,
					 const uint8_t token[KVPOOL_TOKEN_BYTES]);

/* Takes the same time whatever differs. */
bool kvpool_client_token_equal(const uint8_t a[KVPOOL_TOKEN_BYTES],
			       const uint8_t b[KVPOOL_TOKEN_BYTES]);

/* The peer becomes a member. KVPOOL_REFUSAL_LIMIT. */
int kvpool_client_join(struct kvpool_client *client, struct kvpool_peer *peer);

/*
 * The member is over and its channels are gone. With the last one leases end at once. Frees the
 * peer where it need not be watched any more, and the client where it was the last.
 */
void kvpool_client_leave(struct kvpool_client *client, struct kvpool_peer *peer);

/* Process or socket of a member that is over ended. May free peer and client. */
void kvpool_client_member_news(struct kvpool_client *client, struct kvpool_peer *peer);

/* Its device may write for a while after its end. */
void kvpool_client_set_gpu(struct kvpool_client *client);

/* Something may be granted to it now; and: looks whether it has given all back. */
void kvpool_client_holds(struct kvpool_client *client);
void kvpool_client_released(struct kvpool_client *client);

/*
 * By the operator: every member is refused and over. What it reserved stays in quarantine until
 * its processes are gone. May free the client; it must not have ended yet.
 */
void kvpool_client_evict(struct kvpool_client *client);

/* Frees client and members, proven gone or not: the daemon leaves, or nothing is at stake. */
void kvpool_client_free(struct kvpool_client *client);

#endif
