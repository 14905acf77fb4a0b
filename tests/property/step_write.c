/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random layouts, commits and aborts, with what must come of them. RESERVE is in step_reserve.c.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

#include <string.h>

#define HANDLES 8

void step_layout(struct world *w)
{
	int h = world_pick_holder(w, NULL), i = (int)world_random(w, LAYOUTS);
	struct kvpool_wire_layout wire = w->layouts[i].wire;
	struct kvpool_wire_layout_result result;
	enum kvpool_status expected = KVPOOL_STATUS_OK;
	uint16_t id = UINT16_MAX;
	int r;

	if (h < 0)
		return;
	switch (world_random(w, 16)) {
	case 0:
		wire.groups[0].slot_bytes++;
		expected = KVPOOL_STATUS_GEOMETRY;
		break;
	case 1:
		memset(wire.label, 'x', sizeof(wire.label));
		expected = KVPOOL_STATUS_INVALID;
		break;
	case 2:
		memset(wire.fingerprint, 0xff, sizeof(wire.fingerprint));
		wire.groups[0].slot_bytes = EXTENT_BYTES / wire.n_shards + 1;
		expected = KVPOOL_STATUS_TOO_LARGE;
		w->seen->too_large++;
		break;
	case 3:
		wire.n_groups = world_chance(w, 50) ? 0 : KVPOOL_GROUPS_MAX + 1;
		expected = KVPOOL_STATUS_INVALID;
		break;
	default:
		break;
	}
	world_log(w, "layout holder %d layout %d expect %d", h, i, expected);
	r = kvpool_cache_layout(w->cache, w->holders[h].cache, &wire, &id, &result);
	WORLD_CHECK(w, r == (int)expected, "answers %d", r);
	if (r == 0) {
		WORLD_CHECK(w, !w->holders[h].has[i] || w->holders[h].ids[i] == id,
			    "the same layout is %u and %u", w->holders[h].ids[i], id);
		w->holders[h].has[i] = true;
		w->holders[h].ids[i] = id;
		for (int g = 0; g < wire.n_groups; g++)
			WORLD_CHECK(w, result.shard_stride[g] == w->layouts[i].stride[g],
				    "stride of group %d", g);
	}
	world_observe(w, false);
}

/* Handles for COMMIT and ABORT, and which blocks they name (-1: none that is alive). */
struct handles {
	uint32_t n;
	struct kvpool_wire_handle at[HANDLES];
	int blocks[HANDLES];
};

static void add_handle(struct handles *list, const struct kvpool_wire_block *place, int block)
{
	list->blocks[list->n] = block;
	list->at[list->n++] =
		(struct kvpool_wire_handle){.block = place->block, .generation = place->generation};
}

/*
 * Mostly reservations of this holder whose layout has that shard; some wrong ones among them.
 * `partial`: also such of which some shards are committed.
 */
static void pick_handles(struct world *w, int holder, uint32_t shard, bool partial,
			 struct handles *list)
{
	uint32_t wanted = 1 + (uint32_t)world_random(w, HANDLES - 2);
	int first = (int)world_random(w, BLOCKS);

	list->n = 0;
	for (int k = 0; k < BLOCKS && list->n < wanted; k++) {
		int i = (first + k) % BLOCKS;
		struct kvpool_wire_block place = w->blocks[i].place;

		if (w->blocks[i].state == BLOCK_ABSENT ||
		    (shard != UINT32_MAX && shard >= w->layouts[block_layout(i)].wire.n_shards))
			continue;
		/* All shards at once where some were committed: the text leaves the answer open. */
		if (!partial && shard == UINT32_MAX && w->blocks[i].committed != 0)
			continue;
		if (w->blocks[i].state == BLOCK_RESERVED && w->blocks[i].holder == holder &&
		    !world_chance(w, 5)) {
			add_handle(list, &place, i);
		} else if (world_chance(w, 5)) {
			/* Of another holder, READY already, or with a generation that is over. */
			if (w->blocks[i].holder == holder)
				place.generation += 1 + (uint32_t)world_random(w, 3);
			add_handle(list, &place, -1);
		}
	}
	if (w->n_limbos > 0 && world_chance(w, 50)) {
		const struct limbo *l = &w->limbos[world_random(w, w->n_limbos)];

		if (shard == UINT32_MAX || shard < w->layouts[block_layout(l->block)].wire.n_shards)
			add_handle(list, &l->place, -1);
	}
	if (list->n == 0)
		add_handle(list, &(struct kvpool_wire_block){.block = UINT32_MAX}, -1);
	if (list->n < HANDLES && world_chance(w, 10)) {
		list->at[list->n] = list->at[0];
		list->blocks[list->n++] = list->blocks[0];
	}
}

/* Whether this handle counts as done, and what becomes of its block. */
static bool commit_one(struct world *w, int block, uint32_t shard)
{
	struct block *b = &w->blocks[block];
	uint64_t all = shard_bits(w, block, UINT32_MAX), bits = shard_bits(w, block, shard);

	if (b->state != BLOCK_RESERVED || (b->committed & bits))
		return false;
	b->committed |= bits;
	if (b->committed != all) {
		w->seen->partial++;
		return true;
	}
	b->state = BLOCK_READY;
	b->used_ms = w->now_ms;
	model_wake(w, block, KVPOOL_STATUS_OK);
	return true;
}

void step_commit(struct world *w)
{
	int h = world_pick_holder(w, NULL);
	uint32_t shard = world_chance(w, 60) ? UINT32_MAX : (uint32_t)world_random(w, 4);
	uint32_t done = UINT32_MAX, expected = 0;
	struct handles list;
	int r;

	if (h < 0)
		return;
	if (world_chance(w, 2)) {
		pick_handles(w, h, UINT32_MAX, true, &list);
		r = kvpool_cache_commit(w->cache, w->holders[h].cache, KVPOOL_SHARDS_MAX, false,
					list.n, list.at, &done);
		WORLD_CHECK(w, r == KVPOOL_STATUS_INVALID || r == KVPOOL_STATUS_STALE,
			    "a shard beyond all: %d", r);
		WORLD_CHECK(w, done == UINT32_MAX, "the result was written");
		world_observe(w, false);
		return;
	}
	pick_handles(w, h, shard, false, &list);
	world_log(w, "commit holder %d shard %u handles %u first %d", h, shard, list.n,
		  list.blocks[0]);
	r = kvpool_cache_commit(w->cache, w->holders[h].cache, shard, world_chance(w, 20), list.n,
				list.at, &done);
	for (uint32_t i = 0; i < list.n; i++) {
		if (list.blocks[i] >= 0)
			expected += commit_one(w, list.blocks[i], shard);
		else if (model_limbo_commit(w, h, &list.at[i], shard))
			w->seen->dead_commits++;
	}
	if (expected == 0)
		WORLD_CHECK(w, r == KVPOOL_STATUS_STALE && done == UINT32_MAX, "answers %d", r);
	else
		WORLD_CHECK(w, r == 0 && done == expected, "answers %d with %u done, expected %u",
			    r, done, expected);
	world_observe(w, false);
}

void step_abort(struct world *w)
{
	int h = world_pick_holder(w, NULL);
	uint32_t done = 0, least = 0, most = 0;
	struct handles list;
	int r;

	if (h < 0)
		return;
	pick_handles(w, h, UINT32_MAX, true, &list);
	world_log(w, "abort holder %d handles %u first %d", h, list.n, list.blocks[0]);
	r = kvpool_cache_abort(w->cache, w->holders[h].cache, list.n, list.at, &done);
	for (uint32_t i = 0; i < list.n; i++) {
		const struct drop drop = {.why = DROP_ABORT, .holder = h};
		int b = list.blocks[i];

		if (b >= 0 && w->blocks[b].state == BLOCK_RESERVED) {
			most += model_drop(w, b, &drop);
			least++;
			w->seen->aborted++;
		}
		/* Its own frame is free now, and so is one that died before and is given up. */
		if (model_limbo_end(w, h, &list.at[i]) && (b < 0))
			most++;
	}
	if (r == KVPOOL_STATUS_STALE)
		WORLD_CHECK(w, least == 0, "STALE, though %u could be given back", least);
	else
		WORLD_CHECK(w, r == 0 && done >= least && done <= most,
			    "answers %d with %u done, expected %u to %u", r, done, least, most);
	world_observe(w, false);
}
