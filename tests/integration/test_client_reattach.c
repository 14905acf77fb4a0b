/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that dies and comes back: every call that it dies under is a miss, the client attaches
 * again by itself, and what was held in the old life neither faults nor is taken for something of
 * the new one.
 *
 * The call runs in a thread; the test kills the daemon once that thread sleeps in the call.
 */
#include "tests/integration/client_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS (KVPOOL_RIG_BYTES / 8)

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	/* Spins hardly at all, so that a thread that waits is seen to sleep. */
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.spin_ns = 1, .deadline_ns = KVPOOL_RIG_LONG},
			&rig);
	kvpool_rig_until_attached(&rig);
}

static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
}

struct caller {
	struct kvpool_call call;
	_Atomic int tid; /* W: the thread, release, as its first act; R: the test, acquire */
};

static void *run(void *cookie)
{
	struct caller *c = cookie;

	/* T1 -> T2: the thread is about to call. */
	atomic_store_explicit(&c->tid, (int)syscall(SYS_gettid), memory_order_release);
	kvpool_call_make(&c->call);
	return NULL;
}

/* Is the thread in poll(2), as /proc/.../syscall has it? */
static bool sleeps_in_poll(void *cookie)
{
	struct caller *c = cookie;
	/* T2 <- T1 */
	int tid = atomic_load_explicit(&c->tid, memory_order_acquire);
	char path[64];
	FILE *f;
	long nr = -1;

	if (tid == 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fscanf(f, "%ld", &nr) != 1)
		nr = -1;
	fclose(f);
	return nr == SYS_ppoll;
}

START_TEST(should_miss_in_each_kind_of_call_that_the_daemon_dies_under)
{
	struct caller c = {0};
	pthread_t thread;

	kvpool_call_prepare(&rig, (enum kvpool_call_kind)_i, 0, KVPOOL_RIG_LONG, &c.call);
	kvpool_harness_pause(daemon_);
	ck_assert_int_eq(pthread_create(&thread, NULL, run, &c), 0);
	ck_assert(kvpool_harness_until(sleeps_in_poll, &c, KVPOOL_RIG_MS));
	kvpool_harness_kill(daemon_);
	pthread_join(thread, NULL);
	ck_assert_msg(c.call.result == -ENOTCONN, "%s: %lld (%s)", kvpool_call_name(c.call.kind),
		      (long long)c.call.result, kvpool_channel_error(rig.channel));
	ck_assert_int_eq(kvpool_attached(rig.pool), 0);
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_rig_until_attached(&rig);
	kvpool_call_finish(&c.call);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 2), 2);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 2), 2);
}
END_TEST

/* What the old life gave, in all its forms. */
struct relics {
	struct kvpool_block leased, reserved;
	struct kvpool_match match;
	void *address;
};

static void take_relics(struct relics *out)
{
	uint8_t keys[KVPOOL_KEY_SIZE];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 1), 1);
	kvpool_rig_keys(2, 0, 1, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 1, 0, 0, 0, &out->leased, 1,
				      &out->match),
			 1);
	kvpool_rig_keys(3, 0, 1, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 1, 0, &out->reserved), 1);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &out->leased, 0, &out->address),
			 0);
}

static void replace_daemon(void)
{
	kvpool_harness_kill(daemon_);
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_rig_until_attached(&rig);
}

/* Does this process map that address? */
static bool is_mapped(const void *address)
{
	unsigned long from, to;
	bool yes = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)address >= from &&
		    (uintptr_t)address < to)
			yes = true;
	fclose(f);
	return yes;
}

START_TEST(should_keep_old_blocks_mapped_until_they_are_given_back)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct relics old;

	take_relics(&old);
	replace_daemon();
	ck_assert_uint_eq(kvpool_rig_wrong(2, 0, old.address, WORDS), 0);
	/* Nobody vouches for what is there, though. */
	ck_assert_int_eq(kvpool_check(rig.channel, old.match.epoch), -ESTALE);
	ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &old.leased, 0, &piece, 1),
			 -ESTALE);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &old.reserved, 0, &piece, 1), 0);
	kvpool_release(rig.channel, &old.match, 0);
	ck_assert_uint_eq(kvpool_rig_wrong(2, 0, old.address, WORDS), 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, &old.reserved, 1, 0), -ESTALE);
	ck_assert(!is_mapped(old.address));
	ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &old.leased, 0, &piece, 1),
			 -ESTALE);
}
END_TEST

START_TEST(should_keep_every_shard_of_an_old_block_in_place_while_no_daemon_is_there)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 2, KVPOOL_RIG_BYTES);
	const uint8_t *key = kvpool_rig_key(1, 0);
	struct kvpool_block block;
	struct kvpool_match match;
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	ck_assert_int_eq(
		kvpool_reserve(rig.channel, layout, 0, NULL, key, 1, KVPOOL_RIG_LONG, &block), 1);
	for (uint32_t shard = 0; shard < 2; shard++) {
		kvpool_rig_stamp(1, shard, words, WORDS);
		ck_assert_int_eq(kvpool_store(rig.channel, layout, 0, &block, shard, &piece, 1), 0);
		ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, shard, KVPOOL_RIG_LONG), 1);
	}
	ck_assert_int_eq(
		kvpool_match(rig.channel, layout, key, 1, 0, 0, KVPOOL_RIG_LONG, &block, 1, &match),
		1);
	kvpool_harness_kill(daemon_);
	/* The first call finds it gone; with the second the channel lets go of the old life. */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(kvpool_wait(rig.channel, layout, 0, key, 0), -ENOTCONN);
	/* Nobody vouches for them, but every shard is where it was. */
	for (uint32_t shard = 0; shard < 2; shard++) {
		ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &block, shard, &piece, 1),
				 -ESTALE);
		ck_assert_uint_eq(kvpool_rig_wrong(1, shard, words, WORDS), 0);
	}
	kvpool_release(rig.channel, &match, 0);
}
END_TEST

START_TEST(should_unmap_an_old_life_at_once_where_nothing_is_held)
{
	struct relics old;

	take_relics(&old);
	kvpool_release(rig.channel, &old.match, 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, &old.reserved, 1, 0), 1);
	ck_assert(is_mapped(old.address));
	replace_daemon();
	ck_assert(!is_mapped(old.address));
}
END_TEST

START_TEST(should_unmap_what_was_given_back_through_another_channel)
{
	struct kvpool_channel *taker = rig.channel;
	struct relics old;

	take_relics(&old);
	ck_assert_int_eq(kvpool_channel_open(rig.pool, &rig.channel), 0);
	kvpool_release(rig.channel, &old.match, 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, &old.reserved, 1, 0), 1);
	kvpool_channel_close(taker);
	replace_daemon();
	ck_assert(!is_mapped(old.address));
}
END_TEST

START_TEST(should_keep_what_has_an_address_out_in_an_engine_of_several_processes)
{
	struct relics old;
	uint8_t token[16];

	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	take_relics(&old);
	kvpool_release(rig.channel, &old.match, 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, &old.reserved, 1, 0), 1);
	replace_daemon();
	ck_assert(is_mapped(old.address));
	ck_assert_uint_eq(kvpool_rig_wrong(2, 0, old.address, WORDS), 0);
}
END_TEST

/* In the new life the same numbers come again; they must not be taken for the old ones. */
START_TEST(should_not_commit_an_old_block_into_a_new_life)
{
	struct kvpool_block fresh;
	uint8_t key[KVPOOL_KEY_SIZE];
	struct kvpool_rig other;
	struct relics old;

	take_relics(&old);
	replace_daemon();
	kvpool_rig_keys(2, 0, 1, key);
	for (uint32_t i = 0; i < 2; i++) {
		kvpool_rig_keys(10 + i, 0, 1, key);
		ck_assert_int_eq(
			kvpool_reserve(rig.channel, rig.layout, 0, NULL, key, 1, 0, &fresh), 1);
	}
	ck_assert_uint_ne(fresh.epoch, old.reserved.epoch);
	ck_assert_int_eq(kvpool_commit(rig.channel, &old.reserved, 1, KVPOOL_ALL_SHARDS, 0),
			 -ESTALE);
	ck_assert_int_eq(kvpool_commit(rig.channel, &old.leased, 1, KVPOOL_ALL_SHARDS, 0), -ESTALE);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 2);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &other);
	ck_assert_int_eq(kvpool_rig_get(&other, 11, 1), 0);
	kvpool_rig_close(&other);
	kvpool_release(rig.channel, &old.match, 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 2);
}
END_TEST

START_TEST(should_register_layouts_again)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 2, 700);
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE], byte = 7, back = 0;
	struct kvpool_match match;

	kvpool_rig_keys(4, 0, 1, key);
	for (uint32_t life = 0; life < 3; life++) {
		ck_assert_int_eq(kvpool_reserve(rig.channel, layout, 0, NULL, key, 1, 0, &block),
				 1);
		ck_assert_int_eq(kvpool_store(rig.channel, layout, 0, &block, 1,
					      &(struct kvpool_piece){&byte, 1}, 1),
				 0);
		ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, KVPOOL_ALL_SHARDS, 0), 1);
		ck_assert_int_eq(
			kvpool_match(rig.channel, layout, key, 1, 0, 0, 0, &block, 1, &match), 1);
		ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &block, 1,
					     &(struct kvpool_piece){&back, 1}, 1),
				 0);
		ck_assert_uint_eq(back, byte);
		kvpool_release(rig.channel, &match, 0);
		replace_daemon();
	}
}
END_TEST

START_TEST(should_attach_though_the_daemon_came_later)
{
	struct kvpool_rig early;

	kvpool_harness_kill(daemon_);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &early);
	ck_assert_int_eq(kvpool_attached(early.pool), 0);
	ck_assert_int_eq(kvpool_rig_get(&early, 5, 1), -1);
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_rig_until_attached(&early);
	ck_assert_uint_eq(kvpool_rig_put(&early, 5, 0, 1), 1);
	kvpool_rig_close(&early);
	kvpool_rig_until_attached(&rig);
}
END_TEST

START_TEST(should_take_a_new_token_in_a_new_life)
{
	uint8_t before[16], after[16];
	struct kvpool_rig member;

	ck_assert_int_eq(kvpool_token(rig.pool, before), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){.join = before},
			&member);
	ck_assert_int_eq(kvpool_rig_get(&member, 6, 1), 0);
	replace_daemon();
	ck_assert_int_eq(kvpool_token(rig.pool, after), 0);
	ck_assert_mem_ne(before, after, sizeof(before));
	/* Its client is gone: it goes on as one of its own. */
	kvpool_rig_until_attached(&member);
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 2);
	kvpool_rig_close(&member);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_reattach");
	TCase *t = tcase_create("reattach");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, should_miss_in_each_kind_of_call_that_the_daemon_dies_under, 0,
			    KVPOOL_CALL_KINDS);
	tcase_add_test(t, should_keep_old_blocks_mapped_until_they_are_given_back);
	tcase_add_test(t,
		       should_keep_every_shard_of_an_old_block_in_place_while_no_daemon_is_there);
	tcase_add_test(t, should_unmap_an_old_life_at_once_where_nothing_is_held);
	tcase_add_test(t, should_unmap_what_was_given_back_through_another_channel);
	tcase_add_test(t, should_keep_what_has_an_address_out_in_an_engine_of_several_processes);
	tcase_add_test(t, should_not_commit_an_old_block_into_a_new_life);
	tcase_add_test(t, should_register_layouts_again);
	tcase_add_test(t, should_attach_though_the_daemon_came_later);
	tcase_add_test(t, should_take_a_new_token_in_a_new_life);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
