/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments that this process maps in one life of its client. See segments.h.
 *
 * Shared by the sessions of that life; any thread.
 */
#include "client/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Aligned to this, shared memory on huge pages of its own accord is mapped by huge pages too. */
#define HUGE_BYTES (UINT64_C(2) << 20)

/* What one bit of `warm` stands for. */
#define RUN_SHIFT 16u
#define RUN_BYTES (UINT64_C(1) << RUN_SHIFT)

/* Linux 5.14; an older kernel refuses it, and pages are mapped as they are touched. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

const char *kvpool_segments_distrust(int fd, uint64_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return "the daemon's memory is no memfd";
	if ((seals & SEALS) != SEALS)
		return "the daemon's memory is not sealed against resizing";
	if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size != bytes)
		return "the daemon's memory is not as long as the daemon says";
	return NULL;
}

/* Reserves address space, aligned, so that the mapping can be laid over it. */
static uint8_t *reserve(uint64_t bytes, uint64_t alignment)
{
	uint64_t all = bytes + alignment;
	uint8_t *at =
		mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t before;

	if (at == MAP_FAILED)
		return NULL;
	before = KVPOOL_ROUND_UP((uint64_t)(uintptr_t)at, alignment) - (uint64_t)(uintptr_t)at;
	if (before > 0)
		munmap(at, before);
	if (alignment > before)
		munmap(at + before + bytes, alignment - before);
	return at + before;
}

static int map(int fd, uint64_t bytes, uint32_t page_shift, bool read_only, uint8_t **out)
{
	uint64_t page = UINT64_C(1) << page_shift;
	uint64_t alignment = bytes >= HUGE_BYTES ? KVPOOL_MAX(page, HUGE_BYTES) : page;
	int prot = PROT_READ | (read_only ? 0 : PROT_WRITE);
	uint8_t *at = reserve(bytes, alignment);
	void *mapped;

	if (!at)
		return -ENOMEM;
	mapped = mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED) {
		int r = -errno;

		munmap(at, bytes);
		return r;
	}
	/* A child that inherits it would keep the memory; a core file would hold people's words. */
	if (madvise(mapped, bytes, MADV_DONTFORK) != 0 ||
	    madvise(mapped, bytes, MADV_DONTDUMP) != 0) {
		int r = -errno;

		munmap(mapped, bytes);
		return r;
	}
	*out = mapped;
	return 0;
}

static _Atomic uint64_t *make_warm(uint64_t bytes, uint32_t page_shift)
{
	if ((UINT64_C(1) << page_shift) >= HUGE_BYTES)
		return NULL;
	return calloc((bytes >> RUN_SHIFT) / 64 + 1, sizeof(_Atomic uint64_t));
}

static int leaf_of(struct kvpool_segments *s, uint32_t id, struct kvpool_segment_leaf **out)
{
	_Atomic(struct kvpool_segment_leaf *) *at = &s->leaves[id / KVPOOL_SEGMENTS_FANOUT];
	/* No edge: only who has the lock writes it. */
	struct kvpool_segment_leaf *leaf = atomic_load_explicit(at, memory_order_relaxed);

	if (!leaf) {
		leaf = calloc(1, sizeof(*leaf));
		if (!leaf)
			return -ENOMEM;
		atomic_store_explicit(at, leaf, memory_order_release); /* M3 -> M4 */
	}
	*out = leaf;
	return 0;
}

int kvpool_segments_new(struct kvpool_segments **out)
{
	struct kvpool_segments *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	r = -pthread_mutex_init(&s->lock, NULL);
	if (r != 0) {
		free(s);
		return r;
	}
	s->shares = 1;
	*out = s;
	return 0;
}

struct kvpool_segments *kvpool_segments_get(struct kvpool_segments *s)
{
	s->shares++;
	return s;
}

/* Maps it where it is not mapped yet. Lock. */
static int add(struct kvpool_segments *s, uint32_t id, int fd, uint64_t bytes, uint32_t page_shift,
	       bool read_only)
{
	struct kvpool_segment_leaf *leaf;
	struct kvpool_segment *segment;
	uint8_t *base;
	int r = leaf_of(s, id, &leaf);

	if (r != 0)
		return r;
	segment = &leaf->segments[id % KVPOOL_SEGMENTS_FANOUT];
	/* No edge: only who has the lock writes it. */
	if (atomic_load_explicit(&segment->base, memory_order_relaxed))
		return 0;
	r = map(fd, bytes, page_shift, read_only, &base);
	if (r != 0)
		return r;
	segment->bytes = bytes;
	/* Without memory for it, the kernel maps page by page. */
	segment->warm = make_warm(bytes, page_shift);
	atomic_store_explicit(&segment->base, base, memory_order_release); /* M1 -> M2 */
	return 0;
}

int kvpool_segments_add(struct kvpool_segments *s, uint32_t id, int fd, uint64_t bytes,
			uint32_t page_shift, bool read_only, const char **why)
{
	int r;

	if (page_shift < 12 || page_shift > 30 || bytes == 0 || bytes > KVPOOL_SEGMENT_MAX ||
	    bytes % (UINT64_C(1) << page_shift) != 0 ||
	    id >= KVPOOL_SEGMENTS_FANOUT * KVPOOL_SEGMENTS_FANOUT) {
		*why = "the daemon grants a segment of impossible size or number";
		return -EPROTO;
	}
	*why = kvpool_segments_distrust(fd, bytes);
	if (*why)
		return -EPROTO;
	*why = "a segment cannot be mapped";
	pthread_mutex_lock(&s->lock);
	r = add(s, id, fd, bytes, page_shift, read_only);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static bool is_warm(const struct kvpool_segment *segment, uint64_t first, uint64_t last)
{
	for (uint64_t run = first; run <= last; run++)
		/* No edge: a bit that is missed costs a system call. */
		if (!(atomic_load_explicit(&segment->warm[run / 64], memory_order_relaxed) >>
			      run % 64 &
		      1))
			return false;
	return true;
}

void kvpool_segments_warm(const struct kvpool_segments *s, uint32_t id, uint64_t offset,
			  uint64_t bytes)
{
	const struct kvpool_segment *segment = kvpool_segments_at(s, id);
	uint64_t first = offset >> RUN_SHIFT, last = (offset + bytes - 1) >> RUN_SHIFT;
	uint64_t page, start;
	uint8_t *base;

	if (!segment || !segment->warm || bytes < RUN_BYTES || is_warm(segment, first, last))
		return;
	base = atomic_load_explicit(&segment->base, memory_order_acquire); /* M2 <- M1 */
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	start = offset & ~(page - 1);
	(void)madvise(base + start, KVPOOL_ROUND_UP(offset + bytes, page) - start,
		      MADV_POPULATE_WRITE);
	for (uint64_t run = first; run <= last; run++)
		/* No edge: a bit that is missed costs a system call. */
		atomic_fetch_or_explicit(&segment->warm[run / 64], UINT64_C(1) << run % 64,
					 memory_order_relaxed);
}

/* Nobody has the table any more. */
static void free_leaf(struct kvpool_segment_leaf *leaf, bool forked)
{
	for (uint32_t k = 0; leaf && k < KVPOOL_SEGMENTS_FANOUT; k++) {
		struct kvpool_segment *segment = &leaf->segments[k];
		/* No edge: the last owner frees. */
		uint8_t *base = atomic_load_explicit(&segment->base, memory_order_relaxed);

		if (base && !forked)
			munmap(base, segment->bytes);
		free(segment->warm);
	}
	free(leaf);
}

void kvpool_segments_put(struct kvpool_segments *s, bool forked)
{
	if (!s || --s->shares > 0)
		return;
	for (uint32_t i = 0; i < KVPOOL_SEGMENTS_FANOUT; i++)
		/* No edge: the last owner frees. */
		free_leaf(atomic_load_explicit(&s->leaves[i], memory_order_relaxed), forked);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
