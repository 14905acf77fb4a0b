/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of each kind that libkvpool makes to the daemon, so that a test can stop or kill the
 * daemon in the middle of every one of them.
 *
 * Owned by the test that made it; a call may run in a thread of its own.
 */
#ifndef KVPOOL_TESTS_CLIENT_CALLS_H
#define KVPOOL_TESTS_CLIENT_CALLS_H

#include "tests/integration/client_rig.h"

enum kvpool_call_kind {
	KVPOOL_CALL_MATCH_ONE,
	KVPOOL_CALL_MATCH_MANY,
	KVPOOL_CALL_WAIT,
	KVPOOL_CALL_RESERVE_ONE,
	KVPOOL_CALL_RESERVE_MANY,
	KVPOOL_CALL_COMMIT_ONE,
	KVPOOL_CALL_COMMIT_MANY,
	KVPOOL_CALL_ABORT,
	KVPOOL_CALL_FORGET,
	KVPOOL_CALL_LAYOUT,  /* the first use of one */
	KVPOOL_CALL_SEGMENT, /* the first use of one, over the socket */
	KVPOOL_CALL_CHANNEL, /* a further one, over the socket */
	KVPOOL_CALL_KINDS,
};

struct kvpool_call {
	struct kvpool_rig *rig; /* borrowed */
	enum kvpool_call_kind kind;
	uint64_t deadline_ns;
	uint64_t chain; /* one that only this call uses */
	struct kvpool_block reserved[2];
	struct kvpool_layout *unknown;  /* LAYOUT: one that was never used */
	struct kvpool_channel *further; /* CHANNEL: one that has no link yet */
	int64_t result;
};

const char *kvpool_call_name(enum kvpool_call_kind kind);

/* While the daemon answers: what the call needs. `seed` tells calls of one kind apart. */
void kvpool_call_prepare(struct kvpool_rig *rig, enum kvpool_call_kind kind, uint64_t seed,
			 uint64_t deadline_ns, struct kvpool_call *out);

/* Makes it. `result` is what the function returned. */
void kvpool_call_make(struct kvpool_call *call);

/* Ends what prepare and make took, once the daemon answers again or its life is over. */
void kvpool_call_finish(struct kvpool_call *call);

#endif
