/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A llama.cpp sequence's state as bytes: learned, checked, cut into blocks and made again. The
 * blobs are made here, byte by byte, from the form that state.h writes down.
 *
 * One thread. Needs no llama.cpp.
 */
#include "client/llama/state.h"

#include "shm/base.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQUENCE 3
#define WINDOW   6u
#define BLOCK    4u
#define TOKENS   32u
#define BYTES    65536u

/* Of each cache: rows of K of every layer, then of V. Types are as odd as the rows. */
static const uint32_t full_rows[] = {8, 12, 4, 16};
static const uint32_t sliding_rows[] = {6, 2, 10, 6, 2, 34};
static const uint32_t windows[KVPOOL_LLAMA_CACHES] = {0, WINDOW};

static const struct {
	const uint32_t *rows;
	uint32_t n;
} caches[KVPOOL_LLAMA_CACHES] = {
	{full_rows, KVPOOL_ARRAY_SIZE(full_rows)},
	{sliding_rows, KVPOOL_ARRAY_SIZE(sliding_rows)},
};

struct bytes {
	uint8_t at[BYTES];
	bool row[BYTES]; /* whether the byte is part of a row */
	size_t n;
};

static struct bytes *blob;
static struct kvpool_llama_shape *shape;
static const char *why;

static void add(struct bytes *b, const void *value, size_t n)
{
	ck_assert_uint_le(b->n + n, BYTES);
	memcpy(b->at + b->n, value, n);
	memset(b->row + b->n, 0, n);
	b->n += n;
}

static void add_u32(struct bytes *b, uint32_t value)
{
	add(b, &value, sizeof(value));
}

static uint8_t row_byte(uint32_t cache, uint32_t tensor, uint32_t token, uint32_t i)
{
	return (uint8_t)(cache * 101 + tensor * 37 + token * 11 + i * 3 + 1);
}

static void add_cache(struct bytes *b, uint32_t cache, uint32_t first, uint32_t n)
{
	add_u32(b, 1);
	add_u32(b, n);
	for (uint32_t i = 0; i < n; i++) {
		add_u32(b, first + i);
		add_u32(b, 1);
		add_u32(b, SEQUENCE);
	}
	add_u32(b, 0);
	add_u32(b, caches[cache].n / 2);
	for (uint32_t t = 0; t < caches[cache].n; t++) {
		uint64_t row = caches[cache].rows[t];

		add_u32(b, t + 1);
		add(b, &row, sizeof(row));
		for (uint32_t i = 0; i < n * row; i++) {
			uint8_t byte =
				row_byte(cache, t, first + i / (uint32_t)row, i % (uint32_t)row);

			add(b, &byte, 1);
			b->row[b->n - 1] = true;
		}
	}
}

/* The state of tokens [0, n), of the caches from `from` up to `n_caches`. */
static void build(struct bytes *b, uint32_t from, uint32_t n_caches, uint32_t n)
{
	b->n = 0;
	add_u32(b, KVPOOL_LLAMA_MAGIC);
	add_u32(b, SEQUENCE);
	for (uint32_t c = from; c < n_caches; c++) {
		uint32_t count = windows[c] ? KVPOOL_MIN(windows[c], n) : n;

		add_cache(b, c, n - count, count);
	}
}

static int learn(const struct bytes *b, uint32_t n_caches)
{
	return kvpool_llama_shape_learn(b->at, b->n, SEQUENCE, n_caches, shape, &why);
}

static void setup(void)
{
	blob = malloc(sizeof(*blob));
	shape = malloc(sizeof(*shape));
	ck_assert(blob && shape);
	build(blob, 0, 2, 1);
	ck_assert_int_eq(learn(blob, 2), 0);
}

static void teardown(void)
{
	free(blob);
	free(shape);
}

/* ---- learning ---- */

START_TEST(should_learn_types_and_rows_of_every_layer)
{
	ck_assert_uint_eq(shape->n_caches, 2);
	for (uint32_t c = 0; c < 2; c++) {
		const struct kvpool_llama_cache *cache = &shape->caches[c];
		uint64_t sum = 0;

		ck_assert_uint_eq(cache->n_tensors, caches[c].n);
		for (uint32_t t = 0; t < caches[c].n; t++) {
			ck_assert_int_eq(cache->type[t], (int)t + 1);
			ck_assert_uint_eq(cache->row[t], caches[c].rows[t]);
			ck_assert_uint_eq(cache->before[t], sum);
			sum += caches[c].rows[t];
		}
		ck_assert_uint_eq(cache->cell_bytes, sum);
	}
}
END_TEST

START_TEST(should_learn_a_model_with_one_cache)
{
	build(blob, 0, 1, 1);
	ck_assert_int_eq(learn(blob, 1), 0);
	ck_assert_uint_eq(shape->n_caches, 1);
	ck_assert_int_eq(learn(blob, 2), -EPROTO);
	ck_assert_str_eq(why, "the state ends early");
}
END_TEST

START_TEST(should_refuse_a_cache_that_nobody_asked_for)
{
	ck_assert_int_eq(learn(blob, 1), -EPROTO);
	ck_assert_str_eq(why, "the state has more than its caches");
	ck_assert_int_eq(learn(blob, 0), -EPROTO);
	ck_assert_int_eq(learn(blob, 3), -EPROTO);
}
END_TEST

START_TEST(should_refuse_to_learn_from_a_state_that_is_cut_short_anywhere)
{
	size_t whole = blob->n;

	for (size_t n = 0; n < whole; n++) {
		/* A block of its own, so that a read beyond the end is seen by the tools. */
		uint8_t *cut = malloc(n + 1);

		memcpy(cut, blob->at, n);
		ck_assert_int_eq(kvpool_llama_shape_learn(cut, n, SEQUENCE, 2, shape, &why),
				 -EPROTO);
		ck_assert_str_eq(why, "the state ends early");
		free(cut);
	}
}
END_TEST

START_TEST(should_refuse_to_learn_when_something_follows)
{
	add_u32(blob, 0);
	ck_assert_int_eq(learn(blob, 2), -EPROTO);
	ck_assert_str_eq(why, "the state has more than its caches");
}
END_TEST

/* Words of a blob of one token, in their order from the start. */
static const struct {
	uint32_t word, value;
	const char *why;
} lies[] = {
	{0, 0xaf143cd9, "the state has another form: another llama.cpp"},
	{1, SEQUENCE + 1, "the state is another sequence's"},
	{2, 4, "the cache is in several streams"},
	{2, 0, "the cache is in several streams"},
	{3, 2, "the cache does not hold the one token"},
	{3, UINT32_MAX, "the cache does not hold the one token"},
	{4, 1, "the token is not at position 0"},
	{5, 2, "the token does not belong to one sequence"},
	{6, SEQUENCE - 1, "the token belongs to another sequence"},
	{7, 1, "V is transposed: flash attention is off"},
	{8, 0, "the cache has no layers or more than 512"},
	{8, 513, "the cache has no layers or more than 512"},
	{8, UINT32_MAX, "the cache has no layers or more than 512"},
	{10, 0, "a row of the cache is empty or beyond 16 MiB"},
	{10, (1u << 24) + 1, "a row of the cache is empty or beyond 16 MiB"},
	{10, 1u << 24, "the state ends early"},
	{11, 1, "a row of the cache is empty or beyond 16 MiB"},
	{11, UINT32_MAX, "a row of the cache is empty or beyond 16 MiB"},
};

START_TEST(should_refuse_a_lie_and_name_it)
{
	memcpy(blob->at + (size_t)lies[_i].word * 4, &lies[_i].value, 4);
	ck_assert_int_eq(learn(blob, 2), -EPROTO);
	ck_assert_str_eq(why, lies[_i].why);
}
END_TEST

/* A count of layers that is wrong but possible makes all that follows something else. */
START_TEST(should_refuse_one_layer_more_and_one_less)
{
	for (uint32_t layers = 1; layers <= 3; layers += 2) {
		memcpy(blob->at + (size_t)8 * 4, &layers, 4);
		ck_assert_int_eq(learn(blob, 2), -EPROTO);
	}
}
END_TEST

/* A model whose positions have two more numbers: 8 bytes more a cell. */
START_TEST(should_refuse_cells_of_another_size)
{
	memmove(blob->at + 32, blob->at + 24, blob->n - 24);
	memset(blob->at + 24, 0, 8);
	blob->n += 8;
	ck_assert_int_eq(learn(blob, 2), -EPROTO);
}
END_TEST

/* ---- checking ---- */

START_TEST(should_plan_what_a_state_of_any_length_is_like)
{
	struct kvpool_llama_state state;

	for (uint32_t from = 0; from < 2; from++) {
		for (uint32_t n = 1; n <= TOKENS; n++) {
			build(blob, from, 2, n);
			kvpool_llama_state_plan(shape, SEQUENCE, from, windows, n, &state);
			ck_assert_uint_eq(state.bytes, blob->n);
			ck_assert(kvpool_llama_state_check(&state, blob->at, blob->n));
			ck_assert(!kvpool_llama_state_check(&state, blob->at, blob->n - 1));
			ck_assert(!kvpool_llama_state_check(&state, blob->at, blob->n + 1));
			ck_assert(!kvpool_llama_state_check(&state, blob->at, 0));
		}
	}
}
END_TEST

START_TEST(should_refuse_a_state_with_any_bit_flipped_outside_the_rows)
{
	struct kvpool_llama_state state;
	size_t rows = 0;

	build(blob, 0, 2, 9);
	kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, 9, &state);
	for (size_t i = 0; i < blob->n * 8; i++) {
		uint8_t bit = (uint8_t)(1u << i % 8);

		blob->at[i / 8] ^= bit;
		ck_assert_msg(kvpool_llama_state_check(&state, blob->at, blob->n) ==
				      blob->row[i / 8],
			      "byte %zu", i / 8);
		blob->at[i / 8] ^= bit;
		rows += blob->row[i / 8];
	}
	ck_assert_uint_eq(
		rows, 8 * (9 * shape->caches[0].cell_bytes + WINDOW * shape->caches[1].cell_bytes));
}
END_TEST

/* As long as it should be, but the sliding cache has let go of other tokens than it should. */
START_TEST(should_refuse_tokens_out_of_place)
{
	struct kvpool_llama_state state;

	kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, 9, &state);
	blob->n = 0;
	add_u32(blob, KVPOOL_LLAMA_MAGIC);
	add_u32(blob, SEQUENCE);
	add_cache(blob, 0, 0, 9);
	add_cache(blob, 1, 2, WINDOW);
	ck_assert_uint_eq(blob->n, state.bytes);
	ck_assert(!kvpool_llama_state_check(&state, blob->at, blob->n));
}
END_TEST

START_TEST(should_refuse_the_state_of_another_sequence_or_of_more_tokens)
{
	struct kvpool_llama_state state;

	build(blob, 0, 2, 9);
	kvpool_llama_state_plan(shape, SEQUENCE + 1, 0, windows, 9, &state);
	ck_assert(!kvpool_llama_state_check(&state, blob->at, blob->n));
	kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, 10, &state);
	ck_assert(!kvpool_llama_state_check(&state, blob->at, blob->n));
}
END_TEST

/* ---- cutting and making ---- */

struct blocks {
	uint8_t full[TOKENS / BLOCK][BYTES / 64];
	uint8_t sliding[TOKENS / BLOCK][BYTES / 64];
};

static void gather(const struct kvpool_piece *pieces, uint32_t n, uint8_t *to, uint64_t bytes)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(to + at, pieces[i].address, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	ck_assert_uint_eq(at, bytes);
}

static void scatter(const struct kvpool_piece *pieces, uint32_t n, const uint8_t *from)
{
	for (uint32_t i = 0; i < n; i++) {
		memcpy(pieces[i].address, from, pieces[i].bytes);
		from += pieces[i].bytes;
	}
}

/* As an engine does that computes: the sliding part of a block at its end, the other later. */
static void cut(struct blocks *out, uint32_t n_blocks)
{
	struct kvpool_llama_state state;
	struct kvpool_piece pieces[KVPOOL_ARRAY_SIZE(sliding_rows) * 2];
	uint32_t n;

	for (uint32_t i = 0; i < n_blocks; i++) {
		struct kvpool_llama_span tokens = {i * BLOCK, BLOCK};

		build(blob, 1, 2, (i + 1) * BLOCK);
		kvpool_llama_state_plan(shape, SEQUENCE, 1, windows, (i + 1) * BLOCK, &state);
		n = kvpool_llama_state_pieces(&state, blob->at, 1, tokens, NULL, pieces);
		ck_assert_uint_eq(n, caches[1].n);
		gather(pieces, n, out->sliding[i], BLOCK * shape->caches[1].cell_bytes);
	}
	build(blob, 0, 2, n_blocks * BLOCK);
	kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, n_blocks * BLOCK, &state);
	for (uint32_t i = 0; i < n_blocks; i++) {
		struct kvpool_llama_span tokens = {i * BLOCK, BLOCK};

		n = kvpool_llama_state_pieces(&state, blob->at, 0, tokens, NULL, pieces);
		ck_assert_uint_eq(n, caches[0].n);
		gather(pieces, n, out->full[i], BLOCK * shape->caches[0].cell_bytes);
	}
}

START_TEST(should_make_the_state_of_any_prefix_from_its_blocks)
{
	struct kvpool_piece pieces[KVPOOL_ARRAY_SIZE(sliding_rows) * 2];
	struct blocks *blocks = malloc(sizeof(*blocks));
	uint8_t *made = malloc(BYTES), spare[BLOCK * 34];
	struct kvpool_llama_state state;

	cut(blocks, TOKENS / BLOCK);
	for (uint32_t n = 1; n <= TOKENS / BLOCK; n++) {
		uint32_t first, i;

		memset(made, 0xee, BYTES);
		kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, n * BLOCK, &state);
		kvpool_llama_state_write(&state, made);
		for (i = 0; i < n; i++)
			scatter(pieces,
				kvpool_llama_state_pieces(
					&state, made, 0,
					(struct kvpool_llama_span){i * BLOCK, BLOCK}, NULL, pieces),
				blocks->full[i]);
		first = state.spans[1].first / BLOCK;
		for (i = first; i < n; i++)
			scatter(pieces,
				kvpool_llama_state_pieces(
					&state, made, 1,
					(struct kvpool_llama_span){i * BLOCK, BLOCK}, spare,
					pieces),
				blocks->sliding[i]);
		build(blob, 0, 2, n * BLOCK);
		ck_assert_uint_eq(state.bytes, blob->n);
		ck_assert(memcmp(made, blob->at, blob->n) == 0);
		ck_assert_uint_eq(made[blob->n], 0xee);
	}
	free(blocks);
	free(made);
}
END_TEST

START_TEST(should_put_all_of_a_block_aside_that_lies_before_the_window)
{
	struct kvpool_piece pieces[KVPOOL_ARRAY_SIZE(sliding_rows) * 2];
	struct kvpool_llama_span tokens = {0, BLOCK};
	uint8_t spare[BLOCK * 34];
	struct kvpool_llama_state state;
	uint32_t n;

	kvpool_llama_state_plan(shape, SEQUENCE, 0, windows, TOKENS, &state);
	n = kvpool_llama_state_pieces(&state, blob->at, 1, tokens, spare, pieces);
	ck_assert_uint_eq(n, caches[1].n);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_ptr_eq(pieces[i].address, spare);
		ck_assert_uint_eq(pieces[i].bytes, BLOCK * sliding_rows[i]);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("llama_state");
	TCase *t = tcase_create("state");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, should_learn_types_and_rows_of_every_layer);
	tcase_add_test(t, should_learn_a_model_with_one_cache);
	tcase_add_test(t, should_refuse_a_cache_that_nobody_asked_for);
	tcase_add_test(t, should_refuse_to_learn_from_a_state_that_is_cut_short_anywhere);
	tcase_add_test(t, should_refuse_to_learn_when_something_follows);
	tcase_add_loop_test(t, should_refuse_a_lie_and_name_it, 0, KVPOOL_ARRAY_SIZE(lies));
	tcase_add_test(t, should_refuse_one_layer_more_and_one_less);
	tcase_add_test(t, should_refuse_cells_of_another_size);
	tcase_add_test(t, should_plan_what_a_state_of_any_length_is_like);
	tcase_add_test(t, should_refuse_a_state_with_any_bit_flipped_outside_the_rows);
	tcase_add_test(t, should_refuse_tokens_out_of_place);
	tcase_add_test(t, should_refuse_the_state_of_another_sequence_or_of_more_tokens);
	tcase_add_test(t, should_make_the_state_of_any_prefix_from_its_blocks);
	tcase_add_test(t, should_put_all_of_a_block_aside_that_lies_before_the_window);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
