/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of an earlier life, from its notes.
 *
 * A note names the last block of a prefix in the layout's first FULL group. What the lease holds in
 * other groups is found again by the keys of that block and of its ancestors: what it held is a
 * part of that. Nothing is believed: a note that is not as it was written, or that names a block
 * which is not there, gives a lease that holds nothing, and tells the caller so.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <errno.h>
#include <stdlib.h>

/* READY, or forgotten since and still held. */
static bool readable(const struct kvpool_cache *cache, uint32_t block)
{
	return cache->records[block].state == KVPOOL_BLOCK_READY ||
	       cache->records[block].state == KVPOOL_BLOCK_DEAD;
}

/* The block of this key in another FULL group, which has a chain of its own; 0: none. */
static uint32_t twin(const struct kvpool_cache *cache, uint32_t block, uint16_t group)
{
	const struct kvpool_record *r = &cache->records[block];
	uint64_t hash = kvpool_index_hash(&cache->index, r->key, r->layout, (uint8_t)group);
	uint32_t found = kvpool_index_find(&cache->index, hash, r->key, r->layout, (uint8_t)group);

	return found && readable(cache, found) ? found : 0;
}

/* Keys at the end of a prefix whose blocks a group needs. */
static uint32_t needed(const struct kvpool_layout *layout, uint16_t group, uint32_t keys)
{
	const struct kvpool_layout_group *g = &layout->groups[group];
	uint64_t tokens = (uint64_t)keys * layout->block_tokens;

	if (g->kind != KVPOOL_GROUP_WINDOW || g->window == 0)
		return 1;
	if (tokens <= g->window)
		return keys;
	return keys - (uint32_t)((tokens - g->window) / layout->block_tokens);
}

/* Does the chain that ends with the block have so many keys? */
static bool long_enough(const struct kvpool_cache *cache, uint32_t block, uint32_t keys)
{
	while (block != 0 && keys > 0) {
		block = cache->records[block].parent;
		keys--;
	}
	return keys == 0;
}

/* Whether the note says all that the lease holds. */
static bool tells_all(const struct kvpool_cache *cache, const struct kvpool_note_half *note)
{
	const struct kvpool_record *r = &cache->records[note->block];
	const struct kvpool_layout *layout;

	if (note->flags & KVPOOL_NOTE_INEXACT || note->block == 0 || note->keys == 0 ||
	    note->block > cache->block_slab.fresh)
		return false;
	if (!readable(cache, note->block) || r->generation != note->block_generation ||
	    r->layout != note->layout)
		return false;
	layout = &cache->layouts[r->layout];
	if (layout->n_full == 0 || r->group != layout->first_full)
		return false;
	for (uint16_t g = 0; g < layout->n_groups; g++) {
		bool same = g == layout->first_full;

		if (layout->groups[g].kind == KVPOOL_GROUP_FULL &&
		    !long_enough(cache, same ? note->block : twin(cache, note->block, g),
				 note->keys))
			return false;
	}
	return true;
}

static void add_hold(struct kvpool_hold *out, uint32_t *n, struct kvpool_hold hold)
{
	if (out)
		out[*n] = hold;
	++*n;
}

/*
 * What hangs on the block in a group that is not FULL: the block of its key, and one that was there
 * before and is forgotten; the lease may hold either.
 */
static void add_children(const struct kvpool_cache *cache, uint32_t block, uint16_t group,
			 uint32_t key, struct kvpool_hold *out, uint32_t *n)
{
	for (uint32_t at = cache->blocks[block].first_child; at;
	     at = cache->blocks[at].next_sibling) {
		if (cache->records[at].group == group && readable(cache, at))
			add_hold(out, n, (struct kvpool_hold){at, key, group, 0});
	}
}

/* All that a lease on these keys may hold. Returns how much that is; `out`: NULL, or has room. */
static uint32_t find_holds(const struct kvpool_cache *cache, const struct kvpool_note_half *note,
			   struct kvpool_hold *out)
{
	const struct kvpool_layout *layout = &cache->layouts[note->layout];
	uint32_t n = 0, last = note->keys - 1;

	for (uint16_t g = 0; g < layout->n_groups; g++) {
		uint32_t at = note->block, left = needed(layout, g, note->keys);

		if (layout->groups[g].kind == KVPOOL_GROUP_FULL) {
			if (g != layout->first_full)
				at = twin(cache, at, g);
			add_hold(out, &n, (struct kvpool_hold){at, last, g, 1});
			continue;
		}
		for (uint32_t key = last; left > 0; left--, key--) {
			add_children(cache, at, g, key, out, &n);
			at = cache->records[at].parent;
		}
	}
	return n;
}

/* The lease of the note, whose index is taken. -ENOMEM. */
static int adopt_one(struct kvpool_cache *cache, uint32_t index,
		     const struct kvpool_note_half *note, struct kvpool_holder *holder, bool *exact)
{
	struct kvpool_lease *lease = kvpool_lease_at(cache, index);

	*lease = (struct kvpool_lease){
		.generation = note->generation,
		.holder = holder,
		.keys = note->keys,
		.kept = KVPOOL_KEPT_UNCLAIMED,
	};
	if (tells_all(cache, note)) {
		lease->layout = note->layout;
		lease->n_holds = find_holds(cache, note, NULL);
		lease->many = malloc((lease->n_holds + 1u) * sizeof(*lease->many));
		if (!lease->many)
			return -ENOMEM;
		(void)find_holds(cache, note, lease->many);
	} else {
		*exact = false;
	}
	holder->kept++;
	kvpool_note_tidy(&cache->notes, index);
	kvpool_lease_settle(cache, index);
	return 0;
}

/* Whether a note is there that nobody can read. */
static bool any_rotten(const struct kvpool_notes *notes, uint32_t last)
{
	struct kvpool_note_half note;

	for (uint32_t i = 1; i <= last; i++) {
		if (kvpool_note_read(notes, i, &note) == KVPOOL_NOTE_ROTTEN)
			return true;
	}
	return false;
}

static void say_lost(const struct kvpool_cache_left *left)
{
	if (left->lost)
		left->lost(left->cookie);
}

int kvpool_leases_adopt(struct kvpool_cache *cache, const struct kvpool_cache_left *left,
			struct kvpool_cache_adopted *result, bool *exact)
{
	struct kvpool_notes *notes = &cache->notes;
	bool all;
	uint32_t last;
	int r = 0;

	if (notes->notes)
		result->notes_fault = kvpool_notes_fault(notes, cache->catalog.header->epoch);
	if (!notes->notes || result->notes_fault) {
		say_lost(left);
		if (notes->notes)
			kvpool_notes_begin(notes, cache->config.epoch);
		*exact = false;
		return 0;
	}
	last = KVPOOL_MIN(notes->control->fresh, notes->max);
	all = !any_rotten(notes, last);
	if (!all)
		say_lost(left);
	notes->control->fresh = last;
	kvpool_slab_adopt(&cache->lease_slab, last);
	/* Backwards, so that free indices are taken from the first on. */
	for (uint32_t i = last; i > 0; i--) {
		struct kvpool_note_half note;
		enum kvpool_note_state state = kvpool_note_read(notes, i, &note);
		struct kvpool_holder *holder =
			state == KVPOOL_NOTE_SOUND ? kvpool_cache_holder_find(cache, note.client)
						   : NULL;

		if (holder) {
			if (r == 0)
				r = adopt_one(cache, i, &note, holder, &all);
			result->leases++;
			continue;
		}
		kvpool_note_clear(notes, i);
		*kvpool_lease_at(cache, i) =
			(struct kvpool_lease){.generation = kvpool_note_generation(notes, i)};
		kvpool_slab_give(&cache->lease_slab, i);
	}
	*exact = all;
	return r;
}
