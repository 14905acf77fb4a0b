/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FORGET: keys, or a whole layout, are no longer true.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

static uint32_t forget_block(struct kvpool_cache *cache, uint32_t block)
{
	struct kvpool_killed killed = {0};

	kvpool_tree_kill(cache, block, &killed);
	cache->counters.forgotten += killed.ready + killed.reserved;
	return killed.ready + killed.reserved;
}

int kvpool_cache_forget(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
			uint32_t group, uint32_t n, const uint8_t *keys, uint32_t *done)
{
	const struct kvpool_layout *l = kvpool_layout_of(cache, holder, layout);
	uint32_t forgotten = 0;

	kvpool_cache_settle(cache);
	if (!l)
		return KVPOOL_STATUS_NO_LAYOUT;
	if (n == 0 || n > KVPOOL_KEYS_MAX || group >= l->n_groups)
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t key[KVPOOL_KEY_BYTES];
		uint64_t hash;
		uint32_t block;

		memcpy(key, keys + (size_t)i * KVPOOL_KEY_BYTES, sizeof(key));
		KVPOOL_COPIED(key);
		hash = kvpool_index_hash(&cache->index, key, layout, (uint8_t)group);
		block = kvpool_index_find(&cache->index, hash, key, layout, (uint8_t)group);
		if (block)
			forgotten += forget_block(cache, block);
	}
	*done = forgotten;
	return 0;
}

int kvpool_cache_forget_layout(struct kvpool_cache *cache, struct kvpool_holder *holder,
			       uint16_t layout, uint32_t *done)
{
	uint32_t forgotten = 0;
	uint32_t root;

	kvpool_cache_settle(cache);
	if (!kvpool_layout_of(cache, holder, layout))
		return KVPOOL_STATUS_NO_LAYOUT;
	root = cache->layouts[layout].roots;
	while (root) {
		/* Blocks that lose their parent meanwhile are DEAD or VOID and join at the front.
		 */
		uint32_t next = cache->blocks[root].next_sibling;

		forgotten += forget_block(cache, root);
		root = next;
	}
	*done = forgotten;
	return 0;
}
