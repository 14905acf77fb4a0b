/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: what clients are reading.
 *
 * A lease is a list of holds; a hold counts one on its block. Along a chain one hold on the last
 * block is enough, because a block with children stays (tree). A lease's number outside is its
 * generation and its index. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static uint64_t hold_bytes(const struct kvpool_cache *cache, const struct kvpool_lease *lease,
			   const struct kvpool_hold *hold)
{
	uint64_t units = cache->layouts[lease->layout].groups[hold->group].frame_units;

	return (hold->chain ? (uint64_t)hold->key + 1 : 1) * (units << KVPOOL_UNIT_SHIFT);
}

bool kvpool_lease_room(const struct kvpool_cache *cache, const struct kvpool_holder *holder,
		       uint32_t holds)
{
	uint64_t holds_max = (uint64_t)cache->config.leases_max * KVPOOL_HOLDS_PER_LEASE;

	/* One request always fits, however low the limit on leases is. */
	holds_max = KVPOOL_MAX(holds_max, (uint64_t)KVPOOL_KEYS_MAX * KVPOOL_GROUPS_MAX);
	return holder->leases < cache->config.leases_max &&
	       holder->holds + (uint64_t)holds <= holds_max;
}

uint32_t kvpool_lease_new(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
			  uint32_t n_holds)
{
	struct kvpool_hold *many = NULL;
	struct kvpool_lease *lease;
	uint32_t index;

	if (n_holds > 1) {
		many = malloc(n_holds * sizeof(*many));
		if (!many)
			return 0;
	}
	index = kvpool_slab_take(&cache->lease_slab);
	if (!index) {
		free(many);
		return 0;
	}
	lease = kvpool_lease_at(cache, index);
	if (++lease->generation == 0)
		lease->generation = 1;
	lease->holder = holder;
	lease->layout = layout;
	lease->kept = KVPOOL_KEPT_NO;
	lease->n_holds = n_holds;
	lease->many = many;
	return index;
}

void kvpool_lease_settle(struct kvpool_cache *cache, uint32_t lease)
{
	struct kvpool_lease *l = kvpool_lease_at(cache, lease);
	struct kvpool_holder *holder = l->holder;
	const struct kvpool_hold *holds = kvpool_lease_holds(l);

	for (uint32_t i = 0; i < l->n_holds; i++)
		kvpool_line_fetch(&cache->blocks[holds[i].block]);
	l->bytes = 0;
	for (uint32_t i = 0; i < l->n_holds; i++) {
		cache->blocks[holds[i].block].leases++;
		l->bytes += hold_bytes(cache, l, &holds[i]);
	}
	l->prev = 0;
	l->next = holder->first_lease;
	if (l->next)
		kvpool_lease_at(cache, l->next)->prev = lease;
	holder->first_lease = lease;
	holder->leases++;
	holder->holds += l->n_holds;
	holder->leased_bytes += l->bytes;
	if (l->many)
		cache->holds_bytes += l->n_holds * sizeof(*l->many);
}

void kvpool_lease_note(struct kvpool_cache *cache, uint32_t index)
{
	struct kvpool_lease *lease = kvpool_lease_at(cache, index);
	const struct kvpool_hold *holds = kvpool_lease_holds(lease);
	const struct kvpool_layout *layout = &cache->layouts[lease->layout];
	struct kvpool_note_half note = {
		.client = lease->holder->id,
		.generation = lease->generation,
		.keys = lease->keys,
		.layout = lease->layout,
	};

	if (!cache->notes.notes)
		return;
	for (uint32_t i = 0; i < lease->n_holds; i++) {
		if (holds[i].chain && holds[i].group == layout->first_full) {
			note.block = holds[i].block;
			note.block_generation = cache->records[note.block].generation;
		} else if (!holds[i].chain &&
			   layout->groups[holds[i].group].kind == KVPOOL_GROUP_FULL) {
			note.flags |= KVPOOL_NOTE_INEXACT;
		}
	}
	if (note.block == 0)
		note.flags |= KVPOOL_NOTE_INEXACT;
	kvpool_note_write(&cache->notes, index, &note);
}

void kvpool_lease_end(struct kvpool_cache *cache, uint32_t index)
{
	struct kvpool_lease *lease = kvpool_lease_at(cache, index);
	struct kvpool_holder *holder = lease->holder;
	const struct kvpool_hold *holds = kvpool_lease_holds(lease);

	if (cache->notes.notes)
		kvpool_note_clear(&cache->notes, index);
	for (uint32_t i = 0; i < lease->n_holds; i++)
		kvpool_block_unhold(cache, holds[i].block);
	if (lease->prev)
		kvpool_lease_at(cache, lease->prev)->next = lease->next;
	else
		holder->first_lease = lease->next;
	if (lease->next)
		kvpool_lease_at(cache, lease->next)->prev = lease->prev;
	holder->leases--;
	holder->holds -= lease->n_holds;
	holder->leased_bytes -= lease->bytes;
	holder->kept -= lease->kept != KVPOOL_KEPT_NO;
	if (lease->many)
		cache->holds_bytes -= lease->n_holds * sizeof(*lease->many);
	free(lease->many);
	lease->many = NULL;
	lease->holder = NULL;
	lease->n_holds = 0;
	kvpool_slab_give(&cache->lease_slab, index);
}

/*
 * What the hold is to hold for the first `keep` keys: that is held once more, and nothing is let go
 * of yet. False where it is to hold nothing.
 */
static bool hold_shrunk(struct kvpool_cache *cache, struct kvpool_hold *hold, uint32_t keep)
{
	uint32_t block = hold->block;

	if (hold->key >= keep && !hold->chain)
		return false;
	if (hold->key >= keep) {
		for (uint32_t key = hold->key; key >= keep; key--)
			block = cache->records[block].parent;
		assert(block);
		hold->block = block;
		hold->key = keep - 1;
	}
	cache->blocks[block].leases++;
	return true;
}

/* Takes what it will hold, has that noted, and only then lets go of what it held. */
static int lease_shrink(struct kvpool_cache *cache, uint32_t index, uint32_t keep)
{
	struct kvpool_lease *lease = kvpool_lease_at(cache, index);
	struct kvpool_hold *holds = kvpool_lease_holds(lease);
	struct kvpool_holder *holder = lease->holder;
	uint32_t n_old = lease->n_holds, n = 0;
	uint32_t *old = malloc((n_old + 1) * sizeof(*old));
	uint64_t bytes = 0;

	if (!old)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_old; i++) {
		old[i] = holds[i].block;
		if (!hold_shrunk(cache, &holds[i], keep))
			continue;
		bytes += hold_bytes(cache, lease, &holds[i]);
		holds[n++] = holds[i];
	}
	holder->holds -= n_old - n;
	holder->leased_bytes -= lease->bytes - bytes;
	if (lease->many)
		cache->holds_bytes -= (n_old - n) * sizeof(*holds);
	lease->n_holds = n;
	lease->bytes = bytes;
	lease->keys = keep;
	kvpool_lease_note(cache, index);
	for (uint32_t i = 0; i < n_old; i++)
		kvpool_block_unhold(cache, old[i]);
	free(old);
	return 0;
}

int kvpool_cache_release(struct kvpool_cache *cache, struct kvpool_holder *holder, uint64_t lease,
			 uint32_t keep)
{
	uint32_t index = (uint32_t)lease;
	struct kvpool_lease *l;

	kvpool_cache_settle(cache);
	if (index == 0 || index > cache->lease_slab.fresh)
		return KVPOOL_STATUS_STALE;
	l = kvpool_lease_at(cache, index);
	if (l->holder != holder || l->generation != lease >> 32)
		return KVPOOL_STATUS_STALE;
	if (keep > l->keys)
		return KVPOOL_STATUS_INVALID;
	if (keep == 0)
		kvpool_lease_end(cache, index);
	else if (keep < l->keys)
		return lease_shrink(cache, index, keep);
	return 0;
}

void kvpool_lease_end_all(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	while (holder->first_lease)
		kvpool_lease_end(cache, holder->first_lease);
}
