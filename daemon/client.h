/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine: one or more member processes that share leases, reservations and a token.
 *
 * Lives from the first attach until its last member is over (its process or its socket ended, or
 * the daemon ended it) and, where it left reservations behind, until every member is proven gone.
 * Owned by the server's list; service thread only.
 *
 * A client outlives its daemon, too (client_adopt.c): the next life has it with all that it held,
 * and with its processes as ghosts until they are back, say that they have let go, or are gone.
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

struct kvpool_ghost;
struct kvpool_peer;
struct kvpool_state_client;

struct kvpool_client {
	struct kvpool_list link;          /* in server->clients */
	struct kvpool_server *server;     /* borrowed */
	struct kvpool_domain *domain;     /* borrowed: outlives its clients */
	struct kvpool_holder *holder;     /* owned: what it holds in the cache */
	struct kvpool_list members;       /* peers: served, or only watched for their end */
	struct kvpool_list ghosts;        /* owned: members of an earlier life, not back yet */
	struct kvpool_state_client *kept; /* owned: what the next life is to know; NULL: nobody
					     keeps it */
	struct kvpool_source *grace; /* owned: its GPU may still be writing; NULL: not running */
	uint64_t epoch;              /* of the life in which it began */
	uint32_t id;
	uint32_t n_ghosts;
	uint32_t n_members; /* in `members` */
	uint32_t n_open;    /* of these, served */
	uint32_t n_channels;
	uint64_t channel_bytes;
	uint32_t next_member;
	uint32_t next_channel;
	uint64_t last_ns;    /* when its last request was seen */
	bool gpu;            /* a member declared one */
	bool ended;          /* no member is served; what it reserved is quarantined */
	bool evicted;        /* by the operator */
	bool resumable;      /* can be found by its token */
	bool past;           /* may hold what an earlier life granted */
	bool disputed;       /* and that is not all known: until its end */
	uint32_t n_claiming; /* members that resumed and did not say yet what they hold; served, or
				lost since and not back */
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
 * The same for one that resumes, as `name`: in place of the member that its process was in an
 * earlier life (`was` - 1; 0: it does not say), if that is not back yet. It is to say what it
 * holds.
 */
int kvpool_client_rejoin(struct kvpool_client *client, struct kvpool_peer *peer, uint32_t was,
			 const char *name);

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

/*
 * A client of an earlier life, which its cache has as a holder if it can resume. Takes its entry in
 * the state. Negative errno.
 */
int kvpool_client_adopt(struct kvpool_domain *domain, struct kvpool_state_client *entry,
			struct kvpool_client **out);

/* A ghost of the client: `name` is its pidfd's in the store. Takes `pidfd` on success. */
int kvpool_client_add_ghost(struct kvpool_client *client, pid_t pid, int pidfd, uint32_t member,
			    const char *name);

/* The ghost's process is gone; frees the ghost, and perhaps the client. */
void kvpool_client_ghost_gone(struct kvpool_client *client, struct kvpool_ghost *ghost);

/*
 * A handle of this client in the peer's process has let go: member `was` - 1; 0: any that is
 * missing. Nothing where it is not.
 */
void kvpool_client_retire(struct kvpool_domain *domain, const uint8_t token[KVPOOL_TOKEN_BYTES],
			  const struct kvpool_peer *peer, uint32_t was);

/* The peer is back: takes over from its ghost. False: there is none. */
bool kvpool_client_back(struct kvpool_client *client, struct kvpool_peer *peer, uint32_t was);

/* It has said what it holds; with the last one, what nobody claims ends. */
void kvpool_client_claimed(struct kvpool_client *client, struct kvpool_peer *peer);

/* Whether nobody claims what an earlier life granted, and whether that is all given back. */
void kvpool_client_look_past(struct kvpool_client *client);

/* Whether it is over. May free it. */
void kvpool_client_look(struct kvpool_client *client);

/* Frees client and members, proven gone or not: the daemon leaves, or nothing is at stake. */
void kvpool_client_free(struct kvpool_client *client);

#endif
