/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attach to one daemon life. See session.h.
 *
 * Owned by the handle; fields say who may touch them.
 */
#include "client/session.h"

#include "shm/atomic.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t kvpool_session_life(const struct kvpool_welcome *welcome)
{
	uint64_t epoch = welcome->client_epoch ? welcome->client_epoch : welcome->epoch;

	/* The factor is odd: two clients that began in one daemon life never share a life. */
	return epoch ^ (uint64_t)welcome->client * UINT64_C(0x9e3779b97f4a7c15);
}

/* What can fail. */
static int make(struct kvpool_session *s)
{
	int r = kvpool_gate_init(&s->gate);

	if (r != 0)
		return r;
	r = kvpool_ledger_init(&s->orphans);
	if (r != 0) {
		kvpool_gate_fini(&s->gate);
		return r;
	}
	r = kvpool_segments_new(&s->segments);
	if (r != 0) {
		kvpool_ledger_fini(&s->orphans);
		kvpool_gate_fini(&s->gate);
	}
	return r;
}

int kvpool_session_new(int socket, const struct kvpool_welcome *welcome, bool read_only,
		       struct kvpool_session **out)
{
	struct kvpool_session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	r = make(s);
	if (r != 0) {
		free(s);
		return r;
	}
	s->epoch = welcome->epoch;
	s->life = kvpool_session_life(welcome);
	s->client = welcome->client;
	s->member = welcome->member;
	s->features = welcome->features;
	s->read_only = read_only;
	s->resumed = (welcome->flags & KVPOOL_WELCOME_RESUMED) != 0;
	memcpy(s->token, welcome->token, sizeof(s->token));
	s->socket = socket;
	*out = s;
	return 0;
}

void kvpool_session_free(struct kvpool_session *session, bool forked)
{
	if (!session)
		return;
	kvpool_segments_put(session->segments, forked);
	if (!forked)
		shutdown(session->socket, SHUT_RDWR);
	kvpool_ledger_fini(&session->orphans);
	kvpool_gate_fini(&session->gate);
	close(session->socket);
	explicit_bzero(session->token, sizeof(session->token));
	free(session);
}

void kvpool_session_unmap(struct kvpool_session *session)
{
	kvpool_segments_put(session->segments, false);
	session->segments = NULL;
}

void kvpool_session_lose(struct kvpool_session *session)
{
	/* S1 -> S2. The descriptor stays open: other threads may be waiting on it. */
	if (!atomic_exchange_explicit(&session->lost, true, memory_order_seq_cst))
		shutdown(session->socket, SHUT_RDWR);
}

bool kvpool_session_hung_up(const struct kvpool_session *session)
{
	struct pollfd p = {.fd = session->socket, .events = POLLRDHUP};

	return poll(&p, 1, 0) != 0;
}

bool kvpool_session_vouches(struct kvpool_session *session)
{
	/* The bytes were read before the socket is looked at; it was closed before they changed. */
	kvpool_full_fence();
	if (kvpool_session_lost(session))
		return false;
	if (KVPOOL_LIKELY(!kvpool_session_hung_up(session)))
		return true;
	kvpool_session_lose(session);
	return false;
}

static int gone(struct kvpool_session *s, struct kvpool_failure *failure, int error)
{
	kvpool_session_lose(s);
	if (error == -EPROTO)
		return kvpool_failure_literal(failure, error,
					      "the daemon does not speak this protocol");
	return kvpool_failure_literal(failure, -ENOTCONN, "the daemon went away");
}

/* Waits for one message. */
static int receive(struct kvpool_session *s, struct kvpool_deadline *deadline,
		   struct kvpool_failure *failure, struct kvpool_packet *out)
{
	for (;;) {
		int r = kvpool_packet_receive(s->socket, out);

		if (r == 0)
			return 0;
		if (r != -EAGAIN)
			return gone(s, failure, r);
		if (kvpool_packet_wait(s->socket, deadline) != 0)
			return kvpool_failure_literal(failure, -ETIMEDOUT,
						      "the daemon did not answer in time");
	}
}

/* What came too late goes back; answers come in the order of the questions. */
static int drain(struct kvpool_session *s, struct kvpool_deadline *deadline,
		 struct kvpool_failure *failure)
{
	while (s->owed > 0) {
		struct kvpool_packet late;
		int r = receive(s, deadline, failure, &late);

		if (r != 0)
			return r;
		s->owed--;
		kvpool_packet_drop(&late);
		if (late.head.type == KVPOOL_MESSAGE_CHANNEL)
			(void)kvpool_session_put_channel(s, late.channel.channel);
	}
	return 0;
}

/* After UNKNOWN, LIMIT and RESOURCES the socket stays. */
static int refusal_error(uint32_t reason)
{
	switch (reason) {
	case KVPOOL_REFUSAL_UNKNOWN:
		return -ESTALE;
	case KVPOOL_REFUSAL_LIMIT:
		return -EDQUOT;
	case KVPOOL_REFUSAL_RESOURCES:
		return -ENOMEM;
	default:
		return -ENOTCONN;
	}
}

/* Question and answer; the gate is held. */
static int ask(struct kvpool_session *s, const void *question, uint32_t bytes, uint32_t type,
	       struct kvpool_deadline *deadline, struct kvpool_failure *failure,
	       struct kvpool_packet *out)
{
	struct kvpool_packet answer;
	int r = drain(s, deadline, failure);

	if (r != 0)
		return r;
	r = kvpool_packet_send(s->socket, question, bytes);
	if (r == -EAGAIN)
		return kvpool_failure_literal(failure, -ETIMEDOUT, "the daemon does not read");
	if (r != 0)
		return gone(s, failure, r);
	r = receive(s, deadline, failure, &answer);
	if (r != 0) {
		s->owed += r == -ETIMEDOUT;
		return r;
	}
	if (answer.head.type == type) {
		*out = answer;
		return 0;
	}
	kvpool_packet_drop(&answer);
	if (answer.head.type != KVPOOL_MESSAGE_REFUSED)
		return gone(s, failure, -EPROTO);
	r = refusal_error(answer.refused.reason);
	return kvpool_failure_set(failure, r, "the daemon refuses: %s",
				  kvpool_packet_refusal(&answer));
}

static int enter(struct kvpool_session *s, struct kvpool_deadline *deadline,
		 struct kvpool_failure *failure)
{
	if (kvpool_gate_enter(&s->gate, deadline) != 0)
		return kvpool_failure_literal(failure, -ETIMEDOUT,
					      "another thread waits for the daemon");
	return 0;
}

int kvpool_session_get_channel(struct kvpool_session *session, uint32_t ring_entries,
			       uint64_t arena_bytes, struct kvpool_deadline *deadline,
			       struct kvpool_failure *failure, struct kvpool_packet *out)
{
	struct kvpool_channel_get get = {
		.head = {KVPOOL_MESSAGE_CHANNEL_GET, sizeof(get)},
		.ring_entries = ring_entries,
		.arena_bytes = arena_bytes,
	};
	int r = enter(session, deadline, failure);

	if (r != 0)
		return r;
	r = ask(session, &get, sizeof(get), KVPOOL_MESSAGE_CHANNEL, deadline, failure, out);
	kvpool_gate_leave(&session->gate);
	return r;
}

int kvpool_session_put_channel(struct kvpool_session *session, uint32_t channel)
{
	struct kvpool_channel_put put = {
		.head = {KVPOOL_MESSAGE_CHANNEL_PUT, sizeof(put)},
		.channel = channel,
	};

	return kvpool_packet_send(session->socket, &put, sizeof(put));
}

int kvpool_session_retire(struct kvpool_session *session, const uint8_t token[KVPOOL_TOKEN_BYTES],
			  uint32_t member)
{
	struct kvpool_retire_member one = {
		.head = {KVPOOL_MESSAGE_RETIRE_MEMBER, sizeof(one)},
		.member = member,
	};
	struct kvpool_retire all = {
		.head = {KVPOOL_MESSAGE_RETIRE, sizeof(all)},
	};
	int r;

	memcpy(one.token, token, sizeof(one.token));
	memcpy(all.token, token, sizeof(all.token));
	if (session->features & KVPOOL_FEATURE_RESUME)
		r = kvpool_packet_send(session->socket, &one, sizeof(one));
	else
		r = kvpool_packet_send(session->socket, &all, sizeof(all));
	explicit_bzero(one.token, sizeof(one.token));
	explicit_bzero(all.token, sizeof(all.token));
	return r;
}

/* Asks for a segment and maps it; the gate is held. */
static int map_segment(struct kvpool_session *s, uint32_t segment, struct kvpool_deadline *deadline,
		       struct kvpool_failure *failure)
{
	struct kvpool_segment_get get = {
		.head = {KVPOOL_MESSAGE_SEGMENT_GET, sizeof(get)},
		.segment = segment,
	};
	struct kvpool_packet grant = {.fds = {-1, -1, -1}};
	const char *why;
	int r = ask(s, &get, sizeof(get), KVPOOL_MESSAGE_SEGMENT, deadline, failure, &grant);

	if (r != 0)
		return r;
	if (grant.segment.segment != segment) {
		kvpool_packet_drop(&grant);
		return gone(s, failure, -EPROTO);
	}
	r = kvpool_segments_add(s->segments, segment, grant.fds[0], grant.segment.bytes,
				grant.segment.page_shift, s->read_only, &why);
	kvpool_packet_drop(&grant);
	if (r == -EPROTO)
		kvpool_session_lose(s);
	return r == 0 ? 0 : kvpool_failure_set(failure, r, "%s: %s", why, strerror(-r));
}

int kvpool_session_get_segment(struct kvpool_session *session, uint32_t segment,
			       struct kvpool_deadline *deadline, struct kvpool_failure *failure)
{
	uint64_t bytes;
	int r = enter(session, deadline, failure);

	if (r != 0)
		return r;
	if (!kvpool_segments_find(session->segments, segment, &bytes))
		r = map_segment(session, segment, deadline, failure);
	kvpool_gate_leave(&session->gate);
	return r;
}
