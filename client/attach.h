/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching to a daemon: connecting, the handshake, and when to try again.
 *
 * An attempt is made inside of calls, since there is no thread of the library's own. The call that
 * starts one waits for it within its deadline; where that is too short, the attempt stays open, and
 * later calls look in on it without waiting. After a failure the next attempt is 100 ms away, or 5
 * ms where a daemon served until now, then twice that, up to 5 s; until then calls cost a look at
 * the clock.
 *
 * In a further life of a daemon whose clients outlive it, the client resumes: it shows the token of
 * its last session, and is told whether it is that client or a new one.
 *
 * Owned by a handle, guarded by its attach gate.
 */
#ifndef KVPOOL_CLIENT_ATTACH_H
#define KVPOOL_CLIENT_ATTACH_H

#include "client/link.h"
#include "client/places.h"

/* What a handle wants; settled when it is made. */
struct kvpool_wish {
	struct kvpool_places places;
	char name[KVPOOL_NAME_BYTES];
	uint32_t ring_entries;
	uint64_t arena_bytes;
	bool read_only;
	bool join;
	uint8_t token[KVPOOL_TOKEN_BYTES];
};

enum kvpool_attempt_stage {
	KVPOOL_ATTEMPT_NONE = 0,
	KVPOOL_ATTEMPT_HELLO = 1,   /* connected; waits for HELLO */
	KVPOOL_ATTEMPT_WELCOME = 2, /* ATTACH was sent */
	KVPOOL_ATTEMPT_CHANNEL = 3, /* WELCOME came */
};

/* The last session that served, as far as the next one can go on with it. */
struct kvpool_past {
	bool resumable; /* the daemon said that clients outlive it; else nothing below counts */
	uint64_t epoch;
	uint64_t life;
	uint32_t client;
	uint32_t member;
	uint8_t token[KVPOOL_TOKEN_BYTES];
};

struct kvpool_attempt {
	enum kvpool_attempt_stage stage;
	int fd; /* owned, unless the stage is NONE */
	uint64_t until_ns;
	struct kvpool_welcome welcome;
	uint64_t joined_epoch; /* life in which the token was good; 0: never yet */
	bool alone;            /* the client that it had joined is no more */
	bool resumes;          /* ATTACH asked to resume */
	struct kvpool_past past;
	uint64_t backoff_ns; /* after the next failure */
	/* W: under the gate. R: any thread, relaxed: a hint. */
	_Atomic uint64_t not_before_ns;
};

/* Is it too early for another attempt? Reads the clock, and nothing else. */
bool kvpool_attach_too_early(const struct kvpool_attempt *attempt);

/*
 * Goes on with the attempt, or starts one. 0 with a session and its first link (in session->links).
 * -ENOTCONN, -EACCES, -EPROTO, -EDQUOT, -ENOMEM: failed, in `failure`. -EINPROGRESS: not done yet.
 */
int kvpool_attach_step(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		       struct kvpool_deadline *deadline, struct kvpool_failure *failure,
		       struct kvpool_session **out);

/* The session serves from now on. */
void kvpool_attach_began(struct kvpool_attempt *attempt, const struct kvpool_session *session);

/* A session ended. A daemon that never served anything is not asked again at once. */
void kvpool_attach_ended(struct kvpool_attempt *attempt, bool useful);

/* Gives up what is under way. */
void kvpool_attach_cancel(struct kvpool_attempt *attempt);

#endif
