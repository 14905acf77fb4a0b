/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching to a daemon. See attach.h.
 *
 * Owned by a handle, guarded by its attach gate.
 */
#include "client/attach.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BACKOFF_MIN_NS UINT64_C(100000000)
/* A daemon that served is started again by whoever keeps its memory, within milliseconds. */
#define BACKOFF_LOST_NS UINT64_C(5000000)
#define BACKOFF_MAX_NS  UINT64_C(5000000000)
#define ATTEMPT_NS      UINT64_C(5000000000)

bool kvpool_attach_too_early(const struct kvpool_attempt *attempt)
{
	/* No edge: a hint, looked at again under the gate. */
	uint64_t at = atomic_load_explicit(&attempt->not_before_ns, memory_order_relaxed);

	return at != 0 && kvpool_clock_ns() < at;
}

static void back_off(struct kvpool_attempt *attempt)
{
	uint64_t ns = attempt->backoff_ns ? attempt->backoff_ns : BACKOFF_MIN_NS;

	attempt->backoff_ns = KVPOOL_MIN(2 * ns, BACKOFF_MAX_NS);
	/* No edge: a hint for threads that have not the gate. */
	atomic_store_explicit(&attempt->not_before_ns, kvpool_clock_ns() + ns,
			      memory_order_relaxed);
}

void kvpool_attach_began(struct kvpool_attempt *attempt, const struct kvpool_session *session)
{
	struct kvpool_past *past = &attempt->past;

	past->resumable = (session->features & KVPOOL_FEATURE_RESUME) != 0;
	past->epoch = session->epoch;
	past->life = session->life;
	past->client = session->client;
	past->member = session->member;
	memcpy(past->token, session->token, sizeof(past->token));
}

void kvpool_attach_ended(struct kvpool_attempt *attempt, bool useful)
{
	if (useful) {
		attempt->backoff_ns = BACKOFF_LOST_NS;
		/* No edge: a hint for threads that have not the gate. */
		atomic_store_explicit(&attempt->not_before_ns, 0, memory_order_relaxed);
	} else {
		attempt->backoff_ns = KVPOOL_MAX(attempt->backoff_ns, BACKOFF_MIN_NS);
		back_off(attempt);
	}
}

void kvpool_attach_cancel(struct kvpool_attempt *attempt)
{
	if (attempt->stage != KVPOOL_ATTEMPT_NONE)
		close(attempt->fd);
	attempt->stage = KVPOOL_ATTEMPT_NONE;
}

static int failed(struct kvpool_attempt *attempt, int error)
{
	kvpool_attach_cancel(attempt);
	back_off(attempt);
	return error;
}

static int start(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		 struct kvpool_failure *failure)
{
	int r = kvpool_places_connect(&wish->places, &attempt->fd);

	if (r != 0) {
		kvpool_failure_set(failure, r, "no daemon answers at %s%s%s: %s",
				   wish->places.at[0].sun_path, wish->places.n > 1 ? " or " : "",
				   wish->places.n > 1 ? wish->places.at[1].sun_path : "",
				   r == -ENOTCONN ? "not there" : strerror(-r));
		return failed(attempt, r);
	}
	attempt->stage = KVPOOL_ATTEMPT_HELLO;
	attempt->until_ns = kvpool_clock_ns() + ATTEMPT_NS;
	return 0;
}

static int refused(struct kvpool_attempt *attempt, struct kvpool_packet *packet,
		   struct kvpool_failure *failure)
{
	static const int errors[] = {
		[KVPOOL_REFUSAL_VERSION] = -EPROTO,    [KVPOOL_REFUSAL_MESSAGE] = -EPROTO,
		[KVPOOL_REFUSAL_TOKEN] = -EACCES,      [KVPOOL_REFUSAL_LIMIT] = -EDQUOT,
		[KVPOOL_REFUSAL_PERMISSION] = -EACCES, [KVPOOL_REFUSAL_RESOURCES] = -ENOTCONN,
		[KVPOOL_REFUSAL_DRAINING] = -ENOTCONN, [KVPOOL_REFUSAL_EVICTED] = -ENOTCONN,
	};
	uint32_t reason = packet->refused.reason;
	int r = reason < KVPOOL_ARRAY_SIZE(errors) && errors[reason] ? errors[reason] : -EPROTO;

	/* Nobody has the token any more: the next attempt shows none. */
	if (reason == KVPOOL_REFUSAL_TOKEN && attempt->resumes)
		attempt->past.resumable = false;
	else if (reason == KVPOOL_REFUSAL_TOKEN && attempt->joined_epoch != 0)
		attempt->alone = true;
	return kvpool_failure_set(failure, r, "the daemon refuses: %s",
				  kvpool_packet_refusal(packet));
}

/*
 * A client outlives its daemon, not its last member: who lost its session in this very life of the
 * daemon begins anew, or joins again.
 */
static bool may_resume(const struct kvpool_attempt *attempt, const struct kvpool_hello *hello)
{
	return attempt->past.resumable && (hello->features & KVPOOL_FEATURE_RESUME) &&
	       hello->epoch != attempt->past.epoch;
}

/* A member of a life that is over, or of a client that is, is a client of its own from then on. */
static bool may_join(const struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		     uint64_t epoch)
{
	return wish->join && !attempt->alone &&
	       (attempt->joined_epoch == 0 || attempt->joined_epoch == epoch);
}

static int on_hello(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		    const struct kvpool_hello *hello, struct kvpool_failure *failure)
{
	uint32_t version = KVPOOL_MIN(hello->version_max, KVPOOL_PROTOCOL_MAX);
	struct kvpool_attach attach = {
		.head = {KVPOOL_MESSAGE_ATTACH, sizeof(attach)},
		.version = version,
		.features = hello->features & KVPOOL_FEATURES,
		.flags = wish->read_only ? KVPOOL_ATTACH_READ_ONLY : 0,
		.ring_entries = KVPOOL_MIN(wish->ring_entries, hello->ring_entries_max),
		.arena_bytes = KVPOOL_MIN(wish->arena_bytes, hello->arena_bytes_max),
	};
	int r;

	if (hello->magic != KVPOOL_PROTOCOL_MAGIC)
		return kvpool_failure_literal(failure, -EPROTO, "what answers is not kvpoold");
	if (version < hello->version_min || version < KVPOOL_PROTOCOL_MIN)
		return kvpool_failure_set(failure, -EPROTO,
					  "the daemon speaks versions %u to %u, this library %u to "
					  "%u",
					  hello->version_min, hello->version_max,
					  KVPOOL_PROTOCOL_MIN, KVPOOL_PROTOCOL_MAX);
	memcpy(attach.name, wish->name, sizeof(attach.name));
	attempt->resumes = may_resume(attempt, hello);
	if (attempt->resumes) {
		attach.flags |= KVPOOL_ATTACH_RESUME;
		attach.member_plus_1 = attempt->past.member + 1;
		memcpy(attach.token, attempt->past.token, sizeof(attach.token));
	} else if (may_join(attempt, wish, hello->epoch)) {
		attach.flags |= KVPOOL_ATTACH_JOIN;
		memcpy(attach.token, wish->token, sizeof(attach.token));
	}
	r = kvpool_packet_send(attempt->fd, &attach, sizeof(attach));
	explicit_bzero(attach.token, sizeof(attach.token));
	if (r != 0)
		return kvpool_failure_literal(failure, -ENOTCONN, "the daemon went away");
	attempt->stage = KVPOOL_ATTEMPT_WELCOME;
	return 0;
}

/* A daemon that says that it is the same client must mean the same. */
static int on_welcome(struct kvpool_attempt *attempt, const struct kvpool_welcome *welcome,
		      struct kvpool_failure *failure)
{
	const struct kvpool_past *past = &attempt->past;

	if ((welcome->flags & KVPOOL_WELCOME_RESUMED) &&
	    (!attempt->resumes || welcome->client != past->client ||
	     kvpool_session_life(welcome) != past->life ||
	     memcmp(welcome->token, past->token, sizeof(past->token)) != 0))
		return kvpool_failure_literal(failure, -EPROTO,
					      "the daemon takes this client for another one");
	attempt->welcome = *welcome;
	attempt->stage = KVPOOL_ATTEMPT_CHANNEL;
	return 0;
}

static int on_channel(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		      struct kvpool_packet *packet, struct kvpool_failure *failure,
		      struct kvpool_session **out)
{
	struct kvpool_session *session;
	int r = kvpool_session_new(attempt->fd, &attempt->welcome, wish->read_only, &session);

	if (r != 0)
		return kvpool_failure_literal(failure, r, "out of memory");
	attempt->stage = KVPOOL_ATTEMPT_NONE; /* the session has the descriptor */
	r = kvpool_link_new(session, packet, failure, &session->links);
	if (r != 0) {
		kvpool_session_free(session, false);
		return r;
	}
	if (wish->join)
		attempt->joined_epoch = session->epoch;
	*out = session;
	return 0;
}

/* One message of the handshake. */
static int on_packet(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		     struct kvpool_packet *packet, struct kvpool_failure *failure,
		     struct kvpool_session **out)
{
	uint32_t type = packet->head.type;

	if (type == KVPOOL_MESSAGE_REFUSED)
		return refused(attempt, packet, failure);
	if (attempt->stage == KVPOOL_ATTEMPT_HELLO && type == KVPOOL_MESSAGE_HELLO)
		return on_hello(attempt, wish, &packet->hello, failure);
	if (attempt->stage == KVPOOL_ATTEMPT_WELCOME && type == KVPOOL_MESSAGE_WELCOME)
		return on_welcome(attempt, &packet->welcome, failure);
	if (attempt->stage == KVPOOL_ATTEMPT_CHANNEL && type == KVPOOL_MESSAGE_CHANNEL)
		return on_channel(attempt, wish, packet, failure, out);
	return kvpool_failure_set(failure, -EPROTO, "the daemon sends message %u out of turn",
				  type);
}

static int in_progress(struct kvpool_attempt *attempt, struct kvpool_failure *failure)
{
	if (kvpool_clock_ns() < attempt->until_ns)
		return kvpool_failure_literal(failure, -EINPROGRESS,
					      "the daemon has not answered yet");
	kvpool_failure_literal(failure, -ENOTCONN, "the daemon does not answer");
	return failed(attempt, -ENOTCONN);
}

int kvpool_attach_step(struct kvpool_attempt *attempt, const struct kvpool_wish *wish,
		       struct kvpool_deadline *deadline, struct kvpool_failure *failure,
		       struct kvpool_session **out)
{
	bool wait = attempt->stage == KVPOOL_ATTEMPT_NONE;
	struct kvpool_session *session = NULL;
	int r = wait ? start(attempt, wish, failure) : 0;

	while (r == 0 && !session) {
		struct kvpool_packet packet;

		r = kvpool_packet_receive(attempt->fd, &packet);
		if (r == -EAGAIN) {
			if (!wait || kvpool_packet_wait(attempt->fd, deadline) != 0)
				return in_progress(attempt, failure);
			r = 0;
			continue;
		}
		if (r == 0) {
			r = on_packet(attempt, wish, &packet, failure, &session);
			kvpool_packet_drop(&packet);
		} else {
			kvpool_failure_literal(failure, r,
					       r == -EPROTO ? "what answers is not kvpoold"
							    : "the daemon went away");
		}
		if (r != 0)
			return failed(attempt, r);
	}
	if (r == 0)
		*out = session;
	return r;
}
