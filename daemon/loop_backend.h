/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between loop.c and its two backends; nobody else includes this.
 *
 * A source lives in a slot of the loop's table and is known to the kernel by a token of slot and
 * generation, so that what the kernel still says about a source that was removed (or about the
 * descriptor number that was used again) is recognised and dropped. Service thread only.
 */
#ifndef KVPOOL_DAEMON_LOOP_BACKEND_H
#define KVPOOL_DAEMON_LOOP_BACKEND_H

#include "daemon/loop.h"

#include <stddef.h>

#define KVPOOL_LOOP_NO_SLOT UINT32_MAX
#define KVPOOL_LOOP_FOREVER UINT64_MAX

struct kvpool_source {
	struct kvpool_loop *loop; /* borrowed: it outlives its sources */
	kvpool_source_fn fn;
	void *cookie; /* borrowed */
	int fd;       /* borrowed; -1: a timer */
	uint32_t events;
	uint32_t slot;  /* of a descriptor */
	size_t heap;    /* of a timer: its place in the heap; SIZE_MAX: off */
	uint64_t at_ns; /* of a timer */
};

enum kvpool_slot_work {
	KVPOOL_SLOT_IDLE = 0,
	KVPOOL_SLOT_ARM = 1,    /* its poll request is to be queued */
	KVPOOL_SLOT_CANCEL = 2, /* the poll request of `old` is to be taken back */
	KVPOOL_SLOT_RELEASE = 3 /* nothing is queued: free it */
};

struct kvpool_slot {
	struct kvpool_source *source; /* borrowed; NULL: removed or free */
	uint32_t generation;          /* changes when the source is removed */
	uint32_t next;                /* in the free list or in the list of work */
	/* io_uring only: */
	enum kvpool_slot_work work;
	bool armed;   /* a poll request is under way */
	uint64_t old; /* token to cancel */
};

struct kvpool_loop_ops {
	enum kvpool_loop_kind kind;
	int (*open)(struct kvpool_loop *loop);
	void (*close)(struct kvpool_loop *loop);
	/* Starts to watch a source that has its slot. */
	int (*watch)(struct kvpool_loop *loop, struct kvpool_source *source);
	/* Stops; called before the slot forgets the source. Frees the slot now or later. */
	void (*unwatch)(struct kvpool_loop *loop, struct kvpool_source *source);
	/* Runs what is ready. Returns how many callbacks ran. */
	int (*poll)(struct kvpool_loop *loop);
	/*
	 * The same after sleeping for at most timeout_ns (KVPOOL_LOOP_FOREVER). 0 where it woke for
	 * nothing, -ETIME, -EINTR.
	 */
	int (*wait)(struct kvpool_loop *loop, uint64_t timeout_ns);
};

extern const struct kvpool_loop_ops kvpool_loop_uring;
extern const struct kvpool_loop_ops kvpool_loop_epoll;

struct kvpool_loop {
	const struct kvpool_loop_ops *ops; /* borrowed, static */
	void *backend;                     /* owned by the backend */
	int refusal;
	uint64_t wakeups;

	struct kvpool_slot *slots; /* owned */
	uint32_t n_slots;          /* ever used */
	uint32_t slots_size;       /* allocated */
	uint32_t free_slots;       /* head of the list of free ones */

	struct kvpool_source **heap; /* owned array of borrowed timers, the earliest first */
	size_t heap_used;
	size_t heap_size;
	size_t timers; /* sources that are timers; the heap has room for all */
};

static inline uint64_t kvpool_loop_token(uint32_t slot, uint32_t generation)
{
	return (uint64_t)generation << 32 | slot;
}

/* The slot that a token names; NULL where its source has been removed. */
static inline struct kvpool_slot *kvpool_loop_slot(struct kvpool_loop *loop, uint64_t token)
{
	uint32_t index = (uint32_t)token;
	struct kvpool_slot *slot;

	if (index >= loop->n_slots)
		return NULL;
	slot = &loop->slots[index];
	if (slot->generation != (uint32_t)(token >> 32) || slot->source == NULL)
		return NULL;
	return slot;
}

/* Puts a slot that no kernel request names any more back into the free list. */
void kvpool_loop_slot_free(struct kvpool_loop *loop, uint32_t index);

#endif
