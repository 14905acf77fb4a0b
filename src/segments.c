/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a domain: which ids there are, and the run of extents that each has.
 *
 * A segment has one slot, and slot s has the extents from s * per_segment on, so a place finds its
 * extent by its segment's slot and its offset. Slots are found by id in an open-addressed table,
 * because ids are never reused and so grow without bound. Owned by a cache; its one thread uses it.
 */
#include "src/extents.h"

#include <assert.h>
#include <errno.h>

static uint32_t home_of(const struct kvpool_extents *e, uint32_t id)
{
	return (id * UINT32_C(2654435769)) >> 7 & e->map_mask;
}

/* Where the id is, or the empty place where it would be. The table is at most half full. */
static uint32_t map_at(const struct kvpool_extents *e, uint32_t id)
{
	uint32_t at = home_of(e, id);

	while (e->map[at] && e->segments[e->map[at] - 1].id != id)
		at = (at + 1) & e->map_mask;
	return at;
}

/* Closes the hole, so that every id stays reachable from its home. */
static void map_remove(struct kvpool_extents *e, uint32_t at)
{
	uint32_t hole = at;

	for (;;) {
		uint32_t home;

		at = (at + 1) & e->map_mask;
		if (!e->map[at])
			break;
		home = home_of(e, e->segments[e->map[at] - 1].id);
		if (((at - home) & e->map_mask) >= ((at - hole) & e->map_mask)) {
			e->map[hole] = e->map[at];
			hole = at;
		}
	}
	e->map[hole] = 0;
}

uint32_t kvpool_extents_segment(struct kvpool_extents *extents, uint32_t segment)
{
	uint32_t slot;

	if (KVPOOL_LIKELY(segment == extents->last_id && extents->last_slot != UINT32_MAX))
		return extents->last_slot;
	slot = extents->map[map_at(extents, segment)] - 1;
	if (slot != UINT32_MAX) {
		extents->last_id = segment;
		extents->last_slot = slot;
	}
	return slot;
}

/* A slot for a new segment; UINT32_MAX where all are used. */
static uint32_t slot_take(struct kvpool_extents *e, uint32_t id)
{
	uint32_t slot = 0;

	while (slot < e->segments_fresh && e->segments[slot].extents)
		slot++;
	if (slot == e->segments_max)
		return UINT32_MAX;
	if (slot == e->segments_fresh)
		e->segments_fresh++;
	e->segments[slot].id = id;
	e->map[map_at(e, id)] = slot + 1;
	return slot;
}

int kvpool_extents_add(struct kvpool_extents *extents, uint32_t segment, uint64_t offset,
		       uint64_t bytes)
{
	uint64_t extent_bytes = (uint64_t)extents->extent_units << KVPOOL_UNIT_SHIFT;
	uint64_t segment_bytes = (uint64_t)extents->segment_units << KVPOOL_UNIT_SHIFT;
	uint32_t slot, first, n;

	if (bytes == 0 || offset % extent_bytes || bytes % extent_bytes || offset > segment_bytes ||
	    bytes > segment_bytes - offset)
		return -EINVAL;
	first = (uint32_t)(offset / extent_bytes);
	n = (uint32_t)(bytes / extent_bytes);
	slot = kvpool_extents_segment(extents, segment);
	for (uint32_t i = 0; slot != UINT32_MAX && i < n; i++) {
		uint32_t x = slot * extents->per_segment + first + i;

		if (extents->table[x].state != KVPOOL_EXTENT_ABSENT)
			return -EINVAL;
	}
	if (extents->n_extents + (uint64_t)n > extents->extents_max)
		return -ENOSPC;
	if (slot == UINT32_MAX)
		slot = slot_take(extents, segment);
	if (slot == UINT32_MAX)
		return -ENOSPC;
	/* Backwards, so that the first extent is used first. */
	for (uint32_t i = n; i > 0; i--) {
		uint32_t x = first + i - 1;
		struct kvpool_place place = {segment, x << extents->extent_shift};

		kvpool_extents_appear(extents, slot * extents->per_segment + x, place);
	}
	extents->segments[slot].extents += n;
	return 0;
}

void kvpool_extents_remove(struct kvpool_extents *extents, uint32_t slot)
{
	struct kvpool_segment_slot *s = &extents->segments[slot];

	assert(s->extents > 0);
	for (uint32_t i = 0; i < extents->per_segment; i++) {
		uint32_t x = slot * extents->per_segment + i;

		if (extents->table[x].state != KVPOOL_EXTENT_ABSENT)
			kvpool_extents_vanish(extents, x);
	}
	map_remove(extents, map_at(extents, s->id));
	*s = (struct kvpool_segment_slot){0};
	extents->last_slot = UINT32_MAX;
}
