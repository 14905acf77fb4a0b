/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LAYOUT, MATCH, WAIT and RELEASE: what readers ask. See serve_ops.h.
 */
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/serve_ops.h"
#include "daemon/server.h"

#include <string.h>

int kvpool_serve_layout(struct kvpool_channel *ch, const struct kvpool_request *request,
			struct kvpool_reply *reply)
{
	struct kvpool_wire_layout_result result;
	struct kvpool_wire_layout wire;
	const uint8_t *from = kvpool_channel_arena(ch, request->keys, sizeof(wire));
	uint8_t *to = kvpool_channel_arena(ch, request->result, sizeof(result));
	uint16_t layout;
	int r;

	if (!from || !to || request->n != 0)
		return KVPOOL_STATUS_INVALID;
	memcpy(&wire, from, sizeof(wire));
	KVPOOL_COPIED(wire);
	memset(&result, 0, sizeof(result));
	r = kvpool_cache_layout(ch->cache, ch->client->holder, &wire, &layout, &result);
	if (r == KVPOOL_STATUS_TOO_LARGE)
		reply->extent =
			(uint32_t)(kvpool_cache_extent_bytes(ch->cache) >> KVPOOL_UNIT_SHIFT);
	if (r != 0)
		return r;
	memcpy(to, &result, sizeof(result));
	reply->layout = layout;
	return KVPOOL_STATUS_OK;
}

/* One key in the entry, one place in the reply, and so one group: the shortest way there is. */
static int match_inline(struct kvpool_channel *ch, const struct kvpool_request *request,
			struct kvpool_match_args *args, struct kvpool_match_result *result)
{
	if (request->n != 1 ||
	    kvpool_cache_layout_groups(ch->cache, ch->client->holder, request->layout) > 1)
		return KVPOOL_STATUS_INVALID;
	args->keys = request->key;
	return kvpool_cache_match(ch->cache, ch->client->holder, args, result);
}

static int match_arena(struct kvpool_channel *ch, const struct kvpool_request *request,
		       struct kvpool_match_args *args, struct kvpool_match_result *result)
{
	uint32_t groups =
		kvpool_cache_layout_groups(ch->cache, ch->client->holder, request->layout);
	uint64_t ranges_bytes = (uint64_t)groups * sizeof(struct kvpool_wire_range);
	uint64_t blocks_bytes =
		(uint64_t)request->match.result_blocks * sizeof(struct kvpool_wire_block);
	uint8_t *to;

	if (groups == 0)
		return KVPOOL_STATUS_NO_LAYOUT;
	args->keys =
		kvpool_channel_arena(ch, request->keys, (uint64_t)request->n * KVPOOL_KEY_BYTES);
	to = kvpool_channel_arena(ch, request->result, ranges_bytes + blocks_bytes);
	if (!args->keys || !to)
		return KVPOOL_STATUS_INVALID;
	args->ranges = (struct kvpool_wire_range *)(void *)to;
	args->blocks = (struct kvpool_wire_block *)(void *)(to + ranges_bytes);
	args->capacity = request->match.result_blocks;
	return kvpool_cache_match(ch->cache, ch->client->holder, args, result);
}

int kvpool_serve_match(struct kvpool_channel *ch, const struct kvpool_request *request,
		       struct kvpool_reply *reply)
{
	struct kvpool_wire_range range;
	struct kvpool_wire_block block;
	struct kvpool_match_args args = {
		.layout = request->layout,
		.flags = request->flags & (KVPOOL_REQUEST_NO_LEASE | KVPOOL_REQUEST_PENDING),
		.n = request->n,
		.skip = request->skip,
		.ranges = &range,
		.blocks = &block,
		.capacity = 1,
	};
	struct kvpool_match_result result;
	int r;

	if (request->n == 0 || request->n > KVPOOL_KEYS_MAX || request->skip > request->n)
		return KVPOOL_STATUS_INVALID;
	if (request->flags & KVPOOL_REQUEST_INLINE_KEY)
		r = match_inline(ch, request, &args, &result);
	else
		r = match_arena(ch, request, &args, &result);
	if (r != 0)
		return r;
	reply->blocks = result.blocks;
	reply->pending = result.pending;
	reply->lease = result.lease;
	reply->reported = result.reported;
	if (request->flags & KVPOOL_REQUEST_INLINE_KEY)
		reply->block = result.first;
	return KVPOOL_STATUS_OK;
}

int kvpool_serve_wait(struct kvpool_channel *ch, const struct kvpool_request *request,
		      struct kvpool_reply *reply)
{
	int r;

	(void)reply;
	if (request->n != 1 || !(request->flags & KVPOOL_REQUEST_INLINE_KEY))
		return KVPOOL_STATUS_INVALID;
	r = kvpool_waits_add(&ch->server->waits, ch, request, ch->server->now_ns);
	return r == KVPOOL_STATUS_BUSY ? KVPOOL_SERVE_LATER : r;
}

int kvpool_serve_release(struct kvpool_channel *ch, const struct kvpool_request *request,
			 struct kvpool_reply *reply)
{
	(void)reply;
	/* A lease that is over already is no fault: nobody waits for an answer either. */
	(void)kvpool_cache_release(ch->cache, ch->client->holder, request->lease, request->keep);
	return KVPOOL_SERVE_LATER;
}
