/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESERVE, COMMIT, ABORT and FORGET: what writers ask. See serve_ops.h.
 */
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/domain.h"
#include "daemon/serve_ops.h"
#include "daemon/server.h"

/* Where keys, parent and results are. 0 or KVPOOL_STATUS_INVALID. */
static int reserve_args(struct kvpool_channel *ch, const struct kvpool_request *request,
			struct kvpool_wire_block *single, struct kvpool_reserve_args *args)
{
	uint64_t before = request->flags & KVPOOL_REQUEST_HAS_PARENT ? KVPOOL_KEY_BYTES : 0;
	uint64_t keys_bytes = (uint64_t)request->n * KVPOOL_KEY_BYTES;
	bool in_entry = (request->flags & KVPOOL_REQUEST_INLINE_KEY) != 0;
	const uint8_t *from = NULL;
	uint8_t *to = NULL;

	if (request->n == 0 || request->n > KVPOOL_KEYS_MAX || (in_entry && request->n != 1))
		return KVPOOL_STATUS_INVALID;
	if (!in_entry || before != 0) {
		from = kvpool_channel_arena(ch, request->keys,
					    before + (in_entry ? 0 : keys_bytes));
		if (!from)
			return KVPOOL_STATUS_INVALID;
	}
	if (!in_entry) {
		to = kvpool_channel_arena(ch, request->result,
					  (uint64_t)request->n * sizeof(struct kvpool_wire_block));
		if (!to)
			return KVPOOL_STATUS_INVALID;
	}
	args->layout = request->layout;
	args->group = request->group;
	args->n = request->n;
	args->parent = before ? from : NULL;
	args->keys = in_entry ? request->key : from + before;
	args->blocks = in_entry ? single : (struct kvpool_wire_block *)(void *)to;
	return 0;
}

int kvpool_serve_reserve(struct kvpool_channel *ch, const struct kvpool_request *request,
			 struct kvpool_reply *reply)
{
	struct kvpool_reserve_result result = {0};
	struct kvpool_wire_block single = {0};
	struct kvpool_reserve_args args;
	int r;

	if (ch->server->draining)
		return KVPOOL_STATUS_DRAINING;
	r = reserve_args(ch, request, &single, &args);
	if (r != 0)
		return r;
	r = kvpool_cache_reserve(ch->cache, ch->client->holder, &args, &result);
	if (r != 0)
		return r;
	reply->granted = result.granted;
	reply->detail = result.detail;
	reply->holder = result.holder;
	if (request->flags & KVPOOL_REQUEST_INLINE_KEY)
		reply->block = single;
	return KVPOOL_STATUS_OK;
}

/* The handles: in the entry (a private copy) or in the arena. NULL: out of bounds. */
static const struct kvpool_wire_handle *handles(struct kvpool_channel *ch,
						const struct kvpool_request *request)
{
	if (request->n == 0 || request->n > KVPOOL_KEYS_MAX)
		return NULL;
	if (!(request->flags & KVPOOL_REQUEST_INLINE_KEY))
		return (const struct kvpool_wire_handle *)(const void *)kvpool_channel_arena(
			ch, request->keys, (uint64_t)request->n * sizeof(request->handle));
	return request->n == 1 && request->handle.reserved == 0 ? &request->handle : NULL;
}

int kvpool_serve_commit(struct kvpool_channel *ch, const struct kvpool_request *request,
			struct kvpool_reply *reply)
{
	const struct kvpool_wire_handle *from = handles(ch, request);
	bool all = (request->flags & KVPOOL_REQUEST_ALL_SHARDS) != 0;
	bool crc = (request->flags & KVPOOL_REQUEST_HAS_CRC) != 0;
	uint32_t done = 0;
	int r;

	if (!from || (!all && request->shard >= KVPOOL_SHARDS_MAX))
		return KVPOOL_STATUS_INVALID;
	r = kvpool_cache_commit(ch->cache, ch->client->holder, all ? UINT32_MAX : request->shard,
				crc, request->n, from, &done);
	if (r != 0)
		return r;
	reply->granted = done;
	kvpool_domain_stored(ch->client->domain);
	return KVPOOL_STATUS_OK;
}

int kvpool_serve_abort(struct kvpool_channel *ch, const struct kvpool_request *request,
		       struct kvpool_reply *reply)
{
	const struct kvpool_wire_handle *from = handles(ch, request);
	uint32_t done = 0;
	int r;

	if (!from)
		return KVPOOL_STATUS_INVALID;
	r = kvpool_cache_abort(ch->cache, ch->client->holder, request->n, from, &done);
	if (r != 0)
		return r;
	reply->granted = done;
	return KVPOOL_STATUS_OK;
}

int kvpool_serve_forget(struct kvpool_channel *ch, const struct kvpool_request *request,
			struct kvpool_reply *reply)
{
	const uint8_t *keys = request->key;
	uint32_t done = 0;
	int r;

	if (request->flags & KVPOOL_REQUEST_WHOLE_LAYOUT) {
		if (request->n != 0 || request->flags & KVPOOL_REQUEST_INLINE_KEY)
			return KVPOOL_STATUS_INVALID;
		r = kvpool_cache_forget_layout(ch->cache, ch->client->holder, request->layout,
					       &done);
	} else {
		if (request->n == 0 || request->n > KVPOOL_KEYS_MAX)
			return KVPOOL_STATUS_INVALID;
		if (!(request->flags & KVPOOL_REQUEST_INLINE_KEY))
			keys = kvpool_channel_arena(ch, request->keys,
						    (uint64_t)request->n * KVPOOL_KEY_BYTES);
		if (!keys || (request->flags & KVPOOL_REQUEST_INLINE_KEY && request->n != 1))
			return KVPOOL_STATUS_INVALID;
		r = kvpool_cache_forget(ch->cache, ch->client->holder, request->layout,
					request->group, request->n, keys, &done);
	}
	if (r != 0)
		return r;
	reply->granted = done;
	return KVPOOL_STATUS_OK;
}
