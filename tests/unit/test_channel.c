/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things lie in a channel: every bound of the geometry, and that no region touches another.
 *
 * One thread, no shared memory: the geometry is arithmetic.
 */
#include "shm/channel.h"

#include <check.h>
#include <stdlib.h>

static const struct {
	uint64_t entries;
	uint64_t arena;
	int result;
} bounds[] = {
	{KVPOOL_RING_ENTRIES_MIN, KVPOOL_ARENA_MIN, 0},
	{KVPOOL_RING_ENTRIES_MIN, KVPOOL_ARENA_MAX, 0},
	{KVPOOL_RING_ENTRIES_MAX, KVPOOL_ARENA_MIN, 0},
	{KVPOOL_RING_ENTRIES_MAX, KVPOOL_ARENA_MAX, 0},
	{64, KVPOOL_ARENA_MIN + 4096, 0},
	{0, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{1, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MIN / 2, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MIN - 1, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MIN + 1, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MAX - 1, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MAX + 1, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{KVPOOL_RING_ENTRIES_MAX * 2, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{UINT32_C(1) << 31, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{UINT32_MAX, KVPOOL_ARENA_MIN, KVPOOL_CHANNEL_E_SIZE},
	{64, 0, KVPOOL_CHANNEL_E_SIZE},
	{64, 4096, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MIN - 4096, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MIN - 1, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MIN + 1, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MIN + 4095, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MAX - 1, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MAX + 1, KVPOOL_CHANNEL_E_SIZE},
	{64, KVPOOL_ARENA_MAX + 4096, KVPOOL_CHANNEL_E_SIZE},
	{64, UINT64_MAX, KVPOOL_CHANNEL_E_SIZE},
	{64, UINT64_MAX & ~UINT64_C(4095), KVPOOL_CHANNEL_E_SIZE},
};

START_TEST(should_take_sizes_within_the_bounds_and_no_others)
{
	struct kvpool_channel_geometry g;
	int r = kvpool_channel_geometry_make((uint32_t)bounds[_i].entries, bounds[_i].arena, &g);

	ck_assert_int_eq(r, bounds[_i].result);
}
END_TEST

START_TEST(should_leave_the_result_untouched_when_it_refuses)
{
	struct kvpool_channel_geometry g, before;

	memset(&g, 0x5a, sizeof(g));
	before = g;
	ck_assert_int_eq(kvpool_channel_geometry_make(17, KVPOOL_ARENA_MIN, &g),
			 KVPOOL_CHANNEL_E_SIZE);
	ck_assert_int_eq(kvpool_channel_geometry_make(16, KVPOOL_ARENA_MIN + 1, &g),
			 KVPOOL_CHANNEL_E_SIZE);
	ck_assert_mem_eq(&g, &before, sizeof(g));
}
END_TEST

START_TEST(should_lay_the_regions_side_by_side_without_overlap)
{
	for (uint32_t n = KVPOOL_RING_ENTRIES_MIN; n <= KVPOOL_RING_ENTRIES_MAX; n *= 2) {
		struct kvpool_channel_geometry g;
		uint64_t ring = n * sizeof(struct kvpool_entry);

		ck_assert_int_eq(kvpool_channel_geometry_make(n, KVPOOL_ARENA_MIN, &g), 0);
		ck_assert_uint_eq(g.entries, n);
		ck_assert_uint_eq(g.arena_bytes, KVPOOL_ARENA_MIN);
		ck_assert_uint_ge(g.control, sizeof(struct kvpool_header));
		ck_assert_uint_ge(g.requests, g.control + sizeof(struct kvpool_channel_control));
		ck_assert_uint_ge(g.replies, g.requests + ring);
		ck_assert_uint_ge(g.arena, g.replies + ring);
		ck_assert_uint_ge(g.total, g.arena + g.arena_bytes);
		ck_assert_uint_eq(g.requests % KVPOOL_WRITER_GAP, 0);
		ck_assert_uint_eq(g.replies % KVPOOL_WRITER_GAP, 0);
		ck_assert_uint_eq(g.arena % 4096, 0);
		ck_assert_uint_eq(g.total % 4096, 0);
	}
}
END_TEST

START_TEST(should_keep_the_words_of_two_writers_apart)
{
	ck_assert_uint_ge(offsetof(struct kvpool_channel_control, replies) -
				  offsetof(struct kvpool_channel_control, requests),
			  KVPOOL_WRITER_GAP);
	ck_assert_uint_le(sizeof(struct kvpool_channel_control), KVPOOL_HEADER_BYTES);
	ck_assert_uint_eq(sizeof(struct kvpool_entry), KVPOOL_CACHELINE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("channel");
	TCase *tcase = tcase_create("geometry");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, should_take_sizes_within_the_bounds_and_no_others, 0,
			    (int)KVPOOL_ARRAY_SIZE(bounds));
	tcase_add_test(tcase, should_leave_the_result_untouched_when_it_refuses);
	tcase_add_test(tcase, should_lay_the_regions_side_by_side_without_overlap);
	tcase_add_test(tcase, should_keep_the_words_of_two_writers_apart);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
