/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a cache: sums that are kept as things happen, never counted here.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

static uint64_t metadata_bytes(const struct kvpool_cache *cache)
{
	const struct kvpool_extents *e = &cache->extents;
	uint64_t bytes = sizeof(*cache) - sizeof(cache->layouts) + KVPOOL_HEADER_BYTES;

	/* The table of layouts is zeroed memory that is touched entry by entry. */
	bytes += ((uint64_t)cache->layouts_fresh + 1) * sizeof(cache->layouts[0]);
	bytes += ((uint64_t)cache->index.n_buckets + cache->index.overflow_fresh) *
		 sizeof(struct kvpool_bucket);
	bytes += (uint64_t)cache->block_slab.fresh *
		 (sizeof(struct kvpool_record) + sizeof(struct kvpool_block));
	bytes += kvpool_slab_bytes(&cache->lease_slab) + cache->holds_bytes;
	if (cache->notes.notes)
		bytes += (uint64_t)cache->notes.control->fresh * sizeof(struct kvpool_note);
	bytes += kvpool_slab_bytes(&cache->reservation_slab);
	bytes += kvpool_slab_bytes(&cache->waiter_slab);
	bytes += (uint64_t)kvpool_extents_end(e) *
		 (sizeof(struct kvpool_extent) + sizeof(struct kvpool_extent_record));
	bytes += e->slot_table_bytes;
	bytes += e->segments_fresh * sizeof(*e->segments) +
		 ((uint64_t)e->map_mask + 1) * sizeof(*e->map);
	bytes += cache->layouts_fresh * sizeof(struct kvpool_layout_record);
	bytes += cache->n_holders * sizeof(struct kvpool_holder);
	bytes += cache->scratch_blocks * sizeof(*cache->scratch);
	return bytes;
}

void kvpool_cache_usage(const struct kvpool_cache *cache, struct kvpool_cache_usage *out)
{
	const struct kvpool_extents *e = &cache->extents;
	const struct kvpool_counters *c = &cache->counters;
	const uint64_t *bytes = cache->bytes;
	const uint64_t *count = cache->count;

	/* What the last MATCH left counts; the cache is const for the caller only. */
	kvpool_cache_settle((struct kvpool_cache *)cache);
	*out = (struct kvpool_cache_usage){
		.total_bytes = e->n_extents * cache->config.extent_bytes,
		.free_bytes = e->free_bytes,
		.ready_bytes = bytes[KVPOOL_BLOCK_READY],
		.reserved_bytes = bytes[KVPOOL_BLOCK_RESERVED] + bytes[KVPOOL_BLOCK_VOID],
		.leased_only_bytes = bytes[KVPOOL_BLOCK_DEAD],
		.quarantined_bytes = bytes[KVPOOL_BLOCK_QUARANTINED],
		.slack_bytes = e->slack_bytes,
		.ready_blocks = count[KVPOOL_BLOCK_READY],
		.reserved_blocks = count[KVPOOL_BLOCK_RESERVED] + count[KVPOOL_BLOCK_VOID],
		.leased_only_blocks = count[KVPOOL_BLOCK_DEAD],
		.quarantined_blocks = count[KVPOOL_BLOCK_QUARANTINED],
		.leases = cache->lease_slab.used,
		.holders = cache->n_holders,
		.layouts = cache->n_layouts,
		.extents = e->n_extents,
		.extents_free = e->n_free,
		.metadata_bytes = metadata_bytes(cache),
		.matches = c->matches,
		.match_keys = c->match_keys,
		.match_hit_keys = c->match_hit_keys,
		.match_tokens = c->match_tokens,
		.match_hit_tokens = c->match_hit_tokens,
		.stored = c->stored,
		.evicted = c->evicted,
		.expired = c->expired,
		.forgotten = c->forgotten,
		.corrupt = c->corrupt,
		.abandoned = c->abandoned,
		.no_space = c->no_space,
		.extents_moved = e->moved,
	};
}
