/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of kvpool-replay: the stamps that blocks are filled with, the histogram that percentiles
 * come from, the board that its processes share; and sizes and times as people write them.
 *
 * One thread, but for the board's test, which forks.
 */
#include "shm/base.h"
#include "tools/replay/board.h"
#include "tools/replay/histogram.h"
#include "tools/replay/stamp.h"
#include "tools/units.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096u

static _Alignas(64) uint8_t block[BLOCK];
static _Alignas(64) uint8_t other[BLOCK];

START_TEST(should_accept_a_block_stamped_with_its_own_key)
{
	const uint8_t key[32] = {9, 8, 7};

	kvpool_stamp_fill(key, block, BLOCK);
	ck_assert_uint_eq(kvpool_stamp_wrong(key, block, BLOCK), 0);
}
END_TEST

START_TEST(should_count_every_byte_that_was_changed)
{
	const uint8_t key[32] = {1};

	kvpool_stamp_fill(key, block, BLOCK);
	for (size_t at = 0; at < BLOCK; at += 97)
		block[at] ^= 0x80;
	ck_assert_uint_eq(kvpool_stamp_wrong(key, block, BLOCK), (BLOCK + 96) / 97);
}
END_TEST

START_TEST(should_tell_blocks_of_keys_that_differ_in_one_bit_apart)
{
	uint8_t key[32] = {1, 2, 3};

	kvpool_stamp_fill(key, block, BLOCK);
	for (size_t i = 0; i < sizeof(key); i++) {
		key[i] ^= 1;
		/* Every fourth word comes from this part of the key. */
		ck_assert_uint_ge(kvpool_stamp_wrong(key, block, BLOCK), BLOCK / 32);
		key[i] ^= 1;
	}
}
END_TEST

START_TEST(should_tell_a_word_from_the_same_block_at_another_place)
{
	const uint8_t key[32] = {5};

	kvpool_stamp_fill(key, block, BLOCK);
	memcpy(other, block, BLOCK);
	memcpy(other + 512, block + 1024, 8);
	ck_assert_uint_gt(kvpool_stamp_wrong(key, other, BLOCK), 0);
	memcpy(other, block, BLOCK);
	memset(other + BLOCK - 8, 0, 8);
	ck_assert_uint_gt(kvpool_stamp_wrong(key, other, BLOCK), 0);
}
END_TEST

START_TEST(should_find_percentiles_within_two_percent)
{
	static struct kvpool_histogram histogram;

	for (uint64_t i = 1; i <= 100000; i++)
		kvpool_histogram_add(&histogram, i * 10, 1);
	ck_assert_uint_ge(kvpool_histogram_percentile(&histogram, 0.5), 490000);
	ck_assert_uint_le(kvpool_histogram_percentile(&histogram, 0.5), 510000);
	ck_assert_uint_ge(kvpool_histogram_percentile(&histogram, 0.99), 970000);
	ck_assert_uint_le(kvpool_histogram_percentile(&histogram, 0.99), 1010000);
}
END_TEST

START_TEST(should_keep_small_values_exact_and_survive_huge_ones)
{
	static struct kvpool_histogram a;
	static struct kvpool_histogram b;

	ck_assert_uint_eq(kvpool_histogram_percentile(&a, 0.5), 0);
	kvpool_histogram_add(&a, 7, 3);
	kvpool_histogram_add(&b, UINT64_MAX, 1);
	kvpool_histogram_merge(&a, &b);
	ck_assert_uint_eq(a.total, 4);
	ck_assert_uint_eq(kvpool_histogram_percentile(&a, 0.5), 7);
	ck_assert_uint_ge(kvpool_histogram_percentile(&a, 1.0), UINT64_C(1) << 39);
}
END_TEST

#define WORKERS  4u
#define REQUESTS 4000u

/* Takes what it can; each request but the first waits for the one before it. */
static void work(struct kvpool_board *board, uint32_t number)
{
	struct kvpool_figures *figures = kvpool_board_figures(board, number);
	uint32_t i;

	if (!kvpool_board_gate(board))
		_exit(1);
	while ((i = kvpool_board_take(board)) != KVPOOL_BOARD_NONE) {
		if (i > 0 && !kvpool_board_await(board, i - 1))
			_exit(2);
		figures->requests++;
		figures->tokens += i;
		kvpool_board_done(board, i);
	}
	_exit(0);
}

static void fork_workers(struct kvpool_board *board, pid_t *pids)
{
	for (uint32_t i = 0; i < WORKERS; i++) {
		pids[i] = fork();
		ck_assert_int_ge(pids[i], 0);
		if (pids[i] == 0)
			work(board, i);
	}
}

START_TEST(should_give_each_request_to_one_process_and_keep_their_order)
{
	struct kvpool_board *board;
	pid_t pids[WORKERS];
	uint64_t requests = 0;
	uint64_t sum = 0;

	ck_assert_int_eq(kvpool_board_new(WORKERS, REQUESTS, &board), 0);
	fork_workers(board, pids);
	kvpool_board_start(board);
	for (uint32_t i = 0; i < WORKERS; i++) {
		int status = -1;

		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_int_eq(status, 0);
		requests += kvpool_board_figures(board, i)->requests;
		sum += kvpool_board_figures(board, i)->tokens;
	}
	ck_assert_uint_eq(requests, REQUESTS);
	ck_assert_uint_eq(sum, (uint64_t)REQUESTS * (REQUESTS - 1) / 2);
	ck_assert_uint_eq(kvpool_board_finished(board), REQUESTS);
	kvpool_board_free(board);
}
END_TEST

START_TEST(should_let_go_of_everybody_who_waits_when_stopped)
{
	struct kvpool_board *board;
	pid_t pids[WORKERS];

	ck_assert_int_eq(kvpool_board_new(WORKERS, REQUESTS, &board), 0);
	/* Nobody will do request 0: the others wait for it, or for one another. */
	ck_assert_uint_eq(kvpool_board_take(board), 0);
	kvpool_board_start(board);
	fork_workers(board, pids);
	while (kvpool_board_at_gate(board) < WORKERS)
		sched_yield();
	kvpool_board_stop(board);
	for (uint32_t i = 0; i < WORKERS; i++) {
		int status = -1;

		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert(WIFEXITED(status));
	}
	ck_assert_uint_eq(kvpool_board_take(board), KVPOOL_BOARD_NONE);
	kvpool_board_free(board);
}
END_TEST

static const struct {
	const char *text;
	int result;
	uint64_t bytes;
} sizes[] = {
	{"4096", 0, 4096},
	{"64K", 0, 65536},
	{"64 KiB", 0, 65536},
	{"1.5g", 0, UINT64_C(3) << 29},
	{"2TB", 0, UINT64_C(2) << 40},
	{"0", 0, 0},
	{"", KVPOOL_UNITS_E_NUMBER, 0},
	{"-1", KVPOOL_UNITS_E_NUMBER, 0},
	{"K", KVPOOL_UNITS_E_NUMBER, 0},
	{"1e9", KVPOOL_UNITS_E_NUMBER, 0},
	{"0x10", KVPOOL_UNITS_E_NUMBER, 0},
	{"inf", KVPOOL_UNITS_E_NUMBER, 0},
	{"0.3", KVPOOL_UNITS_E_NUMBER, 0},
	{"9999999999T", KVPOOL_UNITS_E_NUMBER, 0},
	{"5Q", KVPOOL_UNITS_E_SUFFIX, 0},
	{"1.2.3K", KVPOOL_UNITS_E_SUFFIX, 0},
	{"4Kb/s", KVPOOL_UNITS_E_SUFFIX, 0},
};

START_TEST(should_parse_a_size_or_say_what_is_wrong_with_it)
{
	uint64_t bytes = 0;

	ck_assert_msg(kvpool_units_parse_size(sizes[_i].text, &bytes) == sizes[_i].result, "%s",
		      sizes[_i].text);
	ck_assert_uint_eq(bytes, sizes[_i].bytes);
}
END_TEST

START_TEST(should_write_figures_as_people_read_them)
{
	char text[KVPOOL_UNITS_BYTES];

	ck_assert_str_eq(kvpool_units_bytes(0, text), "0 B");
	ck_assert_str_eq(kvpool_units_bytes(1020 << 20, text), "1020 MiB");
	ck_assert_str_eq(kvpool_units_bytes(UINT64_C(3) << 29, text), "1.5 GiB");
	ck_assert_str_eq(kvpool_units_ns(208, text), "208 ns");
	ck_assert_str_eq(kvpool_units_ns(12400, text), "12.4 us");
	ck_assert_str_eq(kvpool_units_ns(UINT64_C(90000000000), text), "90 s");
	ck_assert_str_eq(kvpool_units_ns(UINT64_MAX, text), "213504 d");
	ck_assert_str_eq(kvpool_units_count(12031, text), "12,031");
	ck_assert_str_eq(kvpool_units_count(999, text), "999");
	ck_assert_str_eq(kvpool_units_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
	ck_assert_str_eq(kvpool_units_share(346, 1000, text), "34.6 %");
	ck_assert_str_eq(kvpool_units_share(1, 0, text), "-");
}
END_TEST

START_TEST(should_parse_whole_numbers_within_their_bounds_only)
{
	uint64_t value = 0;

	ck_assert_int_eq(kvpool_units_parse_number("64", 1, 64, &value), 0);
	ck_assert_uint_eq(value, 64);
	ck_assert_int_eq(kvpool_units_parse_number("65", 1, 64, &value), KVPOOL_UNITS_E_NUMBER);
	ck_assert_int_eq(kvpool_units_parse_number("0", 1, 64, &value), KVPOOL_UNITS_E_NUMBER);
	ck_assert_int_eq(kvpool_units_parse_number(" 5", 1, 64, &value), KVPOOL_UNITS_E_NUMBER);
	ck_assert_int_eq(kvpool_units_parse_number("5x", 1, 64, &value), KVPOOL_UNITS_E_SUFFIX);
	ck_assert_int_eq(kvpool_units_parse_number("99999999999999999999", 1, UINT64_MAX, &value),
			 KVPOOL_UNITS_E_NUMBER);
	ck_assert_uint_eq(value, 64);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replay_parts");
	TCase *tcase = tcase_create("parts");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, should_accept_a_block_stamped_with_its_own_key);
	tcase_add_test(tcase, should_count_every_byte_that_was_changed);
	tcase_add_test(tcase, should_tell_blocks_of_keys_that_differ_in_one_bit_apart);
	tcase_add_test(tcase, should_tell_a_word_from_the_same_block_at_another_place);
	tcase_add_test(tcase, should_find_percentiles_within_two_percent);
	tcase_add_test(tcase, should_keep_small_values_exact_and_survive_huge_ones);
	tcase_add_test(tcase, should_give_each_request_to_one_process_and_keep_their_order);
	tcase_add_test(tcase, should_let_go_of_everybody_who_waits_when_stopped);
	tcase_add_loop_test(tcase, should_parse_a_size_or_say_what_is_wrong_with_it, 0,
			    (int)KVPOOL_ARRAY_SIZE(sizes));
	tcase_add_test(tcase, should_write_figures_as_people_read_them);
	tcase_add_test(tcase, should_parse_whole_numbers_within_their_bounds_only);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
