/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random matches against the definition of section7.c, releases, and waits.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/section7.h"
#include "tests/property/world.h"

#include <string.h>

struct match {
	const struct world *w;
	int holder, layout;
	uint32_t n, skip, flags, capacity;
	int nodes[LIST_MAX];
	struct section7 rule;
	uint32_t length, reported; /* as they must come out */
	struct kvpool_wire_range ranges[GROUPS];
	struct kvpool_wire_block blocks[GROUPS * LIST_MAX];
	struct kvpool_match_result result;
};

static const struct block *block_of(const struct match *m, uint32_t group, uint32_t key)
{
	return &m->w->blocks[block_index(m->layout, (int)group, m->nodes[key])];
}

static bool ready(const void *cookie, uint32_t group, uint32_t key)
{
	return block_of(cookie, group, key)->state == BLOCK_READY;
}

static bool taken(const void *cookie, uint32_t group, uint32_t key)
{
	return block_of(cookie, group, key)->state != BLOCK_ABSENT;
}

static struct lease *free_lease(struct world *w)
{
	for (int i = 0; i < LEASES; i++)
		if (w->leases[i].id == 0)
			return &w->leases[i];
	return NULL;
}

/* Leases that this holder has: for certain, and perhaps. */
static void count_leases(const struct world *w, int holder, uint32_t *sure, uint32_t *faint)
{
	*sure = *faint = 0;
	for (int i = 0; i < LEASES; i++)
		if (w->leases[i].id != 0 && w->leases[i].holder == holder) {
			if (w->leases[i].faint)
				++*faint;
			else
				++*sure;
		}
}

static int call_match(struct world *w, struct match *m)
{
	uint8_t keys[LIST_MAX][KVPOOL_KEY_BYTES];
	const struct kvpool_match_args args = {
		.layout = w->holders[m->holder].ids[m->layout],
		.flags = (uint8_t)m->flags,
		.n = m->n,
		.skip = m->skip,
		.keys = keys[0],
		.ranges = m->ranges,
		.blocks = m->blocks,
		.capacity = m->capacity,
	};

	for (uint32_t i = 0; i < m->n; i++)
		memcpy(keys[i], w->keys[m->nodes[i]], KVPOOL_KEY_BYTES);
	return kvpool_cache_match(w->cache, w->holders[m->holder].cache, &args, &m->result);
}

static void pick_match(struct world *w, struct match *m)
{
	m->w = w;
	m->n = world_path(w, m->nodes);
	m->n = 1 + (uint32_t)world_random(w, m->n);
	m->skip = world_chance(w, 60) ? 0 : (uint32_t)world_random(w, m->n + 1);
	m->flags = (world_chance(w, 30) ? KVPOOL_REQUEST_NO_LEASE : 0u) |
		   (world_chance(w, 50) ? KVPOOL_REQUEST_PENDING : 0u);
	if (!free_lease(w))
		m->flags |= KVPOOL_REQUEST_NO_LEASE;
	m->rule = (struct section7){
		.layout = &w->layouts[m->layout].wire,
		.n = m->n,
		.skip = m->skip,
		.ready = ready,
		.taken = taken,
		.cookie = m,
	};
	m->length = section7_longest(&m->rule);
	for (uint32_t g = 0; g < m->rule.layout->n_groups; g++)
		m->reported += section7_range(&m->rule, g, m->length).count;
	m->capacity = GROUPS * LIST_MAX;
	if (world_chance(w, 20))
		m->capacity = (uint32_t)world_random(w, m->reported + 2);
}

/* Every block in its place in the answer; and into the lease, where there is one. */
static void check_blocks(struct world *w, struct match *m, struct lease *lease)
{
	uint32_t at = 0;

	for (uint32_t g = 0; g < m->rule.layout->n_groups; g++) {
		struct kvpool_wire_range r = section7_range(&m->rule, g, m->length);

		WORLD_CHECK(w, m->ranges[g].count == r.count, "group %u: %u blocks, expected %u", g,
			    m->ranges[g].count, r.count);
		WORLD_CHECK(w, r.count == 0 || m->ranges[g].first == r.first,
			    "group %u: from key %u, expected %u", g, m->ranges[g].first, r.first);
		for (uint32_t i = 0; i < r.count; i++, at++) {
			int index = block_index(m->layout, (int)g, m->nodes[r.first + i]);
			struct block *b = &w->blocks[index];

			WORLD_CHECK(w, place_equal(&m->blocks[at], &b->place),
				    "group %u, key %u: not the block that was committed", g,
				    r.first + i);
			stamp_check(w, index, &m->blocks[at], b->stamp);
			b->used_ms = w->now_ms;
			if (!lease)
				continue;
			lease->items[lease->n++] = (struct item){
				.block = index,
				.parent = b->parent,
				.key = r.first + i,
				.place = b->place,
				.stamp = b->stamp,
			};
		}
	}
	WORLD_CHECK(w, at == 0 || place_equal(&m->result.first, &m->blocks[0]), "first");
}

static void note_below(struct world *w, const struct match *m, struct lease *lease)
{
	for (uint32_t g = 0; g < m->rule.layout->n_groups; g++) {
		if (m->rule.layout->groups[g].kind != KVPOOL_GROUP_FULL)
			continue;
		for (uint32_t i = 0; i < m->skip; i++) {
			int index = block_index(m->layout, (int)g, m->nodes[i]);

			lease->below[lease->n_below++] = (struct item){
				.block = index,
				.parent = w->blocks[index].parent,
				.key = i,
				.place = w->blocks[index].place,
			};
		}
	}
}

static void check_match(struct world *w, struct match *m)
{
	const struct kvpool_match_result *result = &m->result;
	struct lease *lease = NULL;

	WORLD_CHECK(w, result->blocks == m->length, "%u keys, expected %u", result->blocks,
		    m->length);
	WORLD_CHECK(w, result->reported == m->reported, "%u blocks, expected %u", result->reported,
		    m->reported);
	if (m->flags & KVPOOL_REQUEST_PENDING) {
		uint32_t pending = section7_pending(&m->rule, m->length);

		WORLD_CHECK(w, result->pending == pending, "%u keys pending, expected %u",
			    result->pending, pending);
		w->seen->pending += pending > 0;
	}
	WORLD_CHECK(w,
		    (result->lease != 0) ==
			    (m->reported > 0 && !(m->flags & KVPOOL_REQUEST_NO_LEASE)),
		    "lease %llu for %u blocks", (unsigned long long)result->lease, m->reported);
	if (result->lease != 0) {
		for (int i = 0; i < LEASES; i++)
			WORLD_CHECK(w, w->leases[i].id != result->lease || w->leases[i].faint,
				    "the same lease twice");
		lease = free_lease(w);
		*lease = (struct lease){
			.id = result->lease, .holder = m->holder, .length = m->length};
		note_below(w, m, lease);
		w->seen->leased++;
	}
	w->seen->hits += m->length > 0;
	check_blocks(w, m, lease);
}

void step_match(struct world *w)
{
	struct kvpool_cache_usage before = w->usage;
	struct match m = {0};
	uint32_t sure, faint;
	bool leases;
	int r;

	m.holder = world_pick_holder(w, &m.layout);
	if (m.holder < 0)
		return;
	pick_match(w, &m);
	count_leases(w, m.holder, &sure, &faint);
	leases = m.reported > 0 && !(m.flags & KVPOOL_REQUEST_NO_LEASE);
	world_log(w, "match holder %d layout %d keys %u to %d skip %u flags %u capacity %u",
		  m.holder, m.layout, m.n, m.nodes[m.n - 1], m.skip, m.flags, m.capacity);
	r = call_match(w, &m);
	if (r == KVPOOL_STATUS_INVALID) {
		WORLD_CHECK(w, m.capacity < m.reported, "refused at capacity %u", m.capacity);
	} else if (r == KVPOOL_STATUS_LIMIT) {
		WORLD_CHECK(w,
			    leases && w->config.leases_max != 0 &&
				    sure + faint >= w->config.leases_max,
			    "LIMIT at %u leases", sure);
	} else {
		WORLD_CHECK(w, r == 0, "answers %d", r);
		WORLD_CHECK(w, m.capacity >= m.reported, "%u blocks in a place for %u", m.reported,
			    m.capacity);
		WORLD_CHECK(w, !leases || w->config.leases_max == 0 || sure < w->config.leases_max,
			    "more than %u leases", w->config.leases_max);
		check_match(w, &m);
	}
	if (world_chance(w, 50))
		kvpool_cache_settle(w->cache);
	world_observe(w, false);
	WORLD_CHECK(w,
		    r != 0 || (w->usage.matches == before.matches + 1 &&
			       w->usage.match_keys == before.match_keys + m.n &&
			       w->usage.match_hit_keys == before.match_hit_keys + m.length),
		    "the counters of matches");
}

static uint32_t keep_items(struct item *items, uint32_t n, uint32_t keep)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++)
		if (items[i].key < keep)
			items[kept++] = items[i];
	return kept;
}

/* Keeps what serves the first `keep` keys; nothing promised: the lease may be over. */
static void keep_part(struct lease *l, uint32_t keep)
{
	l->n = keep_items(l->items, l->n, keep);
	l->n_below = keep_items(l->below, l->n_below, keep);
	l->length = KVPOOL_MIN(l->length, keep);
	l->faint = l->faint || l->n == 0;
}

void step_release(struct world *w)
{
	struct lease *l = &w->leases[world_random(w, LEASES)];
	uint32_t keep;
	int h, r;

	for (int i = 0; i < LEASES && l->id == 0; i++)
		l = &w->leases[i];
	if (l->id == 0)
		return;
	h = world_chance(w, 5) ? world_pick_holder(w, NULL) : l->holder;
	keep = world_chance(w, 60) ? 0 : 1 + (uint32_t)world_random(w, l->length + 1);
	world_log(w, "release holder %d lease %llx of holder %d keep %u of %u", h,
		  (unsigned long long)l->id, l->holder, keep, l->length);
	if (h < 0)
		return;
	if (world_chance(w, 5)) {
		r = kvpool_cache_release(w->cache, w->holders[h].cache, l->id ^ (UINT64_C(1) << 63),
					 0);
		WORLD_CHECK(w, r == KVPOOL_STATUS_STALE || r == KVPOOL_STATUS_INVALID,
			    "a lease that never was: %d", r);
	}
	r = kvpool_cache_release(w->cache, w->holders[h].cache, l->id, keep);
	if (h != l->holder) {
		WORLD_CHECK(w, r == KVPOOL_STATUS_STALE, "another's lease: %d", r);
	} else if (keep > l->length) {
		/* No such keys: refused, or all is kept. */
		WORLD_CHECK(w, r == 0 || r == KVPOOL_STATUS_INVALID || l->faint, "answers %d", r);
		if (r == KVPOOL_STATUS_STALE)
			l->id = 0;
	} else {
		WORLD_CHECK(w, r == 0 || (r == KVPOOL_STATUS_STALE && l->faint), "answers %d", r);
		if (keep == 0 || r == KVPOOL_STATUS_STALE)
			l->id = 0;
		else
			keep_part(l, keep);
	}
	world_observe(w, false);
}

void step_wait(struct world *w)
{
	static const enum kvpool_status answers[] = {
		[BLOCK_ABSENT] = KVPOOL_STATUS_NOT_FOUND,
		[BLOCK_RESERVED] = KVPOOL_STATUS_BUSY,
		[BLOCK_READY] = KVPOOL_STATUS_OK,
	};
	struct waiter *waiter = NULL;
	int layout, block, r;
	int h = world_pick_holder(w, &layout);

	for (int i = 0; i < WAITERS; i++)
		if (!w->waiters[i].used)
			waiter = &w->waiters[i];
	if (h < 0 || !waiter)
		return;
	block = block_index(layout, (int)world_random(w, w->layouts[layout].wire.n_groups),
			    (int)world_random(w, NODES));
	/* Mostly for something that is being written. */
	for (int i = 0; i < NODES && w->blocks[block].state != BLOCK_RESERVED; i++)
		block = block_index(layout, block_group(block), (block_node(block) + 1) % NODES);
	world_log(w, "wait holder %d block %d in state %d", h, block, w->blocks[block].state);
	waiter->holder = h;
	waiter->block = block;
	r = kvpool_cache_wait(w->cache, w->holders[h].cache, w->holders[h].ids[layout],
			      (uint32_t)block_group(block), w->keys[block_node(block)], waiter,
			      &waiter->cache);
	WORLD_CHECK(w, r == (int)answers[w->blocks[block].state], "answers %d", r);
	if (r == KVPOOL_STATUS_BUSY)
		waiter->used = true;
	world_observe(w, false);
}

void step_wait_cancel(struct world *w)
{
	struct waiter *waiter = &w->waiters[world_random(w, WAITERS)];

	if (!waiter->used)
		return;
	world_log(w, "cancel the wait of holder %d for block %d", waiter->holder, waiter->block);
	kvpool_cache_wait_cancel(w->cache, waiter->cache);
	memset(waiter, 0, sizeof(*waiter));
	world_observe(w, false);
}
