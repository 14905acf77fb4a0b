/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adaptive spin, with the time handed in.
 */
#include "daemon/clock.h"
#include "daemon/spin.h"

#include <check.h>
#include <stdlib.h>

#define MAX_NS (1000 * KVPOOL_NS_PER_US)

static struct kvpool_spin spin;
static uint64_t now_ns;

static void setup(void)
{
	kvpool_spin_init(&spin, MAX_NS);
	now_ns = 12345;
}

/* `n` requests, each `gap_ns` after the one before. */
static void requests(int n, uint64_t gap_ns)
{
	while (n-- > 0) {
		now_ns += gap_ns;
		kvpool_spin_note(&spin, now_ns);
	}
}

START_TEST(should_sleep_at_once_before_the_first_request)
{
	ck_assert(!kvpool_spin_awake(&spin, 0));
	ck_assert(!kvpool_spin_awake(&spin, now_ns));
}
END_TEST

START_TEST(should_spin_only_shortly_after_a_single_request)
{
	requests(1, 0);
	ck_assert_uint_eq(kvpool_spin_window(&spin), KVPOOL_SPIN_SHORT_NS);
	ck_assert(kvpool_spin_awake(&spin, now_ns));
	ck_assert(kvpool_spin_awake(&spin, now_ns + KVPOOL_SPIN_SHORT_NS - 1));
	ck_assert(!kvpool_spin_awake(&spin, now_ns + KVPOOL_SPIN_SHORT_NS));
}
END_TEST

START_TEST(should_spin_long_once_requests_come_quickly)
{
	requests(10, 2000);
	ck_assert_uint_eq(kvpool_spin_window(&spin), MAX_NS);
	ck_assert(kvpool_spin_awake(&spin, now_ns + MAX_NS - 1));
	ck_assert(!kvpool_spin_awake(&spin, now_ns + MAX_NS));
}
END_TEST

START_TEST(should_count_one_long_pause_as_one_gap_however_long)
{
	requests(20, 2000);
	requests(1, 3600 * KVPOOL_NS_PER_S);
	ck_assert_uint_eq(kvpool_spin_window(&spin), MAX_NS);
}
END_TEST

START_TEST(should_go_back_to_short_spins_when_requests_become_rare)
{
	requests(20, 2000);
	requests(10, 20 * KVPOOL_NS_PER_MS);
	ck_assert_uint_eq(kvpool_spin_window(&spin), KVPOOL_SPIN_SHORT_NS);
}
END_TEST

START_TEST(should_follow_what_most_gaps_are)
{
	/* Three of four are short. */
	for (int i = 0; i < 50; i++) {
		requests(3, 1000);
		requests(1, KVPOOL_NS_PER_S);
		requests(2, 1000);
	}
	ck_assert_uint_eq(kvpool_spin_window(&spin), MAX_NS);
	/* One of four is. */
	for (int i = 0; i < 50; i++) {
		requests(1, 1000);
		requests(3, KVPOOL_NS_PER_S);
	}
	ck_assert_uint_eq(kvpool_spin_window(&spin), KVPOOL_SPIN_SHORT_NS);
}
END_TEST

START_TEST(should_never_spin_where_that_is_turned_off)
{
	kvpool_spin_init(&spin, 0);
	requests(50, 100);
	ck_assert_uint_eq(kvpool_spin_window(&spin), 0);
	ck_assert(!kvpool_spin_awake(&spin, now_ns));
}
END_TEST

START_TEST(should_never_spin_longer_than_allowed_though_that_is_less_than_short)
{
	kvpool_spin_init(&spin, 1000);
	requests(1, 0);
	ck_assert_uint_eq(kvpool_spin_window(&spin), 1000);
}
END_TEST

START_TEST(should_put_up_with_a_time_from_before_the_last_request)
{
	requests(10, 2000);
	ck_assert(kvpool_spin_awake(&spin, now_ns - 500));
	kvpool_spin_note(&spin, now_ns - 500);
	ck_assert_uint_eq(kvpool_spin_window(&spin), MAX_NS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spin");
	TCase *tcase = tcase_create("window");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, should_sleep_at_once_before_the_first_request);
	tcase_add_test(tcase, should_spin_only_shortly_after_a_single_request);
	tcase_add_test(tcase, should_spin_long_once_requests_come_quickly);
	tcase_add_test(tcase, should_count_one_long_pause_as_one_gap_however_long);
	tcase_add_test(tcase, should_go_back_to_short_spins_when_requests_become_rare);
	tcase_add_test(tcase, should_follow_what_most_gaps_are);
	tcase_add_test(tcase, should_never_spin_where_that_is_turned_off);
	tcase_add_test(tcase, should_never_spin_longer_than_allowed_though_that_is_less_than_short);
	tcase_add_test(tcase, should_put_up_with_a_time_from_before_the_last_request);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
