/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of one daemon life that this process maps, by their number.
 *
 * Looked up without a lock: a tree of two levels that only grows until all of it is unmapped. Owned
 * by a session. kvpool_segments_add() is for whoever holds the session's gate;
 * kvpool_segments_unmap() for whoever has made sure that nobody reads (session.h).
 */
#ifndef KVPOOL_CLIENT_SEGMENTS_H
#define KVPOOL_CLIENT_SEGMENTS_H

#include "shm/base.h"
#include "shm/limits.h"

#include <stdatomic.h>
#include <stdbool.h>

#define KVPOOL_SEGMENTS_FANOUT 256u

struct kvpool_segment {
	/* W: who adds, release M1, after the rest. R: any thread, acquire M2. M1 -> M2: the rest.
	 */
	_Atomic(uint8_t *) base; /* owned mapping; NULL: not mapped */
	uint64_t bytes;
	/* A bit for each run of pages that this process has written to. Any thread, relaxed: a bit
	   that is missed costs a system call. */
	_Atomic uint64_t *warm; /* owned; NULL: the pages are so large that there is no point */
};

struct kvpool_segment_leaf {
	struct kvpool_segment segments[KVPOOL_SEGMENTS_FANOUT];
};

struct kvpool_segments {
	/* W: who adds, release M3. R: any thread, acquire M4. M3 -> M4: the leaf is zeroed. */
	_Atomic(struct kvpool_segment_leaf *) leaves[KVPOOL_SEGMENTS_FANOUT]; /* owned */
};

static inline const struct kvpool_segment *kvpool_segments_at(const struct kvpool_segments *s,
							      uint32_t id)
{
	const struct kvpool_segment_leaf *leaf;

	if (id >= KVPOOL_SEGMENTS_FANOUT * KVPOOL_SEGMENTS_FANOUT)
		return NULL;
	/* M4 <- M3 */
	leaf = atomic_load_explicit(&s->leaves[id / KVPOOL_SEGMENTS_FANOUT], memory_order_acquire);
	return leaf ? &leaf->segments[id % KVPOOL_SEGMENTS_FANOUT] : NULL;
}

/* The segment's start and length; NULL where it is not mapped. */
static inline uint8_t *kvpool_segments_find(const struct kvpool_segments *s, uint32_t id,
					    uint64_t *bytes)
{
	const struct kvpool_segment *segment = kvpool_segments_at(s, id);
	uint8_t *base;

	if (!segment)
		return NULL;
	base = atomic_load_explicit(&segment->base, memory_order_acquire); /* M2 <- M1 */
	if (base)
		*bytes = segment->bytes;
	return base;
}

/*
 * Maps a segment that the daemon granted; `fd` is borrowed. The daemon is not believed: the memory
 * must be sealed against shrinking and growing and be as long as it was said to be. Hidden from
 * core files and from children. -EPROTO with the reason in *why, -ENOMEM, or errno of mmap(2).
 */
int kvpool_segments_add(struct kvpool_segments *s, uint32_t id, int fd, uint64_t bytes,
			uint32_t page_shift, bool read_only, const char **why);

/*
 * These bytes are about to be written. The first write to each page of shared memory is a fault of
 * its own; having the kernel map them at once makes a first store twice as fast (measured: 1.4
 * against 0.65 GB/s on a busy machine; reading gains nothing).
 */
void kvpool_segments_warm(const struct kvpool_segments *s, uint32_t id, uint64_t offset,
			  uint64_t bytes);

bool kvpool_segments_any(const struct kvpool_segments *s);

/* Unmaps all. */
void kvpool_segments_unmap(struct kvpool_segments *s);

/* Frees the table; in a child of fork() nothing is mapped, and nothing is unmapped. */
void kvpool_segments_free(struct kvpool_segments *s);

/* Checks the seals and the length of memory that came from the daemon. NULL: it is as it should. */
const char *kvpool_segments_distrust(int fd, uint64_t bytes);

#endif
