/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the host that kvpoold may use: segments, made and pre-faulted by a thread of their
 * own, lent to domains one by one.
 *
 * A segment is one sealed memfd (SHRINK, GROW, SEAL), on the best pages there are, on one NUMA
 * node. The daemon maps a segment only while the populating thread fills it; it never reads or
 * writes block bytes. All functions are for the service thread; what the two threads share is
 * inside pool.c.
 */
#ifndef KVPOOL_DAEMON_POOL_H
#define KVPOOL_DAEMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

struct kvpool_kept;
struct kvpool_pool;
struct kvpool_state;

enum kvpool_pages {
	KVPOOL_PAGES_AUTO =
		0, /* per segment: 1 GiB, 2 MiB, THP shmem, 4 KiB: the best that is free */
	KVPOOL_PAGES_1G = 1,
	KVPOOL_PAGES_2M = 2,
	KVPOOL_PAGES_THP = 3,
	KVPOOL_PAGES_4K = 4,
	KVPOOL_PAGES_COUNT = 5,
};

struct kvpool_pool_config {
	uint64_t bytes;         /* a multiple of segment_bytes */
	uint64_t segment_bytes; /* power of two, at most 1 GiB */
	uint64_t step_bytes;    /* populated at a time (at least a page); power of two, at least
				   4096, at most segment_bytes */
	enum kvpool_pages pages;
	bool populate; /* false: pages come as they are touched (benches, tests) */
	bool numa;     /* bind segment i to node i mod n, where there is more than one */
	struct kvpool_state *state; /* borrowed: segments are noted there, and put into the store;
				       NULL: nobody keeps them */
	struct kvpool_kept *kept;   /* borrowed for kvpool_pool_new(), which takes the segments of
				       an earlier life out of it; NULL: there was none */
};

/* One segment. Read by the service thread; owned by the pool. */
struct kvpool_segment {
	uint32_t id; /* never reused in one daemon life; not 0 */
	int fd;      /* owned; read-write */
	uint64_t bytes;
	uint64_t ready;          /* bytes populated so far, from the start; grows in steps */
	enum kvpool_pages pages; /* what it got */
	uint32_t node;           /* UINT32_MAX: not bound */
	void *owner;             /* borrowed: whoever acquired it; NULL: free */
};

/* Starts the populating thread. -EINVAL, -ENOMEM, -EAGAIN. */
int kvpool_pool_new(const struct kvpool_pool_config *config, struct kvpool_pool **out);

/* Stops the thread and closes every segment: the memory is gone unless clients map it. Takes NULL.
 */
void kvpool_pool_free(struct kvpool_pool *pool);

/* Readable when kvpool_pool_progress() has something to say. */
int kvpool_pool_fd(const struct kvpool_pool *pool);

/*
 * Takes note of what the thread did since: calls fn for every acquired segment that grew, with the
 * range that became ready. Call when kvpool_pool_fd() is readable, and after acquiring.
 */
typedef void (*kvpool_pool_grown_fn)(void *cookie, struct kvpool_segment *segment, uint64_t offset,
				     uint64_t bytes);
void kvpool_pool_progress(struct kvpool_pool *pool, kvpool_pool_grown_fn fn, void *cookie);

/*
 * Lends a free segment with at least one step ready, the fullest first, to the domain of a user.
 * Its first `ready` bytes are the caller's at once (not told again by kvpool_pool_progress()). NULL
 * where there is none now.
 */
struct kvpool_segment *kvpool_pool_acquire(struct kvpool_pool *pool, void *owner, uid_t uid);

/*
 * The next segment that an earlier life had lent to this user's domain, and that nobody claimed
 * yet; it is the owner's from now on, with its first `ready` bytes. NULL where there is none.
 */
struct kvpool_segment *kvpool_pool_claim(struct kvpool_pool *pool, void *owner, uid_t uid);

/* What was lent in an earlier life and not claimed is made anew. */
void kvpool_pool_claimed(struct kvpool_pool *pool);

/*
 * The segment comes back and is not to be used any more. The thread punches its pages out, so that
 * an old mapping reads zeros and holds no page, closes the memfd and makes a new one in its place.
 */
void kvpool_pool_release(struct kvpool_pool *pool, struct kvpool_segment *segment);

/* Among those that are lent. NULL where there is no such segment. */
struct kvpool_segment *kvpool_pool_find(struct kvpool_pool *pool, uint32_t id);

struct kvpool_pool_status {
	uint64_t bytes; /* wanted */
	uint64_t ready; /* populated */
	uint64_t lent;  /* of acquired segments */
	bool growing;   /* the thread still works */
	int error;      /* errno that stopped it, 0 where none; `error_text` says where; it tries
			   again after a while, and when a segment comes back */
	char error_text[160];
	uint64_t by_pages[KVPOOL_PAGES_COUNT]; /* bytes of segments on each kind of pages */
	uint32_t nodes;
	uint64_t full_ns;  /* from the start until everything was populated; 0 where not yet */
	uint64_t first_ns; /* from the start until the first step was ready; 0 where not yet */
	int mbind_error;   /* errno of a refused mbind, 0 where none */
};

void kvpool_pool_status(struct kvpool_pool *pool, struct kvpool_pool_status *out);

#endif
