/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers and scatters against memcpy: every way of copying that this machine has, lengths from 0
 * on around every step of the loops, all alignments of both sides, pieces of all shapes; and that
 * not one byte beside the target changes.
 *
 * One thread.
 */
#include "client/copy.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GUARD   256u
#define LARGEST (3u << 20)

static uint8_t *from, *to, *expected;

static void setup(void)
{
	from = aligned_alloc(4096, LARGEST + 8192);
	to = aligned_alloc(4096, LARGEST + 8192);
	expected = aligned_alloc(4096, LARGEST + 8192);
	ck_assert(from && to && expected);
	for (uint32_t i = 0; i < LARGEST + 8192; i++)
		from[i] = (uint8_t)((i * 2654435761u) >> 24);
}

static void teardown(void)
{
	free(from);
	free(to);
	free(expected);
}

static bool present(enum kvpool_copy_kind kind)
{
	return kind == KVPOOL_COPY_PLAIN || kvpool_copy_stream(kind);
}

/* Copies in one piece, out of and into odd places, and looks at the bytes around as well. */
static void check_one(enum kvpool_copy_kind kind, size_t bytes, size_t to_at, size_t from_at)
{
	kvpool_copy_stream_fn stream = kvpool_copy_stream(kind);

	memset(to, 0xa5, bytes + to_at + GUARD);
	memcpy(expected, to, bytes + to_at + GUARD);
	memcpy(expected + to_at, from + from_at, bytes);
	stream(to + to_at, from + from_at, bytes);
	kvpool_copy_fence();
	ck_assert_mem_eq(to, expected, bytes + to_at + GUARD);
}

START_TEST(should_stream_every_length_at_every_alignment)
{
	enum kvpool_copy_kind kind = (enum kvpool_copy_kind)_i;

	if (!kvpool_copy_stream(kind)) {
		ck_assert(kind == KVPOOL_COPY_PLAIN || kind > kvpool_copy_best());
		return;
	}
	for (size_t bytes = 0; bytes <= 520; bytes++)
		check_one(kind, bytes, 64 + bytes % 67, bytes % 61);
	for (size_t to_at = 0; to_at < 64; to_at++)
		for (size_t from_at = 0; from_at < 64; from_at++)
			check_one(kind, 391, to_at, from_at);
}
END_TEST

/* n pieces whose lengths vary around `mean`, at addresses with gaps between them. */
static uint32_t make_pieces(void *base, uint32_t n, size_t mean, struct kvpool_piece *pieces,
			    uint64_t *total)
{
	size_t at = 3;

	*total = 0;
	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = mean ? mean - (size_t)i * 7 % mean : 0;

		pieces[i] = (struct kvpool_piece){(uint8_t *)base + at, bytes};
		at += bytes + i % 5;
		*total += bytes;
	}
	ck_assert_uint_lt(at, LARGEST);
	return n;
}

static void check_gather(enum kvpool_copy_kind kind, uint32_t n, size_t mean)
{
	struct kvpool_piece pieces[128];
	uint64_t total;
	uint8_t *at = expected + 1;

	make_pieces(from, n, mean, pieces, &total);
	memset(to, 0xa5, total + GUARD);
	memset(expected, 0xa5, total + GUARD);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(at, pieces[i].address, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	kvpool_copy_gather(kind, to + 1, pieces, n);
	ck_assert_mem_eq(to, expected, total + GUARD);
}

static void check_scatter(enum kvpool_copy_kind kind, uint32_t n, size_t mean)
{
	struct kvpool_piece pieces[128];
	uint64_t total;
	const uint8_t *at = from + 5;

	make_pieces(to, n, mean, pieces, &total);
	memset(to, 0xa5, LARGEST);
	memset(expected, 0xa5, LARGEST);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(expected + ((uint8_t *)pieces[i].address - to), at, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	kvpool_copy_scatter(kind, pieces, n, total, from + 5);
	ck_assert_mem_eq(to, expected, LARGEST);
}

static const struct {
	uint32_t n;
	size_t mean;
} shapes[] = {
	{0, 0},     {1, 0},      {1, 1},       {1, 63},      {1, 64},      {1, 65},     {1, 4095},
	{1, 4096},  {1, 4097},   {1, 1048575}, {1, 1048576}, {1, 2097152}, {2, 1},      {3, 7},
	{17, 100},  {32, 2048},  {32, 12288},  {64, 1024},   {64, 6144},   {64, 32768}, {128, 1},
	{128, 777}, {128, 5000}, {100, 20000}, {5, 300000},
};

START_TEST(should_gather_every_shape_as_memcpy_does)
{
	enum kvpool_copy_kind kind = (enum kvpool_copy_kind)_i;
	uint32_t checked = 0;

	for (size_t s = 0; present(kind) && s < sizeof(shapes) / sizeof(shapes[0]); s++, checked++)
		check_gather(kind, shapes[s].n, shapes[s].mean);
	ck_assert(checked > 0 || !present(kind));
}
END_TEST

START_TEST(should_scatter_every_shape_as_memcpy_does)
{
	enum kvpool_copy_kind kind = (enum kvpool_copy_kind)_i;
	uint32_t checked = 0;

	for (size_t s = 0; present(kind) && s < sizeof(shapes) / sizeof(shapes[0]); s++, checked++)
		check_scatter(kind, shapes[s].n, shapes[s].mean);
	ck_assert(checked > 0 || !present(kind));
}
END_TEST

START_TEST(should_choose_a_way_that_this_machine_has)
{
	ck_assert(present(kvpool_copy_best()));
	ck_assert_ptr_null(kvpool_copy_stream(KVPOOL_COPY_PLAIN));
	ck_assert_ptr_null(kvpool_copy_stream(KVPOOL_COPY_KINDS));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_copy");
	TCase *t = tcase_create("copy");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, should_stream_every_length_at_every_alignment, 0, KVPOOL_COPY_KINDS);
	tcase_add_loop_test(t, should_gather_every_shape_as_memcpy_does, 0, KVPOOL_COPY_KINDS);
	tcase_add_loop_test(t, should_scatter_every_shape_as_memcpy_does, 0, KVPOOL_COPY_KINDS);
	tcase_add_test(t, should_choose_a_way_that_this_machine_has);
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
