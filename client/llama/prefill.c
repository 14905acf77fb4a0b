/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt into the sequence: from the pool as far as it goes, the rest computed and published.
 *
 * What is computed depends, in its last bits, on how many tokens are decoded together and on where
 * in the cache the tokens before them lie. So every process decodes whole blocks from whole blocks
 * on, and at each boundary replaces the sliding cache's state by itself, which lays it out the way
 * a process finds it that restored it. The other cache is filled in order anyway.
 *
 * Called by the thread of the context.
 */
#include "client/llama/handle.h"

#include "client/llama/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(struct kvpool_llama *h, int error, const char *what, long long value)
{
	snprintf(h->error, sizeof(h->error), "%s: %lld", what, value);
	return error;
}

/* One chunk of at most a block; times whole ones. */
static int compute_chunk(struct kvpool_llama *h, const llama_token *tokens, uint32_t at, uint32_t n,
			 uint32_t end)
{
	uint64_t start = kvpool_llama_now_ns();
	int r = kvpool_llama_decode(h, tokens + at, at, n, at + n == end);

	if (r != 0)
		return fail(h, -EIO, "llama_decode() returned", r);
	if (n < h->chunk)
		return 0;
	llama_synchronize(h->context);
	h->chunk_ns = kvpool_llama_now_ns() - start;
	return 0;
}

/*
 * The sequence has `done` whole blocks. False: the state is not what it should be, and the sequence
 * may have lost tokens.
 */
static bool at_boundary(struct kvpool_llama *h, struct kvpool_llama_publication *p, uint32_t done)
{
	struct kvpool_llama_state state;

	if (h->shape.n_caches > 1) {
		if (!kvpool_llama_state_get(h, 1, done * h->chunk, &state) ||
		    !kvpool_llama_state_set(h, &state))
			return false;
		kvpool_llama_publish_window(h, p, &state);
	}
	kvpool_llama_publish(h, p, done, done == p->n);
	return true;
}

/* Computes tokens [at, n). 0, -EIO, or -EPROTO where the state could not be handled. */
static int compute(struct kvpool_llama *h, const llama_token *tokens, uint32_t at, uint32_t n,
		   struct kvpool_llama_publication *p)
{
	while (at < n) {
		uint32_t count = KVPOOL_MIN(h->chunk, n - at);
		int r = compute_chunk(h, tokens, at, count, n);

		if (r != 0)
			return r;
		at += count;
		if (h->known && count == h->chunk && !at_boundary(h, p, at / h->chunk))
			return -EPROTO;
	}
	return 0;
}

/* From the beginning, and from now on, without touching the state. */
static int compute_plainly(struct kvpool_llama *h, const llama_token *tokens, uint32_t n)
{
	struct kvpool_llama_publication none = {0};

	snprintf(h->why_private, sizeof(h->why_private),
		 "the sequence's state took a form that is not known");
	h->known = false;
	kvpool_channel_close(h->channel);
	h->channel = NULL;
	kvpool_llama_empty(h);
	return compute(h, tokens, 0, n, &none);
}

/* Keys of the whole blocks of the prompt; malloc'ed. NULL: nothing can be shared of it. */
static uint8_t *make_keys(struct kvpool_llama *h, const llama_token *tokens, uint32_t n)
{
	uint32_t blocks = n / h->chunk;
	uint8_t *keys;

	_Static_assert(sizeof(llama_token) == sizeof(uint32_t), "tokens are hashed as they are");
	if (!h->channel || blocks == 0)
		return NULL;
	if ((h->threads[0] != llama_n_threads(h->context) ||
	     h->threads[1] != llama_n_threads_batch(h->context)) &&
	    kvpool_llama_layout_make(h) != 0)
		return NULL;
	keys = malloc((size_t)blocks * KVPOOL_KEY_SIZE);
	if (keys && kvpool_keys(h->layout, h->salt, h->salt_bytes, NULL, (const uint32_t *)tokens,
				n, keys) != blocks) {
		free(keys);
		keys = NULL;
	}
	return keys;
}

/*
 * Reads what the pool has of a prompt and reserves what it has not. Where somebody else reserved it
 * in the same moment, looks once more, and then waits for it. Returns the blocks that were read.
 */
static uint32_t begin(struct kvpool_llama *h, const uint8_t *keys, uint32_t n,
		      struct kvpool_llama_report *report, struct kvpool_llama_publication *p)
{
	uint32_t blocks = keys ? n / h->chunk : 0;

	for (uint32_t tries = 0;; tries++) {
		/* The last token is computed for its logits, together with those that always are.
		 */
		uint32_t hit = kvpool_llama_restore(h, keys, keys ? (n - 1) / h->chunk : 0, report);

		kvpool_llama_publish_begin(h, keys, hit, blocks, p);
		if (!p->late || tries > 0 || hit == (n - 1) / h->chunk)
			return hit;
		kvpool_llama_publish_end(h, p);
		kvpool_llama_empty(h);
	}
}

static int prefill(struct kvpool_llama *h, const llama_token *tokens, uint32_t n,
		   struct kvpool_llama_report *report)
{
	uint8_t *keys = make_keys(h, tokens, n);
	struct kvpool_llama_publication p;
	uint32_t hit = begin(h, keys, n, report, &p);
	uint64_t start = kvpool_llama_now_ns();
	int r = compute(h, tokens, hit * h->chunk, n, &p);

	report->published = p.count;
	report->restored = hit * h->chunk;
	kvpool_llama_publish_end(h, &p);
	free(keys);
	if (r == -EPROTO) {
		report->restored = 0;
		r = compute_plainly(h, tokens, n);
	}
	report->compute_ns = kvpool_llama_now_ns() - start;
	return r;
}

int kvpool_llama_prefill(struct kvpool_llama *handle, const llama_token *tokens, size_t n,
			 struct kvpool_llama_report *report)
{
	struct kvpool_llama_report r = {0};
	int e;

	snprintf(handle->error, sizeof(handle->error), "%s", KVPOOL_LLAMA_NO_ERROR);
	if (n == 0 || !tokens)
		return fail(handle, -EINVAL, "tokens of the prompt", 0);
	if (n > llama_n_ctx_seq(handle->context) || n > KVPOOL_LLAMA_TOKENS)
		return fail(handle, -EINVAL, "the context takes fewer tokens than the prompt's",
			    (long long)n);
	r.tokens = (uint32_t)n;
	kvpool_llama_empty(handle);
	e = prefill(handle, tokens, r.tokens, &r);
	if (e != 0)
		kvpool_llama_empty(handle);
	if (report)
		*report = r;
	return e;
}
