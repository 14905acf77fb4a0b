/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents, their size classes and their frames.
 *
 * Invariants: an extent is in the free list (FREE), in its class's open list (OPEN), or in no list
 * (FULL, DRAINING). free_bytes counts free extents whole and the free frames of the others;
 * slack_bytes what is left at the end of an extent behind its last frame. Owned by a cache; its one
 * thread uses it.
 */
#include "src/extents.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Marks a free frame in a slot table; the rest is the next free frame + 1. Blocks are smaller. */
#define SLOT_FREE (UINT32_C(1) << 31)

_Static_assert(KVPOOL_BLOCKS_MAX < SLOT_FREE, "a block must not look like a free frame");

int kvpool_extents_init(struct kvpool_extents *extents, const struct kvpool_catalog *catalog,
			const struct kvpool_cache_config *config)
{
	struct kvpool_extents e = {
		.records = catalog->extents,
		.segments_max = catalog->segments_max,
		.per_segment = catalog->extents_per_segment,
		.extent_units = (uint32_t)(config->extent_bytes >> KVPOOL_UNIT_SHIFT),
		.segment_units = (uint32_t)(config->segment_bytes >> KVPOOL_UNIT_SHIFT),
		.free_list = KVPOOL_EXTENT_NONE,
		.extents_max = config->bytes_max / config->extent_bytes,
		.last_slot = UINT32_MAX,
	};
	void *table;

	e.extent_shift = (uint32_t)__builtin_ctz(e.extent_units);
	e.table_bytes = (size_t)e.segments_max * e.per_segment * sizeof(*e.table);
	e.map_mask = 15;
	while (e.map_mask < 2 * e.segments_max)
		e.map_mask = e.map_mask << 1 | 1;
	table = mmap(NULL, e.table_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	e.segments = calloc(e.segments_max, sizeof(*e.segments));
	e.map = calloc((size_t)e.map_mask + 1, sizeof(*e.map));
	if (table == MAP_FAILED || !e.segments || !e.map) {
		if (table != MAP_FAILED)
			munmap(table, e.table_bytes);
		free(e.segments);
		free(e.map);
		return -ENOMEM;
	}
	e.table = table;
	*extents = e;
	return 0;
}

void kvpool_extents_fini(struct kvpool_extents *extents)
{
	if (!extents->table)
		return;
	for (uint32_t x = 0; x < kvpool_extents_end(extents); x++)
		free(extents->table[x].slots);
	munmap(extents->table, extents->table_bytes);
	free(extents->segments);
	free(extents->map);
	*extents = (struct kvpool_extents){0};
}

static void list_push(struct kvpool_extents *e, uint32_t *head, uint32_t x)
{
	e->table[x].prev = KVPOOL_EXTENT_NONE;
	e->table[x].next = *head;
	if (*head != KVPOOL_EXTENT_NONE)
		e->table[*head].prev = x;
	*head = x;
}

static void list_drop(struct kvpool_extents *e, uint32_t *head, uint32_t x)
{
	struct kvpool_extent *extent = &e->table[x];

	if (extent->prev != KVPOOL_EXTENT_NONE)
		e->table[extent->prev].next = extent->next;
	else
		*head = extent->next;
	if (extent->next != KVPOOL_EXTENT_NONE)
		e->table[extent->next].prev = extent->prev;
}

static uint64_t units(uint64_t n)
{
	return n << KVPOOL_UNIT_SHIFT;
}

int kvpool_extents_class_get(struct kvpool_extents *extents, uint32_t frame_units, uint16_t *out)
{
	uint16_t empty = KVPOOL_CLASSES_MAX;

	for (uint16_t i = 0; i < KVPOOL_CLASSES_MAX; i++) {
		struct kvpool_class *c = &extents->classes[i];

		if (c->frame_units == frame_units) {
			c->references++;
			*out = i;
			return 0;
		}
		if (c->frame_units == 0 && empty == KVPOOL_CLASSES_MAX)
			empty = i;
	}
	if (empty == KVPOOL_CLASSES_MAX)
		return KVPOOL_EXTENTS_E_CLASS;
	extents->classes[empty] = (struct kvpool_class){
		.frame_units = frame_units,
		.references = 1,
		.n_slots = extents->extent_units / frame_units,
		.open = KVPOOL_EXTENT_NONE,
	};
	*out = empty;
	return 0;
}

bool kvpool_extents_class_put(struct kvpool_extents *extents, uint16_t size_class)
{
	struct kvpool_class *c = &extents->classes[size_class];

	assert(c->references > 0);
	if (--c->references > 0)
		return false;
	assert(c->extents == 0);
	*c = (struct kvpool_class){0};
	return true;
}

static uint64_t slack_of(const struct kvpool_extents *e, const struct kvpool_class *c)
{
	return units(e->extent_units - (uint64_t)c->n_slots * c->frame_units);
}

/* Gives a free extent to a class. -ENOMEM. */
static int extent_join(struct kvpool_extents *e, uint32_t x, uint16_t size_class)
{
	struct kvpool_class *c = &e->classes[size_class];
	struct kvpool_extent *extent;
	uint32_t *slots;

	slots = calloc(c->n_slots, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	list_drop(e, &e->free_list, x);
	e->n_free--;
	extent = &e->table[x];
	extent->slots = slots;
	extent->used = 0;
	extent->fresh = 0;
	extent->free = 0;
	extent->newest = 0;
	if (extent->last_units && extent->last_units != c->frame_units)
		e->moved++;
	extent->last_units = c->frame_units;
	extent->size_class = size_class;
	extent->state = KVPOOL_EXTENT_OPEN;
	list_push(e, &c->open, x);
	c->extents++;
	e->free_bytes -= slack_of(e, c);
	e->slack_bytes += slack_of(e, c);
	e->records[x].frame_units = c->frame_units;
	return 0;
}

/* The last frame was given back: the extent leaves its class. */
static void extent_leave(struct kvpool_extents *e, uint32_t x)
{
	struct kvpool_extent *extent = &e->table[x];
	struct kvpool_class *c = &e->classes[extent->size_class];

	if (extent->state == KVPOOL_EXTENT_OPEN)
		list_drop(e, &c->open, x);
	free(extent->slots);
	extent->slots = NULL;
	e->slot_table_bytes -= (uint64_t)extent->fresh * sizeof(uint32_t);
	extent->fresh = 0;
	c->extents--;
	e->free_bytes += slack_of(e, c);
	e->slack_bytes -= slack_of(e, c);
	e->records[x].frame_units = 0;
	extent->state = KVPOOL_EXTENT_FREE;
	list_push(e, &e->free_list, x);
	e->n_free++;
}

int kvpool_extents_take(struct kvpool_extents *extents, uint16_t size_class, uint32_t block,
			struct kvpool_place *out)
{
	struct kvpool_class *c = &extents->classes[size_class];
	struct kvpool_extent *extent;
	uint32_t slot, x;

	if (c->open == KVPOOL_EXTENT_NONE) {
		int r = KVPOOL_EXTENTS_E_FULL;

		if (extents->free_list != KVPOOL_EXTENT_NONE)
			r = extent_join(extents, extents->free_list, size_class);
		if (r)
			return r;
	}
	x = c->open;
	extent = &extents->table[x];
	if (extent->free) {
		slot = extent->free - 1;
		extent->free = extent->slots[slot] & ~SLOT_FREE;
	} else {
		slot = extent->fresh++;
		extents->slot_table_bytes += sizeof(uint32_t);
	}
	extent->slots[slot] = block;
	if (++extent->used == c->n_slots) {
		list_drop(extents, &c->open, x);
		extent->state = KVPOOL_EXTENT_FULL;
	}
	extents->free_bytes -= units(c->frame_units);
	out->segment = extent->segment;
	out->offset = extent->offset + slot * c->frame_units;
	return 0;
}

int kvpool_extents_claim(struct kvpool_extents *extents, uint16_t size_class, uint32_t block,
			 struct kvpool_place place)
{
	struct kvpool_class *c = &extents->classes[size_class];
	struct kvpool_extent *extent;
	uint32_t slot, x;

	if (place.offset >= extents->segment_units ||
	    kvpool_extents_segment(extents, place.segment) == UINT32_MAX)
		return KVPOOL_EXTENTS_E_PLACE;
	x = kvpool_extents_find(extents, place);
	extent = &extents->table[x];
	slot = (place.offset - extent->offset) / c->frame_units;
	if (extent->state == KVPOOL_EXTENT_ABSENT || slot >= c->n_slots ||
	    place.offset != extent->offset + slot * c->frame_units)
		return KVPOOL_EXTENTS_E_PLACE;
	if (extent->state == KVPOOL_EXTENT_FREE) {
		int r = extent_join(extents, x, size_class);

		if (r)
			return r;
	}
	if (extent->size_class != size_class || extent->slots[slot] != 0)
		return KVPOOL_EXTENTS_E_PLACE;
	extent->slots[slot] = block;
	extent->used++;
	extent->fresh = KVPOOL_MAX(extent->fresh, slot + 1);
	extents->free_bytes -= units(c->frame_units);
	return 0;
}

void kvpool_extents_claimed(struct kvpool_extents *extents)
{
	for (uint32_t x = 0; x < kvpool_extents_end(extents); x++) {
		struct kvpool_extent *extent = &extents->table[x];
		struct kvpool_class *c = &extents->classes[extent->size_class];

		if (extent->state != KVPOOL_EXTENT_OPEN)
			continue;
		extents->slot_table_bytes += (uint64_t)extent->fresh * sizeof(uint32_t);
		for (uint32_t slot = extent->fresh; slot-- > 0;) {
			if (extent->slots[slot] != 0)
				continue;
			extent->slots[slot] = extent->free | SLOT_FREE;
			extent->free = slot + 1;
		}
		if (extent->used == c->n_slots) {
			list_drop(extents, &c->open, x);
			extent->state = KVPOOL_EXTENT_FULL;
		}
	}
}

uint32_t kvpool_extents_find(struct kvpool_extents *extents, struct kvpool_place place)
{
	uint32_t slot = kvpool_extents_segment(extents, place.segment);

	assert(slot != UINT32_MAX && place.offset < extents->segment_units);
	return slot * extents->per_segment + (place.offset >> extents->extent_shift);
}

void kvpool_extents_give(struct kvpool_extents *extents, struct kvpool_place place)
{
	uint32_t x = kvpool_extents_find(extents, place);
	struct kvpool_extent *extent = &extents->table[x];
	struct kvpool_class *c = &extents->classes[extent->size_class];
	uint32_t slot = (place.offset - extent->offset) / c->frame_units;

	assert(extent->used > 0 && slot < extent->fresh && !(extent->slots[slot] & SLOT_FREE));
	extent->slots[slot] = extent->free | SLOT_FREE;
	extent->free = slot + 1;
	extent->used--;
	extents->free_bytes += units(c->frame_units);
	if (extent->state == KVPOOL_EXTENT_FULL) {
		list_push(extents, &c->open, x);
		extent->state = KVPOOL_EXTENT_OPEN;
	}
	if (extent->used == 0)
		extent_leave(extents, x);
}

uint32_t kvpool_extents_block(const struct kvpool_extents *extents, uint32_t extent, uint32_t slot)
{
	const struct kvpool_extent *e = &extents->table[extent];

	if (!e->slots || slot >= e->fresh || e->slots[slot] & SLOT_FREE)
		return 0;
	return e->slots[slot];
}

void kvpool_extents_drain(struct kvpool_extents *extents, uint32_t extent)
{
	struct kvpool_extent *e = &extents->table[extent];

	assert(e->state == KVPOOL_EXTENT_OPEN || e->state == KVPOOL_EXTENT_FULL);
	if (e->state == KVPOOL_EXTENT_OPEN)
		list_drop(extents, &extents->classes[e->size_class].open, extent);
	e->state = KVPOOL_EXTENT_DRAINING;
}

void kvpool_extents_undrain(struct kvpool_extents *extents, uint32_t extent)
{
	struct kvpool_extent *e = &extents->table[extent];
	struct kvpool_class *c = &extents->classes[e->size_class];

	assert(e->state == KVPOOL_EXTENT_DRAINING);
	e->state = e->used == c->n_slots ? KVPOOL_EXTENT_FULL : KVPOOL_EXTENT_OPEN;
	if (e->state == KVPOOL_EXTENT_OPEN)
		list_push(extents, &c->open, extent);
}

void kvpool_extents_appear(struct kvpool_extents *extents, uint32_t extent,
			   struct kvpool_place place)
{
	extents->table[extent] = (struct kvpool_extent){
		.segment = place.segment, .offset = place.offset, .state = KVPOOL_EXTENT_FREE};
	extents->records[extent] = (struct kvpool_extent_record){
		.segment = place.segment, .offset = place.offset, .present = 1};
	list_push(extents, &extents->free_list, extent);
	extents->n_free++;
	extents->n_extents++;
	extents->free_bytes += units(extents->extent_units);
}

void kvpool_extents_vanish(struct kvpool_extents *extents, uint32_t extent)
{
	assert(extents->table[extent].state == KVPOOL_EXTENT_FREE);
	list_drop(extents, &extents->free_list, extent);
	extents->n_free--;
	extents->n_extents--;
	extents->free_bytes -= units(extents->extent_units);
	extents->table[extent] = (struct kvpool_extent){0};
	extents->records[extent] = (struct kvpool_extent_record){0};
}
