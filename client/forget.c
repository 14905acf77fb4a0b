/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FORGET: blocks, or a whole layout, are no longer true.
 *
 * Called with a channel, by its thread.
 */
#include "client/channel.h"
#include "client/layout.h"

#include <errno.h>
#include <string.h>

int64_t kvpool_forget(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		      const uint8_t *keys, uint32_t n, uint64_t deadline_ns)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(deadline_ns, channel->pool->deadline_ns);
	struct kvpool_request request = {
		.op = KVPOOL_OP_FORGET,
		.flags = n == 0 ? KVPOOL_REQUEST_WHOLE_LAYOUT : 0,
		.n = n,
		.group = group,
	};
	struct kvpool_reply reply;
	int r = kvpool_channel_begin(channel, layout, n > 0, &deadline, &request.layout);

	if (r != 0)
		return r;
	if (group >= layout->wire.n_groups || (n > 0 && !keys))
		return kvpool_failure_literal(&channel->failure, -EINVAL, "forget: group or keys");
	if (n > KVPOOL_KEYS_MAX ||
	    (uint64_t)n * KVPOOL_KEY_BYTES > kvpool_channel_arena_bytes(channel))
		return kvpool_failure_literal(&channel->failure, -E2BIG,
					      "forget: more keys than the channel's arena holds");
	if (n > 0)
		memcpy(channel->link->arena, keys, (size_t)n * KVPOOL_KEY_BYTES);
	r = kvpool_channel_call(channel, &request, &deadline, &reply);
	if (r == 0)
		r = kvpool_channel_status(channel, layout, &reply, "forget");
	return r == 0 ? (int64_t)reply.granted : r;
}
