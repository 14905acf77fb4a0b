/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of one domain: what its memory holds, byte by byte.
 *
 *	+--------+---------+---------+---------+---------+
 *	| header | control | block   | layout  | extent  |
 *	| 4 KiB  | 4 KiB   | records | records | records |
 *	+--------+---------+---------+---------+---------+
 *
 * Everything that tells which key lies where, and nothing else: who holds a block is in private
 * memory (blocks.h), and so is the index, which is made anew from the records. The memory is
 * sparse, starts as zeroes and is touched only as it is used. Written by the cache's one thread. It
 * outlives its daemon (adopt.c), which may die at any instruction: see struct kvpool_record.
 * Nobody else maps it today; the formats are fixed all the same (offsets asserted, no pointers), so
 * that it can be exported read-only.
 */
#ifndef KVPOOL_SRC_CATALOG_H
#define KVPOOL_SRC_CATALOG_H

#include "shm/crc32c.h"
#include "shm/header.h"
#include "shm/wire.h"
#include "src/cache.h"

#include <stdatomic.h>

#define KVPOOL_BLOCKS_MAX (1u << 27) /* records in one table */

enum kvpool_block_state {
	KVPOOL_BLOCK_FREE = 0,
	KVPOOL_BLOCK_RESERVED = 1,    /* in the index; somebody writes it */
	KVPOOL_BLOCK_READY = 2,       /* in the index; every shard is written */
	KVPOOL_BLOCK_DEAD = 3,        /* was READY, forgotten; leased, or something leased hangs on
					 it */
	KVPOOL_BLOCK_VOID = 4,        /* was RESERVED, forgotten; its writer does not know yet */
	KVPOOL_BLOCK_QUARANTINED = 5, /* its writer is gone, but perhaps not its last DMA */
	KVPOOL_BLOCK_STATES = 6,
};

/* What a hit sets the counter of a block to; the CLOCK policy counts it down. */
#define KVPOOL_CLOCK_HOT 3u

enum kvpool_record_flag {
	KVPOOL_RECORD_HAS_CRC = 1u << 0, /* crc32c was given for every shard */
	KVPOOL_RECORD_OWNED = 1u << 1,   /* RESERVED, VOID: the next life can go on with it */
};

/* Shards that a record has a bit for while it is being written. */
#define KVPOOL_RECORD_SHARDS_MAX 32u

/*
 * One block: one line, so that a lookup costs its bucket and this.
 *
 * Whoever adopts the record believes it only where `check` fits all that stands before it.
 * The stores of a daemon that is killed are seen in the order of its program, and `check` is the
 * last of every change, so a change that was cut short leaves a record that does not fit: it was
 * not READY before, or is not any more.
 */
struct kvpool_record {
	KVPOOL_ALIGNED(KVPOOL_CACHELINE) uint8_t key[KVPOOL_KEY_BYTES];
	uint32_t generation; /* of the block's handle; never 0 once used */
	uint32_t parent;     /* block that this one hangs on; 0: none */
	uint32_t segment;
	uint32_t offset; /* units */
	uint16_t layout;
	uint8_t group;
	uint8_t state; /* enum kvpool_block_state */
	union {
		uint32_t crc32c;    /* XOR over the shards, each rotated left by its number */
		uint32_t committed; /* OWNED: a bit for each shard that is written */
	};
	uint16_t check; /* kvpool_record_sum() */
	uint8_t flags;  /* enum kvpool_record_flag */
	uint8_t clock;  /* 0..KVPOOL_CLOCK_HOT; not under the check */
	union {
		uint32_t last_use; /* ticks, see KVPOOL_TICKS_PER_SECOND; not under the check */
		uint32_t owner;    /* OWNED: the holder that writes; under the check */
	};
};

KVPOOL_ASSERT_SIZE(struct kvpool_record, 64);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, generation, 32);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, layout, 48);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, crc32c, 52);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, check, 56);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, last_use, 60);

/* Every single flipped bit changes it. Never 0, so that a record of zeroes does not fit. */
static inline uint16_t kvpool_record_sum(const struct kvpool_record *record)
{
	uint32_t sum = kvpool_crc32c_add(record->flags, record, 56);
	uint16_t folded;

	if (record->flags & KVPOOL_RECORD_OWNED)
		sum = kvpool_crc32c_add(sum, &record->owner, sizeof(record->owner));
	folded = (uint16_t)(sum ^ sum >> 16);
	return folded ? folded : 1;
}

/* The last store of every change of a record. */
static inline void kvpool_record_seal(struct kvpool_record *record)
{
	uint16_t sum = kvpool_record_sum(record);

	/* The compiler may not move a store of the change behind this one. */
	atomic_signal_fence(memory_order_seq_cst);
	*(volatile uint16_t *)&record->check = sum;
}

#define KVPOOL_TICKS_PER_SECOND 16u

/* A layout as it was registered; zeroes where the entry is free. */
struct kvpool_layout_record {
	struct kvpool_wire_layout wire;
	uint32_t check; /* CRC32C of `wire`, stored last */
	uint8_t reserved[148];
};

KVPOOL_ASSERT_SIZE(struct kvpool_layout_record, 512);

/* What the next life must know beside the records. */
struct kvpool_catalog_control {
	uint32_t blocks_fresh; /* records above this number were never used */
	uint8_t reserved[60];
};

KVPOOL_ASSERT_SIZE(struct kvpool_catalog_control, 64);

/* Where an extent lies and how it is cut. Zeroes where there is none. */
struct kvpool_extent_record {
	uint32_t segment;
	uint32_t offset;      /* units */
	uint32_t frame_units; /* 0: not cut */
	uint32_t present;     /* 1: this memory belongs to the domain */
};

KVPOOL_ASSERT_SIZE(struct kvpool_extent_record, 16);

/* The catalog's regions as the cache uses them: private, pointers borrowed from the memory. */
struct kvpool_catalog {
	struct kvpool_header *header;
	struct kvpool_catalog_control *control;
	struct kvpool_record *records;
	struct kvpool_layout_record *layouts;
	struct kvpool_extent_record *extents;
	uint32_t blocks_max;
	uint32_t segments_max;
	uint32_t extents_per_segment;
	uint64_t bytes;
};

/*
 * Fetches a line that will be needed soon. A load, not a prefetch: in a virtual machine, where
 * nearly every such line misses the TLB too, prefetches did not overlap (37 ns a bucket, as without
 * them), loads in a loop of their own do (17 ns).
 */
static inline void kvpool_line_fetch(const void *line)
{
	(void)*(const volatile uint32_t *)line;
}

/* Sizes for a configuration: all but the pointers. 0 or -EINVAL. */
int kvpool_catalog_plan(const struct kvpool_cache_config *config, struct kvpool_catalog *out);

/* Places the regions in the memory. `catalog` comes from the plan. */
void kvpool_catalog_place(struct kvpool_catalog *catalog, void *memory);

/* The memory is fresh: writes its header. */
void kvpool_catalog_begin(struct kvpool_catalog *catalog, uint64_t epoch);

/* The memory is an earlier life's: what keeps it from being this plan's catalog; NULL: nothing. */
const char *kvpool_catalog_fault(const struct kvpool_catalog *catalog);

#endif
