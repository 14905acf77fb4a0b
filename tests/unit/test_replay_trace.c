/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace reader of kvpool-replay: the three formats, plain and compressed, and what it says of
 * lines that are no requests.
 *
 * One thread; traces are written to a temporary file.
 */
#include "shm/base.h"
#include "tools/replay/keys.h"
#include "tools/replay/trace.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOONCAKE_2 "{\"timestamp\": 0, \"input_length\": 1100, \"hash_ids\": [7, 8, 9]}\n"

static char path[64];
static char why[512];
static struct kvpool_trace *trace;

static void setup(void)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/kvpool-test-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	trace = NULL;
	why[0] = '\0';
}

static void teardown(void)
{
	kvpool_trace_free(trace);
	unlink(path);
}

static void write_file(const void *bytes, size_t n)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
	ck_assert_int_eq(fclose(file), 0);
}

static int read_with(const char *text, uint32_t max, bool skip)
{
	struct kvpool_trace_options options = {max, skip};

	write_file(text, strlen(text));
	return kvpool_trace_read(path, &options, why, sizeof(why), &trace);
}

static int read_text(const char *text)
{
	return read_with(text, 0, false);
}

START_TEST(should_read_mooncake_and_count_whole_blocks_only)
{
	ck_assert_int_eq(read_text(MOONCAKE_2), 0);
	ck_assert_int_eq(trace->format, KVPOOL_TRACE_MOONCAKE);
	ck_assert_uint_eq(trace->block_tokens, 512);
	ck_assert_uint_eq(trace->n, 1);
	ck_assert_uint_eq(trace->requests[0].tokens, 1100);
	ck_assert_uint_eq(trace->requests[0].blocks, 2);
	ck_assert_uint_eq(trace->requests[0].previous, KVPOOL_TRACE_NONE);
	ck_assert_uint_eq(trace->runs[0].first, 7);
	ck_assert_uint_eq(trace->runs[0].count, 3);
}
END_TEST

START_TEST(should_link_the_turns_of_an_lmcache_session)
{
	ck_assert_int_eq(read_text("{\"session\":4,\"input_length\":64,\"hash_ids\":[1]}\n"
				   "{\"session\":5,\"input_length\":64,\"hash_ids\":[1]}\n"
				   "{\"session\":4,\"input_length\":130,\"hash_ids\":[1,2,3]}\n"),
			 0);
	ck_assert_int_eq(trace->format, KVPOOL_TRACE_LMCACHE);
	ck_assert_uint_eq(trace->block_tokens, 64);
	ck_assert_uint_eq(trace->requests[1].previous, KVPOOL_TRACE_NONE);
	ck_assert_uint_eq(trace->requests[2].previous, 0);
	ck_assert_uint_eq(trace->requests[0].scope, trace->requests[1].scope);
}
END_TEST

START_TEST(should_keep_the_ids_of_weka_conversations_apart)
{
	ck_assert_int_eq(read_text("{\"c\":0,\"s\":0,\"in\":128,\"h\":[[1,2]]}\n"
				   "{\"c\":1,\"s\":0,\"in\":128,\"h\":[[1,2]]}\n"
				   "{\"c\":0,\"s\":3,\"in\":128,\"h\":[[1,2]]}\n"
				   "{\"c\":0,\"s\":0,\"in\":256,\"h\":[[1,2],[9,2]]}\n"),
			 0);
	ck_assert_int_eq(trace->format, KVPOOL_TRACE_WEKA);
	ck_assert_uint_ne(trace->requests[0].scope, trace->requests[1].scope);
	ck_assert_uint_eq(trace->requests[0].scope, trace->requests[2].scope);
	ck_assert_uint_eq(trace->requests[2].previous, KVPOOL_TRACE_NONE);
	ck_assert_uint_eq(trace->requests[3].previous, 0);
	ck_assert_uint_eq(trace->requests[3].n_runs, 2);
	ck_assert_uint_eq(trace->requests[3].blocks, 4);
}
END_TEST

START_TEST(should_take_a_last_line_without_a_newline_and_skip_blank_lines)
{
	ck_assert_int_eq(read_text("\n" MOONCAKE_2 "  \r\n"
				   "{\"input_length\": 512, \"hash_ids\": [3]}"),
			 0);
	ck_assert_uint_eq(trace->n, 2);
	ck_assert_uint_eq(trace->requests[1].tokens, 512);
}
END_TEST

START_TEST(should_stop_after_as_many_requests_as_asked)
{
	ck_assert_int_eq(read_with(MOONCAKE_2 MOONCAKE_2 "garbage\n", 2, false), 0);
	ck_assert_uint_eq(trace->n, 2);
}
END_TEST

static size_t compress_lines(uint8_t *out, size_t room, const char *line, int times)
{
	size_t length = strlen(line);
	char *text = malloc(length * (size_t)times);
	size_t n = 0;

	ck_assert_ptr_nonnull(text);
	for (int i = 0; i < times; i++)
		memcpy(text + length * (size_t)i, line, length);
	ck_assert_int_eq(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (uint8_t *)text,
						 length * (size_t)times, out, &n, room),
			 LZMA_OK);
	free(text);
	return n;
}

START_TEST(should_know_xz_by_its_first_bytes)
{
	struct kvpool_trace_options options = {0};
	static uint8_t xz[1 << 20];
	size_t n = compress_lines(xz, sizeof(xz), MOONCAKE_2, 5000);

	write_file(xz, n);
	ck_assert_int_eq(kvpool_trace_read(path, &options, why, sizeof(why), &trace), 0);
	ck_assert_uint_eq(trace->n, 5000);
	ck_assert_uint_eq(trace->requests[4999].blocks, 2);
}
END_TEST

START_TEST(should_refuse_xz_data_that_is_cut_short)
{
	struct kvpool_trace_options options = {0};
	static uint8_t xz[1 << 20];
	size_t n = compress_lines(xz, sizeof(xz), MOONCAKE_2, 5000);

	write_file(xz, n - 20);
	ck_assert_int_eq(kvpool_trace_read(path, &options, why, sizeof(why), &trace),
			 KVPOOL_TRACE_E_FILE);
	ck_assert_ptr_nonnull(strstr(why, "cut short"));
	ck_assert_ptr_nonnull(strstr(why, path));
}
END_TEST

/* Lines that are no requests, and what must be said of each. */
static const struct {
	const char *line;
	const char *said;
} bad[] = {
	{"{\"input_length\": 512, \"hash_ids\": [1\n", "not JSON"},
	{"[1, 2]\n", "neither \"hash_ids\""},
	{"{\"a\": 1}\n", "neither \"hash_ids\""},
	{"{\"hash_ids\": [1]}\n", "\"input_length\" is missing"},
	{"{\"input_length\": \"512\", \"hash_ids\": [1]}\n", "\"input_length\" must be"},
	{"{\"input_length\": 0, \"hash_ids\": []}\n", "1 to 134217728"},
	{"{\"input_length\": 1e3, \"hash_ids\": [1]}\n", "\"input_length\" must be"},
	{"{\"input_length\": 99999999999, \"hash_ids\": [1]}\n", "\"input_length\" must be"},
	{"{\"input_length\": 512, \"hash_ids\": 1}\n", "must be an array"},
	{"{\"input_length\": 1024, \"hash_ids\": [1, -1]}\n", "\"hash_ids\"[1]"},
	{"{\"input_length\": 1024, \"hash_ids\": [1, 2.5]}\n", "\"hash_ids\"[1]"},
	{"{\"input_length\": 1024, \"hash_ids\": [1]}\n", "2 whole blocks of 512"},
	{"{\"input_length\": 512, \"hash_ids\": [1, 2, 3, 4]}\n", "1 whole blocks of 512"},
	{"{\"session\": -1, \"input_length\": 64, \"hash_ids\": [1]}\n", "\"session\" must be"},
	{"{\"c\":0,\"s\":0,\"h\":[[1,1]]}\n", "\"in\" is missing"},
	{"{\"c\":0,\"in\":64,\"h\":[[1,1]]}\n", "\"s\" is missing"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":[[1]]}\n", "\"h\"[0]"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":[[1,0]]}\n", "\"h\"[0]"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":[7]}\n", "\"h\"[0]"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":{}}\n", "array of runs"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":[[1,4]]}\n", "4 block ids do not fit"},
	{"{\"c\":0,\"s\":0,\"in\":64,\"h\":[[1,1]]}\n", "weka's format among those of mooncake's"},
};

START_TEST(should_name_line_and_fault_of_a_bad_line)
{
	char text[512];
	char at[80];

	snprintf(text, sizeof(text), "%s%s%s", MOONCAKE_2, bad[_i].line, MOONCAKE_2);
	snprintf(at, sizeof(at), "%s:2: ", path);
	ck_assert_int_eq(read_text(text), KVPOOL_TRACE_E_LINE);
	ck_assert_ptr_null(trace);
	ck_assert_msg(strncmp(why, at, strlen(at)) == 0, "%s", why);
	ck_assert_msg(strstr(why, bad[_i].said) != NULL, "%s", why);
}
END_TEST

START_TEST(should_count_bad_lines_when_told_to_skip_them)
{
	char text[512];

	snprintf(text, sizeof(text), "%s%s%s", bad[_i].line, MOONCAKE_2, bad[_i].line);
	/* A good line of another format is only bad behind the first of this one. */
	if (_i + 1 == (int)KVPOOL_ARRAY_SIZE(bad))
		snprintf(text, sizeof(text), "%s%s%s", MOONCAKE_2, bad[_i].line, bad[_i].line);
	ck_assert_int_eq(read_with(text, 0, true), 0);
	ck_assert_uint_eq(trace->n, 1);
	ck_assert_uint_eq(trace->skipped_lines, 2);
}
END_TEST

START_TEST(should_refuse_a_trace_without_a_request)
{
	ck_assert_int_eq(read_text("\n\n"), KVPOOL_TRACE_E_FILE);
	ck_assert_ptr_nonnull(strstr(why, "no request in it"));
	ck_assert_int_eq(read_with("x\n", 0, true), KVPOOL_TRACE_E_FILE);
	ck_assert_ptr_nonnull(strstr(why, "every line was skipped"));
}
END_TEST

START_TEST(should_say_why_a_file_cannot_be_read)
{
	struct kvpool_trace_options options = {0};

	ck_assert_int_eq(
		kvpool_trace_read("/tmp/kvpool-no-such-trace", &options, why, sizeof(why), &trace),
		-ENOENT);
	ck_assert_str_eq(why, "/tmp/kvpool-no-such-trace: No such file or directory");
	ck_assert_int_eq(kvpool_trace_read("/tmp", &options, why, sizeof(why), &trace), -EISDIR);
	ck_assert_str_eq(why, "/tmp: Is a directory");
}
END_TEST

START_TEST(should_chain_keys_so_that_equal_keys_mean_equal_prefixes)
{
	static const uint8_t fingerprint[32] = {1};
	struct kvpool_replay_keys *keys = NULL;
	uint8_t a[4][32];
	uint8_t b[4][32];

	ck_assert_int_eq(read_text("{\"c\":0,\"s\":0,\"in\":256,\"h\":[[1,4]]}\n"
				   "{\"c\":0,\"s\":0,\"in\":256,\"h\":[[1,2],[7,1],[4,1]]}\n"
				   "{\"c\":1,\"s\":0,\"in\":256,\"h\":[[1,4]]}\n"),
			 0);
	ck_assert_int_eq(kvpool_replay_keys_new(fingerprint, &keys), 0);
	ck_assert_int_eq(kvpool_replay_keys_make(keys, trace, &trace->requests[0], a[0]), 0);
	ck_assert_int_eq(kvpool_replay_keys_make(keys, trace, &trace->requests[1], b[0]), 0);
	ck_assert_mem_eq(a[0], b[0], 64);
	ck_assert_mem_ne(a[2], b[2], 32);
	/* The same id behind another prefix is another block. */
	ck_assert_mem_ne(a[3], b[3], 32);
	ck_assert_int_eq(kvpool_replay_keys_make(keys, trace, &trace->requests[2], b[0]), 0);
	ck_assert_mem_ne(a[0], b[0], 32);
	kvpool_replay_keys_free(keys);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replay_trace");
	TCase *tcase = tcase_create("trace");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_read_mooncake_and_count_whole_blocks_only);
	tcase_add_test(tcase, should_link_the_turns_of_an_lmcache_session);
	tcase_add_test(tcase, should_keep_the_ids_of_weka_conversations_apart);
	tcase_add_test(tcase, should_take_a_last_line_without_a_newline_and_skip_blank_lines);
	tcase_add_test(tcase, should_stop_after_as_many_requests_as_asked);
	tcase_add_test(tcase, should_know_xz_by_its_first_bytes);
	tcase_add_test(tcase, should_refuse_xz_data_that_is_cut_short);
	tcase_add_loop_test(tcase, should_name_line_and_fault_of_a_bad_line, 0,
			    (int)KVPOOL_ARRAY_SIZE(bad));
	tcase_add_loop_test(tcase, should_count_bad_lines_when_told_to_skip_them, 0,
			    (int)KVPOOL_ARRAY_SIZE(bad));
	tcase_add_test(tcase, should_refuse_a_trace_without_a_request);
	tcase_add_test(tcase, should_say_why_a_file_cannot_be_read);
	tcase_add_test(tcase, should_chain_keys_so_that_equal_keys_mean_equal_prefixes);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
