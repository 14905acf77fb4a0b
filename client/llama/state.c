/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence's state as bytes: learned, planned, checked, written, cut. See state.h.
 *
 * Pure functions over their arguments, usable from any thread.
 */
#include "client/llama/state.h"

#include "shm/base.h"

#include <errno.h>
#include <string.h>

#define PROLOGUE_BYTES UINT64_C(8)
#define CELL_BYTES     UINT64_C(12)
#define BEFORE_CELLS   UINT64_C(8) /* streams, cells */
#define AFTER_CELLS    UINT64_C(8) /* transposed, layers */
#define TENSOR_BYTES   UINT64_C(12)

/* ---- learning ---- */

struct reader {
	const uint8_t *blob; /* borrowed */
	size_t bytes, at;
	const char *why; /* NULL: so far all is well */
};

static void refuse(struct reader *r, const char *why)
{
	if (!r->why)
		r->why = why;
}

static void take(struct reader *r, void *out, size_t n)
{
	memset(out, 0, n);
	if (r->why)
		return;
	if (r->bytes - r->at < n) {
		refuse(r, "the state ends early");
		return;
	}
	memcpy(out, r->blob + r->at, n);
	r->at += n;
}

static uint32_t take_u32(struct reader *r)
{
	uint32_t value;

	take(r, &value, sizeof(value));
	return value;
}

static void expect(struct reader *r, uint32_t value, const char *why)
{
	if (take_u32(r) != value)
		refuse(r, why);
}

/* One tensor and its only row. */
static void learn_tensor(struct reader *r, struct kvpool_llama_cache *c, uint32_t t)
{
	uint64_t row;

	take(r, &c->type[t], sizeof(c->type[t]));
	take(r, &row, sizeof(row));
	if (!r->why && (row == 0 || row > KVPOOL_LLAMA_ROW_MAX))
		refuse(r, "a row of the cache is empty or beyond 16 MiB");
	if (!r->why && r->bytes - r->at < row)
		refuse(r, "the state ends early");
	if (r->why)
		return;
	r->at += row;
	c->row[t] = row;
	c->before[t] = c->cell_bytes;
	c->cell_bytes += row;
}

static void learn_cache(struct reader *r, int32_t sequence, struct kvpool_llama_cache *c)
{
	uint32_t layers;

	expect(r, 1, "the cache is in several streams");
	expect(r, 1, "the cache does not hold the one token");
	expect(r, 0, "the token is not at position 0");
	expect(r, 1, "the token does not belong to one sequence");
	expect(r, (uint32_t)sequence, "the token belongs to another sequence");
	expect(r, 0, "V is transposed: flash attention is off");
	layers = take_u32(r);
	if (!r->why && (layers == 0 || layers > KVPOOL_LLAMA_TENSORS / 2))
		refuse(r, "the cache has no layers or more than 512");
	if (r->why)
		return;
	c->n_tensors = 2 * layers;
	for (uint32_t t = 0; t < c->n_tensors; t++)
		learn_tensor(r, c, t);
}

int kvpool_llama_shape_learn(const uint8_t *blob, size_t bytes, int32_t sequence, uint32_t n_caches,
			     struct kvpool_llama_shape *out, const char **why)
{
	struct reader r = {.blob = blob, .bytes = bytes};

	memset(out, 0, sizeof(*out));
	if (n_caches == 0 || n_caches > KVPOOL_LLAMA_CACHES)
		refuse(&r, "neither one nor two caches");
	expect(&r, KVPOOL_LLAMA_MAGIC, "the state has another form: another llama.cpp");
	expect(&r, (uint32_t)sequence, "the state is another sequence's");
	for (uint32_t i = 0; i < n_caches && !r.why; i++)
		learn_cache(&r, sequence, &out->caches[i]);
	if (!r.why && r.at != r.bytes)
		refuse(&r, "the state has more than its caches");
	out->n_caches = n_caches;
	*why = r.why;
	return r.why ? -EPROTO : 0;
}

/* ---- planning ---- */

void kvpool_llama_state_plan(const struct kvpool_llama_shape *shape, int32_t sequence,
			     uint32_t from, const uint32_t *windows, uint32_t n,
			     struct kvpool_llama_state *out)
{
	uint64_t at = PROLOGUE_BYTES;

	*out = (struct kvpool_llama_state){.shape = shape, .sequence = sequence, .from = from};
	for (uint32_t i = from; i < shape->n_caches; i++) {
		const struct kvpool_llama_cache *c = &shape->caches[i];
		uint32_t count = windows[i] ? KVPOOL_MIN(windows[i], n) : n;

		out->spans[i] = (struct kvpool_llama_span){n - count, count};
		out->at[i] = at;
		at += BEFORE_CELLS + CELL_BYTES * count + AFTER_CELLS;
		at += TENSOR_BYTES * c->n_tensors + c->cell_bytes * count;
	}
	out->bytes = at;
}

/* Where the first row of a tensor is. */
static uint64_t rows_at(const struct kvpool_llama_state *s, uint32_t cache, uint32_t tensor)
{
	uint64_t count = s->spans[cache].count;

	return s->at[cache] + BEFORE_CELLS + CELL_BYTES * count + AFTER_CELLS +
	       TENSOR_BYTES * (tensor + 1) + s->shape->caches[cache].before[tensor] * count;
}

/* ---- the bytes that are no rows ---- */

/* Goes over them in order: writes them, or compares them. */
struct walk {
	bool write;
	uint8_t *to;         /* borrowed; writing */
	const uint8_t *with; /* borrowed; comparing */
	uint64_t at;
	bool same;
};

static void put(struct walk *w, const void *value, size_t n)
{
	if (w->write)
		memcpy(w->to + w->at, value, n);
	else if (memcmp(w->with + w->at, value, n) != 0)
		w->same = false;
	w->at += n;
}

static void put_u32(struct walk *w, uint32_t value)
{
	put(w, &value, sizeof(value));
}

static void walk_cache(const struct kvpool_llama_state *s, uint32_t cache, struct walk *w)
{
	const struct kvpool_llama_cache *c = &s->shape->caches[cache];
	struct kvpool_llama_span span = s->spans[cache];

	put_u32(w, 1);
	put_u32(w, span.count);
	for (uint32_t i = 0; i < span.count; i++) {
		put_u32(w, span.first + i);
		put_u32(w, 1);
		put_u32(w, (uint32_t)s->sequence);
	}
	put_u32(w, 0);
	put_u32(w, c->n_tensors / 2);
	for (uint32_t t = 0; t < c->n_tensors; t++) {
		put(w, &c->type[t], sizeof(c->type[t]));
		put(w, &c->row[t], sizeof(c->row[t]));
		w->at += c->row[t] * span.count;
	}
}

static void walk(const struct kvpool_llama_state *s, struct walk *w)
{
	put_u32(w, KVPOOL_LLAMA_MAGIC);
	put_u32(w, (uint32_t)s->sequence);
	for (uint32_t i = s->from; i < s->shape->n_caches; i++)
		walk_cache(s, i, w);
}

bool kvpool_llama_state_check(const struct kvpool_llama_state *state, const uint8_t *blob,
			      size_t bytes)
{
	struct walk w = {.with = blob, .same = true};

	if (bytes != state->bytes)
		return false;
	walk(state, &w);
	return w.same;
}

void kvpool_llama_state_write(const struct kvpool_llama_state *state, uint8_t *blob)
{
	struct walk w = {.write = true};

	w.to = blob;
	walk(state, &w);
}

/* ---- rows ---- */

uint32_t kvpool_llama_state_pieces(const struct kvpool_llama_state *state, uint8_t *blob,
				   uint32_t cache, struct kvpool_llama_span tokens, uint8_t *spare,
				   struct kvpool_piece *out)
{
	const struct kvpool_llama_cache *c = &state->shape->caches[cache];
	struct kvpool_llama_span span = state->spans[cache];
	uint32_t early = tokens.first < span.first ? span.first - tokens.first : 0;
	uint32_t n = 0;

	early = KVPOOL_MIN(early, tokens.count);
	for (uint32_t t = 0; t < c->n_tensors; t++) {
		uint64_t skipped = (uint64_t)(tokens.first + early - span.first) * c->row[t];

		if (early > 0) {
			out[n].address = spare;
			out[n++].bytes = early * c->row[t];
		}
		if (early < tokens.count) {
			out[n].address = blob + rows_at(state, cache, t) + skipped;
			out[n++].bytes = (tokens.count - early) * c->row[t];
		}
	}
	return n;
}
