/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest prefix that the pool has, into the context; and waiting for more of it.
 *
 * Called by the thread of the context.
 */
#include "client/llama/handle.h"

#include "client/llama/clock.h"

#include <stdlib.h>

static const uint8_t *key_at(const uint8_t *keys, uint32_t i)
{
	return keys + (size_t)i * KVPOOL_KEY_SIZE;
}

/*
 * Waits for block i, whose predecessors are there. The writer publishes some blocks at a time and
 * began before us, so half as much again as computing them takes is enough.
 */
static bool wait_for(struct kvpool_llama *h, const uint8_t *keys, uint32_t i)
{
	uint64_t ns = (kvpool_llama_publish_step(i) + 1) * h->chunk_ns * 3 / 2;

	for (uint32_t g = 0; g < h->shape.n_caches; g++) {
		if (kvpool_wait(h->channel, h->layout, g, key_at(keys, i), ns) != 0)
			return false;
	}
	return true;
}

/* Matches, and again after each wait that brought something, until nobody writes more. */
static uint32_t match_all(struct kvpool_llama *h, const uint8_t *keys, uint32_t n,
			  struct kvpool_block *blocks, struct kvpool_match *match,
			  struct kvpool_llama_report *report)
{
	uint32_t capacity = n * h->shape.n_caches;
	int64_t before = -1;

	for (;;) {
		uint64_t start;
		bool more;
		int64_t r = kvpool_match(h->channel, h->layout, keys, n, 0, KVPOOL_MATCH_PENDING,
					 kvpool_llama_deadline_ns(h), blocks, capacity, match);

		if (r < 0) {
			kvpool_llama_note(h, kvpool_channel_error(h->channel));
			return 0;
		}
		if (r == n || match->pending == 0 || r <= before)
			return (uint32_t)r;
		before = r;
		start = kvpool_llama_now_ns();
		more = wait_for(h, keys, (uint32_t)r);
		report->wait_ns += kvpool_llama_now_ns() - start;
		if (!more)
			return (uint32_t)r;
		kvpool_release(h->channel, match, 0);
		*match = (struct kvpool_match){0};
	}
}

static bool load_group(struct kvpool_llama *h, const struct kvpool_llama_state *state,
		       uint32_t group, struct kvpool_range range, const struct kvpool_block *blocks)
{
	for (uint32_t i = 0; i < range.count; i++) {
		struct kvpool_llama_span tokens = {(range.first + i) * h->chunk, h->chunk};
		uint32_t n = kvpool_llama_state_pieces(state, h->blob, group, tokens, h->spare,
						       h->pieces);

		if (kvpool_load(h->channel, h->layout, group, &blocks[i], 0, h->pieces, n) != 0)
			return false;
	}
	return true;
}

/* Whether the blocks of a group are those of the cache's span, none too few and none twice. */
static bool covers(const struct kvpool_llama *h, struct kvpool_llama_span span, uint32_t hit,
		   struct kvpool_range range)
{
	return range.first == span.first / h->chunk && range.first + range.count == hit;
}

static bool load(struct kvpool_llama *h, const struct kvpool_match *match,
		 const struct kvpool_block *blocks, uint32_t hit)
{
	struct kvpool_llama_state state;
	uint32_t at = 0;

	kvpool_llama_state_plan(&h->shape, h->sequence, 0, h->windows, hit * h->chunk, &state);
	if (match->n_groups != h->shape.n_caches || kvpool_llama_blob_ensure(h, state.bytes) != 0)
		return false;
	kvpool_llama_state_write(&state, h->blob);
	for (uint32_t g = 0; g < match->n_groups; g++) {
		if (!covers(h, state.spans[g], hit, match->groups[g]) ||
		    !load_group(h, &state, g, match->groups[g], blocks + at))
			return false;
		at += match->groups[g].count;
	}
	return kvpool_llama_state_set(h, &state);
}

uint32_t kvpool_llama_restore(struct kvpool_llama *h, const uint8_t *keys, uint32_t n,
			      struct kvpool_llama_report *report)
{
	struct kvpool_match match = {0};
	struct kvpool_block *blocks;
	uint64_t start;
	uint32_t hit;

	if (!h->channel || n == 0)
		return 0;
	blocks = calloc((size_t)n * h->shape.n_caches, sizeof(*blocks));
	if (!blocks)
		return 0;
	hit = match_all(h, keys, n, blocks, &match, report);
	start = kvpool_llama_now_ns();
	if (hit > 0 && !load(h, &match, blocks, hit)) {
		kvpool_llama_empty(h);
		hit = 0;
	}
	kvpool_release(h->channel, &match, 0);
	free(blocks);
	report->restore_ns += kvpool_llama_now_ns() - start;
	return hit;
}
