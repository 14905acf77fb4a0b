/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines want the same new prefix: one computes it, the other waits and reads what the first
 * has written.
 *
 * Each engine is a process; they start together and report through shared anonymous memory.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENGINES  4u
#define PREFIXES 200u
#define BLOCKS   4u
#define WORDS    (KVPOOL_RIG_BYTES / 8)

struct board {
	_Atomic uint32_t ready; /* engines that wait for the start */
	_Atomic bool start;
	_Atomic uint32_t computed[PREFIXES][BLOCKS]; /* how often each block was */
	_Atomic uint32_t wrong;
};

static struct kvpool_harness *daemon_;
static struct board *board;

static void setup(void)
{
	const char *args[] = {"--size", "256M", NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 256 << 20);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(board, MAP_FAILED);
}

static void teardown(void)
{
	munmap(board, sizeof(*board));
	kvpool_harness_free(daemon_);
}

/* The engine's prefill of one block. */
static void compute(struct kvpool_rig *rig, uint64_t chain, uint32_t i,
		    const struct kvpool_block *block)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	atomic_fetch_add(&board->computed[chain][i], 1);
	kvpool_rig_stamp(chain, i, words, WORDS);
	if (kvpool_store(rig->channel, rig->layout, 0, block, 0, &piece, 1) != 0 ||
	    kvpool_commit(rig->channel, block, 1, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG) != 1)
		exit(2);
}

/* Makes one prefix resident: computes what nobody does, waits for what somebody does. */
static void want(struct kvpool_rig *rig, uint64_t chain)
{
	uint8_t keys[BLOCKS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, BLOCKS, keys);
	for (uint32_t i = 0; i < BLOCKS;) {
		const uint8_t *key = keys + (size_t)i * KVPOOL_KEY_SIZE;
		const uint8_t *parent = i > 0 ? key - KVPOOL_KEY_SIZE : NULL;
		struct kvpool_block block;
		int64_t granted = kvpool_reserve(rig->channel, rig->layout, 0, parent, key, 1,
						 KVPOOL_RIG_LONG, &block);

		if (granted == 1)
			compute(rig, chain, i, &block);
		else if (granted != 0 || (block.generation != KVPOOL_RESERVE_EXISTS &&
					  block.generation != KVPOOL_RESERVE_BUSY))
			exit(3);
		else if (kvpool_wait(rig->channel, rig->layout, 0, key, KVPOOL_RIG_LONG) != 0)
			exit(4);
		i++;
	}
	if (kvpool_rig_get(rig, chain, BLOCKS) != BLOCKS)
		atomic_fetch_add(&board->wrong, 1);
}

static bool started(void *cookie)
{
	(void)cookie;
	return atomic_load(&board->start);
}

static void engine(void)
{
	struct kvpool_rig rig;

	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
	atomic_fetch_add(&board->ready, 1);
	if (!kvpool_harness_until(started, NULL, KVPOOL_RIG_MS))
		_exit(5);
	for (uint32_t chain = 0; chain < PREFIXES; chain++)
		want(&rig, chain);
	kvpool_rig_close(&rig);
	_exit(0);
}

static bool all_ready(void *cookie)
{
	(void)cookie;
	return atomic_load(&board->ready) == ENGINES;
}

START_TEST(should_compute_a_prefix_once_that_several_want_at_once)
{
	pid_t engines[ENGINES];
	int status;

	for (uint32_t e = 0; e < ENGINES; e++) {
		engines[e] = fork();
		if (engines[e] == 0)
			engine();
	}
	ck_assert(kvpool_harness_until(all_ready, NULL, KVPOOL_RIG_MS));
	atomic_store(&board->start, true);
	for (uint32_t e = 0; e < ENGINES; e++) {
		ck_assert_int_eq(waitpid(engines[e], &status, 0), engines[e]);
		ck_assert(WIFEXITED(status));
		ck_assert_int_eq(WEXITSTATUS(status), 0);
	}
	for (uint32_t chain = 0; chain < PREFIXES; chain++)
		for (uint32_t i = 0; i < BLOCKS; i++)
			ck_assert_uint_eq(atomic_load(&board->computed[chain][i]), 1);
	ck_assert_uint_eq(atomic_load(&board->wrong), 0);
}
END_TEST

/* The reader's part of the two tests below; ends with what the wait said. */
static void reader(void)
{
	struct kvpool_rig rig;
	uint8_t key[KVPOOL_KEY_SIZE];
	int r;

	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
	kvpool_rig_keys(1, 0, 1, key);
	r = kvpool_wait(rig.channel, rig.layout, 0, key, KVPOOL_RIG_LONG);
	if (r == 0)
		r = kvpool_rig_get(&rig, 1, 1) == 1 ? 0 : -EIO;
	kvpool_rig_close(&rig);
	_exit(-r);
}

static int reader_end(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(should_wake_who_waits_when_the_block_is_ready)
{
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE];
	struct kvpool_rig rig;
	pid_t child;

	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
	kvpool_rig_keys(1, 0, 1, key);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, key, 1, KVPOOL_RIG_LONG, &block),
		1);
	child = fork();
	if (child == 0)
		reader();
	kvpool_rig_until_number(daemon_, "service.waits", 1);
	compute(&rig, 1, 0, &block);
	ck_assert_int_eq(reader_end(child), 0);
	kvpool_rig_close(&rig);
}
END_TEST

START_TEST(should_wake_who_waits_when_the_writer_gives_up)
{
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE];
	struct kvpool_rig rig;
	pid_t child;

	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
	kvpool_rig_keys(1, 0, 1, key);
	for (uint32_t how = 0; how < 2; how++) {
		ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, key, 1,
						KVPOOL_RIG_LONG, &block),
				 1);
		child = fork();
		if (child == 0)
			reader();
		kvpool_rig_until_number(daemon_, "service.waits", 1);
		if (how == 0)
			ck_assert_int_eq(kvpool_abort(rig.channel, &block, 1, KVPOOL_RIG_LONG), 1);
		else
			kvpool_rig_close(&rig);
		ck_assert_int_eq(reader_end(child), ECANCELED);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_single_flight");
	TCase *t = tcase_create("single_flight");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, should_compute_a_prefix_once_that_several_want_at_once);
	tcase_add_test(t, should_wake_who_waits_when_the_block_is_ready);
	tcase_add_test(t, should_wake_who_waits_when_the_writer_gives_up);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
