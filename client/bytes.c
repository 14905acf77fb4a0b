/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of blocks: where they are in this process, and copies in and out.
 *
 * Called with a channel, by its thread. No call to the daemon, except for a segment or a layout
 * that this process meets for the first time.
 *
 * While a view is open the memory under it stays mapped: session.h says how.
 */
#include "client/channel.h"
#include "client/copy.h"
#include "client/layout.h"

#include <errno.h>

struct view {
	struct kvpool_session *session; /* borrowed */
	bool guest;                     /* through the lock; else through the link's `busy` */
	uint8_t *address;
	uint64_t offset; /* in the segment */
	uint64_t slot_bytes;
};

static int fail(struct kvpool_channel *channel, int error, const char *why)
{
	(void)kvpool_failure_literal(&channel->failure, error, why);
	return error;
}

/* The channel's own session, if it is the block's and alive. */
static bool enter_link(struct kvpool_channel *channel, uint64_t epoch, struct view *view)
{
	struct kvpool_link *link = channel->link;

	if (!link || link->session->epoch != epoch)
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

static int enter(struct kvpool_channel *channel, uint64_t epoch, struct view *view)
{
	struct kvpool_deadline deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	int r;

	if (KVPOOL_LIKELY(enter_link(channel, epoch, view)))
		return 0;
	view->guest = true;
	view->session = kvpool_pool_enter_epoch(channel->pool, epoch);
	if (view->session)
		return 0;
	/* A block from another member may come before this process has attached. */
	r = kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	if (r != 0)
		return r;
	view->session = kvpool_pool_enter_epoch(channel->pool, epoch);
	if (view->session)
		return 0;
	return fail(channel, -ESTALE, "the block is of a daemon life that is over");
}

static void leave(struct kvpool_channel *channel, struct view *view)
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

/*
 * Shards lie where the daemon says, so it must have been told of the layout. Not within a view: it
 * may take a new attach.
 */
static int learn(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint64_t epoch)
{
	const struct kvpool_link *link = channel->link;
	struct kvpool_deadline deadline;
	uint16_t id;

	/* In a life that is over it is known already, or never will be. */
	if (link && (link->session->epoch != epoch || kvpool_session_lost(link->session)))
		return 0;
	/* L2 <- L1 */
	if (link && atomic_load_explicit(&link->session->layouts[layout->index].id_plus_1,
					 memory_order_acquire) != 0)
		return 0;
	deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	return kvpool_channel_begin(channel, layout, true, &deadline, &id);
}

static int stride(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		  uint32_t group, const struct view *view, uint64_t *out)
{
	const struct kvpool_session_layout *known = &view->session->layouts[layout->index];

	/* L2 <- L1 */
	if (atomic_load_explicit(&known->id_plus_1, memory_order_acquire) == 0)
		return fail(channel, -ESTALE,
			    "the layout was never used in the block's daemon life");
	*out = atomic_load_explicit(&known->stride[group], memory_order_relaxed);
	return 0;
}

/* The start of the block's segment; mapped now if need be. */
static int map_segment(struct kvpool_channel *channel, uint32_t id, const struct view *view,
		       uint8_t **base, uint64_t *bytes)
{
	struct kvpool_deadline deadline;
	int r;

	*base = kvpool_segments_find(&view->session->segments, id, bytes);
	if (KVPOOL_LIKELY(*base != NULL))
		return 0;
	if (kvpool_session_lost(view->session))
		return fail(channel, -ESTALE, "the block is of a daemon life that is over");
	deadline = kvpool_deadline_make(0, channel->pool->deadline_ns);
	r = kvpool_session_get_segment(view->session, id, &deadline, &channel->failure);
	if (r != 0)
		return r;
	*base = kvpool_segments_find(&view->session->segments, id, bytes);
	return *base ? 0 : fail(channel, -ESTALE, "the block is of a daemon life that is over");
}

/* Finds the shard's bytes within the entered session. */
static int find(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		const struct kvpool_block *block, uint32_t shard, struct view *view)
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

static int open_view(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		     uint32_t group, const struct kvpool_block *block, uint32_t shard,
		     struct view *view)
{
	int r;

	if (KVPOOL_UNLIKELY(kvpool_pool_check(channel->pool) != 0))
		return fail(channel, -EOWNERDEAD,
			    "the handle was inherited through fork(): open an own one");
	if (layout->pool != channel->pool || group >= layout->wire.n_groups ||
	    shard >= layout->wire.n_shards || block->block == 0)
		return fail(channel, -EINVAL, "layout, group, shard or block");
	r = shard > 0 ? learn(channel, layout, block->epoch) : 0;
	if (r == 0)
		r = enter(channel, block->epoch, view);
	if (r != 0)
		return r;
	r = find(channel, layout, group, block, shard, view);
	if (r != 0)
		leave(channel, view);
	return r;
}

/*
 * Where other processes are members too, nobody here sees when a block is given back: what an
 * address was handed out for stays mapped until the handle is closed.
 */
static void pin(struct kvpool *pool, struct kvpool_session *session)
{
	/* No edge: both are set once and read by whoever unmaps, under the lock. */
	if (atomic_load_explicit(&pool->shared, memory_order_relaxed) &&
	    !atomic_load_explicit(&session->pinned, memory_order_relaxed))
		atomic_store_explicit(&session->pinned, true, memory_order_relaxed);
}

int kvpool_pointer(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		   uint32_t group, const struct kvpool_block *block, uint32_t shard, void **out)
{
	struct view view;
	int r = open_view(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	pin(channel->pool, view.session);
	*out = view.address;
	leave(channel, &view);
	return 0;
}

/* The bytes of all pieces together, if they make sense and are at most `most`. */
static bool measure(const struct kvpool_piece *pieces, uint32_t n, uint64_t most, uint64_t *out)
{
	uint64_t total = 0;

	if (n > 0 && !pieces)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (pieces[i].bytes > most - total || (pieces[i].bytes > 0 && !pieces[i].address))
			return false;
		total += pieces[i].bytes;
	}
	*out = total;
	return true;
}

int kvpool_store(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		 const struct kvpool_block *block, uint32_t shard,
		 const struct kvpool_piece *pieces, uint32_t n)
{
	uint64_t total;
	struct view view;
	int r = open_view(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	if (!measure(pieces, n, view.slot_bytes, &total)) {
		r = fail(channel, -EINVAL, "store: the pieces are more than a slot, or nowhere");
	} else if (view.session->read_only) {
		r = fail(channel, -EACCES, "store: this handle may only read");
	} else {
		kvpool_segments_warm(&view.session->segments, block->segment, view.offset, total);
		kvpool_copy_gather(kvpool_copy_best(), view.address, pieces, n);
	}
	leave(channel, &view);
	return r;
}

int kvpool_load(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		const struct kvpool_block *block, uint32_t shard, const struct kvpool_piece *pieces,
		uint32_t n)
{
	uint64_t total;
	struct view view;
	int r = open_view(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	if (!measure(pieces, n, view.slot_bytes, &total))
		r = fail(channel, -EINVAL, "load: the pieces are more than a slot, or nowhere");
	else
		kvpool_copy_scatter(kvpool_copy_best(), pieces, n, total, view.address);
	leave(channel, &view);
	return r;
}
