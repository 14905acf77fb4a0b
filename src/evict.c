/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making room for a block: a free frame, a free extent, more memory, and then what was used longest
 * ago.
 *
 * Within a size class the policy names the victim. From time to time, and whenever the class has
 * none, other classes are looked at: an extent in which nothing was used since the class's own
 * victim is emptied and changes its size. As it must be colder than the victim it cannot go back
 * and forth. Only one extent is emptied at a time, a bounded number of blocks a request.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#define LOOK_EVERY      64u        /* evictions of a class between looks at other classes */
#define DRAIN_BLOCKS    4096u      /* emptied in one request while the class has own victims */
#define WALK_BLOCKS_MAX (1u << 18) /* looked at in one look, with all that hangs on them */
#define SWEEP_BLOCKS    (1u << 15) /* looked at in one request when all seems held; more or less */
#define ATTEMPTS_MAX    8u         /* extents that turn out to be held, in one look */

/*
 * The extent of another class that was used longest ago, before `limit`; among equals the last,
 * because chains grow that way and little hangs on their ends.
 */
static uint32_t coldest(const struct kvpool_cache *cache, uint16_t size_class, uint32_t limit)
{
	const struct kvpool_extents *e = &cache->extents;
	uint32_t best = KVPOOL_EXTENT_NONE;

	if (limit == 0)
		return best;
	limit--;
	for (uint32_t x = 0; x < kvpool_extents_end(e); x++) {
		const struct kvpool_extent *extent = &e->table[x];

		if ((extent->state != KVPOOL_EXTENT_OPEN && extent->state != KVPOOL_EXTENT_FULL) ||
		    extent->size_class == size_class || extent->newest > limit)
			continue;
		limit = extent->newest;
		best = x;
	}
	return best;
}

bool kvpool_extent_held(struct kvpool_cache *cache, uint32_t extent, uint32_t limit,
			uint32_t *budget)
{
	uint32_t n = cache->extents.table[extent].fresh;

	for (uint32_t slot = 0; slot < n; slot++) {
		uint32_t block = kvpool_extents_block(&cache->extents, extent, slot);

		if (block && kvpool_tree_held(cache, block, limit, budget))
			return true;
	}
	return false;
}

/* Starts emptying an extent, if nothing there is held or was used at `limit` or later. */
static bool drain_start(struct kvpool_cache *cache, uint32_t extent, uint32_t limit,
			uint32_t *budget)
{
	cache->walk++;
	if (kvpool_extent_held(cache, extent, limit, budget))
		return false;
	kvpool_extents_drain(&cache->extents, extent);
	cache->drain.extent = extent;
	cache->drain.slot = 0;
	return true;
}

/* Starts with an extent of another class, the coldest that is not held. */
static bool drain_coldest(struct kvpool_cache *cache, uint16_t size_class, uint32_t limit)
{
	uint32_t budget = WALK_BLOCKS_MAX;

	for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX && budget > 0; attempt++) {
		uint32_t x = coldest(cache, size_class, limit);

		if (x == KVPOOL_EXTENT_NONE)
			return false;
		if (drain_start(cache, x, limit, &budget))
			return true;
		/* In use after all: as good as used now. */
		cache->extents.table[x].newest = cache->tick;
	}
	return false;
}

/* Has every extent been looked at in vain since anything changed that could help? */
static bool swept(struct kvpool_cache *cache)
{
	struct kvpool_drain *drain = &cache->drain;

	if (drain->changes != cache->changes) {
		drain->changes = cache->changes;
		drain->swept = 0;
	}
	return drain->swept >= kvpool_extents_end(&cache->extents);
}

/*
 * Starts with any extent that is not held, of any class. A long search is spread over requests: it
 * goes on where the last one ended, and ends for good when it has been everywhere.
 */
static bool drain_any(struct kvpool_cache *cache)
{
	uint32_t end = kvpool_extents_end(&cache->extents);
	uint32_t spent = 0;

	while (!swept(cache) && spent < SWEEP_BLOCKS) {
		uint32_t x = cache->drain.next++ % end;
		uint16_t state = cache->extents.table[x].state;
		uint32_t budget = WALK_BLOCKS_MAX;

		cache->drain.swept++;
		if ((state == KVPOOL_EXTENT_OPEN || state == KVPOOL_EXTENT_FULL) &&
		    drain_start(cache, x, UINT32_MAX, &budget))
			return true;
		spent += WALK_BLOCKS_MAX - budget;
	}
	return false;
}

static void drain_stop(struct kvpool_cache *cache)
{
	if (cache->extents.table[cache->drain.extent].state == KVPOOL_EXTENT_DRAINING)
		kvpool_extents_undrain(&cache->extents, cache->drain.extent);
	cache->drain.extent = KVPOOL_EXTENT_NONE;
}

/* Empties on, at most `blocks`. True where the extent is free now. */
static bool drain_step(struct kvpool_cache *cache, uint32_t blocks)
{
	struct kvpool_drain *drain = &cache->drain;
	struct kvpool_extent *extent = &cache->extents.table[drain->extent];
	uint32_t gone = 0;

	while (extent->state == KVPOOL_EXTENT_DRAINING && gone < blocks) {
		uint32_t budget = WALK_BLOCKS_MAX;
		uint32_t block, n;

		/* Every frame below the slot is free, and none is given out meanwhile. */
		block = kvpool_extents_block(&cache->extents, drain->extent, drain->slot++);
		if (!block)
			continue;
		cache->walk++;
		if (kvpool_tree_held(cache, block, UINT32_MAX, &budget)) {
			drain_stop(cache);
			return false;
		}
		n = kvpool_tree_evict(cache, block);
		cache->counters.evicted += n;
		gone += n;
	}
	if (extent->state == KVPOOL_EXTENT_DRAINING)
		return false;
	drain->extent = KVPOOL_EXTENT_NONE;
	return true;
}

/* Goes on with an extent that is being emptied. True where that gave a free one, or a frame. */
static bool drain_resume(struct kvpool_cache *cache, uint16_t size_class, uint32_t blocks)
{
	const struct kvpool_extents *e = &cache->extents;
	const struct kvpool_extent *extent = &e->table[cache->drain.extent];

	if (extent->state == KVPOOL_EXTENT_DRAINING && extent->size_class != size_class)
		return drain_step(cache, blocks);
	/* It became free by itself, or its own class needs what it has free already. */
	drain_stop(cache);
	return e->n_free > 0 || e->classes[size_class].open != KVPOOL_EXTENT_NONE;
}

/* Takes an extent from where it is needed less. True where there is one free now, or a frame. */
static bool take_extent(struct kvpool_cache *cache, uint16_t size_class, uint32_t victim)
{
	if (victim) {
		uint32_t limit = cache->records[victim].last_use;

		if (cache->drain.extent != KVPOOL_EXTENT_NONE)
			return drain_resume(cache, size_class, DRAIN_BLOCKS);
		return drain_coldest(cache, size_class, limit) && drain_step(cache, DRAIN_BLOCKS);
	}
	if (cache->drain.extent != KVPOOL_EXTENT_NONE &&
	    drain_resume(cache, size_class, UINT32_MAX))
		return true;
	if (swept(cache))
		return false;
	return (drain_coldest(cache, size_class, cache->tick) || drain_any(cache)) &&
	       drain_step(cache, UINT32_MAX);
}

static uint32_t victim_of(struct kvpool_cache *cache, uint16_t size_class)
{
	return cache->config.policy->victim(cache->orders[size_class]);
}

/* Frees a frame that the class can use. False where nothing can go. */
static bool make_room(struct kvpool_cache *cache, uint16_t size_class)
{
	uint32_t victim = victim_of(cache, size_class);
	bool look = cache->drain.extent != KVPOOL_EXTENT_NONE ||
		    cache->evictions[size_class] % LOOK_EVERY == 0;

	if (!victim || look) {
		if (take_extent(cache, size_class, victim))
			return true;
		victim = victim_of(cache, size_class); /* it may have gone with an extent */
	}
	if (!victim)
		return false;
	cache->evictions[size_class]++;
	cache->counters.evicted++;
	kvpool_block_evict(cache, victim);
	return true;
}

/* Frees an id, wherever. */
static bool make_id(struct kvpool_cache *cache, uint16_t size_class)
{
	uint32_t victim = victim_of(cache, size_class);

	for (uint16_t c = 0; !victim && c < KVPOOL_CLASSES_MAX; c++) {
		if (cache->orders[c])
			victim = victim_of(cache, c);
	}
	if (!victim)
		return false;
	cache->counters.evicted++;
	kvpool_block_evict(cache, victim);
	return true;
}

static bool more_memory(struct kvpool_cache *cache, struct kvpool_space *space)
{
	if (space->no_more || !cache->calls.more)
		return false;
	if (cache->calls.more(cache->calls.more_cookie) && cache->extents.n_free)
		return true;
	space->no_more = true;
	return false;
}

int kvpool_space_take(struct kvpool_cache *cache, struct kvpool_space *space, uint16_t size_class,
		      uint32_t *block, struct kvpool_place *place)
{
	uint32_t most;
	int r;

	if (space->full[size_class])
		return kvpool_space_reason(cache, &most);
	if (kvpool_slab_full(&cache->block_slab) && !make_id(cache, size_class))
		return KVPOOL_NO_SPACE_TABLE;
	*block = kvpool_slab_take(&cache->block_slab);
	/* Before the record is anything but FREE. */
	if (cache->catalog.control->blocks_fresh < cache->block_slab.fresh)
		cache->catalog.control->blocks_fresh = cache->block_slab.fresh;
	for (;;) {
		r = kvpool_extents_take(&cache->extents, size_class, *block, place);
		if (r == 0)
			return 0;
		if (r < 0)
			break;
		if (!more_memory(cache, space) && !make_room(cache, size_class))
			break;
	}
	kvpool_slab_give(&cache->block_slab, *block);
	if (r < 0)
		return KVPOOL_NO_SPACE_TABLE;
	space->full[size_class] = true;
	return kvpool_space_reason(cache, &most);
}

uint16_t kvpool_space_reason(const struct kvpool_cache *cache, uint32_t *holder)
{
	uint64_t leased = 0, reserved = 0, most = 0;

	for (const struct kvpool_holder *h = cache->holders; h; h = h->next) {
		uint64_t held = h->leased_bytes + h->reserved_bytes + h->quarantined_bytes;

		leased += h->leased_bytes;
		reserved += h->reserved_bytes + h->quarantined_bytes;
		if (held > most) {
			most = held;
			*holder = h->id;
		}
	}
	if (cache->growing)
		return KVPOOL_NO_SPACE_GROWING;
	if (most == 0)
		return KVPOOL_NO_SPACE_QUOTA;
	return leased > reserved ? KVPOOL_NO_SPACE_LEASED : KVPOOL_NO_SPACE_RESERVED;
}
