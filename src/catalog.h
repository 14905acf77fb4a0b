/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of one domain: what its memory holds, byte by byte.
 *
 *	+--------+-------------------------+---------+---------+---------+
 *	| header | index: buckets,         | block   | layout  | extent  |
 *	| 4 KiB  | then overflow buckets   | records | records | records |
 *	+--------+-------------------------+---------+---------+---------+
 *
 * Everything that tells which key lies where, and nothing else: who holds a block is in private
 * memory (blocks.h). The memory is sparse, starts as zeroes and is touched only as it is used.
 * Written by the cache's one thread. Nobody else maps it today; the formats are fixed all the same
 * (offsets asserted, no pointers), so that it can be exported read-only or outlive its daemon.
 */
#ifndef KVPOOL_SRC_CATALOG_H
#define KVPOOL_SRC_CATALOG_H

#include "shm/header.h"
#include "shm/wire.h"
#include "src/cache.h"

#define KVPOOL_BUCKET_SLOTS 11u
#define KVPOOL_BLOCKS_MAX   (1u << 27) /* records in one table */

/* One line of the index. Slots fill from the first; a bucket has a `next` only when it is full. */
struct kvpool_bucket {
	KVPOOL_ALIGNED(KVPOOL_CACHELINE) uint32_t sequence; /* grows with every change */
	uint32_t next;                                      /* overflow bucket; 0: none */
	uint8_t tag[KVPOOL_BUCKET_SLOTS + 1]; /* 1..255 of a used slot, 0 of a free one */
	uint32_t id[KVPOOL_BUCKET_SLOTS];     /* block; 0: free */
};

KVPOOL_ASSERT_SIZE(struct kvpool_bucket, 64);
KVPOOL_ASSERT_OFFSET(struct kvpool_bucket, tag, 8);
KVPOOL_ASSERT_OFFSET(struct kvpool_bucket, id, 20);

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
};

/* One block: one line, so that a lookup costs its bucket and this. */
struct kvpool_record {
	KVPOOL_ALIGNED(KVPOOL_CACHELINE) uint8_t key[KVPOOL_KEY_BYTES];
	uint32_t generation; /* of the block's handle; never 0 once used */
	uint32_t parent;     /* block that this one hangs on; 0: none */
	uint32_t segment;
	uint32_t offset; /* units */
	uint16_t layout;
	uint8_t group;
	uint8_t state;     /* enum kvpool_block_state */
	uint32_t last_use; /* ticks, see KVPOOL_TICKS_PER_SECOND */
	uint32_t crc32c;   /* XOR over the shards, each rotated left by its number */
	uint8_t clock;     /* 0..KVPOOL_CLOCK_HOT */
	uint8_t flags;     /* enum kvpool_record_flag */
	uint16_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_record, 64);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, generation, 32);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, layout, 48);
KVPOOL_ASSERT_OFFSET(struct kvpool_record, last_use, 52);

#define KVPOOL_TICKS_PER_SECOND 16u

/* A layout as it was registered; zeroes where the entry is free. */
struct kvpool_layout_record {
	struct kvpool_wire_layout wire;
	uint8_t reserved[152];
};

KVPOOL_ASSERT_SIZE(struct kvpool_layout_record, 512);

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
	struct kvpool_bucket *buckets;
	struct kvpool_record *records;
	struct kvpool_layout_record *layouts;
	struct kvpool_extent_record *extents;
	uint32_t blocks_max;
	uint32_t buckets_max;  /* primary */
	uint32_t overflow_max; /* buckets behind them */
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

/* Places the regions in fresh memory and writes the header. `catalog` comes from the plan. */
void kvpool_catalog_place(struct kvpool_catalog *catalog, void *memory, uint64_t epoch);

#endif
