/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over a block and all that hangs on it, without a stack: the tree's own links lead back.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

static bool block_held(const struct kvpool_cache *cache, uint32_t block, uint32_t limit)
{
	const struct kvpool_record *r = &cache->records[block];

	return r->state != KVPOOL_BLOCK_READY || cache->blocks[block].leases > 0 ||
	       r->last_use >= limit;
}

/* The next block of the walk over `top`, after all below `block` was seen or skipped. */
static uint32_t step_over(const struct kvpool_cache *cache, uint32_t block, uint32_t top)
{
	while (block != top) {
		if (cache->blocks[block].next_sibling)
			return cache->blocks[block].next_sibling;
		block = cache->records[block].parent;
	}
	return 0;
}

bool kvpool_tree_held(struct kvpool_cache *cache, uint32_t block, uint32_t limit, uint32_t *budget)
{
	uint32_t at = block;

	while (at) {
		struct kvpool_block *b = &cache->blocks[at];
		bool seen = b->mark == cache->walk;

		if (!seen) {
			if (*budget == 0 || block_held(cache, at, limit))
				return true;
			(*budget)--;
			b->mark = cache->walk;
		}
		at = !seen && b->first_child ? b->first_child : step_over(cache, at, block);
	}
	return false;
}

static uint32_t deepest(const struct kvpool_cache *cache, uint32_t block)
{
	while (cache->blocks[block].first_child)
		block = cache->blocks[block].first_child;
	return block;
}

uint32_t kvpool_tree_evict(struct kvpool_cache *cache, uint32_t block)
{
	uint32_t n = 0;

	for (uint32_t at = deepest(cache, block);; at = deepest(cache, at)) {
		uint32_t parent = cache->records[at].parent;

		kvpool_block_evict(cache, at);
		n++;
		if (at == block)
			return n;
		at = parent;
	}
}

/* A block that was being written, after what hung on it. */
static void kill_reserved(struct kvpool_cache *cache, uint32_t block, struct kvpool_killed *killed)
{
	struct kvpool_reservation *r =
		kvpool_reservation_at(cache, cache->blocks[block].reservation);
	bool given = killed->giver && r->holder == killed->giver;

	/* Whoever leases something under a block that was never READY holds only that. */
	while (cache->blocks[block].first_child)
		kvpool_block_detach(cache, cache->blocks[block].first_child);
	kvpool_waiter_wake_all(cache, r, KVPOOL_STATUS_ABANDONED);
	killed->reserved++;
	if (given) {
		killed->given++;
		kvpool_reservation_end(cache, block);
		kvpool_block_end(cache, block);
	} else {
		kvpool_block_become(cache, block, KVPOOL_BLOCK_VOID);
		kvpool_block_detach(cache, block);
	}
}

/* One block of a killed tree, after what hung on it. */
static void kill_one(struct kvpool_cache *cache, uint32_t block, struct kvpool_killed *killed)
{
	switch ((enum kvpool_block_state)cache->records[block].state) {
	case KVPOOL_BLOCK_READY:
		killed->ready++;
		if (cache->blocks[block].leases || cache->blocks[block].first_child)
			kvpool_block_become(cache, block, KVPOOL_BLOCK_DEAD);
		else
			kvpool_block_end(cache, block);
		break;
	case KVPOOL_BLOCK_RESERVED:
		kill_reserved(cache, block, killed);
		break;
	default:
		break;
	}
}

void kvpool_tree_kill(struct kvpool_cache *cache, uint32_t block, struct kvpool_killed *killed)
{
	uint32_t at = deepest(cache, block);

	/*
	 * Leaves first; what comes next is read before a block may go. A block that ends may let
	 * its parent go only where that is DEAD, and all that hangs on a DEAD block is DEAD too, so
	 * it is not ended here.
	 */
	for (;;) {
		uint32_t next = cache->blocks[at].next_sibling;
		uint32_t parent = cache->records[at].parent;
		bool last = at == block;

		kill_one(cache, at, killed);
		if (last)
			return;
		at = next ? deepest(cache, next) : parent;
	}
}
