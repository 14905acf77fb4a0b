/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attach to one daemon life: the socket, what the daemon granted over it, and the memory that
 * is mapped through it.
 *
 * A handle has one current session, and keeps old ones whose daemon is gone for as long as the
 * caller holds blocks in them: those stay mapped until they were given back. Owned by the handle's
 * list of sessions. Fields say who may touch them; "pool lock" is the handle's lock.
 *
 * Unmapping an old session under a thread that copies through it is kept apart like this: the
 * thread raises its link's `busy` and then looks at `lost`; who unmaps has seen `lost` set and then
 * looks at every `busy`. All four are sequentially consistent, so one of the two sees the other.
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

struct kvpool_session_layout {
	/* W: who registers, release L1. R: any thread, acquire L2. L1 -> L2: the strides. */
	_Atomic uint32_t id_plus_1; /* 0: not registered */
	_Atomic uint64_t stride[KVPOOL_GROUPS_MAX];
};

struct kvpool_session {
	struct kvpool_session *next; /* in the handle's list; pool lock */
	struct kvpool_link *links;   /* owned; pool lock */
	uint32_t guests;             /* calls that use it without a link; pool lock */

	/* Read-only. */
	uint64_t epoch; /* the daemon's life */
	uint64_t life;  /* the client's: tells the members of one client in one daemon life from
			   all others; what blocks and leases carry as their epoch */
	uint32_t client;
	uint32_t features;
	bool read_only;
	uint8_t token[KVPOOL_TOKEN_BYTES];
	int socket; /* owned */

	_Atomic bool lost;   /* S1: never comes back; sequentially consistent, see above */
	_Atomic bool useful; /* the daemon answered a request; relaxed, a hint */
	_Atomic bool pinned; /* an address is out whose end nobody tells; relaxed, set only */

	struct kvpool_gate gate; /* who may speak on the socket */
	uint32_t owed;           /* answers that nobody waits for any more; gate */

	struct kvpool_segments segments; /* added to under the gate */
	struct kvpool_session_layout layouts[KVPOOL_CLIENT_LAYOUTS_MAX];
	struct kvpool_ledger orphans; /* what was taken through links that are closed */
};

/* Takes `socket` on success. -ENOMEM, -EAGAIN. */
int kvpool_session_new(int socket, const struct kvpool_welcome *welcome, bool read_only,
		       struct kvpool_session **out);

/*
 * Closes all; unless `forked` it unmaps, and says goodbye also for the copies of the socket that
 * children may have inherited. Its links are gone. Takes NULL.
 */
void kvpool_session_free(struct kvpool_session *session, bool forked);

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
 */
bool kvpool_session_vouches(const struct kvpool_session *session);

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
int kvpool_session_retire(struct kvpool_session *session, const uint8_t token[KVPOOL_TOKEN_BYTES]);

/* Maps a segment, unless it is by now. -ESTALE: the daemon has no such segment. */
int kvpool_session_get_segment(struct kvpool_session *session, uint32_t segment,
			       struct kvpool_deadline *deadline, struct kvpool_failure *failure);

#endif
