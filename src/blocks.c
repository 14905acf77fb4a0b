/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block: its begin, its states, its place in the tree, its end; and the accounting of these.
 *
 * Every change of state goes through account(), so the sums always equal the walk over all records.
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <assert.h>

static void account(struct kvpool_cache *cache, uint32_t block, enum kvpool_block_state from,
		    enum kvpool_block_state to)
{
	uint64_t bytes = kvpool_block_bytes(cache, block);

	if (from != KVPOOL_BLOCK_FREE) {
		cache->count[from]--;
		cache->bytes[from] -= bytes;
	}
	if (to != KVPOOL_BLOCK_FREE) {
		cache->count[to]++;
		cache->bytes[to] += bytes;
	}
	cache->records[block].state = (uint8_t)to;
	kvpool_record_seal(&cache->records[block]);
	cache->changes++;
}

static uint32_t *siblings_of(struct kvpool_cache *cache, const struct kvpool_record *record)
{
	return record->parent ? &cache->blocks[record->parent].first_child
			      : &cache->layouts[record->layout].roots;
}

static void link_sibling(struct kvpool_cache *cache, uint32_t block)
{
	uint32_t *head = siblings_of(cache, &cache->records[block]);
	struct kvpool_block *b = &cache->blocks[block];

	b->prev_sibling = 0;
	b->next_sibling = *head;
	if (*head)
		cache->blocks[*head].prev_sibling = block;
	*head = block;
}

static void unlink_sibling(struct kvpool_cache *cache, uint32_t block)
{
	struct kvpool_block *b = &cache->blocks[block];

	if (b->prev_sibling)
		cache->blocks[b->prev_sibling].next_sibling = b->next_sibling;
	else
		*siblings_of(cache, &cache->records[block]) = b->next_sibling;
	if (b->next_sibling)
		cache->blocks[b->next_sibling].prev_sibling = b->prev_sibling;
}

void kvpool_block_begin(struct kvpool_cache *cache, uint32_t block,
			const struct kvpool_block_new *new)
{
	struct kvpool_record *r = &cache->records[block];
	uint32_t generation = r->generation + 1;

	*r = (struct kvpool_record){
		.generation = generation ? generation : 1,
		.parent = new->parent,
		.segment = new->place.segment,
		.offset = new->place.offset,
		.layout = new->layout,
		.group = new->group,
		.last_use = cache->tick,
	};
	if (cache->notes.notes &&
	    cache->layouts[new->layout].n_shards <= KVPOOL_RECORD_SHARDS_MAX) {
		r->flags = KVPOOL_RECORD_OWNED;
		r->owner = new->owner;
	}
	memcpy(r->key, new->key, sizeof(r->key));
	cache->blocks[block] = (struct kvpool_block){0};
	cache->layouts[new->layout].blocks++;
	account(cache, block, KVPOOL_BLOCK_FREE, KVPOOL_BLOCK_RESERVED);
	link_sibling(cache, block);
	kvpool_index_insert(&cache->index, block);
	kvpool_extents_touch(&cache->extents, new->place, cache->tick);
}

void kvpool_block_become(struct kvpool_cache *cache, uint32_t block, enum kvpool_block_state state)
{
	struct kvpool_record *r = &cache->records[block];
	bool was = kvpool_block_indexed(r);

	account(cache, block, r->state, state);
	assert(was || !kvpool_block_indexed(r));
	if (was && !kvpool_block_indexed(r))
		kvpool_index_remove(&cache->index, block);
	if (state != KVPOOL_BLOCK_READY && cache->blocks[block].order_next)
		cache->config.policy->remove(
			cache->orders[kvpool_block_group(cache, r)->size_class], block);
}

void kvpool_block_detach(struct kvpool_cache *cache, uint32_t block)
{
	struct kvpool_record *r = &cache->records[block];
	uint32_t parent = r->parent;

	if (!parent)
		return;
	unlink_sibling(cache, block);
	r->parent = 0;
	kvpool_record_seal(r);
	link_sibling(cache, block);
	kvpool_block_relax(cache, parent, false);
}

void kvpool_block_adopt(struct kvpool_cache *cache, uint32_t block, enum kvpool_block_state state)
{
	const struct kvpool_record *r = &cache->records[block];
	uint32_t x;

	cache->layouts[r->layout].blocks++;
	account(cache, block, KVPOOL_BLOCK_FREE, state);
	link_sibling(cache, block);
	if (state != KVPOOL_BLOCK_READY)
		return;
	x = kvpool_extents_find(&cache->extents, kvpool_block_place(r));
	cache->extents.table[x].newest = KVPOOL_MAX(cache->extents.table[x].newest, r->last_use);
}

/* All of an end but the parent's part. */
static void forget(struct kvpool_cache *cache, uint32_t block)
{
	struct kvpool_record *r = &cache->records[block];

	assert(cache->blocks[block].first_child == 0 && cache->blocks[block].leases == 0 &&
	       cache->blocks[block].reservation == 0);
	kvpool_block_become(cache, block, KVPOOL_BLOCK_FREE);
	unlink_sibling(cache, block);
	kvpool_extents_give(&cache->extents, kvpool_block_place(r));
	cache->layouts[r->layout].blocks--;
	r->parent = 0;
	kvpool_record_seal(r);
	kvpool_slab_give(&cache->block_slab, block);
}

void kvpool_block_end(struct kvpool_cache *cache, uint32_t block)
{
	uint32_t parent = cache->records[block].parent;

	forget(cache, block);
	if (parent)
		kvpool_block_relax(cache, parent, false);
}

void kvpool_block_evict(struct kvpool_cache *cache, uint32_t block)
{
	uint32_t parent = cache->records[block].parent;
	uint32_t last_use = cache->records[block].last_use;

	forget(cache, block);
	if (parent)
		kvpool_block_relax(cache, parent, cache->records[parent].last_use <= last_use);
}

void kvpool_block_relax(struct kvpool_cache *cache, uint32_t block, bool old)
{
	struct kvpool_record *r = &cache->records[block];
	const struct kvpool_policy *policy = cache->config.policy;

	/* Up a chain of dead ancestors, each of which only the one below it held. */
	while (r->state == KVPOOL_BLOCK_DEAD && cache->blocks[block].leases == 0 &&
	       cache->blocks[block].first_child == 0) {
		uint32_t parent = r->parent;

		forget(cache, block);
		if (!parent)
			return;
		block = parent;
		r = &cache->records[block];
		old = false;
	}
	if (kvpool_block_evictable(cache, block) && cache->blocks[block].order_next == 0)
		policy->insert(cache->orders[kvpool_block_group(cache, r)->size_class], block, old);
}

void kvpool_block_unhold(struct kvpool_cache *cache, uint32_t block)
{
	assert(cache->blocks[block].leases > 0);
	if (--cache->blocks[block].leases > 0)
		return;
	cache->changes++;
	kvpool_block_relax(cache, block, false);
}
