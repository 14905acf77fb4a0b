/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attach to one daemon life: the socket, what the daemon granted over it, and a share in the
 * memory that is mapped.
 *
 * A handle has one current session, and keeps old ones whose daemon is gone for as long as the
 * caller holds blocks in them: those stay mapped until they were given back. Where the client
 * resumes in the daemon's next life, the new session is of the same life of the client, takes over
 * what was held in the old one, and shares its table of segments (resume.h). Owned by the handle's
 * list of sessions. Fields say who may touch them; "pool lock" is the handle's lock.
 *
 * A session is let go of, and its share in the segments given back, when it is lost, nothing is
 * held in it and nobody copies through it; the last share unmaps. That this is not under a thread
 * that copies is kept apart like this: the thread raises its link's `busy` and then looks at
 * `lost`; who gives the share back has seen `lost` set and then looks at every `busy`. All four are
 * sequentially consistent, so one of the two sees the other. Who comes without a link is counted in
 * `guests`, and may find that there is no share any more.
 */
#ifndef KVPOOL_CLIENT_SESSION_H
#define KVPOOL_CLIENT_SESSION_H

#include "client/error.h"
#include "client/gate.h"
#include "client/ledger.h"
#include "client/packet.h"
#include "client/segments.h"
#include "shm/limits.h"

struct kvpool_link;

/* Any thread. No edges: each number is whole by itself. */
struct kvpool_session_layout {
	_Atomic uint32_t id_plus_1; /* relaxed; 0: not registered */
	/* Relaxed; 0: not told. Good for the client's life: blocks stay where they are. */
	_Atomic uint64_t stride[KVPOOL_GROUPS_MAX];
};

struct kvpool_session {
	struct kvpool_session *next; /* in the handle's list; pool lock */
	struct kvpool_link *links;   /* owned; pool lock */
	uint32_t guests;             /* calls that use it without a link; pool lock */

	/* Read-only. */
	uint64_t epoch; /* the daemon's life */
	uint64_t life;  /* the client's: tells the members of one client from all others, in
			   every daemon life that it resumed in; what blocks and leases carry as
			   their epoch */
	uint32_t client;
	uint32_t member;
	uint32_t features;
	bool read_only;
	bool resumed; /* goes on with a client of an earlier daemon life */
	uint8_t token[KVPOOL_TOKEN_BYTES];
	int socket; /* owned */

	_Atomic bool lost;   /* S1: never comes back; sequentially consistent, see above */
	_Atomic bool useful; /* the daemon answered a request; relaxed, a hint */

	struct kvpool_gate gate; /* who may speak on the socket */
	uint32_t owed;           /* answers that nobody waits for any more; gate */

	struct kvpool_segments *segments; /* owned share; NULL: given back; pool lock, see above */
	struct kvpool_session_layout layouts[KVPOOL_CLIENT_LAYOUTS_MAX];
	struct kvpool_ledger orphans; /* what was taken through links that are closed */
};

/* The client's life that a WELCOME is about. */
uint64_t kvpool_session_life(const struct kvpool_welcome *welcome);

/* Takes `socket` on success. -ENOMEM, -EAGAIN. */
int kvpool_session_new(int socket, const struct kvpool_welcome *welcome, bool read_only,
		       struct kvpool_session **out);

/*
 * Closes all; unless `forked` it gives its share in the segments back, and says goodbye also for
 * the copies of the socket that children may have inherited. Its links are gone. Takes NULL.
 */
void kvpool_session_free(struct kvpool_session *session, bool forked);

/* Gives the share in the segments back: nobody copies through the session. Pool lock. */
void kvpool_session_unmap(struct kvpool_session *session);

static inline bool kvpool_session_lost(const struct kvpool_session *session)
{
	return atomic_load_explicit(&session->lost, memory_order_seq_cst); /* S2 <- S1 */
}

/* The daemon is gone or cannot be believed. Whoever waits for it on the socket wakes. */
void kvpool_session_lose(struct kvpool_session *session);

/* Asks the kernel whether the daemon still serves this end. */
bool kvpool_session_hung_up(const struct kvpool_session *session);

/*
 * Whether what was read from blocks until now was what their leases are for. The daemon closes a
 * member's socket before it lets others have what the client held, so: read first, then ask this.
 * A session that does not is lost: who only reads would hear of it from nobody else.
 */
bool kvpool_session_vouches(struct kvpool_session *session);

/* A channel's memory and doorbells, in `out` with its three descriptors. */
int kvpool_session_get_channel(struct kvpool_session *session, uint32_t ring_entries,
			       uint64_t arena_bytes, struct kvpool_deadline *deadline,
			       struct kvpool_failure *failure, struct kvpool_packet *out);

/* Gives a channel back. Never waits: -EAGAIN where it cannot be done now. */
int kvpool_session_put_channel(struct kvpool_session *session, uint32_t channel);

/*
 * Tells the daemon that this process holds nothing any more of the client that had this token in
 * an earlier life. Never waits: -EAGAIN where it cannot be told now.
 */
int kvpool_session_retire(struct kvpool_session *session, const uint8_t token[KVPOOL_TOKEN_BYTES],
			  uint32_t member);

/* Maps a segment, unless it is by now. -ESTALE: the daemon has no such segment. */
int kvpool_session_get_segment(struct kvpool_session *session, uint32_t segment,
			       struct kvpool_deadline *deadline, struct kvpool_failure *failure);

#endif
