/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache as a whole: its making, its end, its clock.
 *
 * Owned by the daemon's service thread; nothing here may be called from two threads at once.
 */
#include "src/cache_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

uint64_t kvpool_cache_notes_bytes(void)
{
	return kvpool_notes_bytes(KVPOOL_DOMAIN_LEASES_MAX);
}

uint64_t kvpool_cache_catalog_bytes(const struct kvpool_cache_config *config)
{
	struct kvpool_catalog catalog;

	return kvpool_catalog_plan(config, &catalog) ? 0 : catalog.bytes;
}

static void tables_fini(struct kvpool_cache *cache)
{
	kvpool_slab_fini(&cache->block_slab);
	kvpool_slab_fini(&cache->lease_slab);
	kvpool_slab_fini(&cache->reservation_slab);
	kvpool_slab_fini(&cache->waiter_slab);
	kvpool_extents_fini(&cache->extents);
	kvpool_index_fini(&cache->index);
}

static int tables_init(struct kvpool_cache *cache)
{
	uint32_t blocks_max = cache->catalog.blocks_max;
	int r;

	r = kvpool_slab_init(&cache->block_slab, sizeof(struct kvpool_block), blocks_max, true);
	if (!r)
		r = kvpool_slab_init(&cache->lease_slab, sizeof(struct kvpool_lease),
				     KVPOOL_DOMAIN_LEASES_MAX, false);
	if (!r)
		r = kvpool_slab_init(&cache->reservation_slab, sizeof(struct kvpool_reservation),
				     blocks_max, false);
	if (!r)
		r = kvpool_slab_init(&cache->waiter_slab, sizeof(struct kvpool_waiter),
				     KVPOOL_DOMAIN_WAITERS_MAX, false);
	if (!r)
		r = kvpool_extents_init(&cache->extents, &cache->catalog, &cache->config);
	if (!r)
		r = kvpool_index_init(&cache->index, &cache->catalog, cache->config.secret);
	if (r)
		tables_fini(cache);
	return r;
}

int kvpool_cache_make(const struct kvpool_cache_config *config, void *catalog,
		      const struct kvpool_cache_calls *calls, struct kvpool_cache **out)
{
	struct kvpool_cache *cache;
	struct kvpool_catalog plan;
	int r;

	r = kvpool_catalog_plan(config, &plan);
	if (r)
		return r;
	if ((uintptr_t)catalog % KVPOOL_CACHELINE || (uintptr_t)config->notes % KVPOOL_CACHELINE)
		return -EINVAL;
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	cache->config = *config;
	if (!cache->config.policy)
		cache->config.policy = &kvpool_policy_clock;
	if (!cache->config.leases_max)
		cache->config.leases_max = KVPOOL_LEASES_DEFAULT;
	cache->catalog = plan;
	kvpool_catalog_place(&cache->catalog, catalog);
	cache->records = cache->catalog.records;
	if (config->notes)
		kvpool_notes_place(&cache->notes, config->notes, KVPOOL_DOMAIN_LEASES_MAX);
	r = tables_init(cache);
	if (r) {
		free(cache);
		return r;
	}
	cache->blocks = (struct kvpool_block *)cache->block_slab.base;
	cache->drain.extent = KVPOOL_EXTENT_NONE;
	cache->tick = 1;
	cache->calls = *calls;
	*out = cache;
	return 0;
}

int kvpool_cache_new(const struct kvpool_cache_config *config, void *catalog,
		     const struct kvpool_cache_calls *calls, struct kvpool_cache **out)
{
	struct kvpool_cache *cache;
	int r = kvpool_cache_make(config, catalog, calls, &cache);

	if (r)
		return r;
	kvpool_catalog_begin(&cache->catalog, config->epoch);
	if (config->notes)
		kvpool_notes_begin(&cache->notes, config->epoch);
	*out = cache;
	return 0;
}

void kvpool_cache_abandon(struct kvpool_cache *cache)
{
	for (uint32_t i = 1; i <= cache->lease_slab.fresh; i++)
		free(kvpool_lease_at(cache, i)->many);
	while (cache->holders) {
		struct kvpool_holder *holder = cache->holders;

		cache->holders = holder->next;
		free(holder);
	}
	for (uint32_t c = 0; c < KVPOOL_CLASSES_MAX; c++)
		cache->config.policy->destroy(cache->orders[c]);
	tables_fini(cache);
	free(cache->past.leaves);
	free(cache->scratch);
	free(cache);
}

void kvpool_cache_free(struct kvpool_cache *cache)
{
	if (!cache)
		return;
	kvpool_cache_end_past(cache);
	assert(cache->n_holders == 0 && cache->lease_slab.used == 0 &&
	       cache->reservation_slab.used == 0 && cache->waiter_slab.used == 0);
	kvpool_cache_abandon(cache);
}

void kvpool_cache_set_time(struct kvpool_cache *cache, uint64_t now_ms)
{
	uint64_t tick = 1 + now_ms * KVPOOL_TICKS_PER_SECOND / 1000;

	if (tick > cache->tick)
		cache->tick = (uint32_t)KVPOOL_MIN(tick, UINT32_MAX - 1);
}

void kvpool_cache_set_growing(struct kvpool_cache *cache, bool growing)
{
	cache->growing = growing;
}
