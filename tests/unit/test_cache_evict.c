/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making room: leaves first, the oldest first, other sizes, what is held, and why there is none.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>

#define FRAME UINT64_C(1024)

#define EXTENTS 8u
#define FRAMES  (EXTENTS * 4) /* of 1024 bytes */

static uint16_t layout;
static struct kvpool_wire_block blocks[FX_KEYS_MAX];
static uint64_t now_ms;

static void setup(void)
{
	fx_default();
	fx.config.idle_limit = 60;
	fx_open(EXTENTS);
	layout = fx_plain(0, 1, 1024);
	fx_plain(1, 1, 1024);
	now_ms = 0;
}

static struct fx_range range(int chain, uint32_t from, uint32_t n)
{
	return (struct fx_range){layout, 0, chain, from, n};
}

static void later(uint64_t ms)
{
	now_ms += ms;
	kvpool_cache_set_time(fx.cache, now_ms);
}

START_TEST(should_evict_tails_and_keep_what_remains_reachable)
{
	fx_store(0, range(1, 0, FRAMES));
	fx_store(0, range(2, 0, 10));
	ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), FRAMES - 10);
	ck_assert_uint_eq(fx_hit(0, layout, 2, 10), 10);
	ck_assert_uint_eq(fx_usage().evicted, 10);
}
END_TEST

START_TEST(should_evict_what_was_used_longest_ago)
{
	for (int chain = 0; chain < 8; chain++) {
		fx_store(0, range(chain, 0, 4));
		later(1000);
	}
	/* All but 3 and 5 are used again. */
	for (int chain = 0; chain < 8; chain++)
		if (chain != 3 && chain != 5)
			ck_assert_uint_eq(fx_hit(0, layout, chain, 4), 4);
	fx_store(0, range(9, 0, 8));
	for (int chain = 0; chain < 8; chain++)
		ck_assert_uint_eq(fx_hit(0, layout, chain, 4), chain == 3 || chain == 5 ? 0 : 4);
}
END_TEST

START_TEST(should_never_evict_what_is_leased_or_what_it_hangs_on)
{
	uint64_t lease;

	fx_store(0, range(1, 0, 10));
	fx_store(0, range(2, 0, FRAMES - 10));
	lease = fx_match(0, layout, 1, 6, 0, 0)->result.lease;
	for (int chain = 3; chain < 40; chain++) {
		fx_store(1, range(chain, 0, 20));
		ck_assert_uint_ge(fx_hit(1, layout, 1, 10), 6);
	}
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
}
END_TEST

START_TEST(should_never_evict_what_the_new_block_hangs_on)
{
	fx_store(0, range(1, 0, FRAMES));
	/* The leaf is the only block that could go, and the parent of the new one. */
	ck_assert_uint_eq(fx_reserve(0, range(1, FRAMES, 1), blocks).granted, 0);
	ck_assert_uint_eq(blocks[0].generation, KVPOOL_STATUS_NO_SPACE);
	ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), FRAMES);
	fx_check();
	/* It may go again now. */
	fx_store(0, range(2, 0, 1));
	ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), FRAMES - 1);
}
END_TEST

START_TEST(should_say_that_readers_hold_the_memory)
{
	struct kvpool_reserve_result r;
	uint64_t lease;

	fx_store(0, range(1, 0, FRAMES));
	lease = fx_match(1, layout, 1, FRAMES, 0, 0)->result.lease;
	fx_match(0, layout, 1, 5, 0, 0);
	r = fx_reserve(0, range(2, 0, 3), blocks);
	ck_assert_uint_eq(r.granted, 0);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_LEASED);
	ck_assert_uint_eq(r.holder, 101);
	ck_assert_uint_eq(blocks[0].block, 0);
	ck_assert_uint_eq(blocks[0].generation, KVPOOL_STATUS_NO_SPACE);
	ck_assert_uint_eq(blocks[0].segment, KVPOOL_NO_SPACE_LEASED);
	ck_assert_uint_eq(blocks[1].generation, KVPOOL_STATUS_NO_PARENT);
	ck_assert_uint_eq(fx_usage().no_space, 1);
	ck_assert_int_eq(fx_release(1, lease, 0), 0);
	ck_assert_uint_eq(fx_reserve(0, range(2, 0, 3), blocks).granted, 3);
}
END_TEST

START_TEST(should_say_that_writers_hold_the_memory)
{
	struct kvpool_reserve_result r;

	ck_assert_uint_eq(fx_reserve(1, range(1, 0, FRAMES), blocks).granted, FRAMES);
	r = fx_reserve(0, range(2, 0, 1), blocks);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_RESERVED);
	ck_assert_uint_eq(r.holder, 101);
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	r = fx_reserve(0, range(2, 0, 1), blocks);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_RESERVED);
	fx_holder_gone(1);
	ck_assert_uint_eq(fx_reserve(0, range(2, 0, 1), blocks).granted, 1);
}
END_TEST

START_TEST(should_say_that_memory_is_still_coming)
{
	kvpool_cache_set_growing(fx.cache, true);
	fx_reserve(0, range(1, 0, FRAMES), blocks);
	ck_assert_uint_eq(fx_reserve(0, range(2, 0, 1), blocks).detail, KVPOOL_NO_SPACE_GROWING);
	kvpool_cache_set_growing(fx.cache, false);
	ck_assert_uint_eq(fx_reserve(0, range(2, 0, 1), blocks).detail, KVPOOL_NO_SPACE_RESERVED);
}
END_TEST

START_TEST(should_ask_for_more_memory_before_it_evicts)
{
	fx.more_extents = 2;
	fx_store(0, range(1, 0, FRAMES + 8));
	ck_assert_uint_eq(fx_usage().evicted, 0);
	ck_assert_uint_eq(fx.more_asked, 2);
	ck_assert_uint_eq(fx_usage().extents, EXTENTS + 2);
	/* Once a request, however many keys ask. */
	fx_store(0, range(2, 0, 10));
	ck_assert_uint_eq(fx.more_asked, 3);
	ck_assert_uint_eq(fx_usage().evicted, 10);
}
END_TEST

START_TEST(should_not_strand_memory_in_a_size_that_nobody_uses)
{
	uint16_t other = fx_plain(0, 2, 1536); /* two in an extent */

	fx_store(0, range(1, 0, FRAMES));
	later(10000);
	for (int chain = 0; chain < 16; chain++) {
		fx_store(0, (struct fx_range){other, 0, chain, 0, 1});
		later(100);
	}
	ck_assert_uint_eq(fx_usage().ready_bytes, 16 * 1536);
	ck_assert_uint_eq(fx_usage().extents_moved, EXTENTS);
	ck_assert_uint_eq(fx_usage().slack_bytes, EXTENTS * FRAME);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 1), 0);
	for (int chain = 0; chain < 16; chain++)
		ck_assert_uint_eq(fx_hit(0, other, chain, 1), 1);
}
END_TEST

/* The small one has blocks of its own to evict, and takes the memory all the same. */
START_TEST(should_prefer_what_is_colder_in_another_size_over_its_own)
{
	uint16_t other = fx_plain(0, 2, 512);

	fx_store(0, range(1, 0, FRAMES - 4));
	later(10000);
	for (int chain = 0; chain < 200; chain++) {
		fx_store(0, (struct fx_range){other, 0, chain, 0, 1});
		later(100);
	}
	ck_assert_uint_ge(fx_usage().extents_moved, 1);
	ck_assert_uint_ge(fx_usage().ready_blocks, 8 * 3);
}
END_TEST

START_TEST(should_not_take_memory_from_a_size_that_is_in_use)
{
	uint16_t other = fx_plain(0, 2, 512);

	fx_store(0, range(1, 0, FRAMES - 4));
	for (int chain = 0; chain < 500; chain++) {
		later(100);
		fx_store(0, (struct fx_range){other, 0, chain, 0, 1});
		ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), FRAMES - 4);
	}
	ck_assert_uint_eq(fx_usage().extents_moved, 0);
	ck_assert_uint_eq(fx_usage().evicted, 500 - 8);
}
END_TEST

START_TEST(should_leave_an_extent_alone_in_which_something_is_held)
{
	uint16_t other = fx_plain(0, 2, FX_EXTENT);
	uint64_t leases[EXTENTS];

	for (uint32_t x = 0; x < EXTENTS; x++) {
		fx_store(0, range((int)x, 0, 4));
		leases[x] = fx_match(0, layout, (int)x, 1, 0, 0)->result.lease;
	}
	later(10000);
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){other, 0, 50, 0, 1}, blocks).granted, 0);
	ck_assert_uint_eq(fx_usage().ready_blocks, FRAMES);
	ck_assert_int_eq(fx_release(0, leases[5], 0), 0);
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){other, 0, 50, 0, 1}, blocks).granted, 1);
	for (uint32_t x = 0; x < EXTENTS; x++)
		ck_assert_uint_eq(fx_hit(0, layout, (int)x, 4), x == 5 ? 0 : 4);
}
END_TEST

START_TEST(should_evict_what_hangs_on_the_blocks_of_a_moved_extent)
{
	const struct kvpool_wire_group groups[2] = {{KVPOOL_GROUP_FULL, 0, 1024},
						    {KVPOOL_GROUP_WINDOW, 32, 512}};
	struct kvpool_wire_layout wire = fx_wire(5, 1, 2, groups);
	uint16_t both = fx_register(0, &wire);
	uint16_t other = fx_plain(0, 2, FX_EXTENT);

	fx_store(0, (struct fx_range){both, 0, 1, 0, 16});
	fx_store(0, (struct fx_range){both, 1, 1, 0, 16});
	later(10000);
	for (int chain = 0; chain < (int)EXTENTS; chain++)
		fx_store(0, (struct fx_range){other, 0, chain, 0, 1});
	fx_check();
	ck_assert_uint_eq(fx_hit(0, both, 1, 16), 0);
	ck_assert_uint_eq(fx_usage().ready_blocks, EXTENTS);
}
END_TEST

START_TEST(should_say_when_the_block_table_is_full)
{
	struct kvpool_reserve_result r;

	fx_close();
	fx_default();
	fx.config.blocks_max = 10;
	fx_open(EXTENTS);
	layout = fx_plain(0, 1, 1024);
	r = fx_reserve(0, range(1, 0, 12), blocks);
	ck_assert_uint_eq(r.granted, 10);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_TABLE);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 10), 10);
	/* With something to evict there is a record again. */
	fx_store(0, range(2, 0, 3));
	ck_assert_uint_eq(fx_hit(0, layout, 1, 10), 7);
}
END_TEST

START_TEST(should_expire_what_nobody_used_for_the_idle_limit)
{
	fx_store(0, range(1, 0, 8));
	fx_store(0, range(2, 0, 8));
	later(50000);
	fx_hit(0, layout, 1, 3);
	ck_assert_uint_eq(kvpool_cache_expire(fx.cache, 100), 0);
	later(11000);
	ck_assert_uint_eq(kvpool_cache_expire(fx.cache, 5), 5);
	ck_assert_uint_eq(kvpool_cache_expire(fx.cache, 100), 8);
	ck_assert_uint_eq(fx_usage().expired, 13);
	ck_assert_uint_eq(fx_usage().evicted, 0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 8), 3);
	ck_assert_uint_eq(fx_hit(0, layout, 2, 8), 0);
}
END_TEST

START_TEST(should_expire_nothing_that_is_held)
{
	fx_store(0, range(1, 0, 8));
	fx_match(0, layout, 1, 6, 0, 0);
	later(100000);
	ck_assert_uint_eq(kvpool_cache_expire(fx.cache, 100), 2);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 8), 6);
}
END_TEST

START_TEST(should_give_memory_back_by_segments)
{
	fx_store(0, range(1, 0, FRAMES));
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 3), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 2), 0);
	fx_check();
	ck_assert_uint_eq(fx_usage().total_bytes, 4 * FX_EXTENT);
	ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), 16);
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 2), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_int_eq(kvpool_cache_memory_add(fx.cache, 2, 0, FX_SEGMENT), 0);
	fx_store(0, range(1, 16, FRAMES - 16));
	/* The start of the chain takes all that hangs on it, in other segments too. */
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 1), 0);
	ck_assert_uint_eq(fx_usage().ready_blocks, 0);
	ck_assert_uint_eq(fx_usage().free_bytes, 4 * FX_EXTENT);
}
END_TEST

START_TEST(should_keep_a_segment_of_which_a_part_is_held)
{
	uint64_t lease;

	fx_store(0, range(1, 0, FRAMES));
	lease = fx_match(0, layout, 1, 17, 0, 0)->result.lease;
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 2), KVPOOL_STATUS_BUSY);
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 1), KVPOOL_STATUS_BUSY);
	ck_assert_uint_eq(fx_usage().ready_blocks, FRAMES);
	ck_assert_int_eq(fx_release(0, lease, 16), 0);
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 2), 0);
	ck_assert_int_eq(kvpool_cache_memory_take(fx.cache, 1), KVPOOL_STATUS_BUSY);
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
}
END_TEST

START_TEST(should_name_the_segment_that_was_used_longest_ago)
{
	uint32_t segment = 99;

	for (int chain = 0; chain < 8; chain++) {
		fx_store(0, range(chain, 0, 4));
		later(1000);
	}
	ck_assert_int_eq(kvpool_cache_memory_coldest(fx.cache, &segment), 0);
	ck_assert_uint_eq(segment, 1);
	fx_hit(0, layout, 1, 1);
	ck_assert_int_eq(kvpool_cache_memory_coldest(fx.cache, &segment), 0);
	ck_assert_uint_eq(segment, 2);
	fx_match(0, layout, 7, 1, 0, 0);
	ck_assert_int_eq(kvpool_cache_memory_coldest(fx.cache, &segment), 0);
	ck_assert_uint_eq(segment, 1);
	fx_match(0, layout, 0, 1, 0, 0);
	segment = 99;
	ck_assert_int_eq(kvpool_cache_memory_coldest(fx.cache, &segment), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_uint_eq(segment, 99);
}
END_TEST

START_TEST(should_keep_its_metadata_below_128_bytes_a_block)
{
	uint16_t small;

	fx_close();
	fx_default();
	fx.config.bytes_max = 64 << 20;
	fx.config.extent_bytes = 4 << 20;
	fx.config.segment_bytes = 64 << 20;
	fx_open(0);
	ck_assert_int_eq(kvpool_cache_memory_add(fx.cache, 1, 0, 64 << 20), 0);
	small = fx_plain(0, 1, 256);
	for (int chain = 0; chain < 64; chain++)
		fx_store(0, (struct fx_range){small, 0, chain, 0, 4096});
	ck_assert_uint_eq(fx_usage().ready_blocks, 64 * 4096);
	ck_assert_uint_lt(fx_usage().metadata_bytes, UINT64_C(128) * 64 * 4096);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_evict");
	TCase *tcase = tcase_create("cache_evict");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_evict_tails_and_keep_what_remains_reachable);
	tcase_add_test(tcase, should_evict_what_was_used_longest_ago);
	tcase_add_test(tcase, should_never_evict_what_is_leased_or_what_it_hangs_on);
	tcase_add_test(tcase, should_never_evict_what_the_new_block_hangs_on);
	tcase_add_test(tcase, should_say_that_readers_hold_the_memory);
	tcase_add_test(tcase, should_say_that_writers_hold_the_memory);
	tcase_add_test(tcase, should_say_that_memory_is_still_coming);
	tcase_add_test(tcase, should_ask_for_more_memory_before_it_evicts);
	tcase_add_test(tcase, should_not_strand_memory_in_a_size_that_nobody_uses);
	tcase_add_test(tcase, should_prefer_what_is_colder_in_another_size_over_its_own);
	tcase_add_test(tcase, should_not_take_memory_from_a_size_that_is_in_use);
	tcase_add_test(tcase, should_leave_an_extent_alone_in_which_something_is_held);
	tcase_add_test(tcase, should_evict_what_hangs_on_the_blocks_of_a_moved_extent);
	tcase_add_test(tcase, should_say_when_the_block_table_is_full);
	tcase_add_test(tcase, should_expire_what_nobody_used_for_the_idle_limit);
	tcase_add_test(tcase, should_expire_nothing_that_is_held);
	tcase_add_test(tcase, should_give_memory_back_by_segments);
	tcase_add_test(tcase, should_keep_a_segment_of_which_a_part_is_held);
	tcase_add_test(tcase, should_name_the_segment_that_was_used_longest_ago);
	tcase_add_test(tcase, should_keep_its_metadata_below_128_bytes_a_block);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
