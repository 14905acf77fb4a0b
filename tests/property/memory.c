/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the blocks: real memory behind every segment, a stamp in every shard, and the proof
 * that no frame lies on another.
 *
 * Owned by the test's only thread. The cache never touches these bytes.
 */
#include "tests/property/world.h"

#include <stdlib.h>
#include <string.h>

struct segment *world_segment(struct world *w, uint32_t id)
{
	for (int i = 0; i < SEGMENTS; i++)
		if (w->segments[i].id == id && id != 0)
			return &w->segments[i];
	return NULL;
}

static struct segment *new_segment(struct world *w)
{
	for (uint32_t i = 0; i < w->segments_max; i++) {
		struct segment *s = &w->segments[i];

		if (s->id != 0)
			continue;
		s->bytes = calloc(1, SEGMENT_BYTES);
		WORLD_CHECK(w, s->bytes != NULL, "no memory for a segment");
		s->id = w->next_segment++;
		memset(s->given, 0, sizeof(s->given));
		return s;
	}
	return NULL;
}

bool world_add_memory(struct world *w)
{
	struct segment *s = NULL;
	uint64_t extent = 0, count = 1;

	/* A segment that grows, else a new one; sometimes whole, sometimes an extent at a time. */
	for (int i = 0; i < SEGMENTS && !s; i++)
		if (w->segments[i].id != 0 &&
		    !w->segments[i].given[SEGMENT_BYTES / EXTENT_BYTES - 1])
			s = &w->segments[i];
	if (!s)
		s = new_segment(w);
	if (!s)
		return false;
	while (s->given[extent])
		extent++;
	if (extent == 0 && world_chance(w, 50))
		count = SEGMENT_BYTES / EXTENT_BYTES;
	world_log(w, "memory_add segment %u extent %llu count %llu", s->id,
		  (unsigned long long)extent, (unsigned long long)count);
	WORLD_CHECK(w,
		    kvpool_cache_memory_add(w->cache, s->id, extent * EXTENT_BYTES,
					    count * EXTENT_BYTES) == 0,
		    "more memory");
	for (uint64_t i = 0; i < count; i++)
		s->given[extent + i] = true;
	return true;
}

void world_drop_segment(struct world *w, struct segment *s)
{
	(void)w;
	free(s->bytes);
	memset(s, 0, sizeof(*s));
}

/* The bytes of one shard of a frame. */
static uint8_t *shard_bytes(struct world *w, int block, const struct kvpool_wire_block *place,
			    uint32_t shard)
{
	struct segment *s = world_segment(w, place->segment);
	const struct layout *l = &w->layouts[block_layout(block)];

	WORLD_CHECK(w, s != NULL, "segment %u is not there", place->segment);
	return s->bytes + (uint64_t)place->offset * KVPOOL_UNIT_BYTES +
	       shard * l->stride[block_group(block)];
}

void stamp_write(struct world *w, int block, const struct kvpool_wire_block *place, uint64_t stamp)
{
	const struct layout *l = &w->layouts[block_layout(block)];
	uint64_t last = l->wire.groups[block_group(block)].slot_bytes - sizeof(stamp);

	for (uint32_t i = 0; i < l->wire.n_shards; i++) {
		uint8_t *bytes = shard_bytes(w, block, place, i);
		uint64_t value = stamp * 64 + i;

		memcpy(bytes, &value, sizeof(value));
		memcpy(bytes + last, &value, sizeof(value));
	}
}

void stamp_check(struct world *w, int block, const struct kvpool_wire_block *place, uint64_t stamp)
{
	const struct layout *l = &w->layouts[block_layout(block)];
	uint64_t last = l->wire.groups[block_group(block)].slot_bytes - sizeof(stamp);

	for (uint32_t i = 0; i < l->wire.n_shards; i++) {
		uint8_t *bytes = shard_bytes(w, block, place, i);
		uint64_t value = stamp * 64 + i;

		WORLD_CHECK(w,
			    memcmp(bytes, &value, sizeof(value)) == 0 &&
				    memcmp(bytes + last, &value, sizeof(value)) == 0,
			    "bytes of block %d (handle %u.%u) were overwritten", block,
			    place->block, place->generation);
	}
}

static bool overlap(const struct world *w, int a, const struct kvpool_wire_block *at_a, int b,
		    const struct kvpool_wire_block *at_b)
{
	uint64_t start_a = (uint64_t)at_a->offset * KVPOOL_UNIT_BYTES;
	uint64_t start_b = (uint64_t)at_b->offset * KVPOOL_UNIT_BYTES;

	return at_a->segment == at_b->segment && start_a < start_b + block_frame(w, b) &&
	       start_b < start_a + block_frame(w, a);
}

void place_check(struct world *w, int block)
{
	const struct kvpool_wire_block *p = &w->blocks[block].place;
	uint64_t start = (uint64_t)p->offset * KVPOOL_UNIT_BYTES;
	uint64_t end = start + block_frame(w, block);
	struct segment *s = world_segment(w, p->segment);

	WORLD_CHECK(w, s != NULL, "a place in segment %u, which is not there", p->segment);
	WORLD_CHECK(w, end <= SEGMENT_BYTES && s->given[start / EXTENT_BYTES],
		    "a place outside what was given");
	WORLD_CHECK(w, start / EXTENT_BYTES == (end - 1) / EXTENT_BYTES,
		    "a frame over the end of an extent");
	WORLD_CHECK(w, p->block != 0 && p->generation != 0, "a handle without a name");
	for (int i = 0; i < BLOCKS; i++) {
		const struct block *b = &w->blocks[i];

		if (i == block || b->state == BLOCK_ABSENT)
			continue;
		WORLD_CHECK(w, b->place.block != p->block, "block id %u twice", p->block);
		WORLD_CHECK(w, !overlap(w, block, p, i, &b->place), "on the frame of block %d", i);
	}
	for (int i = 0; i < LEASES; i++)
		for (uint32_t k = 0; w->leases[i].id != 0 && k < w->leases[i].n; k++) {
			const struct item *item = &w->leases[i].items[k];

			WORLD_CHECK(w, !overlap(w, block, p, item->block, &item->place),
				    "on a frame that lease %d reads (block %d)", i, item->block);
		}
	for (uint32_t i = 0; i < w->n_limbos; i++)
		WORLD_CHECK(w,
			    !w->limbos[i].firm ||
				    !overlap(w, block, p, w->limbos[i].block, &w->limbos[i].place),
			    "on a frame in limbo of holder %d (block %d)", w->limbos[i].holder,
			    w->limbos[i].block);
}
