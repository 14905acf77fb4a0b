/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: what they hold, how they shrink and end, and their limits.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>

#define FRAME UINT64_C(1024)

static uint16_t layout;

static void setup(void)
{
	fx_default();
	fx.config.leases_max = 10;
	fx_open(32);
	layout = fx_plain(0, 1, 1024);
	fx_plain(1, 1, 1024);
	fx_store(0, (struct fx_range){layout, 0, 1, 0, 20});
}

static uint64_t lease(int holder, uint32_t n)
{
	const struct fx_match *m = fx_match(holder, layout, 1, n, 0, 0);

	ck_assert_int_eq(m->status, 0);
	ck_assert_uint_eq(m->result.blocks, n);
	ck_assert_uint_ne(m->result.lease, 0);
	return m->result.lease;
}

START_TEST(should_hold_a_chain_by_its_last_block)
{
	lease(0, 12);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 1);
	ck_assert_uint_eq(fx_holder_usage(0).leased_bytes, 12 * FRAME);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 8);
	ck_assert_uint_eq(fx_hit(1, layout, 1, 20), 12);
}
END_TEST

START_TEST(should_hold_nothing_when_it_only_looks)
{
	fx_hit(0, layout, 1, 20);
	fx_hit(0, layout, 1, 1);
	ck_assert_uint_eq(fx_usage().leases, 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 20);
}
END_TEST

START_TEST(should_hold_until_the_last_of_several_leases_ends)
{
	uint64_t a = lease(0, 12), b = lease(1, 12), c = lease(1, 1);

	ck_assert_int_eq(fx_release(0, a, 0), 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 8);
	ck_assert_int_eq(fx_release(1, b, 0), 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 11);
	ck_assert_int_eq(fx_release(1, c, 0), 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 1);
}
END_TEST

START_TEST(should_shrink_to_the_keys_that_are_kept)
{
	const uint32_t keeps[] = {19, 13, 12, 1};
	uint64_t a = lease(0, 20);

	ck_assert_int_eq(fx_release(0, a, 20), 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 0);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(keeps); i++) {
		uint32_t keep = keeps[i];

		ck_assert_int_eq(fx_release(0, a, keep), 0);
		fx_check();
		ck_assert_uint_eq(fx_holder_usage(0).leased_bytes, keep * FRAME);
		kvpool_cache_flush(fx.cache);
		ck_assert_uint_eq(fx_hit(1, layout, 1, 20), keep);
	}
	ck_assert_int_eq(fx_release(0, a, 0), 0);
}
END_TEST

START_TEST(should_refuse_to_keep_more_than_it_holds)
{
	uint64_t a = lease(0, 5);

	ck_assert_int_eq(fx_release(0, a, 6), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(fx_release(0, a, 3), 0);
	ck_assert_int_eq(fx_release(0, a, 4), KVPOOL_STATUS_INVALID);
	ck_assert_uint_eq(fx_usage().leases, 1);
}
END_TEST

START_TEST(should_refuse_numbers_that_are_no_lease_of_this_client)
{
	uint64_t a = lease(0, 5);

	ck_assert_int_eq(fx_release(1, a, 0), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(0, 0, 0), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(0, a + 1, 0), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(0, a + (UINT64_C(1) << 32), 0), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(0, UINT64_MAX, 0), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(0, a, 0), 0);
	ck_assert_int_eq(fx_release(0, a, 0), KVPOOL_STATUS_STALE);
	ck_assert_uint_ne(lease(0, 5), a);
	ck_assert_int_eq(fx_release(0, a, 0), KVPOOL_STATUS_STALE);
}
END_TEST

START_TEST(should_bound_the_leases_of_one_client)
{
	uint64_t first = lease(0, 1);

	for (int i = 1; i < 10; i++)
		lease(0, (uint32_t)i);
	ck_assert_int_eq(fx_match(0, layout, 1, 1, 0, 0)->status, KVPOOL_STATUS_LIMIT);
	ck_assert_int_eq(fx_match(0, layout, 1, 9, 0, 0)->status, KVPOOL_STATUS_LIMIT);
	/* What needs no lease is served. */
	ck_assert_uint_eq(fx_hit(0, layout, 1, 9), 9);
	ck_assert_int_eq(fx_match(0, layout, 7, 9, 0, 0)->status, 0);
	lease(1, 5);
	ck_assert_int_eq(fx_release(0, first, 0), 0);
	lease(0, 5);
}
END_TEST

START_TEST(should_end_with_their_client)
{
	lease(1, 20);
	lease(1, 3);
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	ck_assert_uint_eq(fx_usage().leases, 0);
	ck_assert_uint_eq(fx_holder_usage(1).leased_bytes, 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 20);
}
END_TEST

START_TEST(should_count_a_lease_before_the_cache_has_settled)
{
	lease(0, 1);
	ck_assert_uint_eq(fx_holder_usage(0).leases, 1);
	lease(0, 20);
	kvpool_cache_settle(fx.cache);
	kvpool_cache_settle(fx.cache);
	ck_assert_uint_eq(fx_holder_usage(0).leases, 2);
	ck_assert_uint_eq(fx_usage().matches, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_lease");
	TCase *tcase = tcase_create("cache_lease");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_hold_a_chain_by_its_last_block);
	tcase_add_test(tcase, should_hold_nothing_when_it_only_looks);
	tcase_add_test(tcase, should_hold_until_the_last_of_several_leases_ends);
	tcase_add_test(tcase, should_shrink_to_the_keys_that_are_kept);
	tcase_add_test(tcase, should_refuse_to_keep_more_than_it_holds);
	tcase_add_test(tcase, should_refuse_numbers_that_are_no_lease_of_this_client);
	tcase_add_test(tcase, should_bound_the_leases_of_one_client);
	tcase_add_test(tcase, should_end_with_their_client);
	tcase_add_test(tcase, should_count_a_lease_before_the_cache_has_settled);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
