/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums in the cache: what a COMMIT leaves, what is told of it, and how a block goes whose
 * bytes are not what they were.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include "shm/crc32c.h"

#include <stdlib.h>
#include <string.h>

static uint16_t layout;
static struct kvpool_wire_block blocks[16];

static void setup(void)
{
	fx_default();
	fx_open(16);
	layout = fx_plain(0, 1, 1000);
	fx_plain(1, 1, 1000);
}

static struct fx_range range(int chain, uint32_t from, uint32_t n)
{
	return (struct fx_range){layout, 0, chain, from, n};
}

static struct kvpool_wire_handle handle(const struct kvpool_wire_block *block, uint32_t crc32c)
{
	return (struct kvpool_wire_handle){block->block, block->generation, crc32c, 0};
}

/* COMMIT of one shard of one block with a checksum. */
static void commit(const struct kvpool_wire_block *block, uint32_t shard, uint32_t crc32c)
{
	struct kvpool_wire_handle h = handle(block, crc32c);
	uint32_t done = 0;

	ck_assert_int_eq(kvpool_cache_commit(fx.cache, fx_holder(0), shard, true, 1, &h, &done), 0);
}

static struct kvpool_wire_sum sum(const struct kvpool_wire_block *block)
{
	struct kvpool_wire_handle h = handle(block, 0);
	struct kvpool_wire_sum out;
	uint32_t found = 9;

	ck_assert_int_eq(kvpool_cache_sums(fx.cache, fx_holder(0), 1, &h, &out, &found), 0);
	ck_assert_uint_eq(found, out.state == KVPOOL_SUM_GIVEN);
	return out;
}

/* Blocks 0..n-1 of chain 1, checksum 100 + i each. */
static void store(uint32_t n)
{
	fx_reserve(0, range(1, 0, n), blocks);
	for (uint32_t i = 0; i < n; i++)
		commit(&blocks[i], UINT32_MAX, 100 + i);
}

static int drop(const struct kvpool_wire_block *block, uint32_t *done)
{
	struct kvpool_wire_handle h = handle(block, 0);

	return kvpool_cache_drop(fx.cache, fx_holder(0), 1, &h, done);
}

START_TEST(should_tell_the_checksum_of_a_commit)
{
	store(1);
	ck_assert_uint_eq(sum(&blocks[0]).state, KVPOOL_SUM_GIVEN);
	ck_assert_uint_eq(sum(&blocks[0]).crc32c, 100);
	fx_store(0, range(2, 0, 1));
	ck_assert_uint_eq(
		sum(&fx_match(0, layout, 2, 1, 0, KVPOOL_REQUEST_NO_LEASE)->blocks[0]).state,
		KVPOOL_SUM_NONE);
}
END_TEST

START_TEST(should_put_the_checksums_of_all_shards_together)
{
	const struct kvpool_wire_group group = {KVPOOL_GROUP_FULL, 0, 256};
	struct kvpool_wire_layout wire = fx_wire(7, 3, 1, &group);
	uint16_t three = fx_register(0, &wire);
	uint32_t whole = 0;

	fx_reserve(0, (struct fx_range){three, 0, 5, 0, 2}, blocks);
	for (uint32_t s = 0; s < 3; s++) {
		ck_assert_uint_eq(sum(&blocks[0]).state, KVPOOL_SUM_STALE);
		whole ^= kvpool_crc32c_shard(0x90000001u + s, s);
		commit(&blocks[0], s, 0x90000001u + s);
	}
	ck_assert_uint_eq(sum(&blocks[0]).state, KVPOOL_SUM_GIVEN);
	ck_assert_uint_eq(sum(&blocks[0]).crc32c, whole);
	/* One shard without a checksum: there is none to compare with. */
	commit(&blocks[1], 0, 1);
	commit(&blocks[1], 2, 1);
	ck_assert_uint_eq(fx_commit(0, 1, &blocks[1], 1), 1);
	ck_assert_uint_eq(sum(&blocks[1]).state, KVPOOL_SUM_NONE);
}
END_TEST

START_TEST(should_know_no_checksum_of_a_block_that_is_over)
{
	struct kvpool_wire_block old, wrong = {.block = 12345, .generation = 1};

	store(1);
	old = blocks[0];
	ck_assert_uint_eq(fx_forget(0, range(1, 0, 1)), 1);
	ck_assert_uint_eq(sum(&old).state, KVPOOL_SUM_STALE);
	store(1);
	ck_assert_uint_eq(blocks[0].block, old.block);
	ck_assert_uint_eq(sum(&old).state, KVPOOL_SUM_STALE);
	ck_assert_uint_eq(sum(&wrong).state, KVPOOL_SUM_STALE);
}
END_TEST

START_TEST(should_drop_a_block_with_all_that_hangs_on_it)
{
	uint32_t done = 0;

	store(5);
	ck_assert_int_eq(drop(&blocks[2], &done), 0);
	ck_assert_uint_eq(done, 3);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 5), 2);
	ck_assert_uint_eq(fx_usage().corrupt, 1);
	ck_assert_uint_eq(fx_usage().forgotten, 3);
	ck_assert_int_eq(drop(&blocks[2], &done), KVPOOL_STATUS_STALE);
	ck_assert_uint_eq(fx_usage().corrupt, 1);
}
END_TEST

START_TEST(should_leave_a_dropped_block_to_those_who_lease_it)
{
	uint64_t lease;
	uint32_t done = 0;

	store(3);
	lease = fx_match(1, layout, 1, 3, 0, 0)->result.lease;
	ck_assert_int_eq(drop(&blocks[1], &done), 0);
	ck_assert_uint_eq(done, 2);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 3), 1);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 2);
	/* Its bytes are there, and so is what they should be; it is not dropped twice. */
	ck_assert_uint_eq(sum(&blocks[2]).crc32c, 102);
	ck_assert_int_eq(drop(&blocks[2], &done), KVPOOL_STATUS_STALE);
	ck_assert_int_eq(fx_release(1, lease, 0), 0);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 0);
}
END_TEST

START_TEST(should_not_drop_a_block_that_took_another_ones_place)
{
	struct kvpool_wire_block old;
	uint32_t done = 0;

	store(1);
	old = blocks[0];
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 1);
	store(1);
	ck_assert_uint_eq(blocks[0].block, old.block);
	ck_assert_int_eq(drop(&old, &done), KVPOOL_STATUS_STALE);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 1), 1);
}
END_TEST

START_TEST(should_serve_nobody_who_did_not_register_the_layout)
{
	struct kvpool_wire_sum told;
	struct kvpool_wire_handle h;
	uint32_t n = 9;

	store(1);
	h = handle(&blocks[0], 0);
	ck_assert_int_eq(kvpool_cache_sums(fx.cache, fx_holder(2), 1, &h, &told, &n), 0);
	ck_assert_uint_eq(told.state, KVPOOL_SUM_STALE);
	ck_assert_uint_eq(told.crc32c, 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(kvpool_cache_drop(fx.cache, fx_holder(2), 1, &h, &n), KVPOOL_STATUS_STALE);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 1), 1);
	/* The daemon itself may. */
	ck_assert_int_eq(kvpool_cache_drop(fx.cache, NULL, 1, &h, &n), 0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 1), 0);
}
END_TEST

START_TEST(should_not_drop_what_is_being_written)
{
	uint32_t done = 0;

	fx_reserve(0, range(1, 0, 1), blocks);
	ck_assert_int_eq(drop(&blocks[0], &done), KVPOOL_STATUS_STALE);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 1), 1);
}
END_TEST

START_TEST(should_refuse_lists_without_end)
{
	struct kvpool_wire_handle h = {0};
	struct kvpool_wire_sum out;
	uint32_t n = 0;

	ck_assert_int_eq(kvpool_cache_sums(fx.cache, fx_holder(0), 0, &h, &out, &n),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(kvpool_cache_drop(fx.cache, fx_holder(0), 0, &h, &n),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(
		kvpool_cache_sums(fx.cache, fx_holder(0), KVPOOL_KEYS_MAX + 1, &h, &out, &n),
		KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(kvpool_cache_drop(fx.cache, fx_holder(0), KVPOOL_KEYS_MAX + 1, &h, &n),
			 KVPOOL_STATUS_INVALID);
}
END_TEST

START_TEST(should_walk_over_every_stored_block_once_in_bounded_steps)
{
	struct kvpool_cache_stored stored;
	uint32_t cursor = 0, seen = 0, steps = 0, budget = 0;
	int r;

	store(6);
	fx_reserve(0, range(2, 0, 3), blocks + 6);
	ck_assert_uint_eq(fx_forget(0, range(1, 5, 1)), 1);
	ck_assert_uint_eq(kvpool_cache_records(fx.cache), 9);
	while ((r = kvpool_cache_stored_next(fx.cache, &cursor, &budget, &stored)) !=
	       KVPOOL_STATUS_NOT_FOUND) {
		if (r == KVPOOL_STATUS_BUSY) {
			budget = 2;
			ck_assert_uint_lt(steps++, 6);
			continue;
		}
		ck_assert_int_eq(r, 0);
		ck_assert(stored.has_crc);
		ck_assert_uint_eq(stored.slot_bytes, 1000);
		ck_assert_uint_eq(stored.stride, 1024);
		ck_assert_uint_eq(stored.n_shards, 1);
		for (uint32_t i = 0; i < 5; i++) {
			if (memcmp(&stored.place, &blocks[i], sizeof(blocks[i])) != 0)
				continue;
			ck_assert_uint_eq(stored.crc32c, 100 + i);
			seen |= 1u << i;
		}
	}
	ck_assert_uint_eq(seen, 0x1f);
	ck_assert_uint_eq(fx_abort(0, blocks + 6, 3), 3);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cache_verify");
	TCase *tcase = tcase_create("verify");

	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_tell_the_checksum_of_a_commit);
	tcase_add_test(tcase, should_put_the_checksums_of_all_shards_together);
	tcase_add_test(tcase, should_know_no_checksum_of_a_block_that_is_over);
	tcase_add_test(tcase, should_drop_a_block_with_all_that_hangs_on_it);
	tcase_add_test(tcase, should_leave_a_dropped_block_to_those_who_lease_it);
	tcase_add_test(tcase, should_not_drop_a_block_that_took_another_ones_place);
	tcase_add_test(tcase, should_serve_nobody_who_did_not_register_the_layout);
	tcase_add_test(tcase, should_not_drop_what_is_being_written);
	tcase_add_test(tcase, should_refuse_lists_without_end);
	tcase_add_test(tcase, should_walk_over_every_stored_block_once_in_bounded_steps);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
