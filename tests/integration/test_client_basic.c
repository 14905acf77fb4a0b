/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvpool.h promises of each function, with a daemon there and with none.
 *
 * One process, but for the daemon.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	kvpool_rig_begin(&daemon_, &rig);
}

static void teardown(void)
{
	kvpool_rig_end(daemon_, &rig);
}

START_TEST(should_find_what_was_stored_and_nothing_else)
{
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 10), 0);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 5), 5);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 10), 5);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 5, 1), 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 10), 6);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 10), 0);
}
END_TEST

static bool is_detached(void *pool)
{
	return kvpool_attached(pool) == 0;
}

/* The kernel closes a dead daemon's sockets a little after the process is gone. */
START_TEST(should_be_attached_where_a_daemon_is)
{
	ck_assert_int_eq(kvpool_attached(rig.pool), 1);
	kvpool_harness_kill(daemon_);
	ck_assert(kvpool_harness_until(is_detached, rig.pool, KVPOOL_RIG_MS));
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_rig_until_attached(&rig);
	ck_assert_int_eq(kvpool_attached(rig.pool), 1);
}
END_TEST

START_TEST(should_tell_a_single_key_apart_from_a_list)
{
	struct kvpool_block one, list[2];
	struct kvpool_match m, n;
	uint8_t keys[2 * KVPOOL_KEY_SIZE];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 3, 0, 1), 1);
	kvpool_rig_keys(3, 0, 2, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 1, 0, 0, 0, &one, 1, &m), 1);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 2, 0, 0, 0, list, 2, &n), 1);
	ck_assert_mem_eq(&one, &list[0], sizeof(one));
	ck_assert_uint_ne(m.lease, 0);
	ck_assert_uint_ne(n.lease, 0);
	ck_assert_uint_ne(m.lease, n.lease);
	ck_assert_uint_eq(m.groups[0].first, 0);
	ck_assert_uint_eq(m.groups[0].count, 1);
	ck_assert_uint_eq(m.n_groups, 1);
	kvpool_release(rig.channel, &m, 0);
	kvpool_release(rig.channel, &n, 0);
}
END_TEST

START_TEST(should_report_only_what_follows_skip)
{
	struct kvpool_block blocks[4];
	uint8_t keys[4 * KVPOOL_KEY_SIZE];
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 4, 0, 4), 4);
	kvpool_rig_keys(4, 0, 4, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 3, 0, 0, blocks, 4, &m), 4);
	ck_assert_uint_eq(m.reported, 1);
	ck_assert_uint_eq(m.groups[0].first, 3);
	kvpool_release(rig.channel, &m, 0);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 4, 0, 0, blocks, 4, &m), 4);
	ck_assert_uint_eq(m.reported, 0);
	kvpool_release(rig.channel, &m, 0);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 5, 0, 0, blocks, 4, &m),
			 -EINVAL);
}
END_TEST

START_TEST(should_only_look_where_no_lease_is_wanted)
{
	struct kvpool_block blocks[2];
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 5, 0, 2), 2);
	kvpool_rig_keys(5, 0, 2, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 2, 0, KVPOOL_MATCH_NO_LEASE, 0,
				      blocks, 2, &m),
			 2);
	ck_assert_uint_eq(m.lease, 0);
	ck_assert_uint_eq(m.reported, 2);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 2, 0, KVPOOL_MATCH_NO_LEASE, 0,
				      NULL, 0, &m),
			 2);
	ck_assert_uint_eq(m.reported, 0);
}
END_TEST

START_TEST(should_count_what_is_being_written)
{
	struct kvpool_block blocks[3];
	uint8_t keys[4 * KVPOOL_KEY_SIZE];
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 6, 0, 1), 1);
	kvpool_rig_keys(6, 0, 4, keys);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, keys, keys + KVPOOL_KEY_SIZE, 2,
					0, blocks),
			 2);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 0, KVPOOL_MATCH_PENDING, 0,
				      blocks + 2, 1, &m),
			 1);
	ck_assert_uint_eq(m.pending, 2);
	kvpool_release(rig.channel, &m, 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 2, 0), 2);
}
END_TEST

START_TEST(should_say_why_a_block_was_not_granted)
{
	struct kvpool_block blocks[2], other;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 7, 0, 1), 1);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(7, 0), 1,
					0, blocks),
			 0);
	ck_assert_uint_eq(blocks[0].block, 0);
	ck_assert_uint_eq(blocks[0].generation, KVPOOL_RESERVE_EXISTS);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, kvpool_rig_key(7, 0),
					kvpool_rig_key(7, 1), 1, 0, blocks),
			 1);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, kvpool_rig_key(7, 0),
					kvpool_rig_key(7, 1), 1, 0, &other),
			 0);
	ck_assert_uint_eq(other.generation, KVPOOL_RESERVE_BUSY);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, kvpool_rig_key(8, 0),
					kvpool_rig_key(8, 1), 1, 0, &other),
			 0);
	ck_assert_uint_eq(other.generation, KVPOOL_RESERVE_NO_PARENT);
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 1, 0), 1);
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 1, 0), -ESTALE);
}
END_TEST

START_TEST(should_say_who_holds_a_full_pool)
{
	struct kvpool_layout *big = kvpool_rig_layout(rig.pool, 1, UINT64_C(1) << 20);
	uint8_t keys[80 * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[80];
	int64_t granted;

	kvpool_rig_keys(9, 0, 80, keys);
	granted = kvpool_reserve(rig.channel, big, 0, NULL, keys, 80, KVPOOL_RIG_LONG, blocks);
	ck_assert_int_ge(granted, 40);
	ck_assert_int_le(granted, 64);
	ck_assert_uint_eq(blocks[granted].block, 0);
	ck_assert_uint_eq(blocks[granted].generation, KVPOOL_RESERVE_NO_SPACE);
	ck_assert_ptr_nonnull(strstr(kvpool_no_space_text(rig.channel), "writers hold"));
	ck_assert_ptr_nonnull(strstr(kvpool_no_space_text(rig.channel), "(this one)"));
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 80, KVPOOL_RIG_LONG), granted);
}
END_TEST

START_TEST(should_make_a_block_ready_with_its_last_shard)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 3, 1000);
	struct kvpool_block blocks[2], found[2];
	uint8_t keys[2 * KVPOOL_KEY_SIZE], text[1000], back[1000];
	struct kvpool_piece in = {text, sizeof(text)}, out = {back, sizeof(back)};
	struct kvpool_match m;

	kvpool_rig_keys(10, 0, 2, keys);
	ck_assert_int_eq(kvpool_reserve(rig.channel, layout, 0, NULL, keys, 2, 0, blocks), 2);
	for (uint32_t s = 0; s < 3; s++) {
		ck_assert_int_eq(kvpool_match(rig.channel, layout, keys, 2, 0, 0, 0, found, 2, &m),
				 0);
		for (uint32_t i = 0; i < 2; i++) {
			memset(text, (int)(10 * s + i), sizeof(text));
			ck_assert_int_eq(
				kvpool_store(rig.channel, layout, 0, &blocks[i], s, &in, 1), 0);
		}
		ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 2, s, 0), 2);
	}
	ck_assert_int_eq(kvpool_match(rig.channel, layout, keys, 2, 0, 0, 0, found, 2, &m), 2);
	for (uint32_t s = 0; s < 3; s++) {
		for (uint32_t i = 0; i < 2; i++) {
			memset(text, (int)(10 * s + i), sizeof(text));
			ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &found[i], s, &out, 1),
					 0);
			ck_assert_mem_eq(text, back, sizeof(text));
		}
	}
	kvpool_release(rig.channel, &m, 0);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 2, 0, 0), -ESTALE);
}
END_TEST

START_TEST(should_pass_over_entries_without_a_block)
{
	struct kvpool_block blocks[3] = {0};

	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 3, KVPOOL_ALL_SHARDS, 0), 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 3, 0), 0);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(11, 0), 1,
					0, &blocks[1]),
			 1);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 3, KVPOOL_ALL_SHARDS, 0), 1);
	ck_assert_int_eq(kvpool_rig_put(&rig, 11, 0, 1), 0);
}
END_TEST

START_TEST(should_take_checksums_with_a_commit)
{
	struct kvpool_block blocks[2];
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	uint32_t crc[2] = {0x12345678, 0x9abcdef0};

	kvpool_rig_keys(12, 0, 2, keys);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 2, 0, blocks), 2);
	ck_assert_int_eq(kvpool_commit_crc(rig.channel, blocks, crc, 2, 0, 0), 2);
}
END_TEST

START_TEST(should_drop_what_is_not_true_any_more)
{
	ck_assert_uint_eq(kvpool_rig_put(&rig, 13, 0, 4), 4);
	ck_assert_int_eq(kvpool_forget(rig.channel, rig.layout, 0, kvpool_rig_key(13, 2), 1, 0), 2);
	ck_assert_int_eq(kvpool_rig_get(&rig, 13, 4), 2);
	ck_assert_int_eq(kvpool_forget(rig.channel, rig.layout, 0, NULL, 0, 0), 2);
	ck_assert_int_eq(kvpool_rig_get(&rig, 13, 4), 0);
}
END_TEST

START_TEST(should_keep_the_head_of_a_lease)
{
	struct kvpool_block blocks[4];
	uint8_t keys[4 * KVPOOL_KEY_SIZE];
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 14, 0, 4), 4);
	kvpool_rig_keys(14, 0, 4, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 0, 0, 0, blocks, 4, &m), 4);
	kvpool_release(rig.channel, &m, 2);
	kvpool_rig_until_number(daemon_, "accounting.leases", 1);
	kvpool_release(rig.channel, &m, 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
}
END_TEST

START_TEST(should_answer_a_wait_at_once_where_it_can)
{
	ck_assert_uint_eq(kvpool_rig_put(&rig, 15, 0, 1), 1);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, kvpool_rig_key(15, 0), 0), 0);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, kvpool_rig_key(15, 1), 0),
			 -ENOENT);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 1, kvpool_rig_key(15, 1), 0),
			 -EINVAL);
}
END_TEST

START_TEST(should_time_out_a_wait_for_a_slow_writer)
{
	struct kvpool_block block;

	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(16, 0), 1,
					0, &block),
			 1);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, kvpool_rig_key(16, 0), 1000000),
			 -ETIMEDOUT);
	ck_assert_int_eq(kvpool_abort(rig.channel, &block, 1, 0), 1);
}
END_TEST

START_TEST(should_match_32768_keys_in_one_call)
{
	const uint32_t n = 32768;
	uint8_t *keys = calloc(n, KVPOOL_KEY_SIZE);
	struct kvpool_block *blocks = calloc(n, sizeof(*blocks));
	struct kvpool_layout *tiny = kvpool_rig_layout(rig.pool, 1, 256);
	struct kvpool_match m;

	ck_assert_ptr_nonnull(keys);
	ck_assert_ptr_nonnull(blocks);
	kvpool_rig_keys(21, 0, n, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, tiny, 0, NULL, keys, n, KVPOOL_RIG_LONG, blocks), n);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, n, 0, KVPOOL_RIG_LONG), n);
	ck_assert_int_eq(
		kvpool_match(rig.channel, tiny, keys, n, 0, 0, KVPOOL_RIG_LONG, blocks, n, &m), n);
	ck_assert_uint_eq(m.reported, n);
	kvpool_release(rig.channel, &m, 0);
	free(keys);
	free(blocks);
}
END_TEST

START_TEST(should_give_a_lease_back_through_another_channel)
{
	struct kvpool_channel *other;
	struct kvpool_block block;
	struct kvpool_match m;

	ck_assert_int_eq(kvpool_channel_open(rig.pool, &other), 0);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 22, 0, 1), 1);
	ck_assert_int_eq(
		kvpool_match(other, rig.layout, kvpool_rig_key(22, 0), 1, 0, 0, 0, &block, 1, &m),
		1);
	kvpool_channel_close(other);
	kvpool_rig_until_number(daemon_, "accounting.leases", 1);
	kvpool_release(rig.channel, &m, 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
}
END_TEST

START_TEST(should_use_the_place_of_a_closed_channel_again)
{
	for (uint32_t i = 0; i < 600; i++) {
		struct kvpool_channel *channel;

		ck_assert_int_eq(kvpool_channel_open(rig.pool, &channel), 0);
		ck_assert_int_eq(kvpool_wait(channel, rig.layout, 0, kvpool_rig_key(23, 0), 0),
				 -ENOENT);
		kvpool_channel_close(channel);
	}
	kvpool_rig_until_number(daemon_, "service.channels", 1);
}
END_TEST

START_TEST(should_match_windows_and_states)
{
	struct kvpool_group_spec groups[3] = {
		{.kind = KVPOOL_FULL, .slot_bytes = 1024},
		{.kind = KVPOOL_WINDOW, .window = 32, .slot_bytes = 512},
		{.kind = KVPOOL_STATE, .slot_bytes = 2048},
	};
	struct kvpool_layout_spec spec = {.size = sizeof(spec),
					  .engine = "hybrid",
					  .block_tokens = 16,
					  .n_shards = 1,
					  .n_groups = 3,
					  .groups = groups};
	struct kvpool_layout *layout;
	struct kvpool_block blocks[12];
	uint8_t keys[4 * KVPOOL_KEY_SIZE];
	struct kvpool_match m;

	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), 0);
	kvpool_rig_keys(25, 0, 4, keys);
	for (uint32_t g = 0; g < 2; g++) {
		ck_assert_int_eq(kvpool_reserve(rig.channel, layout, g, NULL, keys, 4, 0, blocks),
				 4);
		ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 4, 0, 0), 4);
	}
	ck_assert_int_eq(kvpool_match(rig.channel, layout, keys, 4, 0, 0, 0, blocks, 12, &m), 0);
	ck_assert_int_eq(kvpool_reserve(rig.channel, layout, 2, NULL, &keys[2ul * KVPOOL_KEY_SIZE],
					1, 0, blocks),
			 1);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 1, 0, 0), 1);
	ck_assert_int_eq(kvpool_match(rig.channel, layout, keys, 4, 0, 0, 0, blocks, 12, &m), 3);
	ck_assert_uint_eq(m.n_groups, 3);
	ck_assert_uint_eq(m.groups[0].count, 3);
	ck_assert_uint_eq(m.groups[1].first, 1);
	ck_assert_uint_eq(m.groups[1].count, 2);
	ck_assert_uint_eq(m.groups[2].first, 2);
	ck_assert_uint_eq(m.groups[2].count, 1);
	ck_assert_uint_eq(m.reported, 6);
	kvpool_release(rig.channel, &m, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_basic");
	TCase *t = tcase_create("basic");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_find_what_was_stored_and_nothing_else);
	tcase_add_test(t, should_be_attached_where_a_daemon_is);
	tcase_add_test(t, should_tell_a_single_key_apart_from_a_list);
	tcase_add_test(t, should_report_only_what_follows_skip);
	tcase_add_test(t, should_only_look_where_no_lease_is_wanted);
	tcase_add_test(t, should_count_what_is_being_written);
	tcase_add_test(t, should_say_why_a_block_was_not_granted);
	tcase_add_test(t, should_say_who_holds_a_full_pool);
	tcase_add_test(t, should_make_a_block_ready_with_its_last_shard);
	tcase_add_test(t, should_pass_over_entries_without_a_block);
	tcase_add_test(t, should_take_checksums_with_a_commit);
	tcase_add_test(t, should_drop_what_is_not_true_any_more);
	tcase_add_test(t, should_keep_the_head_of_a_lease);
	tcase_add_test(t, should_answer_a_wait_at_once_where_it_can);
	tcase_add_test(t, should_time_out_a_wait_for_a_slow_writer);
	tcase_add_test(t, should_match_32768_keys_in_one_call);
	tcase_add_test(t, should_give_a_lease_back_through_another_channel);
	tcase_add_test(t, should_use_the_place_of_a_closed_channel_again);
	tcase_add_test(t, should_match_windows_and_states);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
