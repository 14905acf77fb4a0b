/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CLAIM: what a process that resumed holds. See serve_ops.h.
 */
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/serve_ops.h"

int kvpool_serve_claim(struct kvpool_channel *ch, const struct kvpool_request *request,
		       struct kvpool_reply *reply)
{
	struct kvpool_client *client = ch->client;
	bool last = request->flags & KVPOOL_REQUEST_LAST, sound = true;
	const uint8_t *from;
	int r;

	if (request->n > KVPOOL_KEYS_MAX || (request->n == 0 && !last))
		return KVPOOL_STATUS_INVALID;
	from = kvpool_channel_arena(ch, request->keys,
				    (uint64_t)request->n * sizeof(struct kvpool_wire_claim));
	if (!from)
		return KVPOOL_STATUS_INVALID;
	r = kvpool_cache_claim(ch->cache, client->holder, !ch->read_only, request->n,
			       (const struct kvpool_wire_claim *)(const void *)from,
			       &reply->granted, &sound);
	if (r == 0 && !sound && !client->disputed) {
		client->disputed = true;
		kvpool_log(
			KVPOOL_LOG_WARNING,
			"client %u holds what is not known to be its own: quarantine and what is "
			"held back stay until it is gone",
			client->id);
	}
	if (r == 0 && last)
		kvpool_client_claimed(client, ch->peer);
	return r;
}
