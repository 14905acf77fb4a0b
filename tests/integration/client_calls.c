/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of each kind. See client_calls.h.
 *
 * Owned by the test that made it.
 */
#include "tests/integration/client_calls.h"

#include <check.h>
#include <errno.h>

const char *kvpool_call_name(enum kvpool_call_kind kind)
{
	static const char *const names[KVPOOL_CALL_KINDS] = {
		[KVPOOL_CALL_MATCH_ONE] = "match of one key",
		[KVPOOL_CALL_MATCH_MANY] = "match of many keys",
		[KVPOOL_CALL_WAIT] = "wait",
		[KVPOOL_CALL_RESERVE_ONE] = "reserve of one key",
		[KVPOOL_CALL_RESERVE_MANY] = "reserve of many keys",
		[KVPOOL_CALL_COMMIT_ONE] = "commit of one block",
		[KVPOOL_CALL_COMMIT_MANY] = "commit of many blocks",
		[KVPOOL_CALL_ABORT] = "abort",
		[KVPOOL_CALL_FORGET] = "forget",
		[KVPOOL_CALL_LAYOUT] = "first use of a layout",
		[KVPOOL_CALL_SEGMENT] = "first use of a segment",
		[KVPOOL_CALL_CHANNEL] = "first use of a channel",
	};

	return names[kind];
}

static bool reserves(enum kvpool_call_kind kind)
{
	return kind == KVPOOL_CALL_WAIT || kind == KVPOOL_CALL_COMMIT_ONE ||
	       kind == KVPOOL_CALL_COMMIT_MANY || kind == KVPOOL_CALL_ABORT ||
	       kind == KVPOOL_CALL_SEGMENT;
}

void kvpool_call_prepare(struct kvpool_rig *rig, enum kvpool_call_kind kind, uint64_t seed,
			 uint64_t deadline_ns, struct kvpool_call *out)
{
	struct kvpool_call call = {.rig = rig,
				   .kind = kind,
				   .deadline_ns = deadline_ns,
				   .chain = 1000 + 100 * seed + (uint64_t)kind};
	uint8_t keys[2 * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(call.chain, 0, 2, keys);
	if (kind == KVPOOL_CALL_MATCH_ONE || kind == KVPOOL_CALL_MATCH_MANY)
		ck_assert_uint_eq(kvpool_rig_put(rig, call.chain, 0, 2), 2);
	if (reserves(kind))
		ck_assert_int_eq(kvpool_reserve(rig->channel, rig->layout, 0, NULL, keys, 2,
						KVPOOL_RIG_LONG, call.reserved),
				 2);
	if (kind == KVPOOL_CALL_LAYOUT)
		call.unknown = kvpool_rig_layout(rig->pool, 1, 256 * (seed + 1));
	*out = call;
}

static int64_t match(const struct kvpool_call *call, struct kvpool_layout *layout,
		     const uint8_t *keys, uint32_t n)
{
	struct kvpool_block blocks[2];
	struct kvpool_match m;
	int64_t r = kvpool_match(call->rig->channel, layout, keys, n, 0, 0, call->deadline_ns,
				 blocks, 2, &m);

	if (r >= 0)
		kvpool_release(call->rig->channel, &m, 0);
	return r;
}

static int64_t reserve(struct kvpool_call *call, const uint8_t *keys, uint32_t n)
{
	return kvpool_reserve(call->rig->channel, call->rig->layout, 0, NULL, keys, n,
			      call->deadline_ns, call->reserved);
}

static int64_t open_channel(struct kvpool_call *call, const uint8_t *keys)
{
	/* Makes a first attempt of its own, within the handle's deadline. */
	int r = kvpool_channel_open(call->rig->pool, &call->further);

	return r != 0 ? r
		      : kvpool_wait(call->further, call->rig->layout, 0, keys, call->deadline_ns);
}

void kvpool_call_make(struct kvpool_call *call)
{
	struct kvpool_channel *channel = call->rig->channel;
	struct kvpool_layout *layout = call->rig->layout;
	uint64_t ns = call->deadline_ns;
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_block elsewhere;
	void *address;

	kvpool_rig_keys(call->chain, 0, 2, keys);
	switch (call->kind) {
	case KVPOOL_CALL_MATCH_ONE:
		call->result = match(call, layout, keys, 1);
		break;
	case KVPOOL_CALL_MATCH_MANY:
		call->result = match(call, layout, keys, 2);
		break;
	case KVPOOL_CALL_WAIT:
		call->result = kvpool_wait(channel, layout, 0, keys, ns);
		break;
	case KVPOOL_CALL_RESERVE_ONE:
		call->result = reserve(call, keys, 1);
		break;
	case KVPOOL_CALL_RESERVE_MANY:
		call->result = reserve(call, keys, 2);
		break;
	case KVPOOL_CALL_COMMIT_ONE:
		call->result = kvpool_commit(channel, call->reserved, 1, KVPOOL_ALL_SHARDS, ns);
		break;
	case KVPOOL_CALL_COMMIT_MANY:
		call->result = kvpool_commit(channel, call->reserved, 2, KVPOOL_ALL_SHARDS, ns);
		break;
	case KVPOOL_CALL_ABORT:
		call->result = kvpool_abort(channel, call->reserved, 2, ns);
		break;
	case KVPOOL_CALL_FORGET:
		call->result = kvpool_forget(channel, layout, 0, keys, 1, ns);
		break;
	case KVPOOL_CALL_LAYOUT:
		call->result = match(call, call->unknown, keys, 1);
		break;
	case KVPOOL_CALL_SEGMENT:
		elsewhere = call->reserved[0];
		elsewhere.segment += 100;
		call->result = kvpool_pointer(channel, layout, 0, &elsewhere, 0, &address);
		break;
	case KVPOOL_CALL_CHANNEL:
		call->result = open_channel(call, keys);
		break;
	default:
		ck_abort_msg("no such call");
	}
}

void kvpool_call_finish(struct kvpool_call *call)
{
	(void)kvpool_abort(call->rig->channel, call->reserved, 2, KVPOOL_RIG_LONG);
	kvpool_channel_close(call->further);
}
