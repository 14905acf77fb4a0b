/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block goes next: the interface that every eviction policy implements, one policy a file.
 *
 * A policy orders the blocks of one size class (blocks that could take each other's place). Its
 * memory is private to the daemon. It is told only of blocks that became evictable (READY, nothing
 * hangs on them, nobody leases them); a block may stop being evictable without it being told, so
 * each candidate is asked for with `usable`, and one that is not usable is dropped from the order.
 * It is told again when the block is evictable again. Owned by a cache; its one thread calls.
 */
#ifndef KVPOOL_SRC_POLICY_H
#define KVPOOL_SRC_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct kvpool_cache;

struct kvpool_policy {
	const char *name;

	/* Makes the order of one size class. NULL where memory is out. */
	void *(*create)(struct kvpool_cache *cache, uint16_t size_class);

	/* Takes NULL. */
	void (*destroy)(void *order);

	/*
	 * The block is evictable now. `old`: it is used no later than what was evicted just before
	 * it (a parent whose last child went): it comes next.
	 */
	void (*insert)(void *order, uint32_t block, bool old);

	/* The block is gone (evicted, forgotten): it must not be named again. */
	void (*remove)(void *order, uint32_t block);

	/* The block to evict next, still in the order; 0 where there is none. Bounded work. */
	uint32_t (*victim)(void *order);
};

/*
 * CLOCK with a 2-bit counter that a hit sets to its maximum, over evictable blocks only: a block
 * with a counter left is passed over and loses one.
 */
extern const struct kvpool_policy kvpool_policy_clock;

#endif
