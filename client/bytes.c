/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of blocks: their address, and copies in and out.
 *
 * Called with a channel, by its thread. No call to the daemon, except for a segment or a layout
 * that this process meets for the first time.
 */
#include "client/channel.h"
#include "client/copy.h"
#include "client/view.h"

#include <errno.h>

/*
 * Where other processes are members too, nobody here sees when a block is given back: what an
 * address was handed out for stays mapped until the handle is closed.
 */
static void pin(struct kvpool *pool, struct kvpool_segments *segments)
{
	/* No edge: both are set once and read by whoever unmaps, under the lock. */
	if (atomic_load_explicit(&pool->shared, memory_order_relaxed) &&
	    !atomic_load_explicit(&segments->pinned, memory_order_relaxed))
		atomic_store_explicit(&segments->pinned, true, memory_order_relaxed);
}

int kvpool_pointer(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		   uint32_t group, const struct kvpool_block *block, uint32_t shard, void **out)
{
	struct kvpool_view view;
	int r = kvpool_view_open(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	pin(channel->pool, view.session->segments);
	*out = view.address;
	kvpool_view_close(channel, &view);
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
	struct kvpool_view view;
	int r = kvpool_view_open(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	if (!measure(pieces, n, view.slot_bytes, &total)) {
		r = kvpool_failure_literal(&channel->failure, -EINVAL,
					   "store: the pieces are more than a slot, or nowhere");
	} else if (view.session->read_only) {
		r = kvpool_failure_literal(&channel->failure, -EACCES,
					   "store: this handle may only read");
	} else {
		kvpool_segments_warm(view.session->segments, block->segment, view.offset, total);
		kvpool_copy_gather(kvpool_copy_best(), view.address, pieces, n);
	}
	kvpool_view_close(channel, &view);
	return r;
}

int kvpool_load(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		const struct kvpool_block *block, uint32_t shard, const struct kvpool_piece *pieces,
		uint32_t n)
{
	uint64_t total;
	struct kvpool_view view;
	int r = kvpool_view_open(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	if (!measure(pieces, n, view.slot_bytes, &total))
		r = kvpool_failure_literal(&channel->failure, -EINVAL,
					   "load: the pieces are more than a slot, or nowhere");
	else
		kvpool_copy_scatter(kvpool_copy_best(), pieces, n, total, view.address);
	if (r == 0 && KVPOOL_UNLIKELY(!kvpool_session_vouches(view.session)))
		r = kvpool_view_unvouched(channel);
	kvpool_view_close(channel, &view);
	return r;
}

int kvpool_check(struct kvpool_channel *channel, uint64_t epoch)
{
	struct kvpool_session *session;
	bool good = false;

	if (kvpool_pool_check(channel->pool) != 0)
		return kvpool_failure_literal(
			&channel->failure, -EOWNERDEAD,
			"the handle was inherited through fork(): open an own one");
	session = kvpool_pool_enter_life(channel->pool, epoch);
	if (session) {
		good = kvpool_session_vouches(session);
		kvpool_pool_leave(channel->pool, session);
	}
	return good ? 0 : kvpool_view_unvouched(channel);
}
