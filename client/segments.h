/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments that this process maps in one life of its client, by their number.
 *
 * Looked up without a lock: a tree of two levels that only grows until all of it is unmapped.
 * Counted: each session of that life owns a share, since a segment keeps its number and its blocks
 * when the daemon dies and the client resumes. The last share unmaps, so who gives one back has
 * made sure that nobody reads through his session (session.h). Shares are taken and given back
 * under the handle's lock, or by whoever has the only one.
 */
#ifndef KVPOOL_CLIENT_SEGMENTS_H
#define KVPOOL_CLIENT_SEGMENTS_H

#include "shm/base.h"
#include "shm/limits.h"

#include <pthread.h>
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
	uint32_t shares;      /* see above */
	pthread_mutex_t lock; /* who adds: two sessions may at once */
	_Atomic bool pinned;  /* an address is out whose end nobody tells; relaxed, set only */
	/* W: who adds, release M3. R: any thread, acquire M4. M3 -> M4: the leaf is zeroed. */
	_Atomic(struct kvpool_segment_leaf *) leaves[KVPOOL_SEGMENTS_FANOUT]; /* owned */
};

int kvpool_segments_new(struct kvpool_segments **out); /* -ENOMEM, -EAGAIN */

/* One more share. */
struct kvpool_segments *kvpool_segments_get(struct kvpool_segments *s);

/* One share less. In a child of fork() nothing is mapped, and nothing is unmapped. Takes NULL. */
void kvpool_segments_put(struct kvpool_segments *s, bool forked);

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
 * core files and from children. One that is there already stays as it is. -EPROTO with the reason
 * in *why, -ENOMEM, or errno of mmap(2).
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

/* Checks the seals and the length of memory that came from the daemon. NULL: it is as it should. */
const char *kvpool_segments_distrust(int fd, uint64_t bytes);

#endif
