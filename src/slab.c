/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by index: the mapping and the free list.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/slab.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

int kvpool_slab_init(struct kvpool_slab *slab, uint32_t stride, uint32_t max, bool huge)
{
	size_t bytes = ((size_t)max + 1) * stride;
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -ENOMEM;
	if (huge)
		(void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint */
	(void)madvise(base, bytes, MADV_DONTDUMP); /* who reads what stays out of core files */
	*slab = (struct kvpool_slab){.base = base, .stride = stride, .max = max};
	return 0;
}

void kvpool_slab_fini(struct kvpool_slab *slab)
{
	if (slab->base)
		munmap(slab->base, ((size_t)slab->max + 1) * slab->stride);
	*slab = (struct kvpool_slab){0};
}

uint32_t kvpool_slab_take(struct kvpool_slab *slab)
{
	uint32_t index = slab->free;

	if (index) {
		memcpy(&slab->free, kvpool_slab_at(slab, index), sizeof(slab->free));
	} else {
		if (slab->fresh == slab->max)
			return 0;
		index = ++slab->fresh;
	}
	slab->used++;
	return index;
}

void kvpool_slab_adopt(struct kvpool_slab *slab, uint32_t last)
{
	assert(slab->fresh == 0 && last <= slab->max);
	slab->fresh = last;
	slab->used = last;
}

void kvpool_slab_give(struct kvpool_slab *slab, uint32_t index)
{
	assert(index > 0 && index <= slab->fresh && slab->used > 0);
	memcpy(kvpool_slab_at(slab, index), &slab->free, sizeof(slab->free));
	slab->free = index;
	slab->used--;
}
