/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One handle, several threads with a channel each, and the daemon killed under all of them: for
 * ThreadSanitizer as much as for its own checks.
 *
 * Threads share the handle and the layout only; counters are atomic.
 */
#include "tests/integration/client_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define THREADS 4u
#define WORDS   (KVPOOL_RIG_BYTES / 8)

static struct kvpool_harness *daemon_;
static struct kvpool *pool;
static struct kvpool_layout *layout;
static _Atomic bool stop;
static _Atomic uint64_t hits, misses, wrong;

static void setup(void)
{
	struct kvpool_options o = {.size = sizeof(o), .deadline_ns = KVPOOL_RIG_PATIENCE};

	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	o.socket = kvpool_harness_socket(daemon_);
	ck_assert_int_eq(kvpool_open(&o, &pool), 0);
	layout = kvpool_rig_layout(pool, 1, KVPOOL_RIG_BYTES);
	atomic_store(&stop, false);
}

static void teardown(void)
{
	kvpool_close(pool);
	kvpool_harness_free(daemon_);
}

/* One request of an engine: read what is there, write the rest. All misses are fine. */
static void one_request(struct kvpool_channel *channel, uint64_t chain)
{
	uint8_t keys[8 * KVPOOL_KEY_SIZE];
	struct kvpool_block found[8], blocks[8];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_match match;
	uint32_t hit;

	kvpool_rig_keys(chain, 0, 8, keys);
	if (kvpool_match(channel, layout, keys, 8, 0, 0, 0, found, 8, &match) < 0) {
		atomic_fetch_add(&misses, 1);
		return;
	}
	for (uint32_t i = 0; i < match.reported; i++) {
		if (kvpool_load(channel, layout, 0, &found[i], 0, &piece, 1) != 0)
			continue;
		atomic_fetch_add(&wrong, kvpool_rig_wrong(chain, i, words, WORDS));
		atomic_fetch_add(&hits, 1);
	}
	hit = match.blocks;
	if (hit < 8 &&
	    kvpool_reserve(channel, layout, 0,
			   hit ? keys + (size_t)(hit - 1) * KVPOOL_KEY_SIZE : NULL,
			   keys + (size_t)hit * KVPOOL_KEY_SIZE, 8 - hit, 0, blocks) > 0) {
		bool whole = true;

		for (uint32_t i = 0; i < 8 - hit; i++) {
			kvpool_rig_stamp(chain, hit + i, words, WORDS);
			if (blocks[i].block != 0 &&
			    kvpool_store(channel, layout, 0, &blocks[i], 0, &piece, 1) != 0)
				whole = false;
		}
		if (!whole || kvpool_commit(channel, blocks, 8 - hit, KVPOOL_ALL_SHARDS, 0) < 0)
			(void)kvpool_abort(channel, blocks, 8 - hit, 0);
	}
	kvpool_release(channel, &match, 0);
}

static void *run(void *cookie)
{
	uint64_t chain = (uint64_t)(uintptr_t)cookie;

	for (uint64_t i = 0; !atomic_load(&stop); i++) {
		struct kvpool_channel *channel;

		if (kvpool_channel_open(pool, &channel) != 0)
			break;
		for (uint32_t k = 0; k < 50 && !atomic_load(&stop); k++)
			one_request(channel, 1 + (chain + i * 50 + k) % 40);
		kvpool_channel_close(channel);
	}
	return NULL;
}

struct goal {
	_Atomic uint64_t *counter;
	uint64_t value;
};

static bool reached(void *cookie)
{
	struct goal *g = cookie;

	return atomic_load(g->counter) >= g->value;
}

static void until_more(_Atomic uint64_t *counter, uint64_t more)
{
	struct goal g = {counter, atomic_load(counter) + more};

	ck_assert(kvpool_harness_until(reached, &g, KVPOOL_RIG_MS));
}

START_TEST(should_serve_threads_through_the_death_of_the_daemon)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run, (void *)(i * 10)), 0);
	for (uint32_t life = 0; life < 4; life++) {
		until_more(&hits, 500);
		kvpool_harness_kill(daemon_);
		until_more(&misses, 50);
		ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	}
	until_more(&hits, 500);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&wrong), 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 0);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon_));
}
END_TEST

static struct kvpool_match passed[256];

static void *take(void *cookie)
{
	struct kvpool_channel *channel;
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE];

	(void)cookie;
	kvpool_rig_keys(1, 0, 1, key);
	if (kvpool_channel_open(pool, &channel) != 0)
		return NULL;
	for (uint32_t i = 0; i < 256; i++)
		if (kvpool_match(channel, layout, key, 1, 0, 0, KVPOOL_RIG_LONG, &block, 1,
				 &passed[i]) == 1)
			atomic_fetch_add(&hits, 1);
	kvpool_channel_close(channel);
	return NULL;
}

START_TEST(should_let_one_thread_release_what_another_leased)
{
	struct kvpool_rig rig = {.pool = pool, .layout = layout};
	pthread_t thread;

	ck_assert_int_eq(kvpool_channel_open(pool, &rig.channel), 0);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	atomic_store(&hits, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, take, NULL), 0);
	/* While the other takes leases, this one uses its own channel. */
	while (atomic_load(&hits) < 256)
		ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 1);
	pthread_join(thread, NULL);
	kvpool_rig_until_number(daemon_, "accounting.leases", 256);
	for (uint32_t i = 0; i < 256; i++)
		kvpool_release(rig.channel, &passed[i], 0);
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 1);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_channel_close(rig.channel);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_threads");
	TCase *t = tcase_create("threads");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, should_serve_threads_through_the_death_of_the_daemon);
	tcase_add_test(t, should_let_one_thread_release_what_another_leased);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
