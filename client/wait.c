/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WAIT: until a block that somebody is writing is READY or given up.
 *
 * Called with a channel, by its thread.
 */
#include "client/channel.h"
#include "client/layout.h"

#include <errno.h>
#include <string.h>

/* The daemon gives up a little earlier than the caller, so that its answer still arrives. */
#define MARGIN_MAX_NS UINT64_C(1000000)

int kvpool_wait(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		const uint8_t *key, uint64_t timeout_ns)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(timeout_ns, channel->pool->deadline_ns);
	struct kvpool_request request = {
		.op = KVPOOL_OP_WAIT,
		.flags = KVPOOL_REQUEST_INLINE_KEY,
		.n = 1,
		.group = group,
	};
	struct kvpool_reply reply;
	uint64_t ns = deadline.relative_ns;
	int r = kvpool_channel_begin(channel, layout, false, &deadline, &request.layout);

	if (r != 0)
		return r;
	if (group >= layout->wire.n_groups || !key)
		return kvpool_failure_literal(&channel->failure, -EINVAL, "wait: group or key");
	if (!(channel->link->session->features & KVPOOL_FEATURE_WAIT))
		return kvpool_failure_literal(&channel->failure, -EOPNOTSUPP,
					      "wait: the daemon does not serve it");
	memcpy(request.key, key, KVPOOL_KEY_BYTES);
	kvpool_request_set_timeout_ns(&request, ns - KVPOOL_MIN(ns / 8, MARGIN_MAX_NS));
	r = kvpool_channel_call(channel, &request, &deadline, &reply);
	return r == 0 ? kvpool_channel_status(channel, layout, &reply, "wait") : r;
}
