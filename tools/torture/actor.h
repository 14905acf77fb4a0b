/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client under torture reads and writes, through libkvpool alone: every byte that it reads
 * is checked against the books, every version that it writes is in them first.
 *
 * Owned by one client process; one thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_ACTOR_H
#define KVPOOL_TOOLS_TORTURE_ACTOR_H

#include "tools/torture/books.h"
#include "tools/torture/shapes.h"

struct kvpool_actor {
	struct kvpool_books *books;       /* borrowed */
	struct kvpool_books_client *slot; /* borrowed: books */
	struct kvpool *pool;              /* owned */
	struct kvpool_channel *channel;   /* owned */
	struct kvpool_layout *layouts[KVPOOL_SHAPES];
	const char *socket; /* borrowed */
	uint64_t deadline_ns;
	uint64_t random;
	uint64_t bytes[KVPOOL_SHAPE_BYTES / 8];
};

/* What one match found, and which versions these were. */
struct kvpool_actor_hit {
	uint32_t shape, chain;
	struct kvpool_match match;
	struct kvpool_block blocks[KVPOOL_SHAPE_GROUPS * KVPOOL_SHAPE_DEPTH];
	uint32_t versions[KVPOOL_SHAPE_GROUPS * KVPOOL_SHAPE_DEPTH]; /* 0: not looked at yet */
};

/* Opens handle, channel and layouts. False where that fails; nothing is open then. */
bool kvpool_actor_open(struct kvpool_actor *actor);
void kvpool_actor_close(struct kvpool_actor *actor);

/* Counts a call's failure; one that is not documented for a daemon that may die is a fault. */
void kvpool_actor_failed(struct kvpool_actor *actor, const char *call, int64_t error);

/* Whether the parent gave this order; it is then done with. */
bool kvpool_actor_ordered(struct kvpool_actor *actor, enum kvpool_order order);

/*
 * Looks up n keys of a chain and leases what is there. Returns the hit in keys, 0 where the call
 * failed too: then nothing is held.
 */
uint32_t kvpool_actor_find(struct kvpool_actor *actor, uint32_t shape, uint32_t chain, uint32_t n,
			   struct kvpool_actor_hit *hit);

/*
 * Looks at every byte of every block of a hit. The second time each must be the version that it
 * was the first time: it is leased.
 */
void kvpool_actor_check(struct kvpool_actor *actor, struct kvpool_actor_hit *hit);

void kvpool_actor_release(struct kvpool_actor *actor, struct kvpool_actor_hit *hit, uint32_t keep);

/*
 * Writes keys from..to of a chain into every group, as far as there are places; now and then gives
 * them up instead. With `linger` it waits for a moment while they are reserved.
 */
void kvpool_actor_write(struct kvpool_actor *actor, uint32_t shape, uint32_t chain, uint32_t from,
			uint32_t to, bool linger);

/* A number below n. */
uint32_t kvpool_actor_below(struct kvpool_actor *actor, uint32_t n);

/* Lets time pass, so that somebody else may act. */
void kvpool_actor_linger(struct kvpool_actor *actor, uint32_t ms_max);

#endif
