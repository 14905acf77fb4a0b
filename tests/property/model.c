/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operations do to the model: blocks that disappear with all that hangs on them, reservations
 * that nobody finds any more, waiters that must be woken.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

uint64_t shard_bits(const struct world *w, int block, uint32_t shard)
{
	uint32_t n = w->layouts[block_layout(block)].wire.n_shards;

	return shard == UINT32_MAX ? (UINT64_C(1) << n) - 1 : UINT64_C(1) << shard;
}

static void limbo_add(struct world *w, int block, const struct drop *drop)
{
	const struct block *b = &w->blocks[block];
	bool own = b->holder == drop->holder;

	WORLD_CHECK(w, w->n_limbos < LIMBOS, "the test's table of frames in limbo is full");
	w->limbos[w->n_limbos++] = (struct limbo){
		.block = block,
		.parent = b->parent,
		.holder = b->holder,
		.quarantined = drop->why == DROP_QUARANTINE && own,
		.dead = drop->why != DROP_QUARANTINE || !own,
		.firm = drop->why != DROP_ABORT || !own,
		.committed = b->committed,
		.place = b->place,
	};
}

uint32_t model_drop(struct world *w, int block, const struct drop *drop)
{
	struct block *b = &w->blocks[block];
	uint32_t dropped = 1;

	if (b->state == BLOCK_ABSENT)
		return 0;
	if (b->state == BLOCK_RESERVED) {
		limbo_add(w, block, drop);
		model_wake(w, block, KVPOOL_STATUS_ABANDONED);
	}
	b->state = BLOCK_ABSENT;
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state != BLOCK_ABSENT && w->blocks[i].parent == block)
			dropped += model_drop(w, i, drop);
	b->parent = -1;
	return dropped;
}

bool model_limbo_end(struct world *w, int holder, const struct kvpool_wire_handle *handle)
{
	uint32_t kept = 0;
	bool ended = false;

	for (uint32_t i = 0; i < w->n_limbos; i++) {
		const struct limbo *l = &w->limbos[i];

		if (l->holder == holder && (!handle || (l->place.block == handle->block &&
							l->place.generation == handle->generation)))
			ended = true;
		else
			w->limbos[kept++] = *l;
	}
	w->n_limbos = kept;
	return ended;
}

bool model_limbo_commit(struct world *w, int holder, const struct kvpool_wire_handle *handle,
			uint32_t shard)
{
	for (uint32_t i = 0; i < w->n_limbos; i++) {
		struct limbo *l = &w->limbos[i];
		uint64_t all = shard_bits(w, l->block, UINT32_MAX);

		if (l->holder != holder || l->place.block != handle->block ||
		    l->place.generation != handle->generation)
			continue;
		l->committed |= shard_bits(w, l->block, shard);
		if (l->committed == all)
			l->firm = false;
		return true;
	}
	return false;
}

void model_wake(struct world *w, int block, enum kvpool_status status)
{
	for (int i = 0; i < WAITERS; i++) {
		struct waiter *waiter = &w->waiters[i];

		if (!waiter->used || waiter->due || waiter->block != block)
			continue;
		waiter->due = true;
		waiter->expected = status;
	}
}

void model_woken(void *cookie, enum kvpool_status status)
{
	struct waiter *waiter = cookie;

	waiter->got = status;
	waiter->wakes++;
}
