/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MATCH in layouts of several groups: windows, states, shards, and what hangs on what.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>

enum {
	FULL = 0,
	WINDOW = 1, /* 50 tokens in blocks of 16: of 4 or 5 blocks */
	STATE = 2,
};

static const struct kvpool_wire_group groups[] = {
	{KVPOOL_GROUP_FULL, 0, 256},
	{KVPOOL_GROUP_WINDOW, 50, 512},
	{KVPOOL_GROUP_STATE, 0, 768},
};

static uint16_t both;     /* FULL and WINDOW */
static uint16_t all;      /* FULL, WINDOW, STATE */
static uint16_t window;   /* WINDOW alone */
static uint16_t state;    /* STATE alone */
static uint16_t two_full; /* FULL twice */

static uint16_t make(int name, uint16_t n_groups, const struct kvpool_wire_group *list)
{
	struct kvpool_wire_layout wire = fx_wire(name, 1, n_groups, list);

	return fx_register(0, &wire);
}

static void setup(void)
{
	const struct kvpool_wire_group twice[2] = {groups[FULL], groups[FULL]};

	fx_default();
	fx_open(64);
	both = make(1, 2, groups);
	all = make(2, 3, groups);
	window = make(3, 1, groups + WINDOW);
	state = make(4, 1, groups + STATE);
	two_full = make(5, 2, twice);
}

static void store(uint16_t layout, uint32_t group, uint32_t from, uint32_t n)
{
	fx_store(0, (struct fx_range){layout, group, 1, from, n});
}

static void forget(uint16_t layout, uint32_t group, uint32_t key)
{
	ck_assert_uint_gt(fx_forget(0, (struct fx_range){layout, group, 1, key, 1}), 0);
}

START_TEST(should_need_only_the_last_blocks_of_a_window)
{
	const struct fx_match *m;

	store(both, FULL, 0, 20);
	store(both, WINDOW, 16, 4);
	m = fx_match(0, both, 1, 20, 0, 0);
	/* 20 * 16 - 50 = 270 tokens are out of the window: block 16 holds the 271st. */
	ck_assert_uint_eq(m->result.blocks, 20);
	ck_assert_uint_eq(m->ranges[FULL].count, 20);
	ck_assert_uint_eq(m->ranges[WINDOW].first, 16);
	ck_assert_uint_eq(m->ranges[WINDOW].count, 4);
	ck_assert_uint_eq(m->result.reported, 24);
}
END_TEST

START_TEST(should_end_before_a_block_that_is_missing_in_the_window)
{
	store(both, FULL, 0, 20);
	store(both, WINDOW, 0, 20);
	for (uint32_t hole = 16; hole < 20; hole++) {
		forget(both, WINDOW, hole);
		ck_assert_uint_eq(fx_hit(0, both, 1, 20), hole);
		store(both, WINDOW, hole, 1);
	}
	forget(both, WINDOW, 15);
	ck_assert_uint_eq(fx_hit(0, both, 1, 20), 20);
	forget(both, WINDOW, 17);
	ck_assert_uint_eq(fx_hit(0, both, 1, 20), 15);
	/* With 15 gone the windows that end at 16 and 17 miss it: 15 is the end. */
	forget(both, WINDOW, 14);
	ck_assert_uint_eq(fx_hit(0, both, 1, 20), 14);
}
END_TEST

START_TEST(should_take_keys_below_skip_for_present)
{
	const struct fx_match *m;

	store(both, FULL, 0, 20);
	store(both, WINDOW, 18, 2);
	ck_assert_uint_eq(fx_hit(0, both, 1, 20), 0);
	m = fx_match(0, both, 1, 20, 17, 0);
	ck_assert_uint_eq(m->result.blocks, 17);
	ck_assert_uint_eq(m->result.reported, 0);
	m = fx_match(0, both, 1, 20, 18, 0);
	ck_assert_uint_eq(m->result.blocks, 20);
	ck_assert_uint_eq(m->ranges[FULL].first, 18);
	ck_assert_uint_eq(m->ranges[WINDOW].first, 18);
	ck_assert_uint_eq(m->ranges[WINDOW].count, 2);
}
END_TEST

START_TEST(should_need_the_whole_prefix_where_the_window_reaches_the_start)
{
	store(both, FULL, 0, 3);
	store(both, WINDOW, 0, 3);
	ck_assert_uint_eq(fx_hit(0, both, 1, 3), 3);
	forget(both, WINDOW, 0);
	ck_assert_uint_eq(fx_hit(0, both, 1, 3), 0);
}
END_TEST

START_TEST(should_need_a_state_exactly_at_the_end)
{
	const struct fx_match *m;

	store(all, FULL, 0, 30);
	store(all, WINDOW, 0, 30);
	ck_assert_uint_eq(fx_hit(0, all, 1, 30), 0);
	store(all, STATE, 11, 1);
	store(all, STATE, 24, 1);
	m = fx_match(0, all, 1, 30, 0, 0);
	ck_assert_uint_eq(m->result.blocks, 25);
	ck_assert_uint_eq(m->ranges[STATE].first, 24);
	ck_assert_uint_eq(m->ranges[STATE].count, 1);
	ck_assert_uint_eq(m->ranges[FULL].count, 25);
	ck_assert_uint_eq(fx_hit(0, all, 1, 24), 12);
	m = fx_match(0, all, 1, 24, 15, 0);
	ck_assert_uint_eq(m->result.blocks, 15);
	ck_assert_uint_eq(m->result.lease, 0);
}
END_TEST

START_TEST(should_go_back_until_windows_and_states_agree)
{
	store(all, FULL, 0, 30);
	store(all, WINDOW, 0, 30);
	store(all, STATE, 9, 1);
	store(all, STATE, 19, 1);
	store(all, STATE, 29, 1);
	ck_assert_uint_eq(fx_hit(0, all, 1, 30), 30);
	forget(all, WINDOW, 28);
	ck_assert_uint_eq(fx_hit(0, all, 1, 30), 20);
	forget(all, WINDOW, 16);
	ck_assert_uint_eq(fx_hit(0, all, 1, 30), 10);
	forget(all, WINDOW, 9);
	ck_assert_uint_eq(fx_hit(0, all, 1, 30), 0);
}
END_TEST

START_TEST(should_match_windows_and_states_that_stand_alone)
{
	const struct fx_match *m;

	store(window, 0, 10, 5);
	m = fx_match(0, window, 1, 15, 0, 0);
	ck_assert_uint_eq(m->result.blocks, 15);
	ck_assert_uint_eq(m->ranges[0].first, 11);
	ck_assert_uint_eq(m->result.reported, 4);
	ck_assert_uint_eq(fx_hit(0, window, 1, 13), 0);
	store(state, 0, 6, 1);
	ck_assert_uint_eq(fx_hit(0, state, 1, 100), 7);
	ck_assert_uint_eq(fx_hit(0, state, 1, 6), 0);
	m = fx_match(0, state, 1, 100, 7, 0);
	ck_assert_uint_eq(m->result.blocks, 7);
}
END_TEST

START_TEST(should_match_one_key_of_a_layout_without_full_groups)
{
	store(window, 0, 0, 1);
	store(state, 0, 0, 1);
	ck_assert_uint_eq(fx_match(0, window, 1, 1, 0, 0)->result.reported, 1);
	ck_assert_uint_eq(fx_match(0, state, 1, 1, 0, 0)->result.reported, 1);
	/* Nothing is needed where the client has it. */
	ck_assert_uint_eq(fx_match(0, state, 9, 1, 1, 0)->result.blocks, 1);
}
END_TEST

START_TEST(should_end_where_the_shorter_of_two_full_groups_ends)
{
	const struct fx_match *m;

	store(two_full, 0, 0, 20);
	store(two_full, 1, 0, 13);
	m = fx_match(0, two_full, 1, 20, 5, KVPOOL_REQUEST_PENDING);
	ck_assert_uint_eq(m->result.blocks, 13);
	ck_assert_uint_eq(m->result.pending, 0);
	ck_assert_uint_eq(m->ranges[0].count, 8);
	ck_assert_uint_eq(m->ranges[1].count, 8);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 2);
}
END_TEST

START_TEST(should_hang_windows_and_states_on_the_full_block_of_their_key)
{
	struct kvpool_wire_block blocks[4];
	struct kvpool_reserve_result r;

	r = fx_reserve(0, (struct fx_range){both, WINDOW, 1, 0, 2}, blocks);
	ck_assert_uint_eq(r.granted, 0);
	ck_assert_uint_eq(blocks[0].generation, KVPOOL_STATUS_NO_PARENT);
	store(both, FULL, 0, 3);
	store(both, WINDOW, 0, 3);
	/* The FULL block of key 1 takes with it what hangs on it: FULL 2, WINDOW 1 and 2. */
	ck_assert_uint_eq(fx_forget(0, (struct fx_range){both, FULL, 1, 1, 1}), 4);
	ck_assert_uint_eq(fx_usage().ready_blocks, 2);
}
END_TEST

START_TEST(should_lease_windows_and_states_each_and_chains_by_their_end)
{
	const struct fx_match *m;

	store(all, FULL, 0, 10);
	store(all, WINDOW, 0, 10);
	store(all, STATE, 4, 1);
	store(all, STATE, 9, 1);
	m = fx_match(0, all, 1, 10, 0, 0);
	ck_assert_uint_eq(m->result.blocks, 10);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 1 + 4 + 1);
	ck_assert_uint_eq(fx_holder_usage(0).leased_bytes, 10 * 256 + 4 * 512 + 768);
	/* The older windows and the older state may go; nothing of the chain may. */
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 6 + 1);
	ck_assert_int_eq(fx_release(0, m->result.lease, 8), 0);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 1 + 2);
	ck_assert_uint_eq(fx_holder_usage(0).leased_bytes, 8 * 256 + 2 * 512);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 2 + 1 + 2);
	ck_assert_int_eq(fx_release(0, m->result.lease, 0), 0);
	ck_assert_uint_eq(fx_usage().leases, 0);
}
END_TEST

START_TEST(should_be_ready_with_the_last_shard)
{
	struct kvpool_wire_layout wire = fx_wire(9, 3, 1, groups);
	struct kvpool_wire_block blocks[2];
	uint16_t sharded = fx_register(0, &wire);
	struct fx_range range = {sharded, 0, 1, 0, 2};

	ck_assert_uint_eq(fx_reserve(0, range, blocks).granted, 2);
	ck_assert_uint_eq(fx_commit(0, 2, blocks, 2), 2);
	ck_assert_uint_eq(fx_commit(0, 0, blocks, 2), 2);
	ck_assert_uint_eq(fx_commit(0, 0, blocks, 2), 0);
	ck_assert_uint_eq(fx_hit(0, sharded, 1, 2), 0);
	ck_assert_uint_eq(fx_commit(0, 1, blocks, 1), 1);
	ck_assert_uint_eq(fx_hit(0, sharded, 1, 2), 1);
	ck_assert_uint_eq(fx_commit(0, 1, blocks, 2), 1);
	ck_assert_uint_eq(fx_hit(0, sharded, 1, 2), 2);
	ck_assert_uint_eq(fx_usage().ready_bytes, 2 * 3 * 256);
}
END_TEST

START_TEST(should_find_pending_blocks_of_the_first_group_where_none_is_full)
{
	struct kvpool_wire_block blocks[4];

	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){window, 0, 1, 0, 4}, blocks).granted, 4);
	ck_assert_uint_eq(fx_match(0, window, 1, 6, 0, KVPOOL_REQUEST_PENDING)->result.pending, 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_groups");
	TCase *tcase = tcase_create("cache_groups");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_need_only_the_last_blocks_of_a_window);
	tcase_add_test(tcase, should_end_before_a_block_that_is_missing_in_the_window);
	tcase_add_test(tcase, should_take_keys_below_skip_for_present);
	tcase_add_test(tcase, should_need_the_whole_prefix_where_the_window_reaches_the_start);
	tcase_add_test(tcase, should_need_a_state_exactly_at_the_end);
	tcase_add_test(tcase, should_go_back_until_windows_and_states_agree);
	tcase_add_test(tcase, should_match_windows_and_states_that_stand_alone);
	tcase_add_test(tcase, should_match_one_key_of_a_layout_without_full_groups);
	tcase_add_test(tcase, should_end_where_the_shorter_of_two_full_groups_ends);
	tcase_add_test(tcase, should_hang_windows_and_states_on_the_full_block_of_their_key);
	tcase_add_test(tcase, should_lease_windows_and_states_each_and_chains_by_their_end);
	tcase_add_test(tcase, should_be_ready_with_the_last_shard);
	tcase_add_test(tcase, should_find_pending_blocks_of_the_first_group_where_none_is_full);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
