/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESERVE: places to write blocks.
 *
 * Called with a channel, by its thread.
 *
 * The arena of a reservation: the parent's key where there is one, the keys, then a place a key. A
 * single key travels in the entry and its place in the reply.
 */
#include "client/channel.h"
#include "client/layout.h"

#include <errno.h>
#include <string.h>

struct reserve_call {
	struct kvpool_channel *channel; /* borrowed */
	struct kvpool_layout *layout;   /* borrowed */
	uint32_t group, n;
	struct kvpool_request request;
	struct kvpool_reply reply;
};

static int fail(struct reserve_call *call, int error, const char *why)
{
	return kvpool_failure_literal(&call->channel->failure, error, why);
}

static int lay_out(struct reserve_call *call, const uint8_t *parent, const uint8_t *keys)
{
	uint8_t *arena = call->channel->link->arena;
	uint64_t n_keys = (uint64_t)call->n + (parent != NULL);
	uint64_t bytes =
		n_keys * KVPOOL_KEY_BYTES + (uint64_t)call->n * sizeof(struct kvpool_wire_block);

	if (bytes > kvpool_channel_arena_bytes(call->channel))
		return fail(call, -E2BIG, "reserve: more keys than the channel's arena holds");
	if (parent)
		memcpy(arena, parent, KVPOOL_KEY_BYTES);
	if (call->n == 1) {
		call->request.flags |= KVPOOL_REQUEST_INLINE_KEY;
		memcpy(call->request.key, keys, KVPOOL_KEY_BYTES);
		return 0;
	}
	memcpy(arena + (parent ? KVPOOL_KEY_BYTES : 0), keys, (size_t)call->n * KVPOOL_KEY_BYTES);
	call->request.result = (uint32_t)(n_keys * KVPOOL_KEY_BYTES);
	return 0;
}

static int send(struct reserve_call *call, const uint8_t *parent, const uint8_t *keys,
		struct kvpool_deadline *deadline)
{
	bool arena = call->n > 1 || parent;
	int r = kvpool_channel_begin(call->channel, call->layout, arena, deadline,
				     &call->request.layout);

	if (r != 0)
		return r;
	if (kvpool_link_make_room(call->channel->link, 0, call->n) != 0)
		return fail(call, -ENOMEM, "out of memory");
	call->request.op = KVPOOL_OP_RESERVE;
	call->request.n = call->n;
	call->request.group = call->group;
	call->request.flags = parent ? KVPOOL_REQUEST_HAS_PARENT : 0;
	r = lay_out(call, parent, keys);
	return r == 0 ? kvpool_channel_call(call->channel, &call->request, deadline, &call->reply)
		      : r;
}

/* One place, from the daemon's to the caller's form. A refusal keeps no more than its reason. */
static struct kvpool_block read_block(const struct kvpool_wire_block *from, uint64_t epoch)
{
	struct kvpool_wire_block w = *from;

	if (w.block == 0)
		return (struct kvpool_block){.generation = w.generation, .epoch = epoch};
	return (struct kvpool_block){
		.block = w.block,
		.generation = w.generation,
		.segment = w.segment,
		.offset = w.offset,
		.epoch = epoch,
	};
}

static bool is_code(uint16_t status)
{
	return status >= KVPOOL_STATUS_EXISTS && status <= KVPOOL_STATUS_NO_PARENT;
}

/* Copies the places; each is in the ledger before the caller sees it. How many. */
static int64_t read_blocks(struct reserve_call *call, struct kvpool_block *out)
{
	struct kvpool_link *link = call->channel->link;
	const struct kvpool_wire_block *from = &call->reply.block;
	uint32_t granted = 0;

	if (call->n > 1)
		from = (const struct kvpool_wire_block *)(const void *)(link->arena +
									call->request.result);
	if (!kvpool_ledger_begin(&link->ledger))
		return fail(call, -ENOTCONN, "the daemon went away");
	for (uint32_t i = 0; i < call->n; i++) {
		out[i] = read_block(&from[i], link->session->life);
		if (out[i].block == 0)
			continue;
		granted++;
		kvpool_ledger_add_block(&link->ledger, out[i].block, out[i].generation,
					call->layout->wire.n_shards);
	}
	kvpool_ledger_end(&link->ledger);
	return granted;
}

static int64_t finish(struct reserve_call *call, struct kvpool_block *out)
{
	const struct kvpool_reply *reply = &call->reply;
	struct kvpool_channel *channel = call->channel;
	bool refused = call->n == 1 && is_code(reply->status);
	int r = refused ? 0 : kvpool_channel_status(channel, call->layout, reply, "reserve");

	if (reply->status == KVPOOL_STATUS_OK || reply->status == KVPOOL_STATUS_NO_SPACE)
		kvpool_failure_no_space(&channel->no_space, reply->detail, reply->holder,
					channel->link->session->client);
	if (r != 0)
		return r;
	if (refused) {
		out[0] = (struct kvpool_block){.generation = reply->status,
					       .epoch = channel->link->session->life};
		return 0;
	}
	return read_blocks(call, out);
}

int64_t kvpool_reserve(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		       const uint8_t *parent, const uint8_t *keys, uint32_t n, uint64_t deadline_ns,
		       struct kvpool_block *out)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(deadline_ns, channel->pool->deadline_ns);
	struct reserve_call call = {.channel = channel, .layout = layout, .group = group, .n = n};
	int r;

	if (kvpool_pool_check(channel->pool) != 0)
		return kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	if (group >= layout->wire.n_groups || (n > 0 && (!keys || !out)))
		return fail(&call, -EINVAL, "reserve: group, keys or out");
	if (n > KVPOOL_KEYS_MAX)
		return fail(&call, -E2BIG, "reserve: more than 262144 keys");
	if (channel->pool->wish.read_only)
		return fail(&call, -EACCES, "reserve: this handle may only read");
	if (n == 0)
		return 0;
	r = send(&call, parent, keys, &deadline);
	return r == 0 ? finish(&call, out) : r;
}
