/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MATCH and RELEASE: the longest resident prefix, held until it is given back.
 *
 * Called with a channel, by its thread.
 *
 * The arena of a match: keys, then one range a group, then at once the blocks.
 */
#include "client/channel.h"
#include "client/holdings.h"
#include "client/layout.h"

#include <errno.h>
#include <string.h>

struct match_call {
	struct kvpool_channel *channel; /* borrowed */
	struct kvpool_layout *layout;   /* borrowed */
	uint32_t n, skip, flags;
	uint32_t capacity; /* of blocks, that the daemon is told */
	bool cramped;      /* the arena would not hold the longest answer */
	bool inline_key;
	struct kvpool_request request;
	struct kvpool_reply reply;
};

static int fail(struct match_call *call, int error, const char *why)
{
	return kvpool_failure_literal(&call->channel->failure, error, why);
}

static uint64_t ranges_bytes(const struct match_call *call)
{
	return call->layout->wire.n_groups * sizeof(struct kvpool_wire_range);
}

/* Where keys, ranges and blocks go. The link is there. */
static int lay_out(struct match_call *call, uint32_t capacity)
{
	uint64_t arena = kvpool_channel_arena_bytes(call->channel);
	uint64_t ranges = (uint64_t)call->n * KVPOOL_KEY_BYTES;
	uint64_t blocks = ranges + ranges_bytes(call);
	uint64_t most = kvpool_layout_reported_max(call->layout, call->n, call->skip);
	uint64_t room;

	if (blocks > arena)
		return fail(call, -E2BIG, "match: more keys than the channel's arena holds");
	room = (arena - blocks) / sizeof(struct kvpool_wire_block);
	/* Who only looks takes no places, but the daemon wants to be able to write them. */
	if (capacity > 0)
		most = KVPOOL_MIN(most, capacity);
	call->cramped = most > room;
	call->capacity = (uint32_t)KVPOOL_MIN(most, room);
	call->request.result = (uint32_t)ranges;
	call->request.match.result_blocks = call->capacity;
	return 0;
}

static int send(struct match_call *call, const uint8_t *keys, uint32_t capacity,
		struct kvpool_deadline *deadline)
{
	struct kvpool_channel *channel = call->channel;
	int r;

	call->inline_key = call->n == 1 && call->layout->wire.n_groups == 1;
	r = kvpool_channel_begin(channel, call->layout, !call->inline_key, deadline,
				 &call->request.layout);
	if (r != 0)
		return r;
	if (kvpool_link_make_room(channel->link, 1, 0) != 0)
		return fail(call, -ENOMEM, "out of memory");
	call->request.op = KVPOOL_OP_MATCH;
	call->request.n = call->n;
	call->request.skip = call->skip;
	call->request.flags = (uint8_t)call->flags;
	if (call->inline_key) {
		call->request.flags |= KVPOOL_REQUEST_INLINE_KEY;
		memcpy(call->request.key, keys, KVPOOL_KEY_BYTES);
		call->capacity = 1;
	} else {
		r = lay_out(call, capacity);
		if (r != 0)
			return r;
		memcpy(channel->link->arena, keys, (size_t)call->n * KVPOOL_KEY_BYTES);
	}
	return kvpool_channel_call(channel, &call->request, deadline, &call->reply);
}

/* The ranges of all groups, if they can be true. */
static bool read_ranges(const struct match_call *call, struct kvpool_range *out)
{
	uint32_t n_groups = call->layout->wire.n_groups;
	const uint8_t *from = call->channel->link->arena + call->request.result;
	uint64_t sum = 0;

	if (call->inline_key) {
		out[0] = (struct kvpool_range){
			.first = call->reply.blocks - call->reply.reported,
			.count = call->reply.reported,
		};
		return true;
	}
	memcpy(out, from, n_groups * sizeof(*out));
	for (uint32_t g = 0; g < n_groups; g++) {
		if (out[g].count > call->n || out[g].first > call->n - out[g].count)
			return false;
		sum += out[g].count;
	}
	return sum == call->reply.reported;
}

static void read_blocks(const struct match_call *call, uint32_t n, struct kvpool_block *out)
{
	uint64_t epoch = call->channel->link->session->life;
	const uint8_t *arena = call->channel->link->arena;
	const struct kvpool_wire_block *from = &call->reply.block;

	if (!call->inline_key)
		from = (const void *)(arena + call->request.result + ranges_bytes(call));
	for (uint32_t i = 0; i < n; i++)
		out[i] = (struct kvpool_block){
			.block = from[i].block,
			.generation = from[i].generation,
			.segment = from[i].segment,
			.offset = from[i].offset,
			.epoch = epoch,
		};
}

/* The lease is in the ledger before the caller sees it. False: its session is over. */
static bool keep_lease(const struct match_call *call)
{
	struct kvpool_ledger *ledger = &call->channel->link->ledger;

	if (!kvpool_ledger_begin(ledger))
		return false;
	kvpool_ledger_add_lease(ledger, call->reply.lease);
	kvpool_ledger_end(ledger);
	return true;
}

static int64_t finish(struct match_call *call, struct kvpool_block *out, uint32_t capacity,
		      struct kvpool_match *match)
{
	const struct kvpool_reply *reply = &call->reply;
	struct kvpool_match m = {
		.blocks = reply->blocks,
		.pending = call->flags & KVPOOL_MATCH_PENDING ? reply->pending : 0,
		.reported = capacity > 0 ? reply->reported : 0,
		.n_groups = call->layout->wire.n_groups,
		.lease = reply->lease,
		.epoch = call->channel->link->session->life,
	};
	int r = kvpool_channel_status(call->channel, call->layout, reply, "match");

	if (r == -EINVAL && call->cramped)
		return fail(call, -E2BIG, "match: more blocks than the channel's arena holds");
	if (r != 0)
		return r;
	if (reply->blocks > call->n || reply->reported > call->capacity ||
	    reply->pending > call->n - reply->blocks ||
	    (call->inline_key && reply->reported > reply->blocks) || !read_ranges(call, m.groups))
		return kvpool_channel_disbelieve(call->channel,
						 "the daemon's match is longer than the question");
	if (reply->lease != 0 && !keep_lease(call))
		return fail(call, -ENOTCONN, "the daemon went away");
	read_blocks(call, m.reported, out);
	*match = m;
	return m.blocks;
}

int64_t kvpool_match(struct kvpool_channel *channel, struct kvpool_layout *layout,
		     const uint8_t *keys, uint32_t n, uint32_t skip, uint32_t flags,
		     uint64_t deadline_ns, struct kvpool_block *out, uint32_t capacity,
		     struct kvpool_match *match)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(deadline_ns, channel->pool->deadline_ns);
	struct match_call call = {
		.channel = channel, .layout = layout, .n = n, .skip = skip, .flags = flags};
	int r;

	if (kvpool_pool_check(channel->pool) != 0)
		return kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	if (skip > n || (n > 0 && !keys) || (capacity > 0 && !out) ||
	    flags & ~(uint32_t)(KVPOOL_MATCH_NO_LEASE | KVPOOL_MATCH_PENDING))
		return fail(&call, -EINVAL, "match: skip, keys, out or flags");
	if (n > KVPOOL_KEYS_MAX)
		return fail(&call, -E2BIG, "match: more than 262144 keys");
	if (n == 0) {
		*match = (struct kvpool_match){.n_groups = layout->wire.n_groups};
		return 0;
	}
	r = send(&call, keys, capacity, &deadline);
	return r == 0 ? finish(&call, out, capacity, match) : r;
}

void kvpool_release(struct kvpool_channel *channel, const struct kvpool_match *match, uint32_t keep)
{
	struct kvpool_link *link = channel->link;
	bool told;

	if (kvpool_pool_check(channel->pool) != 0 || match->lease == 0 ||
	    (keep != 0 && keep >= match->blocks))
		return;
	told = link && link->session->life == match->epoch && !kvpool_session_lost(link->session) &&
	       kvpool_link_release(link, match->lease, keep);
	/* A part that cannot be given back now goes back with the whole. */
	if (keep == 0)
		kvpool_holdings_end_lease(channel, match->epoch, match->lease,
					  told ? KVPOOL_HOLDINGS_TOLD : KVPOOL_HOLDINGS_OWED);
}
