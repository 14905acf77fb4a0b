/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One channel's memory in one daemon life: two rings, the arena, two doorbells; and the calls that
 * were given up before their answer came.
 *
 * One request is waited for at a time. A call that ends at its deadline leaves its request behind:
 * the answer is recognised by its id when it comes, what it grants is given back, and until then
 * the arena is not used again, since the daemon may still read or write there. RELEASE is never
 * answered.
 *
 * Owned by a session, lent to one channel at a time; used by the channel's thread. `next` and
 * `channel` are under the handle's lock.
 */
#ifndef KVPOOL_CLIENT_LINK_H
#define KVPOOL_CLIENT_LINK_H

#include "client/session.h"
#include "shm/channel.h"

/* With the requests that wait in it, well below the smallest ring. */
#define KVPOOL_LINK_LATE_MAX 6u

struct kvpool_late {
	uint32_t id;
	uint32_t n;      /* RESERVE: places in the result */
	uint32_t result; /* RESERVE: where they are in the arena */
	uint8_t op;
	bool arena; /* the daemon may still touch the arena */
	bool inline_key;
};

struct kvpool_link {
	struct kvpool_session *session; /* borrowed: owns this */
	struct kvpool_producer requests;
	struct kvpool_consumer replies;
	uint8_t *arena; /* borrowed: in the mapping */
	uint64_t arena_bytes;
	uint32_t next_id;
	uint32_t n_late;
	uint32_t naps; /* answers in a row that did not come while this side was spinning */
	struct kvpool_late late[KVPOOL_LINK_LATE_MAX];
	int daemon_bell; /* owned: eventfd that this side rings */
	int own_bell;    /* owned: eventfd that the daemon rings */
	/* W: the channel's thread, B1. R: who unmaps, B2. See session.h. */
	_Atomic bool busy;
	struct kvpool_ledger ledger;

	struct kvpool_link *next;
	struct kvpool_channel *channel; /* borrowed: who uses it; NULL: nobody */
	uint32_t number;                /* as the daemon counts */
	uint8_t *base;                  /* owned mapping */
	uint64_t bytes;
};

/* Takes the descriptors out of `grant` and maps the channel. -EPROTO, -ENOMEM, errno of mmap(2). */
int kvpool_link_new(struct kvpool_session *session, struct kvpool_packet *grant,
		    struct kvpool_failure *failure, struct kvpool_link **out);

/* Takes NULL. In a child of fork() nothing is mapped, and nothing is unmapped. */
void kvpool_link_free(struct kvpool_link *link, bool forked);

/*
 * Sends a request and waits for its answer. The id is set here. `request` says what to do about an
 * answer that comes too late. 0 with the reply, -ETIMEDOUT, -ENOTCONN, -EPROTO.
 */
int kvpool_link_call(struct kvpool_link *link, struct kvpool_request *request, uint64_t spin_ns,
		     struct kvpool_deadline *deadline, struct kvpool_failure *failure,
		     struct kvpool_reply *reply);

/*
 * Waits until a further call may be given up and, with `arena`, until the arena is free. 0, or as
 * kvpool_link_call().
 */
int kvpool_link_settle(struct kvpool_link *link, bool arena, uint64_t spin_ns,
		       struct kvpool_deadline *deadline, struct kvpool_failure *failure);

/* Sends a RELEASE; never waits. False: the daemon does not take what is there already. */
bool kvpool_link_release(struct kvpool_link *link, uint64_t lease, uint32_t keep);

/* Room in the ledger for what a call may be granted, and for what late answers may still be. */
int kvpool_link_make_room(struct kvpool_link *link, uint32_t leases, uint32_t blocks);

/* Tells the daemon what a ledger owes it. 0, or as kvpool_link_call(). */
int kvpool_link_pay(struct kvpool_link *link, struct kvpool_ledger *ledger, uint64_t spin_ns,
		    struct kvpool_deadline *deadline, struct kvpool_failure *failure);

#endif
