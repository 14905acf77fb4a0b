/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a handle does with its sequence of the context: empty it, decode into it, read and replace
 * its state.
 *
 * Called by the thread of the context.
 */
#include "client/llama/handle.h"

#include <errno.h>
#include <stdlib.h>

int kvpool_llama_blob_ensure(struct kvpool_llama *h, uint64_t bytes)
{
	uint8_t *blob;

	if (bytes <= h->blob_bytes)
		return 0;
	free(h->blob);
	blob = malloc(bytes);
	h->blob = blob;
	h->blob_bytes = blob ? bytes : 0;
	return blob ? 0 : -ENOMEM;
}

void kvpool_llama_empty(struct kvpool_llama *h)
{
	llama_memory_t memory = llama_get_memory(h->context);

	/* Only this also moves the place where llama.cpp looks for free cells first. */
	if (llama_n_seq_max(h->context) == 1)
		llama_memory_clear(memory, false);
	else
		llama_memory_seq_rm(memory, h->sequence, -1, -1);
}

int kvpool_llama_decode(struct kvpool_llama *h, const llama_token *tokens, uint32_t at, uint32_t n,
			bool logits)
{
	struct llama_batch *b = &h->batch;

	for (uint32_t i = 0; i < n; i++) {
		b->token[i] = tokens[i];
		b->pos[i] = (llama_pos)(at + i);
		b->n_seq_id[i] = 1;
		b->seq_id[i][0] = h->sequence;
		b->logits[i] = (int8_t)(logits && i == n - 1);
	}
	b->n_tokens = (int32_t)n;
	return llama_decode(h->context, *b);
}

static llama_state_seq_flags flags_of(uint32_t from)
{
	return from > 0 ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : LLAMA_STATE_SEQ_FLAGS_NONE;
}

bool kvpool_llama_state_get(struct kvpool_llama *h, uint32_t from, uint32_t n,
			    struct kvpool_llama_state *out)
{
	llama_state_seq_flags flags = flags_of(from);
	uint64_t bytes;

	kvpool_llama_state_plan(&h->shape, h->sequence, from, h->windows, n, out);
	bytes = llama_state_seq_get_size_ext(h->context, h->sequence, flags);
	return bytes == out->bytes && kvpool_llama_blob_ensure(h, bytes) == 0 &&
	       llama_state_seq_get_data_ext(h->context, h->blob, bytes, h->sequence, flags) ==
		       bytes &&
	       kvpool_llama_state_check(out, h->blob, bytes);
}

bool kvpool_llama_state_set(struct kvpool_llama *h, const struct kvpool_llama_state *state)
{
	return llama_state_seq_set_data_ext(h->context, h->blob, state->bytes, h->sequence,
					    flags_of(state->from)) == state->bytes;
}
