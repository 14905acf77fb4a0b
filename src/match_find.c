/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the longest usable prefix.
 *
 * FULL groups are walked from the first key on, in batches whose lines are fetched together, and
 * end at the first key that is not READY. The other groups are then asked backwards from that end:
 * each missing block lowers the end, until every group agrees. Keys are peer memory: each batch is
 * copied once and everything later goes by what was found for the copy. A client that changes its
 * keys meanwhile gets an answer about some of them, never about memory that it may not read.
 *
 * A chain that was stored in one go has neighbouring blocks, upwards or, where each took the place
 * of an evicted leaf, downwards. So the neighbour of what was found is compared with the next key
 * before the index is asked: records are then read in order and no bucket is touched (32,768 keys
 * of 8 M resident blocks: 0.5 ms against 1.6).
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/match.h"

#define BATCH_MAX   256u
#define BATCH_FIRST 16u /* after the first key: a short hit should not fetch many lines */

/* Keys in private memory, with their hashes. */
struct batch {
	uint32_t n;
	uint64_t hash[BATCH_MAX];
	uint32_t guess[BATCH_MAX];
	uint8_t key[BATCH_MAX][KVPOOL_KEY_BYTES];
};

/* Copies keys and fetches what their lookup will touch: first all buckets, then all records. */
static void batch_fetch(const struct kvpool_match *m, uint32_t group, uint32_t from, uint32_t n,
			struct batch *b)
{
	const struct kvpool_index *index = &m->cache->index;
	const struct kvpool_bucket *home[BATCH_MAX];

	b->n = n;
	memcpy(b->key, m->args->keys + (size_t)from * KVPOOL_KEY_BYTES,
	       (size_t)n * KVPOOL_KEY_BYTES);
	KVPOOL_COPIED(b->key);
	for (uint32_t i = 0; i < n; i++) {
		b->hash[i] = kvpool_index_hash(index, b->key[i], m->args->layout, (uint8_t)group);
		home[i] = kvpool_index_home(index, b->hash[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		kvpool_line_fetch(home[i]);
	for (uint32_t i = 0; i < n; i++)
		b->guess[i] = kvpool_index_guess(home[i], b->hash[i]);
	for (uint32_t i = 0; i < n; i++)
		kvpool_line_fetch(&m->cache->records[b->guess[i]]);
}

/* Block of key i of the batch, in any state that is in the index; 0: none. */
static uint32_t batch_find(const struct kvpool_match *m, uint32_t group, const struct batch *b,
			   uint32_t i)
{
	const struct kvpool_cache *cache = m->cache;

	if (KVPOOL_LIKELY(b->guess[i] && kvpool_index_same(&cache->records[b->guess[i]], b->key[i],
							   m->args->layout, (uint8_t)group)))
		return b->guess[i];
	return kvpool_index_find(&cache->index, b->hash[i], b->key[i], m->args->layout,
				 (uint8_t)group);
}

/* The READY block next to `previous` that has this key and hangs on it; 0: neither has. */
static uint32_t neighbour(const struct kvpool_match *m, uint32_t group, const uint8_t *key,
			  uint32_t previous, int32_t *step)
{
	for (uint32_t attempt = 0; attempt < 2; attempt++) {
		uint32_t block = previous + (uint32_t)*step;
		const struct kvpool_record *r = &m->cache->records[block];

		if (block > 0 && block <= m->cache->block_slab.fresh &&
		    r->state == KVPOOL_BLOCK_READY && r->parent == previous &&
		    kvpool_index_same(r, key, m->args->layout, (uint8_t)group))
			return block;
		*step = -*step;
	}
	return 0;
}

/* From key `at` on as far as neighbours lead. Returns where they end. */
static uint32_t walk_neighbours(struct kvpool_match *m, uint32_t group, uint32_t at, uint32_t end,
				uint32_t *previous)
{
	struct kvpool_wire_block *found = kvpool_match_found(m, group);
	uint8_t key[KVPOOL_KEY_BYTES];
	int32_t step = 1;

	for (; at < end; at++) {
		uint32_t block;

		memcpy(key, m->args->keys + (size_t)at * KVPOOL_KEY_BYTES, sizeof(key));
		KVPOOL_COPIED(key);
		block = neighbour(m, group, key, *previous, &step);
		if (!block)
			break;
		kvpool_block_touch(m->cache, &m->cache->records[block]);
		found[at] = kvpool_match_place(&m->cache->records[block], block);
		*previous = block;
	}
	return at;
}

/* One FULL group from the first key up to `end`. Returns where it ends. */
static uint32_t walk_full(struct kvpool_match *m, uint32_t group, uint32_t end)
{
	struct kvpool_wire_block *found = kvpool_match_found(m, group);
	uint32_t at = 0, previous = 0, size = 1;
	struct batch b;

	while (at < end) {
		if (at > 0) {
			at = walk_neighbours(m, group, at, end, &previous);
			if (at == end)
				break;
		}
		batch_fetch(m, group, at, KVPOOL_MIN(size, end - at), &b);
		for (uint32_t i = 0; i < b.n; i++) {
			uint32_t block = batch_find(m, group, &b, i);
			struct kvpool_record *r = &m->cache->records[block];

			if (!block || r->state != KVPOOL_BLOCK_READY)
				return at + i;
			if (r->parent != previous && at + i > 0)
				m->broken[group] = true;
			kvpool_block_touch(m->cache, r);
			found[at + i] = kvpool_match_place(r, block);
			previous = block;
		}
		at += b.n;
		size = size < BATCH_FIRST ? BATCH_FIRST : BATCH_MAX;
	}
	return end;
}

/* Keys [from, to) of a WINDOW or STATE group, at most a batch. */
static void look_up(struct kvpool_match *m, uint32_t group, uint32_t from, uint32_t to)
{
	struct kvpool_wire_block *found = kvpool_match_found(m, group);
	struct batch b;

	batch_fetch(m, group, from, to - from, &b);
	for (uint32_t i = 0; i < b.n; i++) {
		uint32_t block = batch_find(m, group, &b, i);
		const struct kvpool_record *r = &m->cache->records[block];

		found[from + i] = block && r->state == KVPOOL_BLOCK_READY
					  ? kvpool_match_place(r, block)
					  : (struct kvpool_wire_block){0};
	}
}

/* Is the group's block of this key READY? Keys are asked downwards; `want` of them may follow. */
static bool present(struct kvpool_match *m, uint32_t group, uint32_t key, uint32_t want)
{
	if (key < m->known[group]) {
		uint32_t n = KVPOOL_MIN(KVPOOL_MIN(want, BATCH_MAX), key + 1 - m->args->skip);

		m->known[group] = key + 1 - n;
		look_up(m, group, m->known[group], key + 1);
	}
	return kvpool_match_found(m, group)[key].block != 0;
}

uint32_t kvpool_match_window_start(const struct kvpool_match *m, uint32_t group, uint32_t hit)
{
	uint64_t tokens = (uint64_t)hit * m->layout->block_tokens;
	uint32_t window = m->layout->groups[group].window;
	uint32_t start = 0;

	if (tokens > window)
		start = (uint32_t)((tokens - window) / m->layout->block_tokens);
	return KVPOOL_MAX(start, m->args->skip);
}

/* A key that is missing in the window of L is in the window of every shorter L above it. */
static void fit_window(struct kvpool_match *m, uint32_t group)
{
	uint32_t at = KVPOOL_MIN(m->fits[group], m->hit);

	while (m->hit > m->args->skip) {
		uint32_t need = kvpool_match_window_start(m, group, m->hit);

		if (at <= need)
			break;
		at--;
		if (!present(m, group, at, at + 1 - need))
			m->hit = at;
	}
	m->fits[group] = at;
}

static void fit_state(struct kvpool_match *m, uint32_t group)
{
	uint32_t want = 1;

	while (m->hit > m->args->skip && !present(m, group, m->hit - 1, want)) {
		m->hit--;
		want = KVPOOL_MIN(want * 2, BATCH_MAX);
	}
}

void kvpool_match_find(struct kvpool_match *m)
{
	uint32_t hit = m->args->n;
	uint32_t before;

	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		if (m->layout->groups[g].kind == KVPOOL_GROUP_FULL)
			hit = walk_full(m, g, hit);
	}
	m->hit = hit;
	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		m->known[g] = hit;
		m->fits[g] = hit;
	}
	do {
		before = m->hit;
		for (uint16_t g = 0; g < m->layout->n_groups; g++) {
			if (m->layout->groups[g].kind == KVPOOL_GROUP_WINDOW)
				fit_window(m, g);
			else if (m->layout->groups[g].kind == KVPOOL_GROUP_STATE)
				fit_state(m, g);
		}
	} while (m->hit != before && m->hit > m->args->skip);
}
