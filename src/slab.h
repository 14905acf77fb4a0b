/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal elements addressed by a 32-bit index from 1 on: what the cache keeps instead of pointers.
 *
 * Address space for the largest index is mapped at once and touched as it is used, so an element
 * never moves and growing never pauses. A free element holds the free list's link in its first four
 * bytes; the rest of it stays as it was left. Owned by a cache; its one thread uses it.
 */
#ifndef KVPOOL_SRC_SLAB_H
#define KVPOOL_SRC_SLAB_H

#include "shm/base.h"

#include <stdbool.h>

struct kvpool_slab {
	unsigned char *base; /* owned */
	uint32_t stride;
	uint32_t max;   /* highest index there may be */
	uint32_t fresh; /* highest index that was ever given */
	uint32_t free;  /* head of the free list; 0: empty */
	uint32_t used;
};

/* `huge`: ask for huge pages. -ENOMEM. */
int kvpool_slab_init(struct kvpool_slab *slab, uint32_t stride, uint32_t max, bool huge);

/* Takes a zeroed slab too. */
void kvpool_slab_fini(struct kvpool_slab *slab);

/* An index, the one freed last first; 0 where all are used. New elements are zeroed. */
uint32_t kvpool_slab_take(struct kvpool_slab *slab);

/* Fresh so far, all up to `last` are given, and free those that kvpool_slab_give() is told. */
void kvpool_slab_adopt(struct kvpool_slab *slab, uint32_t last);

void kvpool_slab_give(struct kvpool_slab *slab, uint32_t index);

static inline void *kvpool_slab_at(const struct kvpool_slab *slab, uint32_t index)
{
	return slab->base + (size_t)index * slab->stride;
}

static inline bool kvpool_slab_full(const struct kvpool_slab *slab)
{
	return slab->used == slab->max;
}

/* Bytes that were touched. */
static inline uint64_t kvpool_slab_bytes(const struct kvpool_slab *slab)
{
	return (uint64_t)slab->fresh * slab->stride;
}

#endif
