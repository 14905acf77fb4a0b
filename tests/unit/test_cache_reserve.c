/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESERVE, COMMIT, ABORT, FORGET and WAIT: what is granted, to whom, and what becomes of it.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>
#include <string.h>

#define FRAME UINT64_C(1024)

static uint16_t layout;
static struct kvpool_wire_block blocks[64];

static void setup(void)
{
	fx_default();
	fx.config.reservations_max = 20;
	fx_open(32);
	layout = fx_plain(0, 1, 1024);
	fx_plain(1, 1, 1024);
	fx_plain(2, 1, 1024);
}

static struct fx_range range(uint32_t from, uint32_t n)
{
	return (struct fx_range){layout, 0, 1, from, n};
}

static int state(uint32_t key)
{
	return fx_state(0, range(key, 1));
}

static struct kvpool_waiter *wait_for(int holder, uint32_t key, void *cookie)
{
	struct kvpool_waiter *waiter = NULL;

	ck_assert_int_eq(kvpool_cache_wait(fx.cache, fx_holder(holder), layout, 0,
					   fx_keys(1, key, 1), cookie, &waiter),
			 KVPOOL_STATUS_BUSY);
	return waiter;
}

START_TEST(should_grant_places_that_do_not_overlap)
{
	struct kvpool_reserve_result r = fx_reserve(0, range(0, 20), blocks);

	ck_assert_uint_eq(r.granted, 20);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_NONE);
	ck_assert_mem_eq(&r.first, blocks, sizeof(blocks[0]));
	for (int i = 0; i < 20; i++) {
		ck_assert_uint_ne(blocks[i].block, 0);
		ck_assert_uint_ne(blocks[i].generation, 0);
		for (int k = 0; k < i; k++) {
			ck_assert_uint_ne(blocks[i].block, blocks[k].block);
			ck_assert(blocks[i].segment != blocks[k].segment ||
				  blocks[i].offset >= blocks[k].offset + 4 ||
				  blocks[k].offset >= blocks[i].offset + 4);
		}
	}
	ck_assert_uint_eq(fx_usage().reserved_bytes, 20 * FRAME);
}
END_TEST

START_TEST(should_say_what_exists_and_what_is_being_written)
{
	struct kvpool_wire_block again[6];
	struct kvpool_reserve_result r;

	fx_reserve(0, range(0, 4), blocks);
	fx_commit(0, UINT32_MAX, blocks, 2);
	r = fx_reserve(1, range(0, 6), again);
	ck_assert_uint_eq(r.granted, 2);
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(again[i].block, 0);
		ck_assert_uint_eq(again[i].generation,
				  i < 2 ? KVPOOL_STATUS_EXISTS : KVPOOL_STATUS_BUSY);
	}
	ck_assert_uint_ne(again[4].block, 0);
	/* Also of the one who is writing it. */
	fx_reserve(0, range(3, 1), again);
	ck_assert_uint_eq(again[0].generation, KVPOOL_STATUS_BUSY);
}
END_TEST

START_TEST(should_refuse_a_block_that_could_never_be_found)
{
	struct kvpool_reserve_result r = fx_reserve(0, range(5, 3), blocks);

	ck_assert_uint_eq(r.granted, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(blocks[i].generation, KVPOOL_STATUS_NO_PARENT);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_NONE);
}
END_TEST

START_TEST(should_refuse_lists_out_of_their_bounds)
{
	struct kvpool_reserve_args args = {
		.layout = layout, .n = 0, .keys = fx_keys(1, 0, 1), .blocks = blocks};
	struct kvpool_reserve_result result = {.granted = 99};
	uint32_t done = 99;

	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(0), &args, &result),
			 KVPOOL_STATUS_INVALID);
	args.n = KVPOOL_KEYS_MAX + 1;
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(0), &args, &result),
			 KVPOOL_STATUS_INVALID);
	args.n = 1;
	args.group = 1;
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(0), &args, &result),
			 KVPOOL_STATUS_INVALID);
	ck_assert_uint_eq(result.granted, 99);
	ck_assert_int_eq(kvpool_cache_commit(fx.cache, fx_holder(0), 0, false, 0, NULL, &done),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(kvpool_cache_abort(fx.cache, fx_holder(0), 0, NULL, &done),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(
		kvpool_cache_forget(fx.cache, fx_holder(0), layout, 1, 1, fx_keys(1, 0, 1), &done),
		KVPOOL_STATUS_INVALID);
	ck_assert_uint_eq(done, 99);
}
END_TEST

START_TEST(should_bound_what_one_client_writes)
{
	struct kvpool_reserve_args args = {
		.layout = layout, .n = 1, .keys = fx_keys(2, 0, 1), .blocks = blocks};
	struct kvpool_reserve_result r = fx_reserve(0, range(0, 25), blocks);

	ck_assert_uint_eq(r.granted, 20);
	ck_assert_uint_eq(r.detail, KVPOOL_NO_SPACE_QUOTA);
	ck_assert_uint_eq(r.holder, 100);
	ck_assert_uint_eq(blocks[20].generation, KVPOOL_STATUS_NO_SPACE);
	ck_assert_uint_eq(blocks[20].segment, KVPOOL_NO_SPACE_QUOTA);
	ck_assert_uint_eq(blocks[21].generation, KVPOOL_STATUS_NO_PARENT);
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(0), &args, &r),
			 KVPOOL_STATUS_LIMIT);
	/* What was forgotten still lies there. */
	ck_assert_uint_eq(fx_forget(1, range(0, 1)), 20);
	args.keys = fx_keys(2, 0, 1);
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(0), &args, &r),
			 KVPOOL_STATUS_LIMIT);
}
END_TEST

START_TEST(should_take_only_handles_of_this_client_and_generation)
{
	struct kvpool_wire_block wrong[4];

	fx_reserve(0, range(0, 2), blocks);
	memcpy(wrong, blocks, 2 * sizeof(*wrong));
	wrong[0].generation++;
	wrong[1].block = 999999;
	wrong[2] = (struct kvpool_wire_block){0};
	wrong[3] = (struct kvpool_wire_block){UINT32_MAX, 1, 0, 0};
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, wrong, 4), 0);
	ck_assert_uint_eq(fx_abort(0, wrong, 4), 0);
	ck_assert_uint_eq(fx_commit(1, UINT32_MAX, blocks, 2), 0);
	ck_assert_uint_eq(fx_abort(1, blocks, 2), 0);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 2), 2);
	/* READY is nobody's reservation. */
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 2), 0);
	ck_assert_uint_eq(fx_abort(0, blocks, 2), 0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 2), 2);
}
END_TEST

START_TEST(should_refuse_a_shard_that_the_layout_has_not)
{
	struct kvpool_wire_handle handle;
	uint32_t done = 99;

	fx_reserve(0, range(0, 1), blocks);
	handle = (struct kvpool_wire_handle){blocks[0].block, blocks[0].generation, 0, 0};
	ck_assert_int_eq(kvpool_cache_commit(fx.cache, fx_holder(0), 1, false, 1, &handle, &done),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(kvpool_cache_commit(fx.cache, fx_holder(0), KVPOOL_SHARDS_MAX, false, 1,
					     &handle, &done),
			 KVPOOL_STATUS_INVALID);
	ck_assert_uint_eq(done, 99);
	ck_assert_int_eq(state(0), KVPOOL_STATUS_BUSY);
}
END_TEST

START_TEST(should_give_a_new_generation_with_every_use_of_a_block)
{
	uint32_t block = 0, generation = 0;

	for (int i = 0; i < 50; i++) {
		fx_reserve(0, range(0, 1), blocks);
		ck_assert(i == 0 || blocks[0].block == block);
		ck_assert_uint_ne(blocks[0].generation, generation);
		block = blocks[0].block;
		generation = blocks[0].generation;
		ck_assert_uint_eq(fx_abort(0, blocks, 1), 1);
		ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 1), 0);
	}
}
END_TEST

START_TEST(should_give_back_what_was_aborted_and_what_hangs_on_it)
{
	struct kvpool_wire_block others[4];

	fx_store(0, range(0, 2));
	fx_reserve(0, range(2, 6), blocks);
	fx_reserve(1, range(8, 2), others);
	fx_commit(0, UINT32_MAX, blocks + 4, 1);
	/* Own 2, 3, 4, 5, 7 are given back; 6 was READY; 8 and 9 are somebody else's. */
	ck_assert_uint_eq(fx_abort(0, blocks, 1), 5);
	ck_assert_uint_eq(fx_usage().ready_blocks, 2);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 2);
	ck_assert_uint_eq(fx_holder_usage(1).reserved_blocks, 2);
	ck_assert_int_eq(state(8), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_uint_eq(fx_commit(1, UINT32_MAX, others, 1), 0);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 1);
	ck_assert_uint_eq(fx_abort(1, others + 1, 1), 1);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 0);
	ck_assert_uint_eq(fx_usage().abandoned, 7);
}
END_TEST

START_TEST(should_count_a_list_of_aborts_once_each)
{
	fx_reserve(0, range(0, 5), blocks);
	ck_assert_uint_eq(fx_abort(0, blocks, 5), 5);
	ck_assert_uint_eq(fx_abort(0, blocks, 5), 0);
	ck_assert_uint_eq(fx_usage().free_bytes, fx_usage().total_bytes);
}
END_TEST

START_TEST(should_forget_keys_with_all_that_hangs_on_them)
{
	fx_store(0, range(0, 10));
	ck_assert_uint_eq(fx_forget(1, range(7, 2)), 3);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 10), 7);
	ck_assert_uint_eq(fx_forget(1, range(7, 2)), 0);
	ck_assert_uint_eq(fx_forget(1, range(0, 1)), 7);
	ck_assert_uint_eq(fx_usage().forgotten, 10);
	ck_assert_uint_eq(fx_usage().free_bytes, fx_usage().total_bytes);
}
END_TEST

START_TEST(should_keep_the_bytes_of_what_was_forgotten_until_its_leases_end)
{
	uint64_t lease;

	fx_store(0, range(0, 6));
	lease = fx_match(0, layout, 1, 4, 0, 0)->result.lease;
	ck_assert_uint_eq(fx_forget(1, range(1, 1)), 5);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 6), 1);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 3);
	ck_assert_uint_eq(fx_usage().leased_only_bytes, 3 * FRAME);
	fx_check();
	/* The key may be written again meanwhile, elsewhere. */
	fx_store(0, range(1, 2));
	ck_assert_uint_eq(fx_hit(0, layout, 1, 6), 3);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 2);
	ck_assert_int_eq(fx_release(0, lease, 3), 0);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 2);
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 0);
	ck_assert_uint_eq(fx_usage().ready_blocks, 1);
}
END_TEST

START_TEST(should_let_no_reservation_commit_that_was_forgotten)
{
	fx_reserve(0, range(0, 3), blocks);
	ck_assert_uint_eq(fx_forget(1, range(1, 1)), 2);
	fx_check();
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 3), 1);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 3), 1);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 0);
	ck_assert_uint_eq(fx_usage().ready_blocks, 1);
}
END_TEST

START_TEST(should_keep_a_frame_until_its_last_shard_is_written)
{
	const struct kvpool_wire_group group = {KVPOOL_GROUP_FULL, 0, 256};
	struct kvpool_wire_layout wire = fx_wire(7, 2, 1, &group);
	uint16_t two = fx_register(0, &wire);

	fx_reserve(0, (struct fx_range){two, 0, 1, 0, 1}, blocks);
	ck_assert_uint_eq(fx_commit(0, 1, blocks, 1), 1);
	ck_assert_uint_eq(fx_forget(0, (struct fx_range){two, 0, 1, 0, 1}), 1);
	ck_assert_uint_eq(fx_commit(0, 1, blocks, 1), 0);
	ck_assert_uint_eq(fx_usage().reserved_bytes, 512);
	ck_assert_uint_eq(fx_commit(0, 0, blocks, 1), 0);
	ck_assert_uint_eq(fx_usage().reserved_bytes, 0);
}
END_TEST

START_TEST(should_forget_a_whole_layout)
{
	uint16_t other = fx_plain(0, 2, 512);
	uint64_t lease;
	uint32_t done;

	for (int chain = 1; chain < 5; chain++)
		fx_store(0, (struct fx_range){layout, 0, chain, 0, 5});
	fx_store(0, (struct fx_range){other, 0, 1, 0, 5});
	fx_reserve(1, range(5, 2), blocks);
	lease = fx_match(0, layout, 2, 3, 0, 0)->result.lease;
	ck_assert_int_eq(kvpool_cache_forget_layout(fx.cache, fx_holder(0), layout, &done), 0);
	ck_assert_uint_eq(done, 22);
	fx_check();
	ck_assert_uint_eq(fx_usage().ready_blocks, 5);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 3);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 2);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 5), 0);
	ck_assert_uint_eq(fx_hit(0, other, 1, 5), 5);
	fx_store(0, range(0, 3));
	ck_assert_uint_eq(fx_hit(0, layout, 1, 5), 3);
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
}
END_TEST

START_TEST(should_answer_a_wait_at_once_where_nothing_is_written)
{
	struct kvpool_waiter *waiter = NULL;

	fx_store(0, range(0, 1));
	ck_assert_int_eq(state(0), KVPOOL_STATUS_OK);
	ck_assert_int_eq(state(1), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_int_eq(kvpool_cache_wait(fx.cache, fx_holder(0), layout, 1, fx_keys(1, 0, 1),
					   NULL, &waiter),
			 KVPOOL_STATUS_INVALID);
	ck_assert_ptr_eq(waiter, NULL);
}
END_TEST

START_TEST(should_wake_who_waits_with_the_last_shard)
{
	int a, b;

	fx_reserve(0, range(0, 2), blocks);
	wait_for(1, 1, &a);
	wait_for(0, 1, &b);
	ck_assert_uint_eq(fx_holder_usage(1).waits, 1);
	fx_commit(0, UINT32_MAX, blocks, 1);
	ck_assert_uint_eq(fx.wakes, 0);
	fx_commit(0, UINT32_MAX, blocks + 1, 1);
	ck_assert_uint_eq(fx.wakes, 2);
	ck_assert_int_eq(fx.wake_status, KVPOOL_STATUS_OK);
	ck_assert_uint_eq(fx_holder_usage(1).waits, 0);
}
END_TEST

START_TEST(should_tell_who_waits_that_the_writer_gave_up)
{
	int a;

	fx_reserve(0, range(0, 3), blocks);
	wait_for(1, 2, &a);
	fx_abort(0, blocks, 1);
	ck_assert_uint_eq(fx.wakes, 1);
	ck_assert_ptr_eq(fx.woken, &a);
	ck_assert_int_eq(fx.wake_status, KVPOOL_STATUS_ABANDONED);
	fx_reserve(0, range(0, 1), blocks);
	wait_for(1, 0, &a);
	fx_forget(2, range(0, 1));
	ck_assert_uint_eq(fx.wakes, 2);
	ck_assert_int_eq(fx.wake_status, KVPOOL_STATUS_ABANDONED);
}
END_TEST

START_TEST(should_not_wake_whose_wait_was_cancelled)
{
	struct kvpool_waiter *first, *second, *third;
	int a, b, c;

	fx_reserve(0, range(0, 1), blocks);
	first = wait_for(1, 0, &a);
	second = wait_for(1, 0, &b);
	third = wait_for(2, 0, &c);
	kvpool_cache_wait_cancel(fx.cache, second);
	fx_check();
	kvpool_cache_wait_cancel(fx.cache, third);
	fx_check();
	fx_commit(0, UINT32_MAX, blocks, 1);
	ck_assert_uint_eq(fx.wakes, 1);
	ck_assert_ptr_eq(fx.woken, &a);
	ck_assert_ptr_ne(first, NULL);
}
END_TEST

START_TEST(should_bound_the_waits_of_one_client)
{
	struct kvpool_waiter *waiter;
	uint32_t n = 0;
	int r;

	fx_reserve(0, range(0, 1), blocks);
	do {
		r = kvpool_cache_wait(fx.cache, fx_holder(1), layout, 0, fx_keys(1, 0, 1), NULL,
				      &waiter);
		n += r == KVPOOL_STATUS_BUSY;
	} while (r == KVPOOL_STATUS_BUSY && n < 1000000);
	ck_assert_int_eq(r, KVPOOL_STATUS_LIMIT);
	ck_assert_uint_eq(fx_holder_usage(1).waits, n);
	ck_assert_int_eq(state(0), KVPOOL_STATUS_BUSY);
}
END_TEST

START_TEST(should_keep_a_dead_writers_frames_until_it_is_proven_gone)
{
	struct kvpool_wire_block others[2];
	int a, b;

	fx_store(0, range(0, 2));
	fx_reserve(1, range(2, 3), blocks);
	fx_commit(1, UINT32_MAX, blocks + 2, 1);
	fx_reserve(2, range(5, 2), others);
	wait_for(0, 3, &a);
	wait_for(1, 5, &b);
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	fx_check();
	ck_assert_uint_eq(fx.wakes, 1);
	ck_assert_int_eq(fx.wake_status, KVPOOL_STATUS_ABANDONED);
	ck_assert_ptr_eq(fx.woken, &a);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 2);
	ck_assert_uint_eq(fx_usage().quarantined_bytes, 2 * FRAME);
	ck_assert_uint_eq(fx_usage().ready_blocks, 2);
	ck_assert_uint_eq(fx_holder_usage(1).quarantined_blocks, 2);
	ck_assert_uint_eq(fx_holder_usage(1).reserved_blocks, 0);
	ck_assert_int_eq(state(2), KVPOOL_STATUS_NOT_FOUND);
	/* What hung on it cannot be found either, whoever wrote it. */
	ck_assert_int_eq(state(4), KVPOOL_STATUS_NOT_FOUND);
	ck_assert_uint_eq(fx_commit(2, UINT32_MAX, others, 2), 0);
	kvpool_cache_flush(fx.cache);
	ck_assert_uint_eq(fx_usage().free_bytes, fx_usage().total_bytes - 2 * FRAME);
	fx_holder_gone(1);
	ck_assert_uint_eq(fx_usage().free_bytes, fx_usage().total_bytes);
}
END_TEST

START_TEST(should_let_somebody_else_write_what_a_dead_writer_left)
{
	fx_reserve(1, range(0, 2), blocks);
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	fx_store(0, range(0, 2));
	ck_assert_uint_eq(fx_hit(0, layout, 1, 2), 2);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 2);
}
END_TEST

START_TEST(should_quarantine_what_was_forgotten_before_its_writer_died)
{
	fx_reserve(1, range(0, 2), blocks);
	fx_forget(0, range(0, 1));
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(1));
	fx_check();
	ck_assert_uint_eq(fx_usage().reserved_blocks, 0);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_reserve");
	TCase *tcase = tcase_create("cache_reserve");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_grant_places_that_do_not_overlap);
	tcase_add_test(tcase, should_say_what_exists_and_what_is_being_written);
	tcase_add_test(tcase, should_refuse_a_block_that_could_never_be_found);
	tcase_add_test(tcase, should_refuse_lists_out_of_their_bounds);
	tcase_add_test(tcase, should_bound_what_one_client_writes);
	tcase_add_test(tcase, should_take_only_handles_of_this_client_and_generation);
	tcase_add_test(tcase, should_refuse_a_shard_that_the_layout_has_not);
	tcase_add_test(tcase, should_give_a_new_generation_with_every_use_of_a_block);
	tcase_add_test(tcase, should_give_back_what_was_aborted_and_what_hangs_on_it);
	tcase_add_test(tcase, should_count_a_list_of_aborts_once_each);
	tcase_add_test(tcase, should_forget_keys_with_all_that_hangs_on_them);
	tcase_add_test(tcase, should_keep_the_bytes_of_what_was_forgotten_until_its_leases_end);
	tcase_add_test(tcase, should_let_no_reservation_commit_that_was_forgotten);
	tcase_add_test(tcase, should_keep_a_frame_until_its_last_shard_is_written);
	tcase_add_test(tcase, should_forget_a_whole_layout);
	tcase_add_test(tcase, should_answer_a_wait_at_once_where_nothing_is_written);
	tcase_add_test(tcase, should_wake_who_waits_with_the_last_shard);
	tcase_add_test(tcase, should_tell_who_waits_that_the_writer_gave_up);
	tcase_add_test(tcase, should_not_wake_whose_wait_was_cancelled);
	tcase_add_test(tcase, should_bound_the_waits_of_one_client);
	tcase_add_test(tcase, should_keep_a_dead_writers_frames_until_it_is_proven_gone);
	tcase_add_test(tcase, should_let_somebody_else_write_what_a_dead_writer_left);
	tcase_add_test(tcase, should_quarantine_what_was_forgotten_before_its_writer_died);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
