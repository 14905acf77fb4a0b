/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a llama.cpp sequence as bytes: what it looks like, and where in it the rows of which
 * tokens are.
 *
 * llama.cpp gives a sequence's KV cache as one blob. It has a prologue and then one or two caches
 * (of the full and of the sliding layers), each with its cells and, tensor by tensor, a row a cell:
 *
 *	prologue  u32 magic, i32 sequence
 *	cache     u32 streams (1), u32 cells,
 *	          cells x {i32 position, u32 sequences (1), i32 sequence},
 *	          u32 V is transposed (0), u32 layers,
 *	          layers x {i32 type, u64 bytes of a row, rows of K}, the same of V
 *
 * A shape is learned once, from the blob of one token. From then on every byte that is no row is
 * known beforehand, so a blob is checked by comparing all of them, and made by writing them. A blob
 * of any other form (another llama.cpp, V transposed, several streams, positions of more
 * dimensions, layers without V) is refused: it is not shared, and never guessed at.
 *
 * No headers of llama.cpp. Pure functions over their arguments, usable from any thread.
 */
#ifndef KVPOOL_CLIENT_LLAMA_STATE_H
#define KVPOOL_CLIENT_LLAMA_STATE_H

#include "client/kvpool.h"

#include <stdbool.h>

#define KVPOOL_LLAMA_CACHES  2u
#define KVPOOL_LLAMA_TENSORS 1024u               /* K and V of 512 layers */
#define KVPOOL_LLAMA_ROW_MAX (UINT64_C(1) << 24) /* bytes: sums of rows stay in 64 bits */
#define KVPOOL_LLAMA_TOKENS  (UINT32_C(1) << 26) /* a sequence is not longer, likewise */
#define KVPOOL_LLAMA_MAGIC   UINT32_C(0xaf143cd8)

/* Tensors in the blob's order: K of every layer, then V of every layer. */
struct kvpool_llama_cache {
	uint32_t n_tensors;  /* twice the layers */
	uint64_t cell_bytes; /* the rows of one token, all tensors */
	int32_t type[KVPOOL_LLAMA_TENSORS];
	uint64_t row[KVPOOL_LLAMA_TENSORS];
	uint64_t before[KVPOOL_LLAMA_TENSORS]; /* bytes of the rows of the tensors before it */
};

struct kvpool_llama_shape {
	uint32_t n_caches;
	struct kvpool_llama_cache caches[KVPOOL_LLAMA_CACHES];
};

/* Tokens [first, first + count) of a sequence. */
struct kvpool_llama_span {
	uint32_t first, count;
};

/* One blob: which caches are in it, and which tokens each holds. */
struct kvpool_llama_state {
	const struct kvpool_llama_shape *shape; /* borrowed */
	int32_t sequence;
	uint32_t from; /* caches [from, shape->n_caches) are in it */
	struct kvpool_llama_span spans[KVPOOL_LLAMA_CACHES];
	uint64_t at[KVPOOL_LLAMA_CACHES]; /* where each cache begins */
	uint64_t bytes;                   /* of the whole blob */
};

/*
 * Learns the shape from the blob of a sequence that has one token at position 0. `n_caches`: how
 * many there must be. 0, or -EPROTO with the reason in *why (a literal).
 */
int kvpool_llama_shape_learn(const uint8_t *blob, size_t bytes, int32_t sequence, uint32_t n_caches,
			     struct kvpool_llama_shape *out, const char **why);

/*
 * What the blob of tokens [0, n) is like, when cache i keeps the last windows[i] of them (0: all).
 * n is 1..KVPOOL_LLAMA_TOKENS.
 */
void kvpool_llama_state_plan(const struct kvpool_llama_shape *shape, int32_t sequence,
			     uint32_t from, const uint32_t *windows, uint32_t n,
			     struct kvpool_llama_state *out);

/* Whether every byte of `blob` that is no row is as planned, and nothing follows. */
bool kvpool_llama_state_check(const struct kvpool_llama_state *state, const uint8_t *blob,
			      size_t bytes);

/* Writes every byte that is no row. `blob` takes state->bytes. */
void kvpool_llama_state_write(const struct kvpool_llama_state *state, uint8_t *blob);

/*
 * Where the rows of tokens [first, first + count) of one cache are, tensor by tensor: together they
 * are count * cell_bytes. Tokens before the cache's span go to `spare` (count rows of the widest
 * tensor), which may be NULL where there are none; none may lie behind it. `out` takes two pieces a
 * tensor. Returns how many.
 */
uint32_t kvpool_llama_state_pieces(const struct kvpool_llama_state *state, uint8_t *blob,
				   uint32_t cache, struct kvpool_llama_span tokens, uint8_t *spare,
				   struct kvpool_piece *out);

#endif
