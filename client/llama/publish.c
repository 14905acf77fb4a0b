/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One prompt's blocks on their way into the pool: reserved before they are computed, so that others
 * wait for them, stored and committed as they become whole.
 *
 * The sliding cache forgets, so its part of a block is stored at the block's end. It is committed
 * with the other part, without which it is of no use. Called by the thread of the context.
 */
#include "client/llama/handle.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t *key_at(const uint8_t *keys, uint32_t i)
{
	return keys + (size_t)i * KVPOOL_KEY_SIZE;
}

/* A failure means to the prompt only that less of it is shared. */
static void reserve(struct kvpool_llama *h, const uint8_t *keys, uint32_t from, uint32_t group,
		    struct kvpool_llama_publication *p)
{
	struct kvpool_block *out = p->blocks[group] + from;
	const uint8_t *parent = from > 0 ? key_at(keys, from - 1) : NULL;
	int64_t r = kvpool_reserve(h->channel, h->layout, group, parent, key_at(keys, from),
				   p->n - from, kvpool_llama_deadline_ns(h), out);

	if (r < 0) {
		kvpool_llama_note(h, kvpool_channel_error(h->channel));
		memset(out, 0, (p->n - from) * sizeof(*out));
	} else if (r == 0 && out->generation == KVPOOL_RESERVE_NO_SPACE) {
		kvpool_llama_note(h, kvpool_no_space_text(h->channel));
	}
}

void kvpool_llama_publish_begin(struct kvpool_llama *h, const uint8_t *keys, uint32_t from,
				uint32_t n, struct kvpool_llama_publication *out)
{
	struct kvpool_llama_state whole;

	*out = (struct kvpool_llama_publication){.stored = from, .n = n};
	if (!h->channel || from >= n)
		return;
	/* Once, instead of growing it block by block; where it fails now it is tried again. */
	kvpool_llama_state_plan(&h->shape, h->sequence, 0, h->windows, n * h->chunk, &whole);
	(void)kvpool_llama_blob_ensure(h, whole.bytes);
	for (uint32_t g = 0; g < h->shape.n_caches; g++) {
		out->blocks[g] = calloc(n, sizeof(*out->blocks[g]));
		if (!out->blocks[g]) {
			kvpool_llama_publish_end(h, out);
			return;
		}
	}
	/* What slides hangs on what stays, so that comes first. */
	for (uint32_t g = 0; g < h->shape.n_caches; g++)
		reserve(h, keys, from, g, out);
	out->late = out->blocks[0][from].block == 0 &&
		    (out->blocks[0][from].generation == KVPOOL_RESERVE_BUSY ||
		     out->blocks[0][from].generation == KVPOOL_RESERVE_EXISTS);
}

/* Stores block i of one group from the state in `blob`; a block that cannot be is given back. */
static void store(struct kvpool_llama *h, struct kvpool_llama_publication *p, uint32_t group,
		  uint32_t i, const struct kvpool_llama_state *state)
{
	struct kvpool_block *block = &p->blocks[group][i];
	struct kvpool_llama_span tokens = {i * h->chunk, h->chunk};
	uint32_t n;

	if (block->block == 0)
		return;
	n = kvpool_llama_state_pieces(state, h->blob, group, tokens, NULL, h->pieces);
	if (kvpool_store(h->channel, h->layout, group, block, 0, h->pieces, n) == 0)
		return;
	kvpool_abort(h->channel, block, 1, 0);
	block->block = 0;
}

void kvpool_llama_publish_window(struct kvpool_llama *h, struct kvpool_llama_publication *p,
				 const struct kvpool_llama_state *state)
{
	uint32_t done = (state->spans[1].first + state->spans[1].count) / h->chunk;

	if (p->blocks[1] && done > 0 && done <= p->n)
		store(h, p, 1, done - 1, state);
}

static bool any_granted(const struct kvpool_block *blocks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (blocks[i].block != 0)
			return true;
	}
	return false;
}

static uint32_t commit(struct kvpool_llama *h, struct kvpool_llama_publication *p, uint32_t group,
		       uint32_t from, uint32_t n)
{
	struct kvpool_block *blocks = p->blocks[group] + from;
	int64_t r;

	if (!any_granted(blocks, n))
		return 0;
	r = kvpool_commit(h->channel, blocks, n, KVPOOL_ALL_SHARDS, kvpool_llama_deadline_ns(h));
	if (r < 0)
		kvpool_abort(h->channel, blocks, n, 0);
	memset(blocks, 0, n * sizeof(*blocks));
	return r < 0 ? 0 : (uint32_t)r;
}

void kvpool_llama_publish(struct kvpool_llama *h, struct kvpool_llama_publication *p, uint32_t done,
			  bool all)
{
	uint32_t from = p->stored, n = done > from ? done - from : 0;
	struct kvpool_llama_state state;

	if (!p->blocks[0] || n == 0 || (!all && n < kvpool_llama_publish_step(from)))
		return;
	p->stored = done;
	if (any_granted(p->blocks[0] + from, n)) {
		if (!kvpool_llama_state_get(h, 0, done * h->chunk, &state))
			return;
		for (uint32_t i = from; i < done; i++)
			store(h, p, 0, i, &state);
	}
	for (uint32_t g = 0; g < h->shape.n_caches; g++) {
		uint32_t count = commit(h, p, g, from, n);

		if (g == 0)
			p->count += count;
	}
}

void kvpool_llama_publish_end(struct kvpool_llama *h, struct kvpool_llama_publication *p)
{
	for (uint32_t g = 0; g < KVPOOL_LLAMA_CACHES; g++) {
		if (p->blocks[g] && any_granted(p->blocks[g], p->n))
			kvpool_abort(h->channel, p->blocks[g], p->n, 0);
		free(p->blocks[g]);
		p->blocks[g] = NULL;
	}
}
