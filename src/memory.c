/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that comes to the domain and leaves it, by segments; and blocks that go because nobody
 * asked for them.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

/* Records looked at by one kvpool_cache_expire(), for each block that it may evict; at least. */
#define EXPIRE_LOOKS     64u
#define EXPIRE_LOOKS_MIN 65536u

int kvpool_cache_memory_add(struct kvpool_cache *cache, uint32_t segment, uint64_t offset,
			    uint64_t bytes)
{
	return kvpool_extents_add(&cache->extents, segment, offset, bytes);
}

static bool segment_held(struct kvpool_cache *cache, uint32_t slot)
{
	const struct kvpool_extents *e = &cache->extents;
	uint32_t budget = UINT32_MAX;

	cache->walk++;
	for (uint32_t i = 0; i < e->per_segment; i++) {
		if (kvpool_extent_held(cache, slot * e->per_segment + i, UINT32_MAX, &budget))
			return true;
	}
	return false;
}

static void extent_empty(struct kvpool_cache *cache, uint32_t extent)
{
	for (uint32_t slot = 0; slot < cache->extents.table[extent].fresh; slot++) {
		uint32_t block = kvpool_extents_block(&cache->extents, extent, slot);

		if (block)
			cache->counters.evicted += kvpool_tree_evict(cache, block);
	}
}

int kvpool_cache_memory_take(struct kvpool_cache *cache, uint32_t segment)
{
	struct kvpool_extents *e = &cache->extents;
	uint32_t slot;

	kvpool_cache_settle(cache);
	slot = kvpool_extents_segment(e, segment);
	if (slot == UINT32_MAX)
		return KVPOOL_STATUS_NOT_FOUND;
	if (segment_held(cache, slot))
		return KVPOOL_STATUS_BUSY;
	for (uint32_t i = 0; i < e->per_segment; i++)
		extent_empty(cache, slot * e->per_segment + i);
	if (cache->drain.extent - slot * e->per_segment < e->per_segment)
		cache->drain.extent = KVPOOL_EXTENT_NONE;
	kvpool_extents_remove(e, slot);
	return 0;
}

static uint32_t segment_newest(const struct kvpool_extents *e, uint32_t slot)
{
	uint32_t newest = 0;

	for (uint32_t i = 0; i < e->per_segment; i++) {
		const struct kvpool_extent *x = &e->table[slot * e->per_segment + i];

		if (x->slots && x->newest > newest)
			newest = x->newest;
	}
	return newest;
}

int kvpool_cache_memory_coldest(struct kvpool_cache *cache, uint32_t *segment)
{
	const struct kvpool_extents *e = &cache->extents;
	uint32_t best = UINT32_MAX, best_newest = UINT32_MAX;

	kvpool_cache_settle(cache);
	for (uint32_t slot = 0; slot < e->segments_fresh; slot++) {
		uint32_t newest;

		if (!e->segments[slot].extents)
			continue;
		newest = segment_newest(e, slot);
		if (newest < best_newest && !segment_held(cache, slot)) {
			best = slot;
			best_newest = newest;
		}
	}
	if (best == UINT32_MAX)
		return KVPOOL_STATUS_NOT_FOUND;
	*segment = e->segments[best].id;
	return 0;
}

/* Evicts the block if it was last used before `limit`, then its ancestors likewise. */
static uint32_t evict_up(struct kvpool_cache *cache, uint32_t block, uint32_t limit,
			 uint32_t budget)
{
	uint32_t n = 0;

	while (block && n < budget && kvpool_block_evictable(cache, block) &&
	       cache->records[block].last_use < limit) {
		uint32_t parent = cache->records[block].parent;

		kvpool_block_evict(cache, block);
		n++;
		block = parent;
	}
	return n;
}

uint32_t kvpool_cache_expire(struct kvpool_cache *cache, uint32_t budget)
{
	uint64_t idle = (uint64_t)cache->config.idle_limit * KVPOOL_TICKS_PER_SECOND;
	uint64_t looks = KVPOOL_MAX((uint64_t)budget * EXPIRE_LOOKS, EXPIRE_LOOKS_MIN);
	uint32_t last = cache->block_slab.fresh;
	uint32_t gone = 0;

	kvpool_cache_settle(cache);
	if (idle == 0 || cache->tick <= idle)
		return 0;
	looks = KVPOOL_MIN(looks, last);
	while (looks-- > 0 && gone < budget) {
		if (++cache->expire_at > last)
			cache->expire_at = 1;
		gone += evict_up(cache, cache->expire_at, cache->tick - (uint32_t)idle,
				 budget - gone);
	}
	cache->counters.expired += gone;
	return gone;
}

uint32_t kvpool_cache_flush(struct kvpool_cache *cache)
{
	uint32_t gone = 0;

	kvpool_cache_settle(cache);
	for (uint32_t block = 1; block <= cache->block_slab.fresh; block++)
		gone += evict_up(cache, block, UINT32_MAX, UINT32_MAX);
	cache->counters.evicted += gone;
	return gone;
}
