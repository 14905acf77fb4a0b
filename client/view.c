/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of one block are in this process, kept mapped while it is looked at. See view.h.
 *
 * Called with a channel, by its thread.
 */
#include "client/view.h"

#include "client/channel.h"
#include "client/layout.h"

#include <errno.h>

static int fail(struct kvpool_channel *channel, int error, const char *why)
{
	(void)kvpool_failure_literal(&channel->failure, error, why);
	return error;
}

/* The channel's own session, if it is the block's and alive. */
static bool enter_link(struct kvpool_channel *channel, uint64_t epoch, struct kvpool_view *view)
{
	struct kvpool_link *link = channel->link;

	if (!link || link->session->life != epoch)
		return false;
	atomic_store_explicit(&link->busy, true, memory_order_seq_cst); /* B1 -> B2 */
	if (kvpool_session_lost(link->session)) {                       /* S2 <- S1 */
		atomic_store_explicit(&link->busy, false, memory_order_release);
		return false;
	}
	view->session = link->session;
	view->guest = false;
	return true;
}

/* As a guest, of a session that lives or of one that nothing better can come after. */
static bool enter_guest(struct kvpool_channel *channel, uint64_t epoch, struct kvpool_view *view)
{
	view->guest = true;
	view->session = kvpool_pool_enter_life(channel->pool, epoch);
	if (!view->session)
		return false;
	if (KVPOOL_LIKELY(!kvpool_pool_may_resume(channel->pool, view->session)))
		return true;
	kvpool_pool_leave(channel->pool, view->session);
	return false;
}

static int enter(struct kvpool_channel *channel, uint64_t epoch, struct kvpool_view *view)
{
	struct kvpool_deadline deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	int r;

	if (KVPOOL_LIKELY(enter_link(channel, epoch, view)))
		return 0;
	if (enter_guest(channel, epoch, view))
		return 0;
	/*
	 * A block from another member may come before this process has attached, or go on over a
	 * restart that nothing but this call would tell this process of.
	 */
	r = kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	view->session = kvpool_pool_enter_life(channel->pool, epoch);
	if (view->session)
		return 0;
	if (r != 0)
		return r;
	return fail(channel, -ESTALE, "the block is of a daemon life that is over");
}

int kvpool_view_unvouched(struct kvpool_channel *channel)
{
	return fail(channel, -ESTALE,
		    "the daemon went away or ended this client: what was read may be of others");
}

void kvpool_view_close(struct kvpool_channel *channel, struct kvpool_view *view)
{
	if (view->guest) {
		kvpool_pool_leave(channel->pool, view->session);
		return;
	}
	atomic_store_explicit(&channel->link->busy, false, memory_order_seq_cst); /* B1 -> B2 */
	/* Whoever wanted to unmap it meanwhile has left that to this thread. */
	if (KVPOOL_UNLIKELY(kvpool_session_lost(view->session)))
		kvpool_pool_settle(channel->pool);
}

/* 0: not told. */
static uint64_t stride_in(const struct kvpool_session *session, const struct kvpool_layout *layout,
			  uint32_t group)
{
	/* No edge: whole by itself. */
	return atomic_load_explicit(&session->layouts[layout->index].stride[group],
				    memory_order_relaxed);
}

/* In a life that is over the layout is known already, or never will be. */
static bool settled(const struct kvpool_session *session, const struct kvpool_layout *layout,
		    uint32_t group)
{
	return kvpool_session_lost(session) || stride_in(session, layout, group) != 0;
}

/* Whether asking the daemon would tell nothing new about the layout in that life. */
static bool knows(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		  uint32_t group, uint64_t epoch)
{
	const struct kvpool_link *link = channel->link;
	struct kvpool_session *session;
	bool known;

	if (link && !kvpool_session_lost(link->session))
		return link->session->life != epoch || settled(link->session, layout, group);
	/* Between two lives the channel has no link; what it holds of the last one stays good. */
	session = kvpool_pool_enter_life(channel->pool, epoch);
	if (!session)
		return false;
	known = settled(session, layout, group);
	kvpool_pool_leave(channel->pool, session);
	return known;
}

/*
 * Shards lie where the daemon says, so it must have been told of the layout. Not within a view: it
 * may take a new attach.
 */
static int learn(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		 uint64_t epoch)
{
	struct kvpool_deadline deadline;
	uint16_t id;

	if (KVPOOL_LIKELY(knows(channel, layout, group, epoch)))
		return 0;
	deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	return kvpool_channel_begin(channel, layout, true, &deadline, &id);
}

static int stride(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		  uint32_t group, const struct kvpool_view *view, uint64_t *out)
{
	*out = stride_in(view->session, layout, group);
	return *out != 0 ? 0
			 : fail(channel, -ESTALE,
				"the layout was never used in the block's daemon life");
}

/* The start of the block's segment; mapped now if need be. */
static int map_segment(struct kvpool_channel *channel, uint32_t id, const struct kvpool_view *view,
		       uint8_t **base, uint64_t *bytes)
{
	struct kvpool_segments *segments = view->session->segments;
	struct kvpool_deadline deadline;
	int r;

	/* None: nothing was held in that life any more, and it was let go of. */
	*base = segments ? kvpool_segments_find(segments, id, bytes) : NULL;
	if (KVPOOL_LIKELY(*base != NULL))
		return 0;
	if (!segments || kvpool_session_lost(view->session))
		return fail(channel, -ESTALE, "the block is of a daemon life that is over");
	deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	r = kvpool_session_get_segment(view->session, id, &deadline, &channel->failure);
	if (r != 0)
		return r;
	*base = kvpool_segments_find(segments, id, bytes);
	return *base ? 0 : fail(channel, -ESTALE, "the block is of a daemon life that is over");
}

/* Finds the shard's bytes within the entered session. */
static int find(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		const struct kvpool_block *block, uint32_t shard, struct kvpool_view *view)
{
	uint64_t slot = layout->wire.groups[group].slot_bytes, step = 0;
	uint64_t bytes = 0, offset;
	uint8_t *base;
	int r = shard > 0 ? stride(channel, layout, group, view, &step) : 0;

	if (r == 0)
		r = map_segment(channel, block->segment, view, &base, &bytes);
	if (r != 0)
		return r;
	/* Neither the caller nor the daemon is believed: 32 bits of units and 64 strides fit. */
	offset = ((uint64_t)block->offset << KVPOOL_UNIT_SHIFT) + shard * step;
	if (offset > bytes || slot > bytes - offset)
		return fail(channel, -EINVAL, "the block lies outside of its segment");
	view->address = base + offset;
	view->offset = offset;
	view->slot_bytes = slot;
	return 0;
}

int kvpool_view_check(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, uint32_t shard)
{
	if (KVPOOL_UNLIKELY(kvpool_pool_check(channel->pool) != 0))
		return fail(channel, -EOWNERDEAD,
			    "the handle was inherited through fork(): open an own one");
	if (layout->pool != channel->pool || group >= layout->wire.n_groups ||
	    shard >= layout->wire.n_shards)
		return fail(channel, -EINVAL, "layout, group, shard or block");
	return 0;
}

int kvpool_view_open(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		     uint32_t group, const struct kvpool_block *block, uint32_t shard,
		     struct kvpool_view *view)
{
	int r = kvpool_view_check(channel, layout, group, shard);

	if (r == 0 && block->block == 0)
		r = fail(channel, -EINVAL, "layout, group, shard or block");
	if (r == 0 && shard > 0)
		r = learn(channel, layout, group, block->epoch);
	if (r == 0)
		r = enter(channel, block->epoch, view);
	if (r != 0)
		return r;
	r = find(channel, layout, group, block, shard, view);
	if (r != 0)
		kvpool_view_close(channel, view);
	return r;
}
