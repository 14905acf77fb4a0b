/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first 4 KiB of a channel and of a catalog: what the memory is, which version wrote it, where
 * its regions lie. Segments carry no header, so that blocks may fill them from the first byte.
 *
 * Written by the daemon before the descriptor leaves it. A reader copies the header once into its
 * own memory, checks the copy, and never reads the shared one again.
 */
#ifndef KVPOOL_SHM_HEADER_H
#define KVPOOL_SHM_HEADER_H

#include "shm/base.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define KVPOOL_HEADER_BYTES   4096u
#define KVPOOL_HEADER_MAGIC   "kvpool\n" /* eight bytes with the NUL: readable in a dump */
#define KVPOOL_FORMAT_MAJOR   1u
#define KVPOOL_FORMAT_MINOR   0u
#define KVPOOL_CATALOG_MAJOR  2u /* of catalogs, which outlive their daemon, by themselves */
#define KVPOOL_CATALOG_MINOR  1u /* 1: what is being written names its writer */
#define KVPOOL_NOTES_MAJOR    1u /* of notes of leases, likewise */
#define KVPOOL_HEADER_REGIONS 16u

enum kvpool_header_kind {
	KVPOOL_HEADER_CHANNEL = 1,
	KVPOOL_HEADER_CATALOG = 2,
	KVPOOL_HEADER_STATE = 3, /* the daemon's own, see daemon/state.h */
	KVPOOL_HEADER_NOTES = 4, /* likewise, see src/notes.h */
};

enum kvpool_header_state {
	KVPOOL_HEADER_EMPTY = 0, /* fresh memory; what a reader sees before the writer is done */
	KVPOOL_HEADER_READY = 1,
};

enum kvpool_region_kind {
	KVPOOL_REGION_NONE = 0,
	KVPOOL_REGION_CHANNEL_CONTROL = 1, /* struct kvpool_channel_control */
	KVPOOL_REGION_REQUESTS = 2,        /* struct kvpool_entry[] */
	KVPOOL_REGION_REPLIES = 3,         /* struct kvpool_entry[] */
	KVPOOL_REGION_ARENA = 4,           /* bytes: keys in, places out */
	KVPOOL_REGION_CONTROL = 5,         /* struct kvpool_catalog_control */
	KVPOOL_REGION_BLOCKS = 6,          /* block records of the catalog */
	KVPOOL_REGION_LAYOUTS = 7,         /* layout records of the catalog */
	KVPOOL_REGION_EXTENTS = 8,         /* extent records of the catalog */
};

struct kvpool_region {
	uint64_t offset; /* bytes from the start of the memory */
	uint64_t bytes;
	uint32_t stride; /* bytes of one element; 1 for an arena */
	uint32_t kind;   /* enum kvpool_region_kind */
};

KVPOOL_ASSERT_SIZE(struct kvpool_region, 24);

/* W: daemon, before it hands the descriptor out. R: client, once, into private memory. */
struct kvpool_header {
	char magic[8];
	uint16_t format_major;  /* must be equal */
	uint16_t format_minor;  /* a newer minor may be read */
	uint32_t header_bytes;  /* KVPOOL_HEADER_BYTES */
	uint64_t total_bytes;   /* of the whole memory, this header included */
	uint32_t must_features; /* an unknown bit here: refuse the memory */
	uint32_t may_features;  /* an unknown bit here: go on without it */
	uint32_t kind;          /* enum kvpool_header_kind */
	uint32_t n_regions;
	uint64_t epoch;   /* of the daemon life that wrote it */
	uint64_t created; /* CLOCK_BOOTTIME, nanoseconds */
	uint8_t reserved[64];
	struct kvpool_region regions[KVPOOL_HEADER_REGIONS];
	uint8_t padding[KVPOOL_HEADER_BYTES - 120 - 24 * KVPOOL_HEADER_REGIONS - 8];
	/*
	 * W: daemon, release H1, after all else. R: client, acquire H2.
	 * H1 -> H2: whoever sees READY sees every field above.
	 */
	_Atomic uint32_t state;
	uint32_t reserved_tail;
};

KVPOOL_ASSERT_SIZE(struct kvpool_header, KVPOOL_HEADER_BYTES);
KVPOOL_ASSERT_OFFSET(struct kvpool_header, total_bytes, 16);
KVPOOL_ASSERT_OFFSET(struct kvpool_header, epoch, 40);
KVPOOL_ASSERT_OFFSET(struct kvpool_header, regions, 120);
KVPOOL_ASSERT_OFFSET(struct kvpool_header, state, 4088);

#endif
