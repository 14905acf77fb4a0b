/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After every step: which blocks are there (asked one by one, with WAIT), whether each that went
 * was allowed to go, whether every byte and every figure is right.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

#include <stdio.h>
#include <string.h>

#define CROWD 8u /* extents that a cache looks at in vain before it may give up */

static void pin_upwards(const struct world *w, int block, bool pinned[BLOCKS])
{
	for (; block >= 0 && !pinned[block]; block = w->blocks[block].parent)
		if (w->blocks[block].state != BLOCK_ABSENT)
			pinned[block] = true;
		else
			break;
}

/* The block that a lease reported may be another one by now: forgotten, and written again. */
static bool item_is_current(const struct world *w, const struct item *item)
{
	return w->blocks[item->block].state == BLOCK_READY &&
	       place_equal(&w->blocks[item->block].place, &item->place);
}

void world_pinned(const struct world *w, bool pinned[BLOCKS])
{
	memset(pinned, 0, BLOCKS * sizeof(pinned[0]));
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_RESERVED)
			pin_upwards(w, i, pinned);
	for (int i = 0; i < LEASES; i++) {
		const struct lease *l = &w->leases[i];

		for (uint32_t k = 0; l->id != 0 && !l->faint && k < l->n; k++)
			if (item_is_current(w, &l->items[k]))
				pin_upwards(w, l->items[k].block, pinned);
	}
}

void world_maybe_pinned(const struct world *w, bool pinned[BLOCKS])
{
	world_pinned(w, pinned);
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n; k++) {
			const struct item *item = &w->leases[i].items[k];

			pin_upwards(w, item_is_current(w, item) ? item->block : item->parent,
				    pinned);
		}
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n_below; k++)
			if (item_is_current(w, &w->leases[i].below[k]))
				pin_upwards(w, w->leases[i].below[k].block, pinned);
	for (uint32_t i = 0; i < w->n_limbos; i++)
		pin_upwards(w, w->limbos[i].parent, pinned);
}

static bool has_child(const struct world *w, int block)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state != BLOCK_ABSENT && w->blocks[i].parent == block)
			return true;
	return false;
}

static bool in_extent(const struct kvpool_wire_block *place, uint32_t segment, uint64_t extent)
{
	return place->segment == segment &&
	       (uint64_t)place->offset * KVPOOL_UNIT_BYTES / EXTENT_BYTES == extent;
}

/* Whether everything in this extent could be evicted. */
static bool extent_is_idle(const struct world *w, const bool pinned[BLOCKS], uint32_t segment,
			   uint64_t extent)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state != BLOCK_ABSENT &&
		    in_extent(&w->blocks[i].place, segment, extent) &&
		    (w->blocks[i].state != BLOCK_READY || pinned[i]))
			return false;
	for (uint32_t i = 0; i < w->n_limbos; i++)
		if (in_extent(&w->limbos[i].place, segment, extent))
			return false;
	for (int i = 0; i < LEASES; i++) {
		const struct lease *l = &w->leases[i];

		for (uint32_t k = 0; l->id != 0 && k < l->n; k++)
			if (in_extent(&l->items[k].place, segment, extent))
				return false;
		for (uint32_t k = 0; l->id != 0 && k < l->n_below; k++)
			if (in_extent(&l->below[k].place, segment, extent))
				return false;
	}
	return true;
}

const char *world_could_fit(const struct world *w, int block, int parent)
{
	static char text[96];
	const char *idle = NULL;
	uint32_t held = 0;
	bool pinned[BLOCKS];

	world_maybe_pinned(w, pinned);
	pin_upwards(w, parent, pinned);
	if (w->usage.extents_free > 0)
		return "an extent is free";
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_READY && !pinned[i] && !has_child(w, i) &&
		    block_frame(w, i) == block_frame(w, block)) {
			snprintf(text, sizeof(text), "block %d could go", i);
			return text;
		}
	/* Looking for an extent to empty is bounded: in a crowd of held ones it may give up. */
	for (int i = 0; i < SEGMENTS; i++)
		for (uint64_t k = 0; k < SEGMENT_BYTES / EXTENT_BYTES; k++) {
			if (!w->segments[i].given[k])
				continue;
			if (!extent_is_idle(w, pinned, w->segments[i].id, k)) {
				held++;
				continue;
			}
			snprintf(text, sizeof(text), "extent %llu of segment %u is idle",
				 (unsigned long long)k, w->segments[i].id);
			idle = text;
		}
	return held < CROWD ? idle : NULL;
}

/* WAIT knows every block by its key, also those that no MATCH would report. */
static enum block_state ask(struct world *w, int block)
{
	int layout = block_layout(block);
	struct kvpool_waiter *waiter = NULL;
	int r = kvpool_cache_wait(w->cache, w->observer, w->observer_ids[layout],
				  (uint32_t)block_group(block), w->keys[block_node(block)], NULL,
				  &waiter);

	switch (r) {
	case KVPOOL_STATUS_OK:
		return BLOCK_READY;
	case KVPOOL_STATUS_NOT_FOUND:
		return BLOCK_ABSENT;
	case KVPOOL_STATUS_BUSY:
		WORLD_CHECK(w, waiter != NULL, "BUSY without a waiter");
		kvpool_cache_wait_cancel(w->cache, waiter);
		return BLOCK_RESERVED;
	default:
		world_fail(w, "the observer's WAIT for block %d answers %d", block, r);
	}
}

static void check_closed(struct world *w, int block)
{
	int parent = w->blocks[block].parent;

	WORLD_CHECK(w, parent < 0 || w->blocks[parent].state != BLOCK_ABSENT,
		    "block %d is there, but block %d, which it hangs on, went", block, parent);
}

static uint32_t compare_blocks(struct world *w, bool may_evict)
{
	bool pinned[BLOCKS];
	uint32_t gone = 0;

	world_pinned(w, pinned);
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &w->blocks[i];
		enum block_state state;

		if (block_group(i) >= w->layouts[block_layout(i)].wire.n_groups)
			continue;
		state = ask(w, i);
		if (state == b->state)
			continue;
		WORLD_CHECK(w, b->state == BLOCK_READY && state == BLOCK_ABSENT,
			    "block %d is in state %d, expected %d", i, state, b->state);
		WORLD_CHECK(w, may_evict, "block %d went though nothing had to go", i);
		WORLD_CHECK(w, !pinned[i], "block %d went though it was held", i);
		b->state = BLOCK_ABSENT;
		gone++;
	}
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_ABSENT)
			w->blocks[i].parent = -1;
		else
			check_closed(w, i);
	return gone;
}

static void check_bytes(struct world *w)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state != BLOCK_ABSENT)
			stamp_check(w, i, &w->blocks[i].place, w->blocks[i].stamp);
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n; k++)
			stamp_check(w, w->leases[i].items[k].block, &w->leases[i].items[k].place,
				    w->leases[i].items[k].stamp);
}

static void check_waiters(struct world *w)
{
	for (int i = 0; i < WAITERS; i++) {
		struct waiter *waiter = &w->waiters[i];

		if (!waiter->used) {
			WORLD_CHECK(w, waiter->wakes == 0, "waiter %d woke after its end", i);
			continue;
		}
		WORLD_CHECK(w, waiter->wakes == (waiter->due ? 1 : 0), "waiter %d: %u wake-ups", i,
			    waiter->wakes);
		if (!waiter->due)
			continue;
		WORLD_CHECK(w, waiter->got == waiter->expected, "waiter %d woke with %d, not %d", i,
			    waiter->got, waiter->expected);
		if (waiter->got == KVPOOL_STATUS_OK)
			w->seen->woken_ok++;
		else
			w->seen->woken_abandoned++;
		memset(waiter, 0, sizeof(*waiter));
	}
}

/* Blocks that were forgotten under a lease: their number at least. */
static uint64_t count_ghosts(const struct world *w)
{
	const struct item *ghosts[LEASES * GROUPS * LIST_MAX];
	uint64_t n = 0;

	for (int i = 0; i < LEASES; i++) {
		const struct lease *l = &w->leases[i];

		for (uint32_t k = 0; l->id != 0 && !l->faint && k < l->n; k++) {
			bool known = item_is_current(w, &l->items[k]);

			for (uint64_t j = 0; j < n && !known; j++)
				known = place_equal(&ghosts[j]->place, &l->items[k].place);
			if (!known)
				ghosts[n++] = &l->items[k];
		}
	}
	return n;
}

static void check_blocks_by_state(struct world *w, const struct kvpool_cache_usage *u)
{
	uint64_t ready = 0, ready_bytes = 0, reserved = 0, dead = 0, quarantined = 0, ghosts;

	for (int i = 0; i < BLOCKS; i++) {
		if (w->blocks[i].state == BLOCK_READY) {
			ready++;
			ready_bytes += block_frame(w, i);
		}
		reserved += w->blocks[i].state == BLOCK_RESERVED;
	}
	for (uint32_t i = 0; i < w->n_limbos; i++) {
		dead += w->limbos[i].dead;
		quarantined += !w->limbos[i].dead;
	}
	ghosts = count_ghosts(w);
	WORLD_CHECK(w, u->ready_blocks == ready && u->ready_bytes == ready_bytes,
		    "%llu blocks READY, expected %llu", (unsigned long long)u->ready_blocks,
		    (unsigned long long)ready);
	WORLD_CHECK(w, u->reserved_blocks >= reserved && u->reserved_blocks <= reserved + dead,
		    "%llu blocks reserved, expected %llu", (unsigned long long)u->reserved_blocks,
		    (unsigned long long)reserved);
	WORLD_CHECK(w,
		    u->quarantined_blocks >= quarantined &&
			    u->quarantined_blocks <= quarantined + dead,
		    "%llu blocks quarantined, expected %llu",
		    (unsigned long long)u->quarantined_blocks, (unsigned long long)quarantined);
	WORLD_CHECK(w, u->leased_only_blocks >= ghosts,
		    "%llu forgotten blocks are read, expected %llu at least",
		    (unsigned long long)u->leased_only_blocks, (unsigned long long)ghosts);
}

static void check_totals(struct world *w, const struct kvpool_cache_usage *u)
{
	uint64_t extents = 0, leases = 0, faint = 0, holders = 1;

	for (int i = 0; i < SEGMENTS; i++)
		for (uint64_t k = 0; k < SEGMENT_BYTES / EXTENT_BYTES; k++)
			extents += w->segments[i].given[k];
	for (int i = 0; i < LEASES; i++) {
		leases += w->leases[i].id != 0;
		faint += w->leases[i].id != 0 && w->leases[i].faint;
	}
	for (int i = 0; i < HOLDERS; i++)
		holders += w->holders[i].state != HOLDER_NONE;
	WORLD_CHECK(w, u->total_bytes == extents * EXTENT_BYTES && u->extents == extents,
		    "total of %llu bytes", (unsigned long long)u->total_bytes);
	WORLD_CHECK(w,
		    u->total_bytes == u->free_bytes + u->ready_bytes + u->reserved_bytes +
					      u->leased_only_bytes + u->quarantined_bytes +
					      u->slack_bytes,
		    "the parts are not the total");
	WORLD_CHECK(w, u->leases <= leases && u->leases >= leases - faint, "%llu leases, not %llu",
		    (unsigned long long)u->leases, (unsigned long long)leases);
	WORLD_CHECK(w, u->holders == holders, "%llu holders", (unsigned long long)u->holders);
}

uint32_t world_observe(struct world *w, bool may_evict)
{
	struct kvpool_cache_usage before = w->usage;
	char fault[256] = "";
	uint32_t gone;

	gone = compare_blocks(w, may_evict);
	WORLD_CHECK(w, kvpool_cache_check(w->cache, fault, sizeof(fault)) == 0, "%s", fault);
	kvpool_cache_usage(w->cache, &w->usage);
	check_blocks_by_state(w, &w->usage);
	check_totals(w, &w->usage);
	check_bytes(w);
	check_waiters(w);
	w->seen->moved += w->usage.extents_moved - before.extents_moved;
	return gone;
}
