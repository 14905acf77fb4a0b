/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a domain: segments, cut into extents, cut into frames of one size each.
 *
 * A frame holds all shards of one block. A size class is one frame size, counted in units. An
 * extent belongs to no class until a frame is needed, and again when its last frame is given back;
 * so no memory is stranded in a size that nobody uses. Each extent has a slot table that names the
 * block in every frame, which is how an extent can be emptied.
 *
 * Knows no keys and no policies; only numbers of blocks. Owned by a cache; its one thread uses it.
 */
#ifndef KVPOOL_SRC_EXTENTS_H
#define KVPOOL_SRC_EXTENTS_H

#include "src/catalog.h"

#define KVPOOL_CLASSES_MAX 256u
#define KVPOOL_EXTENT_NONE UINT32_MAX

enum kvpool_extent_state {
	KVPOOL_EXTENT_ABSENT = 0,   /* no memory is here */
	KVPOOL_EXTENT_FREE = 1,     /* in no class */
	KVPOOL_EXTENT_OPEN = 2,     /* in its class's list: has free frames */
	KVPOOL_EXTENT_FULL = 3,     /* has none */
	KVPOOL_EXTENT_DRAINING = 4, /* takes no new blocks: it is being emptied */
};

enum {
	KVPOOL_EXTENTS_E_FULL = 1,  /* neither a free frame of the class nor a free extent */
	KVPOOL_EXTENTS_E_CLASS = 2, /* as many frame sizes in use as there may be */
	KVPOOL_EXTENTS_E_PLACE = 3, /* there is no such frame, or it is taken */
};

struct kvpool_extent {
	uint32_t *slots;     /* owned: block, or the free list's link + SLOT_FREE; NULL: no class */
	uint32_t segment;    /* id */
	uint32_t offset;     /* units */
	uint32_t used;       /* frames */
	uint32_t fresh;      /* frames that were ever used since it joined the class */
	uint32_t free;       /* head of the list of free frames below `fresh`, + 1; 0: empty */
	uint32_t newest;     /* tick at which something in it was last used, or later */
	uint32_t last_units; /* size of its frames, now or before it was free; 0: never had one */
	uint32_t prev, next; /* in its list; KVPOOL_EXTENT_NONE at the ends */
	uint16_t size_class;
	uint16_t state; /* enum kvpool_extent_state */
};

struct kvpool_class {
	uint32_t frame_units; /* 0: not in use */
	uint32_t references;  /* groups of layouts with this frame size */
	uint32_t n_slots;     /* frames in an extent */
	uint32_t open;        /* list of extents with free frames */
	uint32_t extents;     /* in this class */
};

struct kvpool_segment_slot {
	uint32_t id;
	uint32_t extents; /* present; 0: the slot is free */
};

struct kvpool_extents {
	struct kvpool_extent *table; /* owned, mapped: segments_max * per_segment */
	size_t table_bytes;
	struct kvpool_extent_record *records; /* borrowed: catalog */
	struct kvpool_segment_slot *segments; /* owned */
	uint32_t *map;                        /* owned: segment id -> slot + 1; open addressing */
	uint32_t map_mask;
	uint32_t segments_max;
	uint32_t segments_fresh; /* slots ever used */
	uint32_t per_segment;
	uint32_t extent_units;
	uint32_t extent_shift; /* log2 of extent_units */
	uint32_t segment_units;
	uint32_t free_list;
	uint32_t n_free;
	uint32_t n_extents;
	uint64_t extents_max; /* bytes_max in extents */
	uint32_t last_id;     /* segment that was looked up last, and its slot */
	uint32_t last_slot;   /* UINT32_MAX: none */
	uint64_t free_bytes;
	uint64_t slack_bytes;
	uint64_t slot_table_bytes; /* touched */
	uint64_t moved;            /* extents that changed their size, since the start */
	struct kvpool_class classes[KVPOOL_CLASSES_MAX];
};

struct kvpool_place {
	uint32_t segment;
	uint32_t offset; /* units */
};

/* -ENOMEM. */
int kvpool_extents_init(struct kvpool_extents *extents, const struct kvpool_catalog *catalog,
			const struct kvpool_cache_config *config);
void kvpool_extents_fini(struct kvpool_extents *extents);

/* As kvpool_cache_memory_add(). */
int kvpool_extents_add(struct kvpool_extents *extents, uint32_t segment, uint64_t offset,
		       uint64_t bytes);

/* Slot of a segment; UINT32_MAX where there is none. Its extents are slot * per_segment on. */
uint32_t kvpool_extents_segment(struct kvpool_extents *extents, uint32_t segment);

/* The segment leaves. Every extent of it is free. */
void kvpool_extents_remove(struct kvpool_extents *extents, uint32_t slot);

/* The class of a frame size, made where there is none. 0 or KVPOOL_EXTENTS_E_CLASS. */
int kvpool_extents_class_get(struct kvpool_extents *extents, uint32_t frame_units, uint16_t *out);

/* True where that was the last reference and the class is gone: it has no extents then. */
bool kvpool_extents_class_put(struct kvpool_extents *extents, uint16_t size_class);

/* A frame for a block. 0, KVPOOL_EXTENTS_E_FULL or -ENOMEM. */
int kvpool_extents_take(struct kvpool_extents *extents, uint16_t size_class, uint32_t block,
			struct kvpool_place *out);

/*
 * Takes the frame at this very place, for a block of an earlier life: of an extent of the class, or
 * a free one, which joins it. 0, KVPOOL_EXTENTS_E_PLACE or -ENOMEM. After the last claim and before
 * anything else: kvpool_extents_claimed(), which makes the lists of free frames.
 */
int kvpool_extents_claim(struct kvpool_extents *extents, uint16_t size_class, uint32_t block,
			 struct kvpool_place place);
void kvpool_extents_claimed(struct kvpool_extents *extents);

void kvpool_extents_give(struct kvpool_extents *extents, struct kvpool_place place);

/* Number of the extent that a place lies in; the place is one that was taken. */
uint32_t kvpool_extents_find(struct kvpool_extents *extents, struct kvpool_place place);

/* Block in a frame of an extent; 0 where it is free. `slot` is below the class's n_slots. */
uint32_t kvpool_extents_block(const struct kvpool_extents *extents, uint32_t extent, uint32_t slot);

/* No new blocks in this extent; and again. Only of a used one. */
void kvpool_extents_drain(struct kvpool_extents *extents, uint32_t extent);
void kvpool_extents_undrain(struct kvpool_extents *extents, uint32_t extent);

/* For segments.c: an extent begins, free, and ends, free. */
void kvpool_extents_appear(struct kvpool_extents *extents, uint32_t extent,
			   struct kvpool_place place);
void kvpool_extents_vanish(struct kvpool_extents *extents, uint32_t extent);

/* Extents in use are below this number. */
static inline uint32_t kvpool_extents_end(const struct kvpool_extents *extents)
{
	return extents->segments_fresh * extents->per_segment;
}

/* Something at this place was used. */
static inline void kvpool_extents_touch(struct kvpool_extents *extents, struct kvpool_place place,
					uint32_t tick)
{
	extents->table[kvpool_extents_find(extents, place)].newest = tick;
}

#endif
