/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread's way to the daemon. See channel.h.
 *
 * Owned by a handle; used by one thread at a time.
 */
#include "client/channel.h"

#include "client/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int inherited(struct kvpool_channel *channel)
{
	return kvpool_failure_literal(&channel->failure, -EOWNERDEAD,
				      "the handle was inherited through fork(): open an own one");
}

/* To the calls, no daemon is no daemon: the text says why. */
static int no_daemon(int error)
{
	switch (error) {
	case -ENOMEM:
	case -ETIMEDOUT:
		return error;
	default:
		return -ENOTCONN;
	}
}

/* A link to a living daemon, in place of the one there was. */
static int connect_now(struct kvpool_channel *channel, struct kvpool_deadline *deadline)
{
	struct kvpool *pool = channel->pool;
	struct kvpool_session *session;
	int r;

	if (channel->link)
		kvpool_pool_take_back(pool, channel->link);
	channel->link = NULL;
	r = kvpool_pool_enter(pool, deadline, &channel->failure, &session);
	if (r != 0)
		return no_daemon(r);
	r = kvpool_pool_lend(pool, session, channel, deadline, &channel->failure, &channel->link);
	kvpool_pool_leave(pool, session);
	return r;
}

/* What calls that were given up left behind, and what was given back unheard. */
static int clear_up(struct kvpool_channel *channel, bool arena, struct kvpool_deadline *deadline)
{
	struct kvpool_link *link = channel->link;
	uint64_t spin_ns = channel->pool->spin_ns;
	int r = kvpool_link_settle(link, arena, spin_ns, deadline, &channel->failure);

	if (r == 0)
		r = kvpool_link_pay(link, &link->ledger, spin_ns, deadline, &channel->failure);
	if (r == 0)
		r = kvpool_link_pay(link, &link->session->orphans, spin_ns, deadline,
				    &channel->failure);
	return r;
}

/* The arithmetic of a layout whose blocks find no room, for whoever sizes the pool. */
static int too_large(struct kvpool_channel *channel, const struct kvpool_wire_layout *wire,
		     uint64_t extent)
{
	const double mib = 1 << 20;
	uint64_t frame = 0;

	for (uint32_t g = 0; g < wire->n_groups; g++)
		frame = KVPOOL_MAX(frame, wire->groups[g].slot_bytes);
	return kvpool_failure_set(&channel->failure, -E2BIG,
				  "layout: a block takes %.2f MiB in each of %u shards, and an "
				  "extent of this pool holds %.2f MiB: give kvpoold a larger "
				  "--extent-size, and --size where that is not enough",
				  (double)frame / mib, wire->n_shards, (double)extent / mib);
}

/* Tells the daemon of a layout. The arena is free. */
static int register_layout(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			   struct kvpool_deadline *deadline)
{
	struct kvpool_session_layout *known = &channel->link->session->layouts[layout->index];
	uint32_t at = KVPOOL_ROUND_UP((uint32_t)sizeof(layout->wire), 16);
	struct kvpool_request request = {.op = KVPOOL_OP_LAYOUT, .keys = 0, .result = at};
	struct kvpool_wire_layout_result result;
	struct kvpool_reply reply;
	int r;

	memcpy(channel->link->arena, &layout->wire, sizeof(layout->wire));
	r = kvpool_channel_call(channel, &request, deadline, &reply);
	if (r == 0 && reply.status == KVPOOL_STATUS_TOO_LARGE && reply.extent)
		return too_large(channel, &layout->wire,
				 (uint64_t)reply.extent << KVPOOL_UNIT_SHIFT);
	if (r == 0)
		r = kvpool_channel_status(channel, layout, &reply, "layout");
	if (r != 0)
		return r;
	memcpy(&result, channel->link->arena + at, sizeof(result));
	if (reply.layout > UINT16_MAX)
		return kvpool_channel_disbelieve(channel, "the daemon's layout id is impossible");
	for (uint32_t g = 0; g < layout->wire.n_groups; g++) {
		uint64_t stride = result.shard_stride[g];

		if (stride < layout->wire.groups[g].slot_bytes || stride > KVPOOL_SEGMENT_MAX)
			return kvpool_channel_disbelieve(
				channel, "the daemon's shards would overlap each other");
		/* No edge: whole by itself. */
		atomic_store_explicit(&known->stride[g], stride, memory_order_relaxed);
	}
	/* No edge: whole by itself. */
	atomic_store_explicit(&known->id_plus_1, reply.layout + 1, memory_order_relaxed);
	return 0;
}

static int find_layout(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		       struct kvpool_deadline *deadline, uint16_t *id)
{
	struct kvpool_session_layout *known = &channel->link->session->layouts[layout->index];
	/* No edge: whole by itself. */
	uint32_t id_plus_1 = atomic_load_explicit(&known->id_plus_1, memory_order_relaxed);
	int r;

	if (KVPOOL_UNLIKELY(layout->pool != channel->pool))
		return kvpool_failure_literal(&channel->failure, -EINVAL,
					      "the layout belongs to another handle");
	if (KVPOOL_UNLIKELY(id_plus_1 == 0)) {
		r = clear_up(channel, true, deadline);
		if (r == 0)
			r = register_layout(channel, layout, deadline);
		if (r != 0)
			return r;
		/* No edge: as above. */
		id_plus_1 = atomic_load_explicit(&known->id_plus_1, memory_order_relaxed);
		if (id_plus_1 == 0)
			return kvpool_failure_literal(&channel->failure, -ESTALE,
						      "the layout was forgotten meanwhile");
	}
	*id = (uint16_t)(id_plus_1 - 1);
	return 0;
}

int kvpool_channel_begin(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			 bool arena, struct kvpool_deadline *deadline, uint16_t *id)
{
	struct kvpool_link *link;
	int r;

	if (KVPOOL_UNLIKELY(kvpool_pool_check(channel->pool) != 0))
		return inherited(channel);
	link = channel->link;
	if (KVPOOL_UNLIKELY(!link || kvpool_session_lost(link->session))) {
		r = connect_now(channel, deadline);
		if (r != 0)
			return r;
		link = channel->link;
	}
	if (KVPOOL_UNLIKELY(link->n_late != 0 || kvpool_ledger_owed(&link->ledger) != 0 ||
			    kvpool_ledger_owed(&link->session->orphans) != 0)) {
		r = clear_up(channel, arena, deadline);
		if (r != 0)
			return r;
	}
	return layout ? find_layout(channel, layout, deadline, id) : 0;
}

int kvpool_channel_call(struct kvpool_channel *channel, struct kvpool_request *request,
			struct kvpool_deadline *deadline, struct kvpool_reply *reply)
{
	return kvpool_link_call(channel->link, request, channel->pool->spin_ns, deadline,
				&channel->failure, reply);
}

int kvpool_channel_disbelieve(struct kvpool_channel *channel, const char *why)
{
	kvpool_session_lose(channel->link->session);
	return kvpool_failure_literal(&channel->failure, -EPROTO, why);
}

int kvpool_channel_status(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			  const struct kvpool_reply *reply, const char *operation)
{
	if (KVPOOL_LIKELY(reply->status == KVPOOL_STATUS_OK))
		return 0;
	if (reply->status == KVPOOL_STATUS_NO_LAYOUT && layout)
		/* No edge: whoever sees 0 registers again. */
		atomic_store_explicit(&channel->link->session->layouts[layout->index].id_plus_1, 0,
				      memory_order_relaxed);
	return kvpool_failure_status(&channel->failure, reply->status, operation);
}

int kvpool_channel_open(struct kvpool *pool, struct kvpool_channel **out)
{
	struct kvpool_deadline deadline = kvpool_deadline_make(0, pool->deadline_ns);
	struct kvpool_channel *channel;

	if (kvpool_pool_check(pool) != 0)
		return -EOWNERDEAD;
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return -ENOMEM;
	channel->pool = pool;
	kvpool_failure_init(&channel->failure);
	kvpool_failure_init(&channel->no_space);
	kvpool_failure_literal(&channel->no_space, 0, "there was space");
	pthread_mutex_lock(&pool->lock);
	channel->next = pool->channels;
	pool->channels = channel;
	pthread_mutex_unlock(&pool->lock);
	/* Where no daemon is now, the first call finds one. */
	(void)connect_now(channel, &deadline);
	*out = channel;
	return 0;
}

void kvpool_channel_close(struct kvpool_channel *channel)
{
	struct kvpool_channel **at;
	struct kvpool *pool;

	/* An inherited channel goes with its handle: the lists may be in the middle of a change. */
	if (!channel || kvpool_pool_check(channel->pool) != 0)
		return;
	pool = channel->pool;
	if (channel->link)
		kvpool_pool_take_back(pool, channel->link);
	pthread_mutex_lock(&pool->lock);
	for (at = &pool->channels; *at != channel; at = &(*at)->next)
		;
	*at = channel->next;
	pthread_mutex_unlock(&pool->lock);
	free(channel);
}

const char *kvpool_channel_error(const struct kvpool_channel *channel)
{
	if (kvpool_pool_check(channel->pool) != 0)
		return "the handle was inherited through fork(): open an own one";
	return kvpool_failure_text(&channel->failure);
}

const char *kvpool_no_space_text(const struct kvpool_channel *channel)
{
	return kvpool_failure_text(&channel->no_space);
}
