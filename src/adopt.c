/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adoption: a cache made again from the catalog that an earlier life of the daemon left.
 *
 * That life may have ended at any instruction, and the memory may have rotted since. So a record
 * counts only where its check fits, its place is a frame of the memory that was handed over, nobody
 * else lies there, and all that it hangs on counts too. All the rest is made from the records: the
 * index, the tree, the frames, the accounting. Nothing is written that the next life, should this
 * one end here, would understand otherwise: records become FREE or QUARANTINED one by one.
 *
 * The past. Clients of the earlier life keep their mappings. Those that may go on are holders
 * again, with what they were writing and reading. Frames that somebody may be writing to and that
 * are nobody's stay in quarantine, and where not every lease is known all blocks are held as by
 * one, until the caller knows that the clients of that life are gone or have let go.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* What is thought of a record. */
enum verdict {
	NOTHING = 0, /* free, or dropped */
	KEPT = 1,    /* READY, or RESERVED by one that goes on, has its frame; from index_all() on:
			and is in the index */
	HELD = 2,    /* nobody's, or dropped: has its frame until the past ends */
	SOUND = 3,   /* KEPT, and so is all that it hangs on */
	WALKED = 4,  /* KEPT; the walk that is under way came by */
	BARRED = 5,  /* a writer that goes on has its frame, but it is not to be READY any more */
	BURIED = 6,  /* DEAD, has its frame; perhaps somebody still leases it */
	DUG = 7,     /* BURIED, and what it hangs on is SOUND or DUG */
};

struct adoption {
	struct kvpool_cache *cache;           /* borrowed */
	struct kvpool_cache_adopted *result;  /* borrowed */
	const struct kvpool_cache_left *left; /* borrowed */
	uint8_t *verdicts;                    /* owned: enum verdict by block */
	uint32_t last;                        /* records above were never used */
};

static int adopt_layouts(struct adoption *a)
{
	for (uint16_t i = 1; i <= KVPOOL_DOMAIN_LAYOUTS_MAX; i++) {
		struct kvpool_layout_record *record = &a->cache->catalog.layouts[i];
		int r;

		if (record->check == 0 && record->wire.n_groups == 0)
			continue;
		r = kvpool_layout_adopt(a->cache, i);
		if (r < 0)
			return r;
		if (r > 0) {
			*record = (struct kvpool_layout_record){0};
			a->result->layouts_dropped++;
		} else {
			a->result->layouts++;
		}
	}
	return 0;
}

/* Takes the record's frame for it. 0, positive where that cannot be, -ENOMEM. */
static int claim(struct adoption *a, uint32_t block)
{
	struct kvpool_cache *cache = a->cache;
	const struct kvpool_record *r = &cache->records[block];

	if (r->layout == 0 || r->layout > cache->layouts_fresh ||
	    r->group >= cache->layouts[r->layout].n_groups)
		return KVPOOL_EXTENTS_E_PLACE;
	return kvpool_extents_claim(&cache->extents, kvpool_block_group(cache, r)->size_class,
				    block, kvpool_block_place(r));
}

/* READY records first: no other may keep one of these from its frame. */
static int claim_ready(struct adoption *a)
{
	for (uint32_t block = 1; block <= a->last; block++) {
		const struct kvpool_record *record = &a->cache->records[block];
		int r;

		if (record->state != KVPOOL_BLOCK_READY)
			continue;
		if (record->check != kvpool_record_sum(record) || record->generation == 0 ||
		    record->parent > a->last) {
			a->result->torn++;
			continue;
		}
		r = claim(a, block);
		if (r < 0)
			return r;
		if (r > 0)
			a->result->misplaced++;
		else
			a->verdicts[block] = KEPT;
	}
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Whether the record is being written by a client that goes on. */
static bool goes_on(const struct adoption *a, const struct kvpool_record *record)
{
	const struct kvpool_cache_left *left = a->left;

	return (record->state == KVPOOL_BLOCK_RESERVED || record->state == KVPOOL_BLOCK_VOID) &&
	       record->flags & KVPOOL_RECORD_OWNED && record->generation != 0 &&
	       left->n_clients > 0 &&
	       bsearch(&record->owner, left->clients, left->n_clients, sizeof(*left->clients),
		       by_id);
}

/* What is thought of a record that is not READY, and has its frame. */
static enum verdict judge_unready(const struct adoption *a, const struct kvpool_record *record)
{
	if (record->state == KVPOOL_BLOCK_DEAD && record->generation != 0 &&
	    record->check == kvpool_record_sum(record) && record->parent <= a->last)
		return BURIED;
	if (!goes_on(a, record))
		return HELD;
	/* Its writer is known even where a change of the record was cut short. */
	if (record->state != KVPOOL_BLOCK_RESERVED || record->check != kvpool_record_sum(record) ||
	    record->parent > a->last)
		return BARRED;
	return KEPT;
}

/*
 * A record that says FREE and does not fit may have been anything: nobody else gets the frame that
 * it names, if it is nobody's. The first minor did not see to it that they fit.
 */
static int claim_doubtful(struct adoption *a)
{
	if (a->cache->catalog.header->format_minor == 0)
		return 0;
	for (uint32_t block = 1; block <= a->last; block++) {
		const struct kvpool_record *record = &a->cache->records[block];
		int r;

		if (record->state != KVPOOL_BLOCK_FREE || record->generation == 0 ||
		    record->check == kvpool_record_sum(record))
			continue;
		r = claim(a, block);
		if (r < 0)
			return r;
		if (r == 0)
			a->verdicts[block] = HELD;
	}
	return 0;
}

/* All others that are not FREE: somebody may be writing there, or reading. */
static int claim_rest(struct adoption *a)
{
	for (uint32_t block = 1; block <= a->last; block++) {
		const struct kvpool_record *record = &a->cache->records[block];
		int r;

		if (record->state == KVPOOL_BLOCK_FREE || a->verdicts[block] == KEPT)
			continue;
		a->result->unfinished += record->state != KVPOOL_BLOCK_READY;
		r = claim(a, block);
		if (r < 0)
			return r;
		a->cache->past.doubt |= r > 0 && record->state != KVPOOL_BLOCK_READY;
		if (r == 0)
			a->verdicts[block] = record->state == KVPOOL_BLOCK_READY
						     ? HELD
						     : (uint8_t)judge_unready(a, record);
	}
	return 0;
}

/* It is not kept. Whoever still writes there keeps its frame. */
static void drop(struct adoption *a, uint32_t block)
{
	if (a->cache->records[block].state == KVPOOL_BLOCK_RESERVED) {
		a->verdicts[block] = BARRED;
		return;
	}
	a->verdicts[block] = HELD;
	a->result->orphaned++;
}

/* Of two records with one key the first counts. */
static void index_all(struct adoption *a)
{
	struct kvpool_index *index = &a->cache->index;

	for (uint32_t block = 1; block <= a->last; block++) {
		const struct kvpool_record *r = &a->cache->records[block];
		uint64_t hash;

		if (a->verdicts[block] != KEPT)
			continue;
		hash = kvpool_index_hash(index, r->key, r->layout, r->group);
		if (kvpool_index_find(index, hash, r->key, r->layout, r->group) == 0) {
			kvpool_index_insert(index, block);
			continue;
		}
		drop(a, block);
	}
}

/*
 * Is all there that the block hangs on? Walks up to the first ancestor of which that is known, then
 * again to note it. A loop comes back to a block that this walk has seen.
 */
static void judge(struct adoption *a, uint32_t block)
{
	const struct kvpool_record *records = a->cache->records;
	uint32_t at = block, from = block;
	bool sound;

	while (at != 0 && a->verdicts[at] == KEPT && records[at].layout == records[from].layout) {
		a->verdicts[at] = WALKED;
		from = at;
		at = records[at].parent;
	}
	sound = at == 0 || (a->verdicts[at] == SOUND && records[at].layout == records[from].layout);
	for (at = block; at != 0 && a->verdicts[at] == WALKED; at = records[at].parent) {
		if (sound) {
			a->verdicts[at] = SOUND;
		} else {
			kvpool_index_remove(&a->cache->index, at);
			drop(a, at);
		}
	}
}

/* The same for a DEAD block, once all of the others are judged. A loop leads back to a WALKED one.
 */
static void dig(struct adoption *a, uint32_t block)
{
	const struct kvpool_record *records = a->cache->records;
	uint32_t at = block, from = block;
	bool sound;

	while (at != 0 && a->verdicts[at] == BURIED && records[at].layout == records[from].layout) {
		a->verdicts[at] = WALKED;
		from = at;
		at = records[at].parent;
	}
	sound = at == 0 || ((a->verdicts[at] == SOUND || a->verdicts[at] == DUG) &&
			    records[at].layout == records[from].layout);
	for (at = block; at != 0 && a->verdicts[at] == WALKED; at = records[at].parent)
		a->verdicts[at] = sound ? DUG : HELD;
}

/* A reservation of an earlier life goes on; VOID: it can no longer commit. */
static void keep_writing(struct adoption *a, uint32_t block, enum kvpool_block_state state)
{
	struct kvpool_cache *cache = a->cache;
	struct kvpool_record *r = &cache->records[block];

	if (state == KVPOOL_BLOCK_VOID)
		r->parent = 0;
	kvpool_block_adopt(cache, block, state);
	kvpool_reservation_keep(cache, kvpool_cache_holder_find(cache, r->owner), block);
	a->result->writing++;
}

/* Into the tree and the accounting: what is sound, and what waits for the end of the past. */
static void keep(struct adoption *a, uint32_t block)
{
	struct kvpool_cache *cache = a->cache;
	struct kvpool_record *r = &cache->records[block];

	if (a->verdicts[block] == SOUND && r->state == KVPOOL_BLOCK_RESERVED) {
		keep_writing(a, block, KVPOOL_BLOCK_RESERVED);
	} else if (a->verdicts[block] == DUG) {
		kvpool_block_adopt(cache, block, KVPOOL_BLOCK_DEAD);
	} else if (a->verdicts[block] == BARRED) {
		keep_writing(a, block, KVPOOL_BLOCK_VOID);
	} else if (a->verdicts[block] == SOUND) {
		r->clock = KVPOOL_MIN(r->clock, (uint8_t)KVPOOL_CLOCK_HOT);
		cache->tick = KVPOOL_MAX(cache->tick, r->last_use);
		kvpool_block_adopt(cache, block, KVPOOL_BLOCK_READY);
		a->result->blocks++;
	} else if (a->verdicts[block] == HELD) {
		r->parent = 0;
		if (r->generation == 0)
			r->generation = 1;
		kvpool_block_adopt(cache, block, KVPOOL_BLOCK_QUARANTINED);
		kvpool_reservation_adopt(cache, cache->past.holder, block);
		a->result->quarantined++;
	} else {
		if (r->state != KVPOOL_BLOCK_FREE ||
		    (r->generation != 0 && r->check != kvpool_record_sum(r))) {
			r->state = KVPOOL_BLOCK_FREE;
			r->parent = 0;
			kvpool_record_seal(r);
		}
		kvpool_slab_give(&cache->block_slab, block);
	}
}

static void hold(struct kvpool_cache *cache, uint32_t block)
{
	enum kvpool_block_state state = block ? cache->records[block].state : KVPOOL_BLOCK_FREE;

	if (state != KVPOOL_BLOCK_READY && state != KVPOOL_BLOCK_DEAD)
		return;
	cache->blocks[block].leases++;
	cache->past.leaves[cache->past.n_leaves++] = block;
}

/*
 * Whoever reads a block holds its ancestors too: so it is enough to hold the leaves, and what a
 * reservation hangs on, which may be given back.
 */
static int hold_leaves(struct adoption *a)
{
	struct kvpool_cache *cache = a->cache;
	uint64_t n = (uint64_t)a->last + 1;

	cache->past.leaves = malloc(n * sizeof(*cache->past.leaves));
	if (!cache->past.leaves)
		return -ENOMEM;
	for (uint32_t block = 1; block <= a->last; block++) {
		if (a->verdicts[block] != SOUND && a->verdicts[block] != DUG)
			continue;
		if (cache->records[block].state == KVPOOL_BLOCK_RESERVED)
			hold(cache, cache->records[block].parent);
		else if (!cache->blocks[block].first_child)
			hold(cache, block);
	}
	return 0;
}

/* Leases are known by now: in an order where it may be evicted; and gone where it is DEAD. */
static void relax_leaves(struct adoption *a)
{
	for (uint32_t block = 1; block <= a->last; block++) {
		if (a->verdicts[block] == SOUND || a->verdicts[block] == DUG)
			kvpool_block_relax(a->cache, block, false);
	}
}

static int adopt_blocks(struct adoption *a)
{
	struct kvpool_cache *cache = a->cache;
	bool exact = false;
	int r = claim_ready(a);

	if (!r)
		r = claim_rest(a);
	if (!r)
		r = claim_doubtful(a);
	if (r)
		return r;
	kvpool_extents_claimed(&cache->extents);
	index_all(a);
	for (uint32_t block = 1; block <= a->last; block++) {
		if (a->verdicts[block] == KEPT)
			judge(a, block);
	}
	for (uint32_t block = 1; block <= a->last; block++) {
		if (a->verdicts[block] == BURIED)
			dig(a, block);
	}
	kvpool_slab_adopt(&cache->block_slab, a->last);
	/* Backwards, so that free ids are taken from the first on. */
	for (uint32_t block = a->last; block > 0; block--)
		keep(a, block);
	r = kvpool_leases_adopt(cache, a->left, a->result, &exact);
	if (r == 0 && (!exact || a->left->others))
		r = hold_leaves(a);
	relax_leaves(a);
	a->result->all_leases = exact && !a->left->others;
	return r;
}

static int make_holders(struct adoption *a)
{
	int r = kvpool_cache_holder_new(a->cache, 0, &a->cache->past.holder);

	for (uint32_t i = 0; i < a->left->n_clients && r == 0; i++) {
		struct kvpool_holder *holder;

		r = kvpool_cache_holder_new(a->cache, a->left->clients[i], &holder);
	}
	return r;
}

static int adopt_all(struct adoption *a)
{
	const struct kvpool_cache_range *ranges = a->left->ranges;
	struct kvpool_cache *cache = a->cache;
	int r = 0;

	a->last = KVPOOL_MIN(cache->catalog.control->blocks_fresh, cache->catalog.blocks_max);
	cache->catalog.control->blocks_fresh = a->last;
	a->verdicts = calloc((size_t)a->last + 1, 1);
	if (!a->verdicts)
		return -ENOMEM;
	/* Backwards, so that the first is used first. */
	for (uint32_t i = a->left->n_ranges; i-- > 0 && !r;)
		r = kvpool_extents_add(&cache->extents, ranges[i].segment, ranges[i].offset,
				       ranges[i].bytes);
	if (!r)
		r = adopt_layouts(a);
	if (!r)
		r = make_holders(a);
	if (!r)
		r = adopt_blocks(a);
	free(a->verdicts);
	return r;
}

int kvpool_cache_adopt(const struct kvpool_cache_config *config, void *catalog,
		       const struct kvpool_cache_calls *calls, const struct kvpool_cache_left *left,
		       struct kvpool_cache_adopted *result, struct kvpool_cache **out)
{
	struct kvpool_cache_adopted found = {0};
	struct adoption a = {.result = &found, .left = left};
	struct kvpool_cache *cache;
	int r = kvpool_cache_make(config, catalog, calls, &cache);

	if (r)
		return r;
	found.fault = kvpool_catalog_fault(&cache->catalog);
	if (found.fault) {
		kvpool_cache_free(cache);
		*result = found;
		return KVPOOL_CACHE_E_FOREIGN;
	}
	a.cache = cache;
	r = adopt_all(&a);
	if (r) {
		kvpool_cache_abandon(cache);
		return r;
	}
	cache->catalog.header->epoch = config->epoch;
	cache->catalog.header->format_minor =
		KVPOOL_MAX(cache->catalog.header->format_minor, (uint16_t)KVPOOL_CATALOG_MINOR);
	/* In between, the notes are not believed by the next life. */
	if (cache->notes.header)
		cache->notes.header->epoch = config->epoch;
	*result = found;
	*out = cache;
	return 0;
}

bool kvpool_cache_has_past(const struct kvpool_cache *cache)
{
	return cache->past.holder != NULL;
}

void kvpool_cache_end_past(struct kvpool_cache *cache)
{
	struct kvpool_past past = cache->past;

	kvpool_cache_settle(cache);
	cache->past = (struct kvpool_past){0};
	for (uint32_t i = 0; i < past.n_leaves; i++)
		kvpool_block_unhold(cache, past.leaves[i]);
	free(past.leaves);
	kvpool_cache_holder_free(cache, past.holder);
}
