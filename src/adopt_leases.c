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

/* The READY block of this key in another group; 0: none. */
static uint32_t sibling(const struct kvpool_cache *cache, uint32_t block, uint8_t group)
{
	const struct kvpool_record *r = &cache->records[block];
	uint64_t hash = kvpool_index_hash(&cache->index, r->key, r->layout, group);
	uint32_t found = kvpool_index_find(&cache->index, hash, r->key, r->layout, group);

	return found && cache->records[found].state == KVPOOL_BLOCK_READY ? found : 0;
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
	if (r->state != KVPOOL_BLOCK_READY || r->generation != note->block_generation ||
	    r->layout != note->layout)
		return false;
	layout = &cache->layouts[r->layout];
	if (layout->n_full == 0 || r->group != layout->first_full)
		return false;
	for (uint16_t g = 0; g < layout->n_groups; g++) {
		uint32_t end =
			g == r->group ? note->block : sibling(cache, note->block, (uint8_t)g);

		if (layout->groups[g].kind == KVPOOL_GROUP_FULL &&
		    !long_enough(cache, end, note->keys))
			return false;
	}
	return true;
}

/* All that a lease on these keys may hold. Returns how much that is; `out` has room for it. */
static uint32_t find_holds(const struct kvpool_cache *cache, const struct kvpool_note_half *note,
			   struct kvpool_hold *out)
{
	const struct kvpool_layout *layout = &cache->layouts[note->layout];
	uint32_t n = 0;

	for (uint16_t g = 0; g < layout->n_groups; g++) {
		bool chain = layout->groups[g].kind == KVPOOL_GROUP_FULL;
		uint32_t at = note->block, left = needed(layout, g, note->keys);

		for (uint32_t key = note->keys; left > 0; left--) {
			uint32_t block =
				g == layout->first_full ? at : sibling(cache, at, (uint8_t)g);

			key--;
			if (block)
				out[n++] = (struct kvpool_hold){block, key, g, chain};
			at = cache->records[at].parent;
		}
	}
	return n;
}

static uint64_t holds_max(const struct kvpool_cache *cache, const struct kvpool_note_half *note)
{
	const struct kvpool_layout *layout = &cache->layouts[note->layout];
	uint64_t n = 0;

	for (uint16_t g = 0; g < layout->n_groups; g++)
		n += needed(layout, g, note->keys);
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
		lease->many = malloc(holds_max(cache, note) * sizeof(*lease->many));
		if (!lease->many)
			return -ENOMEM;
		lease->n_holds = find_holds(cache, note, lease->many);
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
