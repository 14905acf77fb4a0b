/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random FORGETs, clients that come, die and are buried, time, flushing, memory that comes and
 * goes.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

#include <errno.h>
#include <string.h>

static bool is_leased(const struct world *w, int block)
{
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n; k++)
			if (w->leases[i].items[k].block == block &&
			    place_equal(&w->leases[i].items[k].place, &w->blocks[block].place))
				return true;
	return false;
}

static void forget_layout(struct world *w, int holder, int layout)
{
	const struct drop drop = {.why = DROP_FORGET, .holder = holder};
	uint32_t done = UINT32_MAX, expected = 0;
	int r;

	world_log(w, "forget holder %d layout %d", holder, layout);
	r = kvpool_cache_forget_layout(w->cache, w->holders[holder].cache,
				       w->holders[holder].ids[layout], &done);
	for (int i = block_index(layout, 0, 0); i < block_index(layout + 1, 0, 0); i++)
		expected += model_drop(w, i, &drop);
	WORLD_CHECK(w, r == 0 && done == expected, "answers %d with %u done, expected %u", r, done,
		    expected);
	world_observe(w, false);
}

void step_forget(struct world *w)
{
	uint8_t keys[LIST_MAX][KVPOOL_KEY_BYTES];
	struct drop drop = {.why = DROP_FORGET};
	int layout, group, r, nodes[LIST_MAX] = {0};
	uint32_t n = 1 + (uint32_t)world_random(w, 3), done = UINT32_MAX, least = 0, most = 0;

	drop.holder = world_pick_holder(w, &layout);
	if (drop.holder < 0 || (w->calm && world_chance(w, 80)))
		return;
	if (world_chance(w, 10)) {
		forget_layout(w, drop.holder, layout);
		return;
	}
	group = (int)world_random(w, w->layouts[layout].wire.n_groups);
	for (uint32_t i = 0; i < n; i++) {
		nodes[i] = (int)world_random(w, NODES);
		memcpy(keys[i], w->keys[nodes[i]], KVPOOL_KEY_BYTES);
	}
	world_log(w, "forget holder %d layout %d group %d keys %u first %d", drop.holder, layout,
		  group, n, nodes[0]);
	r = kvpool_cache_forget(w->cache, w->holders[drop.holder].cache,
				w->holders[drop.holder].ids[layout], (uint32_t)group, n, keys[0],
				&done);
	for (uint32_t i = 0; i < n; i++) {
		int block = block_index(layout, group, nodes[i]);

		if (w->blocks[block].state == BLOCK_ABSENT)
			continue;
		w->seen->forgotten_leased += is_leased(w, block);
		most += model_drop(w, block, &drop);
		least++;
	}
	WORLD_CHECK(w, r == 0 && done >= least && done <= most,
		    "answers %d with %u done, expected %u to %u", r, done, least, most);
	world_observe(w, false);
}

static void quarantine(struct world *w, int holder)
{
	const struct drop drop = {.why = DROP_QUARANTINE, .holder = holder};

	for (int i = 0; i < LEASES; i++)
		if (w->leases[i].id != 0 && w->leases[i].holder == holder)
			w->leases[i].id = 0;
	for (int i = 0; i < WAITERS; i++)
		if (w->waiters[i].used && w->waiters[i].holder == holder)
			memset(&w->waiters[i], 0, sizeof(w->waiters[i]));
	for (uint32_t i = 0; i < w->n_limbos; i++)
		if (w->limbos[i].holder == holder)
			w->limbos[i].quarantined = true;
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_RESERVED && w->blocks[i].holder == holder)
			model_drop(w, i, &drop);
	w->holders[holder].state = HOLDER_QUARANTINED;
	w->seen->quarantined++;
}

static void check_holder(struct world *w, int holder)
{
	const struct holder *h = &w->holders[holder];
	uint32_t leases = 0, faint = 0, reserved = 0, layouts = 0, waits = 0;
	struct kvpool_holder_usage u;

	kvpool_cache_holder_usage(h->cache, &u);
	for (int i = 0; i < LEASES; i++)
		if (w->leases[i].id != 0 && w->leases[i].holder == holder) {
			leases++;
			faint += w->leases[i].faint;
		}
	for (int i = 0; i < BLOCKS; i++)
		reserved += w->blocks[i].state == BLOCK_RESERVED && w->blocks[i].holder == holder;
	for (int i = 0; i < LAYOUTS; i++)
		layouts += h->has[i];
	for (int i = 0; i < WAITERS; i++)
		waits += w->waiters[i].used && w->waiters[i].holder == holder;
	WORLD_CHECK(w, u.id == h->id && u.waits == waits, "holder %u waits %u times, not %u", u.id,
		    u.waits, waits);
	WORLD_CHECK(w, h->state != HOLDER_LIVE || u.layouts == layouts, "%u layouts, not %u",
		    u.layouts, layouts);
	WORLD_CHECK(w, u.leases <= leases && u.leases + faint >= leases, "%u leases, not %u",
		    u.leases, leases);
	WORLD_CHECK(w, u.reserved_blocks >= reserved, "%u reserved, not %u", u.reserved_blocks,
		    reserved);
}

void step_holder(struct world *w)
{
	int i = (int)world_random(w, HOLDERS);
	struct holder *h = &w->holders[i];

	if (h->state == HOLDER_NONE) {
		h->id = w->next_holder++;
		world_log(w, "holder %d is new, id %u", i, h->id);
		WORLD_CHECK(w, kvpool_cache_holder_new(w->cache, h->id, &h->cache) == 0,
			    "a new holder");
		h->state = HOLDER_LIVE;
		world_observe(w, false);
		return;
	}
	check_holder(w, i);
	/* Deaths are rarer than births. */
	if (world_chance(w, w->calm ? 95 : 60))
		return;
	if (h->state == HOLDER_LIVE && world_chance(w, 70)) {
		world_log(w, "holder %d is quarantined", i);
		kvpool_cache_holder_quarantine(w->cache, h->cache);
		quarantine(w, i);
		check_holder(w, i);
	} else {
		world_log(w, "holder %d is freed", i);
		kvpool_cache_holder_free(w->cache, h->cache);
		if (h->state == HOLDER_LIVE)
			quarantine(w, i);
		model_limbo_end(w, i, NULL);
		memset(h, 0, sizeof(*h));
	}
	world_observe(w, false);
}

void step_time(struct world *w)
{
	bool present[BLOCKS];
	uint64_t expired = w->usage.expired;
	uint32_t went, gone;

	w->now_ms += world_random(w, 30000);
	world_log(w, "time %llu", (unsigned long long)w->now_ms);
	kvpool_cache_set_time(w->cache, w->now_ms);
	for (int i = 0; i < BLOCKS; i++)
		present[i] = w->blocks[i].state == BLOCK_READY;
	went = kvpool_cache_expire(w->cache, 1 + (uint32_t)world_random(w, 50));
	gone = world_observe(w, true);
	WORLD_CHECK(w, went == gone && w->usage.expired - expired == gone,
		    "%u blocks went, %u were said to", gone, went);
	WORLD_CHECK(w, gone == 0 || w->config.idle_limit != 0, "%u went without a limit", gone);
	for (int i = 0; i < BLOCKS; i++)
		/* The cache may count in ticks of up to a second. */
		WORLD_CHECK(w,
			    !present[i] || w->blocks[i].state == BLOCK_READY ||
				    w->now_ms - w->blocks[i].used_ms + 1000 >=
					    w->config.idle_limit * UINT64_C(1000),
			    "block %d went %llu ms after its last use", i,
			    (unsigned long long)(w->now_ms - w->blocks[i].used_ms));
	w->seen->expired += gone;
}

void step_flush(struct world *w)
{
	bool pinned[BLOCKS];
	uint32_t went, gone;

	if (w->calm && world_chance(w, 90))
		return;
	world_log(w, "flush");
	went = kvpool_cache_flush(w->cache);
	gone = world_observe(w, true);
	WORLD_CHECK(w, went == gone, "%u blocks went, %u were said to", gone, went);
	world_maybe_pinned(w, pinned);
	for (int i = 0; i < BLOCKS; i++)
		WORLD_CHECK(w, w->blocks[i].state != BLOCK_READY || pinned[i],
			    "block %d is still there, though nothing holds it", i);
	w->seen->flushed += gone;
}

/* Whether a part of this segment is held: for certain, or perhaps. */
static bool segment_is_held(const struct world *w, uint32_t segment, bool perhaps)
{
	bool pinned[BLOCKS];

	if (perhaps)
		world_maybe_pinned(w, pinned);
	else
		world_pinned(w, pinned);
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state != BLOCK_ABSENT && w->blocks[i].place.segment == segment &&
		    (pinned[i] || w->blocks[i].state == BLOCK_RESERVED))
			return true;
	for (uint32_t i = 0; i < w->n_limbos; i++)
		if (w->limbos[i].place.segment == segment && (perhaps || w->limbos[i].firm))
			return true;
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n; k++)
			if (w->leases[i].items[k].place.segment == segment &&
			    (perhaps || !w->leases[i].faint))
				return true;
	/* A forgotten block may lie there only because something forgotten hangs on it. */
	return perhaps && w->usage.leased_only_blocks > 0;
}

static void take(struct world *w, struct segment *s, bool must)
{
	bool held = segment_is_held(w, s->id, false), perhaps = segment_is_held(w, s->id, true);
	uint32_t id = s->id;
	int r;

	world_log(w, "memory_take segment %u", id);
	r = kvpool_cache_memory_take(w->cache, id);
	WORLD_CHECK(w, r == 0 || r == KVPOOL_STATUS_BUSY, "answers %d", r);
	WORLD_CHECK(w, r != 0 || !held, "segment %u was taken from under somebody", id);
	WORLD_CHECK(w, r == 0 || (perhaps && !must), "segment %u could be taken", id);
	if (r != 0) {
		w->seen->take_busy++;
		world_observe(w, false);
		return;
	}
	w->seen->taken++;
	/* Frames in limbo that could be reused are gone with it. */
	for (uint32_t i = 0; i < w->n_limbos;)
		if (w->limbos[i].place.segment == id)
			w->limbos[i] = w->limbos[--w->n_limbos];
		else
			i++;
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_READY && w->blocks[i].place.segment == id)
			model_drop(w, i, &(struct drop){.why = DROP_ABORT, .holder = -1});
	world_drop_segment(w, s);
	world_observe(w, false);
}

static void step_coldest(struct world *w)
{
	uint32_t id = 0;
	int r = kvpool_cache_memory_coldest(w->cache, &id);

	world_log(w, "memory_coldest: %d, segment %u", r, id);
	if (r == 0) {
		struct segment *s = world_segment(w, id);

		WORLD_CHECK(w, s != NULL, "segment %u is not there", id);
		take(w, s, true);
		return;
	}
	WORLD_CHECK(w, r == KVPOOL_STATUS_NOT_FOUND, "answers %d", r);
	for (int i = 0; i < SEGMENTS; i++)
		WORLD_CHECK(w,
			    w->segments[i].id == 0 || segment_is_held(w, w->segments[i].id, true),
			    "segment %u could be taken", w->segments[i].id);
}

static void add_wrong_memory(struct world *w)
{
	struct segment *s = &w->segments[world_random(w, SEGMENTS)];

	if (w->usage.total_bytes == w->config.bytes_max)
		WORLD_CHECK(w,
			    kvpool_cache_memory_add(w->cache, w->next_segment, 0, EXTENT_BYTES) ==
				    -ENOSPC,
			    "more than the cache may be given");
	if (s->id == 0)
		return;
	WORLD_CHECK(w, kvpool_cache_memory_add(w->cache, s->id, 0, EXTENT_BYTES) == -EINVAL,
		    "an extent was given twice");
	WORLD_CHECK(w, kvpool_cache_memory_add(w->cache, s->id, 4096, EXTENT_BYTES) == -EINVAL,
		    "an extent that is not aligned");
	WORLD_CHECK(
		w, kvpool_cache_memory_add(w->cache, s->id, SEGMENT_BYTES, EXTENT_BYTES) == -EINVAL,
		"an extent beyond the segment");
	WORLD_CHECK(w, kvpool_cache_memory_add(w->cache, s->id, 0, EXTENT_BYTES / 2) == -EINVAL,
		    "half an extent");
	world_observe(w, false);
}

void step_memory(struct world *w)
{
	struct segment *s = &w->segments[world_random(w, SEGMENTS)];

	switch (world_random(w, 8)) {
	case 0:
		if (s->id != 0)
			take(w, s, false);
		break;
	case 1:
		step_coldest(w);
		break;
	case 2:
		w->growing = !w->growing;
		kvpool_cache_set_growing(w->cache, w->growing);
		break;
	case 3:
		add_wrong_memory(w);
		break;
	default:
		world_add_memory(w);
		world_observe(w, false);
		break;
	}
}
