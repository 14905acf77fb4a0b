/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle: this process's membership of one client, over any number of daemon lives.
 *
 * Owns its sessions, channels and layouts. Any thread; `lock` guards what says so and is held for a
 * few instructions only, the attach gate for as long as an attempt is waited for. Order: attach
 * gate, lock, a ledger's lock.
 */
#ifndef KVPOOL_CLIENT_POOL_H
#define KVPOOL_CLIENT_POOL_H

#include "client/attach.h"
#include "client/kvpool.h"
#include "client/owner.h"

struct kvpool {
	struct kvpool_owner owner;

	/* Settled when it is made. */
	struct kvpool_wish wish;
	uint64_t deadline_ns;
	uint64_t spin_ns;

	struct kvpool_gate attach_gate;
	struct kvpool_attempt attempt; /* attach gate; kvpool_attach_too_early(): anybody */

	pthread_mutex_t lock;
	struct kvpool_session *session;  /* borrowed from `sessions`; NULL: not attached; lock */
	struct kvpool_session *sessions; /* owned, with those of lives that are over; lock */
	struct kvpool_channel *channels; /* owned; lock */
	struct kvpool_layout *layouts;   /* owned; lock */
	uint32_t n_layouts;              /* lock */
	_Atomic bool shared; /* other processes are members too, or may be; relaxed, set only */
	struct kvpool_failure failure; /* lock */
};

/*
 * The current session, attached now if need be and if it can be within the deadline. The caller is
 * its guest until kvpool_pool_leave(). -ENOTCONN, and what kvpool_attach_step() says.
 */
int kvpool_pool_enter(struct kvpool *pool, struct kvpool_deadline *deadline,
		      struct kvpool_failure *failure, struct kvpool_session **out);

/*
 * The session of that life: one that is not lost, if there is such; NULL where there is none. Its
 * guest, as above.
 */
struct kvpool_session *kvpool_pool_enter_life(struct kvpool *pool, uint64_t life);

void kvpool_pool_leave(struct kvpool *pool, struct kvpool_session *session);

/*
 * Something of an old session was given back, or is not used any more: unmaps and frees what nobody
 * holds. Takes the lock.
 */
void kvpool_pool_settle(struct kvpool *pool);

/*
 * Whether a daemon may still let the client of this lost session resume, and nobody has asked one
 * yet that this process is attached to.
 */
bool kvpool_pool_may_resume(struct kvpool *pool, const struct kvpool_session *session);

/*
 * A daemon whose pool outlived it holds back what a lost session's client was granted, until each
 * of its processes says that it has let go: says so through the current session, for the last
 * session of that life. False: it is to be said later. The lock is held, or nobody else has the
 * handle.
 */
bool kvpool_pool_told(const struct kvpool *pool, const struct kvpool_session *session);

/* A link to `session` for a channel; the caller is a guest. */
int kvpool_pool_lend(struct kvpool *pool, struct kvpool_session *session,
		     struct kvpool_channel *channel, struct kvpool_deadline *deadline,
		     struct kvpool_failure *failure, struct kvpool_link **out);

/* The channel does not use the link any more. */
void kvpool_pool_take_back(struct kvpool *pool, struct kvpool_link *link);

/* -EOWNERDEAD where the handle is another process's. */
int kvpool_pool_check(const struct kvpool *pool);

#endif
