/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of several processes: the first attaches, the others join with its token; all map the
 * same bytes, and what one took another may use and end.
 *
 * The members talk through a pipe and report by their exit codes.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (KVPOOL_RIG_BYTES / 8)

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
}

static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
}

static int run_member(int (*fn)(struct kvpool_rig *, void *), void *cookie, const uint8_t *token)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct kvpool_options options = {.join = token, .name = "member"};
		struct kvpool_rig own;
		int r;

		kvpool_rig_open(kvpool_harness_socket(daemon_), options, &own);
		r = fn(&own, cookie);
		kvpool_rig_close(&own);
		_exit(r);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int write_and_commit(struct kvpool_rig *own, void *cookie)
{
	struct kvpool_block *blocks = cookie;
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	for (uint32_t i = 0; i < 2; i++) {
		kvpool_rig_stamp(1, i, words, WORDS);
		if (kvpool_store(own->channel, own->layout, 0, &blocks[i], 0, &piece, 1) != 0)
			return 1;
	}
	return kvpool_commit(own->channel, blocks, 2, KVPOOL_ALL_SHARDS, 0) == 2 ? 0 : 2;
}

START_TEST(should_let_a_member_write_what_another_reserved)
{
	uint8_t keys[2 * KVPOOL_KEY_SIZE], token[16];
	struct kvpool_block blocks[2];

	kvpool_rig_keys(1, 0, 2, keys);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 2, 0, blocks), 2);
	ck_assert_int_eq(run_member(write_and_commit, blocks, token), 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 2), 2);
}
END_TEST

struct leased {
	struct kvpool_match match;
	struct kvpool_block block;
};

static int read_and_write_through(struct kvpool_rig *own, void *cookie)
{
	struct leased *l = cookie;
	uint64_t *words;
	void *address;

	if (kvpool_pointer(own->channel, own->layout, 0, &l->block, 0, &address) != 0)
		return 1;
	words = address;
	if (kvpool_rig_wrong(2, 0, words, WORDS) != 0)
		return 2;
	words[7] = UINT64_C(0x1122334455667788);
	return 0;
}

START_TEST(should_map_the_same_bytes_in_every_member)
{
	uint8_t key[KVPOOL_KEY_SIZE], token[16];
	struct leased l;
	void *address;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 1), 1);
	kvpool_rig_keys(2, 0, 1, key);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	ck_assert_int_eq(
		kvpool_match(rig.channel, rig.layout, key, 1, 0, 0, 0, &l.block, 1, &l.match), 1);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &l.block, 0, &address), 0);
	ck_assert_int_eq(run_member(read_and_write_through, &l, token), 0);
	ck_assert_uint_eq(((uint64_t *)address)[7], UINT64_C(0x1122334455667788));
	kvpool_release(rig.channel, &l.match, 0);
}
END_TEST

static int release(struct kvpool_rig *own, void *cookie)
{
	struct leased *l = cookie;

	kvpool_release(own->channel, &l->match, 0);
	/* The answer to this says that the release before it was served. */
	return kvpool_rig_get(own, 4, 1) == 0 ? 0 : 1;
}

START_TEST(should_let_a_member_release_what_another_leased)
{
	uint8_t key[KVPOOL_KEY_SIZE], token[16];
	struct leased l;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 3, 0, 1), 1);
	kvpool_rig_keys(3, 0, 1, key);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	ck_assert_int_eq(
		kvpool_match(rig.channel, rig.layout, key, 1, 0, 0, 0, &l.block, 1, &l.match), 1);
	ck_assert_int_eq(run_member(release, &l, token), 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_release(rig.channel, &l.match, 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 3, 1), 1);
}
END_TEST

static int take_and_leave(struct kvpool_rig *own, void *cookie)
{
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[2];
	struct kvpool_match match;

	(void)cookie;
	kvpool_rig_keys(5, 0, 1, keys);
	kvpool_rig_keys(6, 0, 1, keys + KVPOOL_KEY_SIZE);
	if (kvpool_match(own->channel, own->layout, keys, 1, 0, 0, 0, blocks, 1, &match) != 1)
		return 1;
	return kvpool_reserve(own->channel, own->layout, 0, NULL, keys + KVPOOL_KEY_SIZE, 1, 0,
			      blocks) == 1
		       ? 0
		       : 2;
}

START_TEST(should_give_back_what_a_member_held_when_it_closes)
{
	uint8_t token[16];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 5, 0, 1), 1);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	ck_assert_int_eq(run_member(take_and_leave, NULL, token), 0);
	/* The client lives on, so the end of the member alone would not have ended these. */
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.quarantined", 0);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 6, 0, 1), 1);
}
END_TEST

static int be_there(struct kvpool_rig *own, void *cookie)
{
	(void)cookie;
	return kvpool_attached(own->pool);
}

START_TEST(should_refuse_a_member_with_a_wrong_token)
{
	uint8_t token[16] = {1, 2, 3};
	struct kvpool_options o = {.size = sizeof(o),
				   .socket = kvpool_harness_socket(daemon_),
				   .flags = KVPOOL_OPEN_REQUIRE,
				   .join = token};
	struct kvpool *pool = NULL;

	ck_assert_int_eq(kvpool_open(&o, &pool), -EACCES);
	ck_assert_ptr_null(pool);
	ck_assert_int_eq(run_member(be_there, NULL, token), 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 7, 1), 0);
}
END_TEST

static int load_shard(struct kvpool_rig *own, void *cookie)
{
	struct kvpool_layout *layout = kvpool_rig_layout(own->pool, 2, 512);
	struct kvpool_block *block = cookie;
	uint8_t bytes[512];
	struct kvpool_piece piece = {bytes, sizeof(bytes)};

	/* This process never matched, so it learns here where shards lie. */
	memset(bytes, 9, sizeof(bytes));
	if (kvpool_store(own->channel, layout, 0, block, 1, &piece, 1) != 0)
		return 1;
	return kvpool_commit(own->channel, block, 1, 1, 0) == 1 ? 0 : 2;
}

START_TEST(should_write_the_shards_of_a_block_from_several_members)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 2, 512);
	uint8_t key[KVPOOL_KEY_SIZE], token[16], bytes[512];
	struct kvpool_piece piece = {bytes, sizeof(bytes)};
	struct kvpool_block block;
	struct kvpool_match match;

	kvpool_rig_keys(8, 0, 1, key);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	ck_assert_int_eq(kvpool_reserve(rig.channel, layout, 0, NULL, key, 1, 0, &block), 1);
	memset(bytes, 8, sizeof(bytes));
	ck_assert_int_eq(kvpool_store(rig.channel, layout, 0, &block, 0, &piece, 1), 0);
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, 0, 0), 1);
	ck_assert_int_eq(run_member(load_shard, &block, token), 0);
	ck_assert_int_eq(kvpool_match(rig.channel, layout, key, 1, 0, 0, 0, &block, 1, &match), 1);
	for (uint32_t s = 0; s < 2; s++) {
		ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &block, s, &piece, 1), 0);
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			ck_assert_uint_eq(bytes[i], 8 + s);
	}
	kvpool_release(rig.channel, &match, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_members");
	TCase *t = tcase_create("members");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_let_a_member_write_what_another_reserved);
	tcase_add_test(t, should_map_the_same_bytes_in_every_member);
	tcase_add_test(t, should_let_a_member_release_what_another_leased);
	tcase_add_test(t, should_give_back_what_a_member_held_when_it_closes);
	tcase_add_test(t, should_refuse_a_member_with_a_wrong_token);
	tcase_add_test(t, should_write_the_shards_of_a_block_from_several_members);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
