/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SUMS and DROP: what those ask who check a block's bytes themselves. See serve_ops.h.
 */
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/serve_ops.h"

static const struct kvpool_wire_handle *handles(struct kvpool_channel *ch,
						const struct kvpool_request *request)
{
	if (request->n == 0 || request->n > KVPOOL_KEYS_MAX)
		return NULL;
	return (const struct kvpool_wire_handle *)(const void *)kvpool_channel_arena(
		ch, request->keys, (uint64_t)request->n * sizeof(struct kvpool_wire_handle));
}

int kvpool_serve_sums(struct kvpool_channel *ch, const struct kvpool_request *request,
		      struct kvpool_reply *reply)
{
	const struct kvpool_wire_handle *from = handles(ch, request);
	uint8_t *to;

	if (!from)
		return KVPOOL_STATUS_INVALID;
	to = kvpool_channel_arena(ch, request->result,
				  (uint64_t)request->n * sizeof(struct kvpool_wire_sum));
	if (!to)
		return KVPOOL_STATUS_INVALID;
	return kvpool_cache_sums(ch->cache, ch->client->holder, request->n, from,
				 (struct kvpool_wire_sum *)(void *)to, &reply->granted);
}

int kvpool_serve_drop(struct kvpool_channel *ch, const struct kvpool_request *request,
		      struct kvpool_reply *reply)
{
	const struct kvpool_wire_handle *from = handles(ch, request);

	if (!from)
		return KVPOOL_STATUS_INVALID;
	return kvpool_cache_drop(ch->cache, ch->client->holder, request->n, from, &reply->granted);
}
