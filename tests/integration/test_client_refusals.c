/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libkvpool refuses, with a sentence, and what it does where there is no daemon.
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

START_TEST(should_refuse_a_write_by_a_reader)
{
	struct kvpool_rig reader;
	struct kvpool_block block;
	uint8_t byte = 1;
	struct kvpool_piece piece = {&byte, 1};
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 17, 0, 1), 1);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.flags = KVPOOL_OPEN_READ_ONLY}, &reader);
	ck_assert_int_eq(kvpool_rig_get(&reader, 17, 1), 1);
	ck_assert_int_eq(kvpool_reserve(reader.channel, reader.layout, 0, NULL,
					kvpool_rig_key(18, 0), 1, 0, &block),
			 -EACCES);
	ck_assert_int_eq(kvpool_match(reader.channel, reader.layout, kvpool_rig_key(17, 0), 1, 0, 0,
				      0, &block, 1, &m),
			 1);
	ck_assert_int_eq(kvpool_store(reader.channel, reader.layout, 0, &block, 0, &piece, 1),
			 -EACCES);
	kvpool_release(reader.channel, &m, 0);
	kvpool_rig_close(&reader);
	ck_assert_int_eq(kvpool_rig_get(&rig, 17, 1), 1);
}
END_TEST

START_TEST(should_refuse_bytes_that_do_not_fit)
{
	struct kvpool_block block, broken;
	uint8_t bytes[KVPOOL_RIG_BYTES + 1] = {0};
	struct kvpool_piece too_much[2] = {{bytes, KVPOOL_RIG_BYTES}, {bytes, 1}};
	struct kvpool_piece wraps[2] = {{bytes, 16}, {bytes, SIZE_MAX - 8}};
	struct kvpool_piece nowhere = {NULL, 1};
	void *address;

	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(19, 0), 1,
					0, &block),
			 1);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &block, 0, too_much, 2), -EINVAL);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &block, 0, wraps, 2), -EINVAL);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &block, 0, &nowhere, 1), -EINVAL);
	ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &block, 0, too_much, 2), -EINVAL);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &block, 0, NULL, 0), 0);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &block, 1, &address), -EINVAL);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 1, &block, 0, &address), -EINVAL);
	broken = block;
	broken.offset = UINT32_MAX;
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &broken, 0, &address), -EINVAL);
	broken = block;
	broken.segment = 60000;
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &broken, 0, &address), -ESTALE);
	broken.segment = UINT32_MAX;
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &broken, 0, &address), -ESTALE);
	broken = block;
	broken.epoch++;
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &broken, 0, &address), -ESTALE);
	ck_assert_int_eq(kvpool_commit(rig.channel, &broken, 1, 0, 0), -ESTALE);
	ck_assert_int_eq(kvpool_abort(rig.channel, &block, 1, 0), 1);
}
END_TEST

START_TEST(should_name_the_arena_where_a_list_is_too_long)
{
	struct kvpool_rig small;
	uint8_t *keys = calloc(4096, KVPOOL_KEY_SIZE);
	struct kvpool_block *blocks = calloc(4096, sizeof(*blocks));
	struct kvpool_match m;

	ck_assert_ptr_nonnull(keys);
	ck_assert_ptr_nonnull(blocks);
	kvpool_rig_keys(20, 0, 4096, keys);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.arena_bytes = 65536}, &small);
	ck_assert_int_eq(
		kvpool_match(small.channel, small.layout, keys, 4096, 0, 0, 0, blocks, 4096, &m),
		-E2BIG);
	ck_assert_ptr_nonnull(strstr(kvpool_channel_error(small.channel), "arena"));
	ck_assert_int_eq(
		kvpool_reserve(small.channel, small.layout, 0, NULL, keys, 4096, 0, blocks),
		-E2BIG);
	ck_assert_int_eq(kvpool_forget(small.channel, small.layout, 0, keys, 4096, 0), -E2BIG);
	ck_assert_int_eq(
		kvpool_reserve(small.channel, small.layout, 0, NULL, keys, 1000, 0, blocks), 1000);
	ck_assert_int_eq(kvpool_commit(small.channel, blocks, 1000, KVPOOL_ALL_SHARDS, 0), 1000);
	ck_assert_int_eq(
		kvpool_match(small.channel, small.layout, keys, 1000, 0, 0, 0, blocks, 1000, &m),
		1000);
	kvpool_release(small.channel, &m, 0);
	kvpool_rig_close(&small);
	free(keys);
	free(blocks);
}
END_TEST

START_TEST(should_refuse_one_channel_too_many_and_keep_the_others)
{
	struct kvpool_channel *channels[257] = {0};
	uint32_t opened = 0;

	for (uint32_t i = 0; i < 257; i++)
		ck_assert_int_eq(kvpool_channel_open(rig.pool, &channels[i]), 0);
	for (uint32_t i = 0; i < 257; i++)
		opened += kvpool_wait(channels[i], rig.layout, 0, kvpool_rig_key(24, 0), 0) ==
			  -ENOENT;
	ck_assert_uint_eq(opened, 255);
	ck_assert_int_eq(kvpool_wait(channels[256], rig.layout, 0, kvpool_rig_key(24, 0), 0),
			 -EDQUOT);
	ck_assert_int_eq(kvpool_rig_get(&rig, 24, 1), 0);
	for (uint32_t i = 0; i < 257; i++)
		kvpool_channel_close(channels[i]);
}
END_TEST

START_TEST(should_refuse_a_layout_that_cannot_be)
{
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = 4096};
	struct kvpool_layout_spec good = {.size = sizeof(good),
					  .block_tokens = 16,
					  .n_shards = 1,
					  .n_groups = 1,
					  .groups = &group};
	struct kvpool_layout_spec spec;
	struct kvpool_layout *layout = NULL, *again;
	char label[65];

	memset(label, 'x', 64);
	label[64] = '\0';
	spec = good;
	spec.size = 0;
	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), -EINVAL);
	spec = good;
	spec.block_tokens = 0;
	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), -EINVAL);
	spec = good;
	spec.n_shards = 65;
	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), -EINVAL);
	spec = good;
	spec.n_groups = 17;
	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), -EINVAL);
	spec = good;
	spec.label = label;
	ck_assert_int_eq(kvpool_layout(rig.pool, &spec, &layout), -EINVAL);
	ck_assert_ptr_nonnull(strstr(kvpool_error(rig.pool), "63 bytes"));
	group.window = 5;
	ck_assert_int_eq(kvpool_layout(rig.pool, &good, &layout), -EINVAL);
	group.window = 0;
	group.slot_bytes = 0;
	ck_assert_int_eq(kvpool_layout(rig.pool, &good, &layout), -EINVAL);
	ck_assert_ptr_null(layout);
	group.slot_bytes = 4096;
	ck_assert_int_eq(kvpool_layout(rig.pool, &good, &layout), 0);
	ck_assert_int_eq(kvpool_layout(rig.pool, &good, &again), 0);
	ck_assert_ptr_eq(layout, again);
	group.slot_bytes = UINT64_C(1) << 28;
	ck_assert_int_eq(kvpool_layout(rig.pool, &good, &again), 0);
	ck_assert_int_eq(kvpool_wait(rig.channel, again, 0, kvpool_rig_key(26, 0), 0), -E2BIG);
}
END_TEST

START_TEST(should_refuse_options_that_cannot_be)
{
	char path[200];
	struct kvpool_options o = {.size = sizeof(o), .socket = kvpool_harness_socket(daemon_)};
	struct kvpool *pool = NULL;

	memset(path, 'p', sizeof(path));
	path[199] = '\0';
	o.size = 0;
	ck_assert_int_eq(kvpool_open(&o, &pool), -EINVAL);
	o.size = sizeof(o);
	o.ring_entries = 48;
	ck_assert_int_eq(kvpool_open(&o, &pool), -EINVAL);
	o.ring_entries = 0;
	o.arena_bytes = 1;
	ck_assert_int_eq(kvpool_open(&o, &pool), -EINVAL);
	o.arena_bytes = 0;
	o.flags = 1u << 31;
	ck_assert_int_eq(kvpool_open(&o, &pool), -EINVAL);
	o.flags = 0;
	o.socket = path;
	ck_assert_int_eq(kvpool_open(&o, &pool), -ENAMETOOLONG);
	ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(should_miss_where_no_daemon_is)
{
	struct kvpool_options o = {.flags = KVPOOL_OPEN_REQUIRE};
	uint8_t token[16];
	char path[128];
	struct kvpool_block block;
	struct kvpool_rig lone;
	struct kvpool *pool = NULL;

	snprintf(path, sizeof(path), "%.60s/nobody.sock", kvpool_harness_folder(daemon_));
	kvpool_rig_open(path, (struct kvpool_options){0}, &lone);
	ck_assert_int_eq(kvpool_attached(lone.pool), 0);
	ck_assert_int_eq(kvpool_token(lone.pool, token), -ENOTCONN);
	ck_assert_int_eq(kvpool_rig_get(&lone, 27, 1), -1);
	ck_assert_int_eq(kvpool_reserve(lone.channel, lone.layout, 0, NULL, kvpool_rig_key(27, 0),
					1, 0, &block),
			 -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(kvpool_error(lone.pool), "nobody.sock"));
	kvpool_rig_close(&lone);
	o.size = sizeof(o);
	o.socket = path;
	ck_assert_int_eq(kvpool_open(&o, &pool), -ENOTCONN);
	ck_assert_ptr_null(pool);
	kvpool_close(NULL);
	kvpool_channel_close(NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_refusals");
	TCase *t = tcase_create("refusals");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_refuse_a_write_by_a_reader);
	tcase_add_test(t, should_refuse_bytes_that_do_not_fit);
	tcase_add_test(t, should_name_the_arena_where_a_list_is_too_long);
	tcase_add_test(t, should_refuse_one_channel_too_many_and_keep_the_others);
	tcase_add_test(t, should_refuse_a_layout_that_cannot_be);
	tcase_add_test(t, should_refuse_options_that_cannot_be);
	tcase_add_test(t, should_miss_where_no_daemon_is);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
