/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a channel: header, control words, request ring, reply ring, arena.
 *
 *	0        4 KiB      8 KiB          +entries*64    +entries*64
 *	+--------+----------+--------------+--------------+---------------------------+
 *	| header | control  | requests     | replies      | arena: keys, places       |
 *	+--------+----------+--------------+--------------+---------------------------+
 *
 * One memfd a channel, sealed against resizing, mapped read-write by the daemon and by one thread
 * of one client. The daemon keeps the geometry in private memory and never reads it back.
 */
#ifndef KVPOOL_SHM_CHANNEL_H
#define KVPOOL_SHM_CHANNEL_H

#include "shm/header.h"
#include "shm/limits.h"
#include "shm/ring.h"

struct kvpool_channel_control {
	/* W: daemon. The consumer side of the request ring. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) struct kvpool_ring_consumer requests;
	/* W: client. The consumer side of the reply ring; `head` stays 0. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) struct kvpool_ring_consumer replies;
};

#ifndef KVPOOL_ATOMIC_MODEL
KVPOOL_ASSERT_OFFSET(struct kvpool_channel_control, requests, 0);
KVPOOL_ASSERT_OFFSET(struct kvpool_channel_control, replies, 2 * KVPOOL_WRITER_GAP);
#endif

struct kvpool_channel_geometry {
	uint32_t entries; /* of each ring: a power of two */
	uint64_t arena_bytes;
	uint64_t control; /* offsets from the start of the memory */
	uint64_t requests;
	uint64_t replies;
	uint64_t arena;
	uint64_t total;
};

enum {
	KVPOOL_CHANNEL_E_SIZE = 1,   /* entries or arena out of their bounds */
	KVPOOL_CHANNEL_E_HEADER = 2, /* the header describes no channel of this version */
};

/* Where everything lies in a channel of this size. 0 or KVPOOL_CHANNEL_E_SIZE. */
static inline int kvpool_channel_geometry_make(uint32_t entries, uint64_t arena_bytes,
					       struct kvpool_channel_geometry *out)
{
	uint64_t ring = (uint64_t)entries * sizeof(struct kvpool_entry);

	if (!KVPOOL_IS_POW2(entries) || entries < KVPOOL_RING_ENTRIES_MIN ||
	    entries > KVPOOL_RING_ENTRIES_MAX)
		return KVPOOL_CHANNEL_E_SIZE;
	if (arena_bytes < KVPOOL_ARENA_MIN || arena_bytes > KVPOOL_ARENA_MAX ||
	    arena_bytes % 4096 != 0)
		return KVPOOL_CHANNEL_E_SIZE;
	out->entries = entries;
	out->arena_bytes = arena_bytes;
	out->control = KVPOOL_HEADER_BYTES;
	out->requests = 2 * (uint64_t)KVPOOL_HEADER_BYTES;
	out->replies = out->requests + ring;
	out->arena = KVPOOL_ROUND_UP(out->replies + ring, 4096);
	out->total = out->arena + arena_bytes;
	return 0;
}

/* The first regions of a channel's header, in this order. */
#define KVPOOL_CHANNEL_REGIONS 4u

static inline void kvpool_channel_regions(const struct kvpool_channel_geometry *g,
					  struct kvpool_region out[KVPOOL_CHANNEL_REGIONS])
{
	uint64_t ring = (uint64_t)g->entries * sizeof(struct kvpool_entry);

	out[0] = (struct kvpool_region){g->control, KVPOOL_HEADER_BYTES, KVPOOL_HEADER_BYTES,
					KVPOOL_REGION_CHANNEL_CONTROL};
	out[1] = (struct kvpool_region){g->requests, ring, sizeof(struct kvpool_entry),
					KVPOOL_REGION_REQUESTS};
	out[2] = (struct kvpool_region){g->replies, ring, sizeof(struct kvpool_entry),
					KVPOOL_REGION_REPLIES};
	out[3] = (struct kvpool_region){g->arena, g->arena_bytes, 1, KVPOOL_REGION_ARENA};
}

/* Writes the header of fresh memory. Daemon only; the memory is not shared yet. */
static inline void kvpool_channel_header_write(struct kvpool_header *h,
					       const struct kvpool_channel_geometry *g,
					       uint64_t epoch, uint64_t now_ns)
{
	memcpy(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic));
	h->format_major = KVPOOL_FORMAT_MAJOR;
	h->format_minor = KVPOOL_FORMAT_MINOR;
	h->header_bytes = KVPOOL_HEADER_BYTES;
	h->total_bytes = g->total;
	h->kind = KVPOOL_HEADER_CHANNEL;
	h->n_regions = KVPOOL_CHANNEL_REGIONS;
	h->epoch = epoch;
	h->created = now_ns;
	kvpool_channel_regions(g, h->regions);
	/* H1 -> H2 */
	atomic_store_explicit(&h->state, KVPOOL_HEADER_READY, memory_order_release);
}

/*
 * Reads the geometry from a mapped channel of `mapped` bytes. Client only.
 * 0 or KVPOOL_CHANNEL_E_HEADER.
 */
static inline int kvpool_channel_header_read(const struct kvpool_header *shared, uint64_t mapped,
					     struct kvpool_channel_geometry *out)
{
	struct kvpool_region expected[KVPOOL_CHANNEL_REGIONS];
	struct kvpool_channel_geometry g;
	struct kvpool_header h;
	uint64_t entries;

	/* H2 <- H1 */
	if (atomic_load_explicit(&shared->state, memory_order_acquire) != KVPOOL_HEADER_READY)
		return KVPOOL_CHANNEL_E_HEADER;
	memcpy(&h, shared, sizeof(h));
	KVPOOL_COPIED(h);
	if (memcmp(h.magic, KVPOOL_HEADER_MAGIC, sizeof(h.magic)) != 0 ||
	    h.format_major != KVPOOL_FORMAT_MAJOR || h.header_bytes != KVPOOL_HEADER_BYTES ||
	    h.must_features != 0 || h.kind != KVPOOL_HEADER_CHANNEL ||
	    h.n_regions < KVPOOL_CHANNEL_REGIONS || h.n_regions > KVPOOL_HEADER_REGIONS ||
	    h.total_bytes != mapped)
		return KVPOOL_CHANNEL_E_HEADER;
	entries = h.regions[1].bytes / sizeof(struct kvpool_entry);
	if (entries > KVPOOL_RING_ENTRIES_MAX ||
	    kvpool_channel_geometry_make((uint32_t)entries, h.regions[3].bytes, &g) != 0)
		return KVPOOL_CHANNEL_E_HEADER;
	kvpool_channel_regions(&g, expected);
	if (g.total != mapped || memcmp(h.regions, expected, sizeof(expected)) != 0)
		return KVPOOL_CHANNEL_E_HEADER;
	*out = g;
	return 0;
}

#endif
