/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients go on in the next life of the daemon: their leases from the notes, their reservations
 * from the records, and what of both nobody claims.
 *
 * Owned by the test's only thread.
 */
#include "src/cache_internal.h"
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>

#define FRAME   UINT64_C(1024)
#define EXTENTS 4u
#define FRAMES  16u

static const struct kvpool_wire_group three_groups[] = {
	{KVPOOL_GROUP_FULL, 0, 256},
	{KVPOOL_GROUP_WINDOW, 32, 512},
	{KVPOOL_GROUP_STATE, 0, 768},
};

static uint16_t layout;

static void setup(void)
{
	fx_default();
	fx_open(EXTENTS);
	layout = fx_plain(0, 1, FRAME);
	ck_assert_uint_eq(fx_plain(1, 1, FRAME), layout);
}

static void store(int chain, uint32_t from, uint32_t n)
{
	fx_store(0, (struct fx_range){layout, 0, chain, from, n});
}

static void come_back(int holder)
{
	ck_assert_uint_eq(fx_plain(holder, 1, FRAME), layout);
}

static struct kvpool_note *note(uint64_t lease)
{
	return &fx.cache->notes.notes[(uint32_t)lease];
}

static uint64_t lease_of(int holder, int chain, uint32_t n)
{
	const struct fx_match *match = fx_match(holder, layout, chain, n, 0, 0);

	ck_assert_uint_eq(match->result.blocks, n);
	ck_assert_uint_ne(match->result.lease, 0);
	kvpool_cache_settle(fx.cache);
	return match->result.lease;
}

/* How many of the claims are known; *sound as the cache says. */
static uint32_t claim(int holder, const struct kvpool_wire_claim *claims, uint32_t n, bool *sound)
{
	uint32_t known = 0;

	ck_assert_int_eq(
		kvpool_cache_claim(fx.cache, fx_holder(holder), true, n, claims, &known, sound), 0);
	return known;
}

static bool claim_lease(int holder, uint64_t lease)
{
	const struct kvpool_wire_claim one = {.lease = lease};
	bool sound;

	return claim(holder, &one, 1, &sound) == 1;
}

static bool claim_block(int holder, struct kvpool_wire_block block, bool *sound)
{
	const struct kvpool_wire_claim one = {.block = block.block, .generation = block.generation};

	return claim(holder, &one, 1, sound) == 1;
}

START_TEST(should_go_on_with_leases_of_those_that_are_there_and_end_those_of_others)
{
	struct kvpool_cache_adopted found;
	uint64_t mine, theirs;

	store(1, 0, 6);
	store(2, 0, 4);
	mine = lease_of(0, 1, 3);
	theirs = lease_of(1, 2, 4);
	found = fx_restart_with(1);
	ck_assert_uint_eq(found.leases, 1);
	ck_assert(found.all_leases);
	ck_assert_uint_eq(fx_usage().leases, 1);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 1);
	fx_check();
	ck_assert(claim_lease(0, mine));
	ck_assert(!claim_lease(0, theirs));
	/* All goes but the three keys that are leased. */
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 7);
	come_back(0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 6), 3);
	ck_assert(kvpool_cache_holder_has_past(fx_holder(0)));
	ck_assert_int_eq(fx_release(0, mine, 0), 0);
	ck_assert(!kvpool_cache_holder_has_past(fx_holder(0)));
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 3);
	ck_assert_int_eq(fx_release(0, mine, 0), KVPOOL_STATUS_STALE);
	fx_close();
}
END_TEST

START_TEST(should_remember_what_part_of_a_lease_was_kept)
{
	uint64_t lease;

	store(1, 0, 8);
	lease = lease_of(0, 1, 7);
	ck_assert_int_eq(fx_release(0, lease, 4), 0);
	ck_assert_int_eq(fx_release(0, lease, 2), 0);
	fx_restart_with(1);
	fx_check();
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 6);
	ck_assert_int_eq(fx_release(0, lease, 3), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(fx_release(0, lease, 1), 0);
	fx_check();
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 1);
	fx_close();
}
END_TEST

START_TEST(should_not_give_a_number_again_that_a_lease_of_an_earlier_life_had)
{
	uint64_t first, second;

	store(1, 0, 2);
	first = lease_of(0, 1, 2);
	ck_assert_int_eq(fx_release(0, first, 0), 0);
	fx_restart_with(1);
	come_back(0);
	second = lease_of(0, 1, 2);
	ck_assert_uint_ne(first, second);
	ck_assert_int_eq(fx_release(0, first, 0), KVPOOL_STATUS_STALE);
	fx_close();
}
END_TEST

START_TEST(should_hold_windows_and_states_of_a_lease_again)
{
	struct kvpool_wire_layout wire = fx_wire(7, 1, 3, three_groups);
	uint16_t three = fx_register(0, &wire);
	struct kvpool_holder_usage before;
	uint64_t lease;

	for (uint32_t g = 0; g < 3; g++)
		fx_store(0, (struct fx_range){three, g, 5, 0, 4});
	lease = fx_match(0, three, 5, 4, 0, 0)->result.lease;
	before = fx_holder_usage(0);
	ck_assert_uint_eq(before.leased_blocks, 1 + 2 + 1);
	fx_restart_with(1);
	fx_check();
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, before.leased_blocks);
	ck_assert_uint_eq(fx_holder_usage(0).leased_bytes, before.leased_bytes);
	/* Two windows and three states are nobody's. */
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 5);
	ck_assert_uint_eq(fx_register(0, &wire), three);
	ck_assert_uint_eq(fx_hit(0, three, 5, 4), 4);
	ck_assert_int_eq(fx_release(0, lease, 3), 0);
	fx_check();
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
	fx_close();
}
END_TEST

START_TEST(should_hold_everything_where_a_lease_is_not_known)
{
	for (int how = 0; how < 3; how++) {
		struct kvpool_cache_adopted found;
		uint64_t lease, other;
		bool sound = true;

		store(1, 0, 4);
		store(2, 0, 4);
		lease = lease_of(0, 1, 2);
		other = lease_of(0, 2, 1);
		if (how == 0)
			note(lease)->half[0].block ^= 1;
		else if (how == 1)
			note(lease)->half[1].check = 77;
		else
			fx.cache->notes.header->epoch ^= 1;
		found = fx_restart_with(1);
		ck_assert(!found.all_leases);
		fx_check();
		ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 0);
		ck_assert_uint_eq(claim(0, &(struct kvpool_wire_claim){.lease = lease}, 1, &sound),
				  0);
		ck_assert(!sound);
		ck_assert(claim_lease(0, other) == (how != 2));
		kvpool_cache_end_past(fx.cache);
		kvpool_cache_claims_end(fx.cache, fx_holder(0));
		come_back(0);
		come_back(1);
		fx_release(0, lease, 0);
		fx_release(0, other, 0);
		kvpool_cache_flush(fx.cache);
		ck_assert_uint_eq(fx_usage().ready_blocks, 0);
	}
	fx_close();
}
END_TEST

START_TEST(should_keep_what_was_forgotten_for_those_who_lease_it)
{
	struct kvpool_wire_layout wire = fx_wire(7, 1, 3, three_groups);
	uint16_t three = fx_register(0, &wire);
	struct kvpool_cache_adopted found;
	uint64_t lease, other;

	for (uint32_t g = 0; g < 3; g++)
		fx_store(0, (struct fx_range){three, g, 5, 0, 3});
	store(1, 0, 3);
	lease = fx_match(0, three, 5, 3, 0, 0)->result.lease;
	other = lease_of(1, 1, 2);
	fx_forget(0, (struct fx_range){three, 0, 5, 0, 1});
	fx_forget(0, (struct fx_range){layout, 0, 1, 0, 1});
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 3 + 2 + 1 + 2);
	found = fx_restart_with(1);
	ck_assert(found.all_leases);
	fx_check();
	/* The other client is gone, and what it alone leased with it. */
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 3 + 2 + 1);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 0);
	ck_assert_uint_eq(fx_register(0, &wire), three);
	ck_assert_uint_eq(fx_hit(0, three, 5, 3), 0);
	for (uint32_t g = 0; g < 3; g++)
		fx_store(0, (struct fx_range){three, g, 5, 0, 1});
	ck_assert(claim_lease(0, lease));
	ck_assert(!claim_lease(0, other));
	ck_assert_int_eq(fx_release(0, lease, 2), 0);
	fx_check();
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 2 + 1);
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
	ck_assert_uint_eq(fx_usage().leased_only_blocks, 0);
	fx_close();
}
END_TEST

START_TEST(should_go_on_writing_what_was_reserved)
{
	struct kvpool_wire_block writing[3], theirs[2];
	struct kvpool_cache_adopted found;
	bool sound;

	store(1, 0, 2);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 2, 3}, writing);
	fx_reserve(1, (struct fx_range){layout, 0, 2, 0, 2}, theirs);
	/* READY on top of what is still being written. */
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, &writing[2], 1), 1);
	found = fx_restart_with(1);
	ck_assert_uint_eq(found.blocks, 3);
	ck_assert_uint_eq(found.writing, 2);
	ck_assert_uint_eq(found.unfinished, 4);
	ck_assert_uint_eq(found.quarantined, 2);
	fx_check();
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 2);
	come_back(0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 5), 2);
	for (int i = 0; i < 3; i++) {
		ck_assert(claim_block(0, writing[i], &sound));
		ck_assert(sound);
	}
	ck_assert(!claim_block(0, theirs[0], &sound));
	ck_assert(!sound);
	kvpool_cache_claims_end(fx.cache, fx_holder(0));
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, writing, 2), 2);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 5), 5);
	ck_assert(!kvpool_cache_holder_has_past(fx_holder(0)));
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, theirs, 2), 0);
	fx_close();
}
END_TEST

START_TEST(should_remember_which_shards_are_written)
{
	const struct kvpool_wire_group group = {KVPOOL_GROUP_FULL, 0, 256};
	struct kvpool_wire_layout wire = fx_wire(8, 3, 1, &group);
	uint16_t shards = fx_register(0, &wire);
	struct kvpool_wire_block block;

	fx_reserve(0, (struct fx_range){shards, 0, 1, 0, 1}, &block);
	ck_assert_uint_eq(fx_commit(0, 2, &block, 1), 1);
	fx_restart_with(1);
	ck_assert_uint_eq(fx_commit(0, 2, &block, 1), 0);
	ck_assert_uint_eq(fx_commit(0, 0, &block, 1), 1);
	fx_restart_with(1);
	ck_assert_uint_eq(fx_register(0, &wire), shards);
	ck_assert_uint_eq(fx_hit(0, shards, 1, 1), 0);
	ck_assert_uint_eq(fx_commit(0, 1, &block, 1), 1);
	ck_assert_uint_eq(fx_hit(0, shards, 1, 1), 1);
	fx_close();
}
END_TEST

START_TEST(should_keep_the_frame_of_what_can_no_longer_commit_for_its_writer)
{
	struct kvpool_wire_block writing[3];

	store(1, 0, 1);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 1, 3}, writing);
	fx_forget(0, (struct fx_range){layout, 0, 1, 1, 1});
	fx_restart_with(1);
	fx_check();
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 3);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, writing, 1), 0);
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 2);
	ck_assert_uint_eq(fx_abort(0, &writing[1], 2), 2);
	ck_assert(!kvpool_cache_holder_has_past(fx_holder(0)));
	fx_close();
}
END_TEST

START_TEST(should_keep_the_frame_of_a_torn_record_for_its_writer)
{
	struct kvpool_wire_block writing[2];
	bool sound;

	store(1, 0, 1);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 1, 2}, writing);
	fx.cache->records[writing[0].block].check ^= 1;
	fx_restart_with(1);
	fx_check();
	/* What hangs on it can no longer be found, and neither can commit. */
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 2);
	ck_assert(claim_block(0, writing[0], &sound) && sound);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, writing, 2), 0);
	ck_assert_uint_eq(fx_usage().reserved_blocks, 0);
	fx_close();
}
END_TEST

START_TEST(should_end_what_no_process_ever_heard_of)
{
	struct kvpool_wire_block unheard[2], heard[1];
	uint64_t known, unknown;
	bool sound;

	store(1, 0, 4);
	known = lease_of(0, 1, 1);
	unknown = lease_of(0, 1, 4);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 4, 2}, unheard);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 6, 1}, heard);
	fx_restart_with(1);
	ck_assert(claim_lease(0, known));
	ck_assert(claim_block(0, heard[0], &sound) && sound);
	kvpool_cache_claims_end(fx.cache, fx_holder(0));
	fx_check();
	ck_assert_uint_eq(fx_usage().leases, 1);
	ck_assert(!claim_lease(0, unknown));
	/* It hung on what went: its writer has the frame still, but it cannot be READY. */
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 1);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 3);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, heard, 1), 0);
	ck_assert_uint_eq(fx_holder_usage(0).reserved_blocks, 0);
	fx_close();
}
END_TEST

START_TEST(should_not_count_blocks_that_a_reader_claims)
{
	struct kvpool_wire_block writing;
	struct kvpool_wire_claim one;
	uint32_t known = 9;
	bool sound;

	fx_reserve(0, (struct fx_range){layout, 0, 1, 0, 1}, &writing);
	fx_restart_with(1);
	one = (struct kvpool_wire_claim){.block = writing.block, .generation = writing.generation};
	ck_assert_int_eq(kvpool_cache_claim(fx.cache, fx_holder(0), false, 1, &one, &known, &sound),
			 0);
	ck_assert_uint_eq(known, 0);
	ck_assert_int_eq(kvpool_cache_claim(fx.cache, fx_holder(0), true, KVPOOL_KEYS_MAX + 1, &one,
					    &known, &sound),
			 KVPOOL_STATUS_INVALID);
	kvpool_cache_claims_end(fx.cache, fx_holder(0));
	ck_assert_uint_eq(fx_usage().reserved_blocks, 0);
	fx_close();
}
END_TEST

START_TEST(should_survive_claims_of_any_number)
{
	struct kvpool_wire_block writing;
	bool sound;

	store(1, 0, 3);
	(void)lease_of(0, 1, 3);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 3, 1}, &writing);
	fx_restart_with(1);
	srand(1);
	for (int i = 0; i < 20000; i++) {
		struct kvpool_wire_claim c = {
			.lease = i % 3 ? 0
				       : (uint64_t)rand() << 32 | (uint32_t)rand() >> rand() % 31,
			.block = (uint32_t)rand() >> rand() % 31,
			.generation = (uint32_t)rand() >> rand() % 31,
		};

		(void)claim(0, &c, 1, &sound);
	}
	fx_check();
	fx_close();
}
END_TEST

START_TEST(should_go_on_over_many_lives)
{
	struct kvpool_wire_block writing;
	uint64_t lease;

	store(1, 0, 3);
	lease = lease_of(0, 1, 2);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 3, 1}, &writing);
	for (int life = 0; life < 5; life++) {
		fx_restart_with(2);
		fx_check();
		come_back(0);
		ck_assert(claim_lease(0, lease));
		kvpool_cache_end_past(fx.cache);
		ck_assert_uint_eq(fx_hit(0, layout, 1, 3), 3);
	}
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, &writing, 1), 1);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 4), 4);
	ck_assert_int_eq(fx_release(0, lease, 0), 0);
	fx_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_resume");
	TCase *tc = tcase_create("resume");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc,
		       should_go_on_with_leases_of_those_that_are_there_and_end_those_of_others);
	tcase_add_test(tc, should_remember_what_part_of_a_lease_was_kept);
	tcase_add_test(tc, should_not_give_a_number_again_that_a_lease_of_an_earlier_life_had);
	tcase_add_test(tc, should_hold_windows_and_states_of_a_lease_again);
	tcase_add_test(tc, should_hold_everything_where_a_lease_is_not_known);
	tcase_add_test(tc, should_keep_what_was_forgotten_for_those_who_lease_it);
	tcase_add_test(tc, should_go_on_writing_what_was_reserved);
	tcase_add_test(tc, should_remember_which_shards_are_written);
	tcase_add_test(tc, should_keep_the_frame_of_what_can_no_longer_commit_for_its_writer);
	tcase_add_test(tc, should_keep_the_frame_of_a_torn_record_for_its_writer);
	tcase_add_test(tc, should_end_what_no_process_ever_heard_of);
	tcase_add_test(tc, should_not_count_blocks_that_a_reader_claims);
	tcase_add_test(tc, should_survive_claims_of_any_number);
	tcase_add_test(tc, should_go_on_over_many_lives);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
