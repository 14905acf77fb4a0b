/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers and writers at once, 2 to 16 processes, on a pool so small that eviction happens all the
 * time: every word of every hit is compared with the stamp of its key and place. None may be wrong.
 *
 * The processes count on shared anonymous memory; the test adds up.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHAINS      64u
#define DEPTH       48u
#define BLOCK_BYTES 16384u
#define WORDS       (BLOCK_BYTES / 8)
#define ROUNDS      6000u /* of all processes together */

struct tally {
	_Atomic uint64_t hit_blocks;
	_Atomic uint64_t stored_blocks;
	_Atomic uint64_t wrong_words;
	_Atomic uint64_t failures; /* calls that should not have failed */
};

static struct kvpool_harness *daemon_;
static struct tally *tally;

static void setup(void)
{
	/* 16 MiB for 48 MiB of blocks. */
	const char *args[] = {"--size", "16M", "--segment-size", "4M", "--extent-size", "1M", NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 16 << 20);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(tally, MAP_FAILED);
}

static void teardown(void)
{
	munmap(tally, sizeof(*tally));
	kvpool_harness_free(daemon_);
}

struct worker {
	struct kvpool_rig rig;
	struct kvpool_layout *layout;
	uint64_t random;
	uint64_t words[WORDS];
	struct kvpool_block blocks[DEPTH];
	uint8_t keys[DEPTH * KVPOOL_KEY_SIZE];
};

static uint32_t below(struct worker *w, uint32_t n)
{
	w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((w->random >> 33) % n);
}

/* The slot in pieces of uneven lengths, so that gathers and scatters are exercised as well. */
static uint32_t cut(struct worker *w, struct kvpool_piece *pieces)
{
	uint8_t *at = (uint8_t *)w->words;
	size_t left = BLOCK_BYTES;
	uint32_t n = 0;

	while (n < 7 && left > 0) {
		size_t length = 1 + below(w, 6000);
		size_t bytes = KVPOOL_MIN(left, length);

		pieces[n++] = (struct kvpool_piece){at, bytes};
		at += bytes;
		left -= bytes;
	}
	pieces[n++] = (struct kvpool_piece){at, left};
	return n;
}

static void read_prefix(struct worker *w, uint64_t chain, const struct kvpool_match *match)
{
	struct kvpool_piece pieces[8];

	for (uint32_t i = 0; i < match->reported; i++) {
		uint32_t n = cut(w, pieces);

		memset(w->words, 0, sizeof(w->words));
		if (kvpool_load(w->rig.channel, w->layout, 0, &w->blocks[i], 0, pieces, n) != 0)
			atomic_fetch_add(&tally->failures, 1);
		atomic_fetch_add(&tally->wrong_words, kvpool_rig_wrong(chain, i, w->words, WORDS));
	}
	atomic_fetch_add(&tally->hit_blocks, match->reported);
}

/* Writes what of [from, to) is granted; now and then gives some of it up. */
static void write_rest(struct worker *w, uint64_t chain, uint32_t from, uint32_t to)
{
	const uint8_t *key = w->keys + (size_t)from * KVPOOL_KEY_SIZE;
	struct kvpool_piece pieces[8];
	bool give_up = below(w, 10) == 0;
	uint32_t n = to - from;
	int64_t granted = kvpool_reserve(w->rig.channel, w->layout, 0,
					 from > 0 ? key - KVPOOL_KEY_SIZE : NULL, key, n,
					 KVPOOL_RIG_LONG, w->blocks);

	if (granted < 0)
		atomic_fetch_add(&tally->failures, 1);
	if (granted <= 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		if (w->blocks[i].block == 0)
			continue;
		/* A block that is given up may hold anything: it must never be found. */
		kvpool_rig_stamp(give_up ? chain + 1 : chain, from + i, w->words, WORDS);
		if (kvpool_store(w->rig.channel, w->layout, 0, &w->blocks[i], 0, pieces,
				 cut(w, pieces)) != 0)
			atomic_fetch_add(&tally->failures, 1);
	}
	if (give_up) {
		(void)kvpool_abort(w->rig.channel, w->blocks, n, KVPOOL_RIG_LONG);
		return;
	}
	granted = kvpool_commit(w->rig.channel, w->blocks, n, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG);
	if (granted > 0)
		atomic_fetch_add(&tally->stored_blocks, (uint64_t)granted);
}

static void work(uint32_t seed, uint32_t rounds)
{
	struct worker *w = calloc(1, sizeof(*w));
	struct kvpool_match match;

	if (!w)
		_exit(1);
	w->random = seed;
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &w->rig);
	w->layout = kvpool_rig_layout(w->rig.pool, 1, BLOCK_BYTES);
	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t chain = 10 * (1 + (uint64_t)below(w, CHAINS));
		uint32_t n = 1 + below(w, DEPTH);
		int64_t hit;

		kvpool_rig_keys(chain, 0, n, w->keys);
		hit = kvpool_match(w->rig.channel, w->layout, w->keys, n, 0, 0, 0, w->blocks, DEPTH,
				   &match);
		if (hit < 0) {
			atomic_fetch_add(&tally->failures, 1);
			continue;
		}
		read_prefix(w, chain, &match);
		if (match.blocks < n)
			write_rest(w, chain, match.blocks, n);
		kvpool_release(w->rig.channel, &match, 0);
		if (below(w, 200) == 0)
			(void)kvpool_forget(w->rig.channel, w->layout, 0, w->keys, 1, 0);
	}
	kvpool_rig_close(&w->rig);
	free(w);
	_exit(0);
}

START_TEST(should_never_read_a_wrong_word)
{
	static const uint32_t counts[] = {2, 4, 16};
	uint32_t n = counts[_i];
	pid_t workers[16];
	int status;

	for (uint32_t i = 0; i < n; i++) {
		workers[i] = fork();
		if (workers[i] == 0)
			work(i + 1, ROUNDS / n);
	}
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_int_eq(waitpid(workers[i], &status, 0), workers[i]);
		ck_assert(WIFEXITED(status));
		ck_assert_int_eq(WEXITSTATUS(status), 0);
	}
	ck_assert_uint_eq(atomic_load(&tally->wrong_words), 0);
	ck_assert_uint_eq(atomic_load(&tally->failures), 0);
	/* The test is worth something only if all of this happened. */
	ck_assert_uint_gt(atomic_load(&tally->hit_blocks), 1000);
	ck_assert_uint_gt(atomic_load(&tally->stored_blocks), 5000);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.quarantined", 0);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon_));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_stamped");
	TCase *t = tcase_create("stamped");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 170);
	tcase_add_loop_test(t, should_never_read_a_wrong_word, 0, 3);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
