/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of what a process holds, against a plain array that does the same; and its table with
 * keys that collide.
 *
 * One thread.
 */
#include "client/ledger.h"

#include <check.h>
#include <stdlib.h>

static struct kvpool_ledger ledger;

static void setup(void)
{
	ck_assert_int_eq(kvpool_ledger_init(&ledger), 0);
}

static void teardown(void)
{
	kvpool_ledger_fini(&ledger);
}

START_TEST(should_find_exactly_what_was_put_and_not_removed)
{
	enum {
		KEYS = 600,
	};
	uint64_t model[KEYS] = {0};
	struct kvpool_table t;
	uint64_t random = 1;
	uint32_t n = 0;

	kvpool_table_init(&t);
	ck_assert_ptr_null(kvpool_table_find(&t, 5));
	ck_assert_int_eq(kvpool_table_remove(&t, 5), 0);
	for (uint32_t step = 0; step < 40000; step++) {
		uint32_t k;

		random = random * UINT64_C(6364136223846793005) + 1;
		k = (uint32_t)(random >> 33) % KEYS;
		if (random >> 63) {
			ck_assert_int_eq(kvpool_table_make_room(&t, 1), 0);
			kvpool_table_put(&t, (uint64_t)(k + 1) << 32, step + 1);
			n += model[k] == 0;
			model[k] = step + 1;
		} else {
			ck_assert_int_eq(kvpool_table_remove(&t, (uint64_t)(k + 1) << 32),
					 model[k] != 0);
			n -= model[k] != 0;
			model[k] = 0;
		}
		ck_assert_uint_eq(t.n, n);
		k = (k * 31 + 7) % KEYS;
		if (model[k] == 0)
			ck_assert_ptr_null(kvpool_table_find(&t, (uint64_t)(k + 1) << 32));
		else
			ck_assert_uint_eq(*kvpool_table_find(&t, (uint64_t)(k + 1) << 32),
					  model[k]);
	}
	kvpool_table_fini(&t);
}
END_TEST

START_TEST(should_hold_a_block_until_its_last_shard)
{
	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 0, 2), 0);
	kvpool_ledger_add_block(&ledger, 7, 1, 3);
	kvpool_ledger_add_block(&ledger, 8, 1, 64);
	ck_assert(kvpool_ledger_end_shard(&ledger, 7, 1, 0));
	ck_assert(kvpool_ledger_end_shard(&ledger, 7, 1, 0));
	ck_assert(kvpool_ledger_end_shard(&ledger, 7, 1, 2));
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 2);
	ck_assert(kvpool_ledger_end_shard(&ledger, 7, 1, 1));
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 1);
	ck_assert(!kvpool_ledger_end_shard(&ledger, 7, 1, 1));
	ck_assert(!kvpool_ledger_end_shard(&ledger, 8, 2, 0));
	for (uint32_t s = 0; s < 64; s++) {
		ck_assert_uint_eq(kvpool_ledger_held(&ledger), 1);
		ck_assert(kvpool_ledger_end_shard(&ledger, 8, 1, s));
	}
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 0);
	ck_assert_uint_eq(kvpool_ledger_owed(&ledger), 0);
}
END_TEST

START_TEST(should_end_all_shards_at_once)
{
	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 0, 1), 0);
	kvpool_ledger_add_block(&ledger, 9, 1, 3);
	ck_assert(kvpool_ledger_end_shard(&ledger, 9, 1, UINT32_MAX));
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 0);
}
END_TEST

START_TEST(should_tell_what_is_owed_once)
{
	struct kvpool_wire_handle handles[4];
	uint64_t leases[4];

	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 3, 2), 0);
	kvpool_ledger_add_lease(&ledger, 100);
	kvpool_ledger_add_lease(&ledger, 200);
	kvpool_ledger_owe_lease(&ledger, 300);
	kvpool_ledger_add_block(&ledger, 5, 6, 1);
	kvpool_ledger_owe_block(&ledger, 7, 8);
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 3);
	ck_assert_uint_eq(kvpool_ledger_owed(&ledger), 2);
	ck_assert(kvpool_ledger_end_lease(&ledger, 100, true));
	ck_assert(!kvpool_ledger_end_lease(&ledger, 100, true));
	ck_assert(kvpool_ledger_end_lease(&ledger, 200, false));
	ck_assert_uint_eq(kvpool_ledger_owed(&ledger), 3);
	ck_assert_uint_eq(kvpool_ledger_take_leases(&ledger, leases, 4), 2);
	ck_assert_uint_eq(leases[0] + leases[1], 400);
	ck_assert_uint_eq(kvpool_ledger_take_leases(&ledger, leases, 4), 0);
	ck_assert_uint_eq(kvpool_ledger_take_blocks(&ledger, handles, 4), 1);
	ck_assert_uint_eq(handles[0].block, 7);
	ck_assert_uint_eq(handles[0].generation, 8);
	ck_assert_uint_eq(handles[0].crc32c, 0);
	ck_assert(kvpool_ledger_end_block(&ledger, 5, 6, true));
	ck_assert_uint_eq(kvpool_ledger_take_blocks(&ledger, handles, 4), 1);
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 0);
	ck_assert_uint_eq(kvpool_ledger_owed(&ledger), 0);
}
END_TEST

START_TEST(should_take_all_that_is_owed_in_parts)
{
	struct kvpool_wire_handle handles[7];
	uint8_t seen[1001] = {0};
	uint32_t n, total = 0;

	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 0, 1000), 0);
	for (uint32_t b = 1; b <= 1000; b++)
		kvpool_ledger_add_block(&ledger, b, 1, 1);
	kvpool_ledger_owe_all(&ledger);
	while ((n = kvpool_ledger_take_blocks(&ledger, handles, 7)) > 0) {
		for (uint32_t i = 0; i < n; i++) {
			ck_assert_uint_eq(seen[handles[i].block], 0);
			seen[handles[i].block] = 1;
		}
		total += n;
	}
	ck_assert_uint_eq(total, 1000);
}
END_TEST

START_TEST(should_move_everything_into_another_ledger)
{
	struct kvpool_ledger other;
	uint64_t lease;

	ck_assert_int_eq(kvpool_ledger_init(&other), 0);
	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 2, 1), 0);
	kvpool_ledger_add_lease(&ledger, 1);
	kvpool_ledger_owe_lease(&ledger, 2);
	kvpool_ledger_add_block(&ledger, 3, 1, 2);
	ck_assert_int_eq(kvpool_ledger_move(&ledger, &other), 0);
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 0);
	ck_assert_uint_eq(kvpool_ledger_owed(&ledger), 0);
	ck_assert_uint_eq(kvpool_ledger_held(&other), 2);
	ck_assert_uint_eq(kvpool_ledger_owed(&other), 1);
	ck_assert_uint_eq(kvpool_ledger_take_leases(&other, &lease, 1), 1);
	ck_assert_uint_eq(lease, 2);
	ck_assert(kvpool_ledger_end_shard(&other, 3, 1, 1));
	ck_assert(kvpool_ledger_end_shard(&other, 3, 1, 0));
	ck_assert(kvpool_ledger_end_lease(&other, 1, false));
	ck_assert_uint_eq(kvpool_ledger_held(&other), 0);
	kvpool_ledger_fini(&other);
}
END_TEST

START_TEST(should_take_nothing_more_after_it_was_moved)
{
	struct kvpool_ledger other;

	ck_assert_int_eq(kvpool_ledger_init(&other), 0);
	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 4, 0), 0);
	ck_assert(kvpool_ledger_begin(&ledger));
	kvpool_ledger_add_lease(&ledger, 1);
	kvpool_ledger_end(&ledger);
	ck_assert_int_eq(kvpool_ledger_move(&ledger, &other), 0);
	ck_assert(!kvpool_ledger_begin(&ledger));
	/* A debt that was on its way back finds its room, though nobody will pay it. */
	kvpool_ledger_owe_lease(&ledger, 2);
	ck_assert_uint_eq(kvpool_ledger_held(&ledger), 0);
	ck_assert(kvpool_ledger_begin(&other));
	kvpool_ledger_end(&other);
	kvpool_ledger_fini(&other);
}
END_TEST

START_TEST(should_claim_what_is_held)
{
	struct kvpool_wire_claim *claims;
	uint64_t leases = 0;
	uint32_t n;

	ck_assert_int_eq(kvpool_ledger_claims(&ledger, &claims, &n), 0);
	ck_assert_ptr_null(claims);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(kvpool_ledger_make_room(&ledger, 3, 3), 0);
	kvpool_ledger_add_lease(&ledger, 1);
	kvpool_ledger_owe_lease(&ledger, 20);
	kvpool_ledger_add_lease(&ledger, 300);
	kvpool_ledger_add_block(&ledger, 7, 9, 2);
	kvpool_ledger_add_block(&ledger, 8, 1, 1);
	kvpool_ledger_owe_block(&ledger, 6, 1);
	ck_assert(kvpool_ledger_end_lease(&ledger, 300, false));
	ck_assert(kvpool_ledger_end_shard(&ledger, 7, 9, 0));
	ck_assert(kvpool_ledger_end_shard(&ledger, 8, 1, 0));
	ck_assert_int_eq(kvpool_ledger_claims(&ledger, &claims, &n), 0);
	ck_assert_uint_eq(n, 2);
	for (uint32_t i = 0; i < n; i++) {
		leases += claims[i].lease;
		ck_assert(claims[i].lease != 0 ||
			  (claims[i].block == 7 && claims[i].generation == 9));
	}
	ck_assert_uint_eq(leases, 1);
	free(claims);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_ledger");
	TCase *t = tcase_create("ledger");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, should_find_exactly_what_was_put_and_not_removed);
	tcase_add_test(t, should_hold_a_block_until_its_last_shard);
	tcase_add_test(t, should_end_all_shards_at_once);
	tcase_add_test(t, should_tell_what_is_owed_once);
	tcase_add_test(t, should_take_all_that_is_owed_in_parts);
	tcase_add_test(t, should_move_everything_into_another_ledger);
	tcase_add_test(t, should_take_nothing_more_after_it_was_moved);
	tcase_add_test(t, should_claim_what_is_held);
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
