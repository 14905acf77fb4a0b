/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: what clients are reading.
 *
 * A lease is a list of holds; a hold counts one on its block. Along a chain one hold on the last
 * block is enough, because a block with children stays (tree). A lease's number outside is its
 * generation and its index. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t hold_bytes(const struct kvpool_cache *cache, const struct kvpool_lease *lease,
			   const struct kvpool_hold *hold)
{
	uint64_t units = cache->layouts[lease->layout].groups[hold->group].frame_units;

	return (hold->chain ? (uint64_t)hold->key + 1 : 1) * (units << KVPOOL_UNIT_SHIFT);
}

bool kvpool_lease_room(const struct kvpool_cache *cache, const struct kvpool_holder *holder,
		       uint32_t holds)
{
	uint64_t holds_max = (uint64_t)cache->config.leases_max * KVPOOL_HOLDS_PER_LEASE;

	/* One request always fits, however low the limit on leases is. */
	holds_max = KVPOOL_MAX(holds_max, (uint64_t)KVPOOL_KEYS_MAX * KVPOOL_GROUPS_MAX);
	return holder->leases < cache->config.leases_max &&
	       holder->holds + (uint64_t)holds <= holds_max;
}

uint32_t kvpool_lease_new(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
			  uint32_t n_holds)
{
	struct kvpool_hold *many = NULL;
	struct kvpool_lease *lease;
	uint32_t index;

	if (n_holds > 1) {
		many = malloc(n_holds * sizeof(*many));
		if (!many)
			return 0;
	}
	index = kvpool_slab_take(&cache->lease_slab);
	if (!index) {
		free(many);
		return 0;
	}
	lease = kvpool_lease_at(cache, index);
	if (++lease->generation == 0)
		lease->generation = 1;
	lease->holder = holder;
	lease->layout = layout;
	lease->n_holds = n_holds;
	lease->many = many;
	return index;
}

void kvpool_lease_settle(struct kvpool_cache *cache, uint32_t lease)
{
	struct kvpool_lease *l = kvpool_lease_at(cache, lease);
	struct kvpool_holder *holder = l->holder;
	const struct kvpool_hold *holds = kvpool_lease_holds(l);

	for (uint32_t i = 0; i < l->n_holds; i++)
		kvpool_line_fetch(&cache->blocks[holds[i].block]);
	l->bytes = 0;
	for (uint32_t i = 0; i < l->n_holds; i++) {
		cache->blocks[holds[i].block].leases++;
		l->bytes += hold_bytes(cache, l, &holds[i]);
	}
	l->prev = 0;
	l->next = holder->first_lease;
	if (l->next)
		kvpool_lease_at(cache, l->next)->prev = lease;
	holder->first_lease = lease;
	holder->leases++;
	holder->holds += l->n_holds;
	holder->leased_bytes += l->bytes;
	if (l->many)
		cache->holds_bytes += l->n_holds * sizeof(*l->many);
}

static void lease_end(struct kvpool_cache *cache, uint32_t index)
{
	struct kvpool_lease *lease = kvpool_lease_at(cache, index);
	struct kvpool_holder *holder = lease->holder;
	const struct kvpool_hold *holds = kvpool_lease_holds(lease);

	for (uint32_t i = 0; i < lease->n_holds; i++)
		kvpool_block_unhold(cache, holds[i].block);
	if (lease->prev)
		kvpool_lease_at(cache, lease->prev)->next = lease->next;
	else
		holder->first_lease = lease->next;
	if (lease->next)
		kvpool_lease_at(cache, lease->next)->prev = lease->prev;
	holder->leases--;
	holder->holds -= lease->n_holds;
	holder->leased_bytes -= lease->bytes;
	if (lease->many)
		cache->holds_bytes -= lease->n_holds * sizeof(*lease->many);
	free(lease->many);
	lease->many = NULL;
	lease->holder = NULL;
	lease->n_holds = 0;
	kvpool_slab_give(&cache->lease_slab, index);
}

/* The hold serves the first `keep` keys only. False where it serves none of them. */
static bool hold_shrink(struct kvpool_cache *cache, struct kvpool_hold *hold, uint32_t keep)
{
	uint32_t block = hold->block;

	if (hold->key < keep)
		return true;
	if (hold->chain) {
		for (uint32_t key = hold->key; key >= keep; key--)
			block = cache->records[block].parent;
		assert(block);
		cache->blocks[block].leases++;
	}
	kvpool_block_unhold(cache, hold->block);
	hold->block = block;
	hold->key = keep - 1;
	return hold->chain;
}

static void lease_shrink(struct kvpool_cache *cache, struct kvpool_lease *lease, uint32_t keep)
{
	struct kvpool_hold *holds = kvpool_lease_holds(lease);
	struct kvpool_holder *holder = lease->holder;
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < lease->n_holds; i++) {
		if (!hold_shrink(cache, &holds[i], keep))
			continue;
		bytes += hold_bytes(cache, lease, &holds[i]);
		holds[n++] = holds[i];
	}
	holder->holds -= lease->n_holds - n;
	holder->leased_bytes -= lease->bytes - bytes;
	if (lease->many)
		cache->holds_bytes -= (lease->n_holds - n) * sizeof(*holds);
	lease->n_holds = n;
	lease->bytes = bytes;
	lease->keys = keep;
}

int kvpool_cache_release(struct kvpool_cache *cache, struct kvpool_holder *holder, uint64_t lease,
			 uint32_t keep)
{
	uint32_t index = (uint32_t)lease;
	struct kvpool_lease *l;

	kvpool_cache_settle(cache);
	if (index == 0 || index > cache->lease_slab.fresh)
		return KVPOOL_STATUS_STALE;
	l = kvpool_lease_at(cache, index);
	if (l->holder != holder || l->generation != lease >> 32)
		return KVPOOL_STATUS_STALE;
	if (keep > l->keys)
		return KVPOOL_STATUS_INVALID;
	if (keep == 0)
		lease_end(cache, index);
	else if (keep < l->keys)
		lease_shrink(cache, l, keep);
	return 0;
}

void kvpool_lease_end_all(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	while (holder->first_lease)
		lease_end(cache, holder->first_lease);
}
