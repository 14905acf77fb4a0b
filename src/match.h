/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One MATCH on its way: what match_find.c finds out and match.c turns into a reply and a lease.
 *
 * Lives on the stack of kvpool_cache_match(); its thread is the cache's.
 */
#ifndef KVPOOL_SRC_MATCH_H
#define KVPOOL_SRC_MATCH_H

#include "src/cache_internal.h"

/* `found` is the cache's scratch: places by [group][key], block 0 where missing. */
struct kvpool_match {
	struct kvpool_cache *cache;           /* borrowed, as all below: for the call */
	struct kvpool_holder *holder;         /* borrowed */
	const struct kvpool_layout *layout;   /* borrowed */
	const struct kvpool_match_args *args; /* borrowed */
	struct kvpool_wire_block *found;      /* borrowed */
	uint32_t hit;                         /* L */
	uint32_t known[KVPOOL_GROUPS_MAX];    /* keys from here to the FULL end are in `found` */
	uint32_t fits[KVPOOL_GROUPS_MAX];     /* WINDOW: keys from here to L are there */
	bool broken[KVPOOL_GROUPS_MAX];       /* FULL: the keys are not one chain of parents */
	uint32_t first[KVPOOL_GROUPS_MAX];    /* reported */
	uint32_t reported[KVPOOL_GROUPS_MAX]; /* blocks from `first` on */
};

static inline struct kvpool_wire_block *kvpool_match_found(const struct kvpool_match *m,
							   uint32_t group)
{
	return m->found + (size_t)group * m->args->n;
}

static inline struct kvpool_wire_block kvpool_match_place(const struct kvpool_record *r,
							  uint32_t block)
{
	return (struct kvpool_wire_block){block, r->generation, r->segment, r->offset};
}

/* First key that a WINDOW group needs for a prefix of `hit` keys, not below skip. */
uint32_t kvpool_match_window_start(const struct kvpool_match *m, uint32_t group, uint32_t hit);

/* Sets m->hit, and of each group what `found` holds for the keys up to it. */
void kvpool_match_find(struct kvpool_match *m);

/* Keys after m->hit that would be usable as well, were all that is being written READY. */
uint32_t kvpool_match_pending(const struct kvpool_match *m);

#endif
