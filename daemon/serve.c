/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request: see serve.h. The reply is published as early as it can be; what it does not depend
 * on comes after it.
 */
#include "daemon/serve.h"

#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/kill_point.h"
#include "daemon/serve_ops.h"
#include "daemon/server.h"

#include <assert.h>

static int nop(struct kvpool_channel *ch, const struct kvpool_request *request,
	       struct kvpool_reply *reply)
{
	(void)ch;
	(void)request;
	(void)reply;
	return KVPOOL_STATUS_OK;
}

static const struct {
	kvpool_serve_fn *serve;
	uint8_t flags; /* that mean something here; others are refused */
	bool writes;   /* not for members that only read */
} ops[KVPOOL_OP_COUNT] = {
	[KVPOOL_OP_NOP] = {nop, 0, false},
	[KVPOOL_OP_LAYOUT] = {kvpool_serve_layout, 0, false},
	[KVPOOL_OP_MATCH] = {kvpool_serve_match,
			     KVPOOL_REQUEST_INLINE_KEY | KVPOOL_REQUEST_NO_LEASE |
				     KVPOOL_REQUEST_PENDING,
			     false},
	[KVPOOL_OP_WAIT] = {kvpool_serve_wait, KVPOOL_REQUEST_INLINE_KEY, false},
	[KVPOOL_OP_RESERVE] = {kvpool_serve_reserve,
			       KVPOOL_REQUEST_INLINE_KEY | KVPOOL_REQUEST_HAS_PARENT, true},
	[KVPOOL_OP_COMMIT] = {kvpool_serve_commit,
			      KVPOOL_REQUEST_INLINE_KEY | KVPOOL_REQUEST_HAS_CRC |
				      KVPOOL_REQUEST_ALL_SHARDS,
			      true},
	[KVPOOL_OP_ABORT] = {kvpool_serve_abort, KVPOOL_REQUEST_INLINE_KEY, true},
	[KVPOOL_OP_RELEASE] = {kvpool_serve_release, 0, false},
	[KVPOOL_OP_FORGET] = {kvpool_serve_forget,
			      KVPOOL_REQUEST_INLINE_KEY | KVPOOL_REQUEST_WHOLE_LAYOUT, true},
	[KVPOOL_OP_SUMS] = {kvpool_serve_sums, 0, false},
	[KVPOOL_OP_DROP] = {kvpool_serve_drop, 0, true},
	[KVPOOL_OP_CLAIM] = {kvpool_serve_claim, KVPOOL_REQUEST_LAST, false},
};

/* A status for the reply, KVPOOL_SERVE_LATER, or a negative errno. */
static int dispatch(struct kvpool_channel *ch, const struct kvpool_request *request,
		    struct kvpool_reply *reply)
{
	struct kvpool_server_counters *counters = &ch->server->counters;

	if (KVPOOL_UNLIKELY(request->op >= KVPOOL_OP_COUNT)) {
		counters->requests[KVPOOL_OP_COUNT]++;
		return KVPOOL_STATUS_INVALID;
	}
	counters->requests[request->op]++;
	if (KVPOOL_UNLIKELY((request->flags & ~ops[request->op].flags) != 0))
		return request->op == KVPOOL_OP_RELEASE ? KVPOOL_SERVE_LATER
							: KVPOOL_STATUS_INVALID;
	if (KVPOOL_UNLIKELY(ch->read_only && ops[request->op].writes))
		return KVPOOL_STATUS_READ_ONLY;
	return ops[request->op].serve(ch, request, reply);
}

void kvpool_serve(struct kvpool_channel *ch, const struct kvpool_request *request)
{
	struct kvpool_reply reply = {.id = request->id, .epoch = ch->server->epoch};
	int r;

	r = dispatch(ch, request, &reply);
	/* Out of memory is a limit as far as the client is concerned: a miss. */
	if (KVPOOL_UNLIKELY(r < 0))
		r = KVPOOL_STATUS_LIMIT;
	kvpool_kill_point(KVPOOL_KILL_REQUEST_SERVED);
	/* Before the answer: the client may act on it though we die right after. */
	if (reply.lease != 0 || reply.granted != 0)
		kvpool_client_holds(ch->client);
	kvpool_kill_point(KVPOOL_KILL_REQUEST_GRANTED);
	if (r != KVPOOL_SERVE_LATER) {
		reply.status = (uint16_t)r;
		kvpool_channel_reply(ch, &reply);
	}
	kvpool_kill_point(KVPOOL_KILL_REQUEST_ANSWERED);
	kvpool_channel_ring_bells(ch->server);
	kvpool_cache_settle(ch->cache);
	kvpool_kill_point(KVPOOL_KILL_REQUEST_SETTLED);
	if (request->op == KVPOOL_OP_RELEASE || request->op == KVPOOL_OP_COMMIT ||
	    request->op == KVPOOL_OP_ABORT || request->op == KVPOOL_OP_CLAIM)
		kvpool_client_released(ch->client);
	kvpool_kill_point(KVPOOL_KILL_REQUEST_RELEASED);
	if (KVPOOL_UNLIKELY(r == KVPOOL_STATUS_INVALID))
		kvpool_violation_note(&ch->server->violations, KVPOOL_VIOLATION_REQUEST,
				      ch->server->now_ns,
				      "client %u: operation %u with %u keys is out of bounds",
				      ch->client->id, request->op, request->n);
}
