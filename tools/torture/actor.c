/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client under torture reads: see actor.h. What it writes is in actor_write.c.
 */
#include "tools/torture/actor.h"

#include "tools/bench/keys.h"
#include "tools/torture/mark.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECES_MAX 4u

/* More processes than cores: whoever spins keeps the daemon from its work. */
#define SPIN_NS 2000u

bool kvpool_actor_open(struct kvpool_actor *actor)
{
	const struct kvpool_options options = {
		.size = sizeof(options),
		.socket = actor->socket,
		.name = "torture",
		.deadline_ns = actor->deadline_ns,
		.spin_ns = SPIN_NS,
	};
	int r = kvpool_open(&options, &actor->pool);

	if (r == 0) {
		r = kvpool_channel_open(actor->pool, &actor->channel);
		for (uint32_t i = 0; r == 0 && i < KVPOOL_SHAPES; i++)
			r = kvpool_shape_layout(actor->pool, i, &actor->layouts[i]);
		if (r != 0)
			kvpool_close(actor->pool);
	}
	if (r != 0)
		kvpool_actor_failed(actor, "open", r);
	return r == 0;
}

void kvpool_actor_close(struct kvpool_actor *actor)
{
	kvpool_channel_close(actor->channel);
	kvpool_close(actor->pool);
	actor->channel = NULL;
	actor->pool = NULL;
}

void kvpool_actor_failed(struct kvpool_actor *actor, const char *call, int64_t error)
{
	switch (-error) {
	case ENOTCONN:
	case ETIMEDOUT:
	case ESTALE:
	case ENOSPC:
		atomic_fetch_add(&actor->slot->missed, 1);
		return;
	default:
		atomic_fetch_add(&actor->slot->odd, 1);
		kvpool_books_fault(actor->books, "%s failed with %s (%s)", call,
				   strerrorname_np((int)-error),
				   actor->channel ? kvpool_channel_error(actor->channel) : "");
	}
}

bool kvpool_actor_ordered(struct kvpool_actor *actor, enum kvpool_order order)
{
	uint32_t expected = order;

	return atomic_compare_exchange_strong(&actor->slot->order, &expected, KVPOOL_ORDER_NONE);
}

uint32_t kvpool_actor_below(struct kvpool_actor *actor, uint32_t n)
{
	return (uint32_t)kvpool_random_below(&actor->random, n);
}

void kvpool_actor_linger(struct kvpool_actor *actor, uint32_t ms_max)
{
	const struct timespec pause = {.tv_nsec = 1 + (long)kvpool_actor_below(actor, 1000000)};

	for (uint32_t left = 1 + kvpool_actor_below(actor, ms_max);
	     left > 0 && !atomic_load(&actor->books->stop); left--)
		nanosleep(&pause, NULL);
}

uint32_t kvpool_actor_find(struct kvpool_actor *actor, uint32_t shape, uint32_t chain, uint32_t n,
			   struct kvpool_actor_hit *hit)
{
	uint8_t keys[KVPOOL_SHAPE_DEPTH * KVPOOL_KEY_SIZE];
	int64_t found;

	kvpool_shape_keys(shape, chain, 0, n, keys);
	memset(hit, 0, sizeof(*hit));
	hit->shape = shape;
	hit->chain = chain;
	found = kvpool_match(actor->channel, actor->layouts[shape], keys, n, 0, 0, 0, hit->blocks,
			     KVPOOL_ARRAY_SIZE(hit->blocks), &hit->match);
	if (found < 0) {
		kvpool_actor_failed(actor, "match", found);
		return 0;
	}
	atomic_store(&actor->slot->held, hit->match.reported);
	return (uint32_t)found;
}

/* A block's bytes arrive in pieces of uneven lengths. */
static uint32_t cut(struct kvpool_actor *actor, size_t bytes, struct kvpool_piece *pieces)
{
	uint8_t *at = (uint8_t *)actor->bytes;
	uint32_t n = 0;

	while (n + 1 < PIECES_MAX && bytes > 8) {
		size_t part = 1 + kvpool_actor_below(actor, (uint32_t)bytes - 1);

		pieces[n++] = (struct kvpool_piece){at, part};
		at += part;
		bytes -= part;
	}
	pieces[n++] = (struct kvpool_piece){at, bytes};
	return n;
}

/* One block of a hit. */
struct place {
	uint32_t group, place, at;
};

/* Whose bytes they are instead: the first version of any key that they begin with. */
static void name_writer(const struct kvpool_actor *actor, char *out, size_t bytes)
{
	for (uint32_t i = 0; i < KVPOOL_SHAPES * KVPOOL_SHAPE_GROUPS * KVPOOL_SHAPE_CHAINS *
					 KVPOOL_SHAPE_DEPTH * KVPOOL_SHAPE_SHARDS;
	     i++) {
		uint32_t shard = i % KVPOOL_SHAPE_SHARDS, left = i / KVPOOL_SHAPE_SHARDS;
		uint32_t place = left % KVPOOL_SHAPE_DEPTH, chain, group, shape;
		uint64_t key, entry;
		uint32_t version;

		left /= KVPOOL_SHAPE_DEPTH;
		chain = left % KVPOOL_SHAPE_CHAINS;
		left /= KVPOOL_SHAPE_CHAINS;
		shape = left % KVPOOL_SHAPES;
		group = left / KVPOOL_SHAPES;
		if (group >= kvpool_shapes[shape].groups)
			continue;
		key = kvpool_shape_key(shape, group, chain, place);
		version = kvpool_mark_version(key, shard, actor->bytes);
		if (version == 0 || version >= KVPOOL_BOOKS_VERSIONS_MAX)
			continue;
		entry = atomic_load(&actor->books->versions[version]);
		if (entry >> 8 != key)
			continue;
		(void)snprintf(out, bytes, "%s group %u chain %u place %u shard %u version %u (%u)",
			       kvpool_shapes[shape].label, group, chain, place, shard, version,
			       (uint32_t)(entry & 0xff));
		return;
	}
	(void)snprintf(out, bytes, "nobody's");
}

static void wrong(struct kvpool_actor *actor, const struct kvpool_actor_hit *hit, struct place p,
		  uint32_t shard, uint32_t version, uint64_t bytes)
{
	const struct kvpool_block *block = &hit->blocks[p.at];
	uint64_t entry = version < KVPOOL_BOOKS_VERSIONS_MAX
				 ? atomic_load(&actor->books->versions[version])
				 : 0;
	char writer[96];

	name_writer(actor, writer, sizeof(writer));
	atomic_fetch_add(&actor->slot->wrong, bytes);
	kvpool_books_fault(
		actor->books,
		"%llu wrong bytes: %s, group %u, chain %u, place %u, shard %u; version "
		"%u (%s, before: %u), block %u at %u:%u, life %llx, process %d; they are %s",
		(unsigned long long)bytes, kvpool_shapes[hit->shape].label, p.group, hit->chain,
		p.place, shard, version,
		entry == 0 ? "never begun"
		: entry >> 8 != kvpool_shape_key(hit->shape, p.group, hit->chain, p.place)
			? "of another key"
		: (entry & 0xff) == KVPOOL_VERSION_BEGUN   ? "not offered"
		: (entry & 0xff) == KVPOOL_VERSION_DROPPED ? "given up"
							   : "offered",
		hit->versions[p.at], block->block, block->segment, block->offset,
		(unsigned long long)block->epoch, (int)getpid(), writer);
}

/* False: there is nothing to look at, which only the first look may meet. */
static bool check_shard(struct kvpool_actor *actor, struct kvpool_actor_hit *hit, struct place p,
			uint32_t shard, bool again)
{
	uint64_t key = kvpool_shape_key(hit->shape, p.group, hit->chain, p.place);
	size_t bytes = kvpool_shapes[hit->shape].specs[p.group].slot_bytes;
	struct kvpool_piece pieces[PIECES_MAX];
	struct kvpool_mark mark = {.key = key, .shard = shard};
	uint64_t bad;
	int r = kvpool_load(actor->channel, actor->layouts[hit->shape], p.group, &hit->blocks[p.at],
			    shard, pieces, cut(actor, bytes, pieces));

	if (r != 0) {
		kvpool_actor_failed(actor, "load", r);
		/* Nobody vouches for what a daemon had leased that is gone: a miss. */
		if (again && r != -ESTALE)
			kvpool_books_fault(
				actor->books,
				"%s, group %u, shard %u: a leased block cannot be read again: %s",
				kvpool_shapes[hit->shape].label, p.group, shard,
				strerrorname_np(-r));
		return false;
	}
	mark.version = kvpool_mark_version(key, shard, actor->bytes);
	if (!kvpool_books_may_be_found(actor->books, mark.version, key) ||
	    (hit->versions[p.at] != 0 && hit->versions[p.at] != mark.version)) {
		wrong(actor, hit, p, shard, mark.version, bytes);
		return true;
	}
	hit->versions[p.at] = mark.version;
	bad = kvpool_mark_wrong(&mark, actor->bytes, bytes);
	if (bad != 0)
		wrong(actor, hit, p, shard, mark.version, bad);
	return true;
}

void kvpool_actor_check(struct kvpool_actor *actor, struct kvpool_actor_hit *hit)
{
	struct place p = {0};

	for (p.group = 0; p.group < hit->match.n_groups; p.group++) {
		const struct kvpool_range *range = &hit->match.groups[p.group];

		for (uint32_t i = 0; i < range->count; i++, p.at++) {
			bool again = hit->versions[p.at] != 0;
			bool whole = true;

			p.place = range->first + i;
			for (uint32_t s = 0; whole && s < kvpool_shapes[hit->shape].shards; s++)
				whole = check_shard(actor, hit, p, s, again);
			if (whole)
				atomic_fetch_add(&actor->slot->checked, 1);
		}
	}
}

void kvpool_actor_release(struct kvpool_actor *actor, struct kvpool_actor_hit *hit, uint32_t keep)
{
	kvpool_release(actor->channel, &hit->match, keep);
	if (keep == 0)
		atomic_store(&actor->slot->held, 0);
}
