/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CLOCK policy alone, over bare records: order, second chances, blocks that are in use.
 *
 * Owned by the test's only thread.
 */
#include "src/cache_internal.h"

#include <check.h>
#include <stdlib.h>

#define BLOCKS 1000u

static struct kvpool_cache cache;
static struct kvpool_record records[BLOCKS + 1];
static struct kvpool_block blocks[BLOCKS + 1];
static const struct kvpool_policy *policy = &kvpool_policy_clock;
static void *order;

static void setup(void)
{
	cache.records = records;
	cache.blocks = blocks;
	for (uint32_t b = 1; b <= BLOCKS; b++)
		records[b].state = KVPOOL_BLOCK_READY;
	order = policy->create(&cache, 0);
	ck_assert_ptr_ne(order, NULL);
}

static void teardown(void)
{
	policy->destroy(order);
}

static void insert(uint32_t from, uint32_t to)
{
	for (uint32_t b = from; b <= to; b++)
		policy->insert(order, b, false);
}

/* Takes the victim out, as an eviction does. */
static uint32_t evict(void)
{
	uint32_t victim = policy->victim(order);

	if (victim)
		policy->remove(order, victim);
	return victim;
}

START_TEST(should_name_nobody_when_it_is_empty)
{
	ck_assert_uint_eq(policy->victim(order), 0);
	insert(1, 1);
	ck_assert_uint_eq(evict(), 1);
	ck_assert_uint_eq(policy->victim(order), 0);
}
END_TEST

START_TEST(should_name_the_oldest_first)
{
	insert(1, 20);
	for (uint32_t b = 1; b <= 20; b++)
		ck_assert_uint_eq(evict(), b);
}
END_TEST

START_TEST(should_name_the_same_block_until_it_goes)
{
	insert(1, 3);
	ck_assert_uint_eq(policy->victim(order), 1);
	ck_assert_uint_eq(policy->victim(order), 1);
}
END_TEST

START_TEST(should_pass_over_a_block_as_often_as_its_counter_says)
{
	insert(1, 3);
	records[1].clock = KVPOOL_CLOCK_HOT;
	ck_assert_uint_eq(evict(), 2);
	ck_assert_uint_eq(records[1].clock, KVPOOL_CLOCK_HOT - 1);
	ck_assert_uint_eq(evict(), 3);
	ck_assert_uint_eq(evict(), 1);
	ck_assert_uint_eq(records[1].clock, 0);
}
END_TEST

START_TEST(should_put_a_parent_before_all_others)
{
	insert(1, 3);
	policy->insert(order, 9, true);
	ck_assert_uint_eq(evict(), 9);
	ck_assert_uint_eq(evict(), 1);
}
END_TEST

START_TEST(should_drop_what_is_leased_or_has_children_or_is_not_ready)
{
	insert(1, 4);
	blocks[1].leases = 1;
	blocks[2].first_child = 9;
	records[3].state = KVPOOL_BLOCK_DEAD;
	ck_assert_uint_eq(policy->victim(order), 4);
	for (uint32_t b = 1; b <= 3; b++)
		ck_assert_uint_eq(blocks[b].order_next, 0);
	ck_assert_uint_ne(blocks[4].order_next, 0);
}
END_TEST

START_TEST(should_take_a_block_again_after_it_was_dropped)
{
	insert(1, 2);
	blocks[1].leases = 1;
	ck_assert_uint_eq(policy->victim(order), 2);
	blocks[1].leases = 0;
	policy->insert(order, 1, false);
	ck_assert_uint_eq(evict(), 2);
	ck_assert_uint_eq(evict(), 1);
}
END_TEST

START_TEST(should_remove_from_every_place_in_the_order)
{
	insert(1, 5);
	policy->remove(order, 3);
	policy->remove(order, 1);
	policy->remove(order, 5);
	ck_assert_uint_eq(evict(), 2);
	insert(6, 6);
	ck_assert_uint_eq(evict(), 4);
	ck_assert_uint_eq(evict(), 6);
	ck_assert_uint_eq(evict(), 0);
}
END_TEST

START_TEST(should_do_bounded_work_when_everything_is_hot)
{
	uint32_t passed = 0;

	insert(1, BLOCKS);
	for (uint32_t b = 1; b <= BLOCKS; b++)
		records[b].clock = KVPOOL_CLOCK_HOT;
	ck_assert_uint_ne(policy->victim(order), 0);
	for (uint32_t b = 1; b <= BLOCKS; b++)
		passed += records[b].clock != KVPOOL_CLOCK_HOT;
	ck_assert_uint_lt(passed, BLOCKS / 2);
}
END_TEST

START_TEST(should_lose_nobody_over_many_rounds)
{
	bool gone[BLOCKS + 1] = {false};

	for (uint32_t b = 1; b <= BLOCKS; b++) {
		records[b].clock = (uint8_t)(b % (KVPOOL_CLOCK_HOT + 1));
		policy->insert(order, b, b % 7 == 0);
	}
	for (uint32_t n = 0; n < BLOCKS; n++) {
		uint32_t victim = evict();

		ck_assert_uint_ne(victim, 0);
		ck_assert(!gone[victim]);
		gone[victim] = true;
	}
	ck_assert_uint_eq(policy->victim(order), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy");
	TCase *tcase = tcase_create("policy");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_name_nobody_when_it_is_empty);
	tcase_add_test(tcase, should_name_the_oldest_first);
	tcase_add_test(tcase, should_name_the_same_block_until_it_goes);
	tcase_add_test(tcase, should_pass_over_a_block_as_often_as_its_counter_says);
	tcase_add_test(tcase, should_put_a_parent_before_all_others);
	tcase_add_test(tcase, should_drop_what_is_leased_or_has_children_or_is_not_ready);
	tcase_add_test(tcase, should_take_a_block_again_after_it_was_dropped);
	tcase_add_test(tcase, should_remove_from_every_place_in_the_order);
	tcase_add_test(tcase, should_do_bounded_work_when_everything_is_hot);
	tcase_add_test(tcase, should_lose_nobody_over_many_rounds);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
