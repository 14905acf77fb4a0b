/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client under torture writes: see actor.h.
 */
#include "tools/torture/actor.h"

#include "tools/torture/mark.h"

#include <unistd.h>

#define LINGER_MS    8u
#define GIVE_UP_1_IN 12u

/* Blocks of one group that are being written. */
struct batch {
	uint32_t shape, group, chain, from, n;
	struct kvpool_block blocks[KVPOOL_SHAPE_DEPTH];
	uint32_t versions[KVPOOL_SHAPE_DEPTH];
};

static uint64_t key_of(const struct batch *b, uint32_t i)
{
	return kvpool_shape_key(b->shape, b->group, b->chain, b->from + i);
}

/* Returns how many places there are. */
static int64_t reserve(struct kvpool_actor *actor, struct batch *b)
{
	uint8_t keys[(KVPOOL_SHAPE_DEPTH + 1) * KVPOOL_KEY_SIZE];
	uint32_t before = b->from > 0;
	int64_t granted;

	kvpool_shape_keys(b->shape, b->chain, b->from - before, b->n + before, keys);
	granted = kvpool_reserve(actor->channel, actor->layouts[b->shape], b->group,
				 before ? keys : NULL, keys + (size_t)before * KVPOOL_KEY_SIZE,
				 b->n, 0, b->blocks);
	if (granted < 0)
		kvpool_actor_failed(actor, "reserve", granted);
	for (uint32_t i = 0; granted > 0 && i < b->n; i++) {
		b->versions[i] = 0;
		if (b->blocks[i].block == 0)
			continue;
		b->versions[i] = kvpool_books_begin(actor->books, key_of(b, i));
		/* What is not in the books must not be found. */
		if (b->versions[i] == 0)
			b->blocks[i].block = 0;
	}
	return granted;
}

static void set_all(struct kvpool_actor *actor, const struct batch *b, enum kvpool_version state)
{
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->blocks[i].block != 0)
			kvpool_books_set(actor->books, b->versions[i], state);
	}
}

/* False where the places are gone. */
static bool store(struct kvpool_actor *actor, const struct batch *b, uint32_t shard)
{
	size_t bytes = kvpool_shapes[b->shape].specs[b->group].slot_bytes;
	struct kvpool_piece piece = {actor->bytes, bytes};

	for (uint32_t i = 0; i < b->n; i++) {
		struct kvpool_mark mark = {key_of(b, i), shard, b->versions[i]};
		bool leave;
		int r;

		if (b->blocks[i].block == 0)
			continue;
		kvpool_mark_fill(&mark, actor->bytes, bytes);
		leave = kvpool_actor_ordered(actor, KVPOOL_ORDER_EXIT_COPYING);
		piece.bytes = leave ? bytes / 2 : bytes;
		r = kvpool_store(actor->channel, actor->layouts[b->shape], b->group, &b->blocks[i],
				 shard, &piece, 1);
		if (leave)
			_exit(0);
		if (r != 0) {
			kvpool_actor_failed(actor, "store", r);
			return false;
		}
	}
	return true;
}

static void give_up(struct kvpool_actor *actor, const struct batch *b)
{
	int64_t r;

	set_all(actor, b, KVPOOL_VERSION_DROPPED);
	r = kvpool_abort(actor->channel, b->blocks, b->n, 0);
	if (r < 0)
		kvpool_actor_failed(actor, "abort", r);
}

/* False: the blocks were given back, and are others' to write. */
static bool commit(struct kvpool_actor *actor, const struct batch *b, uint32_t shard)
{
	bool last = shard + 1 == kvpool_shapes[b->shape].shards;
	int64_t taken;

	if (last)
		set_all(actor, b, KVPOOL_VERSION_OFFERED);
	taken = kvpool_commit(actor->channel, b->blocks, b->n, shard, 0);
	if (taken < 0) {
		kvpool_actor_failed(actor, "commit", taken);
		/* It may have been done, or may still be: that is what the books say too. */
		(void)kvpool_abort(actor->channel, b->blocks, b->n, 0);
		return false;
	}
	if (last && taken > 0) {
		set_all(actor, b, KVPOOL_VERSION_TAKEN);
		atomic_fetch_add(&actor->slot->stored, (uint64_t)taken);
	}
	return true;
}

static void write_group(struct kvpool_actor *actor, struct batch *b, bool linger)
{
	bool drop = kvpool_actor_below(actor, GIVE_UP_1_IN) == 0;
	uint32_t shards = kvpool_shapes[b->shape].shards;

	if (reserve(actor, b) <= 0)
		return;
	for (uint32_t shard = 0; shard < shards; shard++) {
		bool last = shard + 1 == shards;

		if (!store(actor, b, shard) || (last && drop)) {
			give_up(actor, b);
			return;
		}
		if (linger && last)
			kvpool_actor_linger(actor, LINGER_MS);
		if (!commit(actor, b, shard))
			return;
	}
}

void kvpool_actor_write(struct kvpool_actor *actor, uint32_t shape, uint32_t chain, uint32_t from,
			uint32_t to, bool linger)
{
	struct batch b = {.shape = shape, .chain = chain, .from = from, .n = to - from};

	for (b.group = 0; b.group < kvpool_shapes[shape].groups; b.group++)
		write_group(actor, &b, linger);
}
