/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESERVE: places to write blocks that nobody has.
 *
 * Key by key. What a new block hangs on is leased for the moment in which room is made for it, so
 * that making room cannot take its parent away. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#define BATCH 32u

struct reserve {
	struct kvpool_cache *cache;             /* borrowed, as all below: for the call */
	struct kvpool_holder *holder;           /* borrowed */
	const struct kvpool_layout *layout;     /* borrowed */
	const struct kvpool_reserve_args *args; /* borrowed */
	struct kvpool_space space;
	uint32_t previous; /* block of the key before, READY or reserved; 0: none */
	bool first;        /* the next key starts the list */
};

static uint32_t find(const struct kvpool_cache *cache, uint16_t layout, uint32_t group,
		     const uint8_t *key)
{
	uint64_t hash = kvpool_index_hash(&cache->index, key, layout, (uint8_t)group);

	return kvpool_index_find(&cache->index, hash, key, layout, (uint8_t)group);
}

/* What the new block hangs on; 0: nothing. KVPOOL_STATUS_NO_PARENT where that is not there. */
static int find_parent(const struct reserve *r, const uint8_t *key, uint32_t *parent)
{
	const struct kvpool_layout *l = r->layout;
	uint8_t copy[KVPOOL_KEY_BYTES];

	if (l->n_full == 0) {
		*parent = 0;
		return 0;
	}
	if (l->groups[r->args->group].kind != KVPOOL_GROUP_FULL) {
		*parent = find(r->cache, r->args->layout, l->first_full, key);
	} else if (!r->first) {
		*parent = r->previous;
	} else if (r->args->parent) {
		memcpy(copy, r->args->parent, sizeof(copy));
		KVPOOL_COPIED(copy);
		*parent = find(r->cache, r->args->layout, r->args->group, copy);
	} else {
		*parent = 0;
		return 0;
	}
	return *parent ? 0 : KVPOOL_STATUS_NO_PARENT;
}

/* A block for a key that is not there. 0, NO_PARENT, or NO_SPACE with *reason. */
static int grant(struct reserve *r, const uint8_t *key, uint32_t *out, uint16_t *reason)
{
	struct kvpool_cache *cache = r->cache;
	struct kvpool_block_new new = {
		.key = key,
		.layout = r->args->layout,
		.group = (uint8_t)r->args->group,
		.owner = r->holder->id,
	};
	uint16_t size_class = r->layout->groups[r->args->group].size_class;
	uint32_t limit = cache->config.reservations_max;
	uint32_t block;
	int e;

	e = find_parent(r, key, &new.parent);
	if (e)
		return e;
	if (limit && r->holder->reserved >= limit) {
		*reason = KVPOOL_NO_SPACE_QUOTA;
		return KVPOOL_STATUS_NO_SPACE;
	}
	if (new.parent)
		cache->blocks[new.parent].leases++;
	e = kvpool_space_take(cache, &r->space, size_class, &block, &new.place);
	if (e) {
		if (new.parent)
			kvpool_block_unhold(cache, new.parent);
		*reason = (uint16_t)e;
		return KVPOOL_STATUS_NO_SPACE;
	}
	if (new.parent)
		cache->blocks[new.parent].leases--; /* the child holds it from here on */
	kvpool_block_begin(cache, block, &new);
	kvpool_reservation_new(cache, r->holder, block);
	/* What is built on is in use, but that is no sign that it will be asked for again. */
	if (new.parent) {
		struct kvpool_record *parent = &cache->records[new.parent];

		if (parent->state == KVPOOL_BLOCK_READY)
			parent->last_use = cache->tick;
		kvpool_extents_touch(&cache->extents, kvpool_block_place(parent), cache->tick);
	}
	*out = block;
	return 0;
}

static void reserve_one(struct reserve *r, const uint8_t *key, struct kvpool_wire_block *out,
			struct kvpool_reserve_result *result)
{
	struct kvpool_cache *cache = r->cache;
	uint32_t block = find(cache, r->args->layout, r->args->group, key);
	struct kvpool_record *record = &cache->records[block];
	uint16_t reason = KVPOOL_NO_SPACE_NONE;
	int e;

	if (block && record->state == KVPOOL_BLOCK_READY) {
		kvpool_block_touch(cache, record);
		kvpool_extents_touch(&cache->extents, kvpool_block_place(record), cache->tick);
		e = KVPOOL_STATUS_EXISTS;
	} else if (block) {
		e = KVPOOL_STATUS_BUSY;
	} else {
		e = grant(r, key, &block, &reason);
	}
	r->previous = block;
	r->first = false;
	if (e == 0) {
		record = &cache->records[block];
		*out = (struct kvpool_wire_block){block, record->generation, record->segment,
						  record->offset};
		result->granted++;
		return;
	}
	*out = (struct kvpool_wire_block){.generation = (uint32_t)e, .segment = reason};
	if (e != KVPOOL_STATUS_NO_SPACE)
		return;
	cache->counters.no_space++;
	if (result->detail == KVPOOL_NO_SPACE_NONE) {
		uint32_t most = 0;

		(void)kvpool_space_reason(cache, &most);
		result->detail = reason;
		result->holder = reason == KVPOOL_NO_SPACE_QUOTA ? r->holder->id : most;
	}
}

/* What the lookups of these keys will touch; a hint, since the index may grow between them. */
static void fetch_buckets(const struct reserve *r, uint32_t n, uint8_t keys[][KVPOOL_KEY_BYTES])
{
	const struct kvpool_index *index = &r->cache->index;
	const struct kvpool_bucket *home[BATCH];

	for (uint32_t i = 0; i < n; i++)
		home[i] =
			kvpool_index_home(index, kvpool_index_hash(index, keys[i], r->args->layout,
								   (uint8_t)r->args->group));
	for (uint32_t i = 0; i < n; i++)
		kvpool_line_fetch(home[i]);
}

static void reserve_all(struct reserve *r, struct kvpool_reserve_result *result)
{
	const struct kvpool_reserve_args *args = r->args;
	uint8_t keys[BATCH][KVPOOL_KEY_BYTES];

	for (uint32_t at = 0; at < args->n; at += BATCH) {
		uint32_t n = KVPOOL_MIN(BATCH, args->n - at);

		memcpy(keys, args->keys + (size_t)at * KVPOOL_KEY_BYTES,
		       (size_t)n * KVPOOL_KEY_BYTES);
		KVPOOL_COPIED(keys);
		fetch_buckets(r, n, keys);
		for (uint32_t i = 0; i < n; i++) {
			struct kvpool_wire_block out;

			reserve_one(r, keys[i], &out, result);
			if (at + i == 0)
				result->first = out;
			memcpy(&args->blocks[at + i], &out, sizeof(out));
		}
	}
}

int kvpool_cache_reserve(struct kvpool_cache *cache, struct kvpool_holder *holder,
			 const struct kvpool_reserve_args *args,
			 struct kvpool_reserve_result *result)
{
	uint32_t limit = cache->config.reservations_max;
	struct reserve r = {.cache = cache, .holder = holder, .args = args, .first = true};

	kvpool_cache_settle(cache);
	r.layout = kvpool_layout_of(cache, holder, args->layout);
	if (!r.layout)
		return KVPOOL_STATUS_NO_LAYOUT;
	if (args->n == 0 || args->n > KVPOOL_KEYS_MAX || args->group >= r.layout->n_groups)
		return KVPOOL_STATUS_INVALID;
	if (limit && holder->reserved >= limit)
		return KVPOOL_STATUS_LIMIT;
	*result = (struct kvpool_reserve_result){0};
	reserve_all(&r, result);
	return 0;
}
