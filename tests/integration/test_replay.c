/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-replay with real daemons, processes and bytes: its figures against counts that are made
 * here, in another way, from the same traces; and what it says of bad input.
 */
#include "client/kvpool.h"
#include "shm/base.h"
#include "tests/integration/command.h"
#include "tests/integration/harness.h"
#include "tools/replay/keys.h"
#include "tools/replay/layout.h"
#include "tools/replay/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA         KVPOOL_TEST_DATA "/"
#define EXCERPT      DATA "mooncake_conversation_excerpt.jsonl.xz"
#define ARGUMENTS    16
#define REQUESTS     1000
#define REQUESTS_STR "1000"
#define BLOCK_TOKENS 512

static struct kvpool_command command;
static json_t *report;

static void teardown(void)
{
	kvpool_command_clear(&command);
	json_decref(report);
	report = NULL;
}

/* Arguments are separated by a blank; none has one in it. */
static void replay(const char *arguments)
{
	const char *list[ARGUMENTS] = {getenv("KVPOOL_REPLAY")};
	char copy[1024];
	char *save = NULL;
	int n = 1;

	ck_assert_ptr_nonnull(list[0]);
	snprintf(copy, sizeof(copy), "%s", arguments);
	for (char *word = strtok_r(copy, " ", &save); word != NULL && n + 1 < ARGUMENTS;
	     word = strtok_r(NULL, " ", &save))
		list[n++] = word;
	kvpool_command_clear(&command);
	kvpool_command_run(list, &command);
}

static void replay_json(const char *arguments)
{
	json_error_t problem;

	replay(arguments);
	json_decref(report);
	report = json_loads(command.out, 0, &problem);
	ck_assert_msg(report != NULL, "exit code %d: %s", command.code, command.err);
}

static int64_t integer(const char *name)
{
	const json_t *field = json_object_get(report, name);

	ck_assert_msg(json_is_integer(field), "no integer \"%s\" in:\n%s", name, command.out);
	return json_integer_value(field);
}

static double real(const char *name)
{
	const json_t *field = json_object_get(report, name);

	ck_assert_msg(json_is_number(field), "no number \"%s\" in:\n%s", name, command.out);
	return json_number_value(field);
}

static void must_fail(int code, const char *what)
{
	ck_assert_msg(command.code == code, "exit code %d\n%s", command.code, command.err);
	ck_assert_msg(strstr(command.err, what) != NULL, "no \"%s\" in:\n%s", what, command.err);
	ck_assert_str_eq(command.out, "");
}

struct count {
	int64_t requests;
	int64_t tokens;
	int64_t blocks;
	int64_t hits;
};

/*
 * What a cache without end would hit in a Mooncake trace. Its ids name prefixes, so an id that was
 * seen before, behind others that were, is a hit.
 */
static void count_excerpt(struct count *out)
{
	static const char *const unpack[] = {"xz", "-dc", EXCERPT, NULL};
	struct kvpool_command text = {0};
	static bool seen[1 << 20];
	char *save = NULL;

	kvpool_command_run(unpack, &text);
	for (char *line = strtok_r(text.out, "\n", &save); line != NULL && out->requests < REQUESTS;
	     line = strtok_r(NULL, "\n", &save)) {
		json_t *row = json_loads(line, 0, NULL);
		const json_t *ids = json_object_get(row, "hash_ids");
		int64_t tokens = json_integer_value(json_object_get(row, "input_length"));
		bool hit = true;

		out->requests++;
		out->tokens += tokens;
		for (size_t i = 0; i < (size_t)(tokens / BLOCK_TOKENS); i++) {
			size_t id = (size_t)json_integer_value(json_array_get(ids, i));

			ck_assert_uint_lt(id, KVPOOL_ARRAY_SIZE(seen));
			hit = hit && seen[id];
			out->blocks++;
			out->hits += hit;
			seen[id] = true;
		}
		json_decref(row);
	}
	kvpool_command_clear(&text);
}

START_TEST(should_hit_what_an_endless_cache_would_when_the_pool_is_large)
{
	struct count count = {0};

	count_excerpt(&count);
	ck_assert_int_eq(count.requests, REQUESTS);
	ck_assert_int_gt(count.hits, 0);
	replay_json("--json --processes 1 --requests " REQUESTS_STR
		    " --block-bytes 4K --pool 256M " EXCERPT);
	ck_assert_int_eq(command.code, 0);
	ck_assert_int_eq(integer("requests"), count.requests);
	ck_assert_int_eq(integer("tokens"), count.tokens);
	ck_assert_int_eq(integer("blocks"), count.blocks);
	ck_assert_int_eq(integer("hit_blocks"), count.hits);
	ck_assert_int_eq(integer("stored_blocks"), count.blocks - count.hits);
	ck_assert_int_eq(integer("prefill_tokens_saved"), count.hits * BLOCK_TOKENS);
	ck_assert_int_eq(integer("checked_bytes"), count.hits * 4096);
	ck_assert_int_eq(integer("wrong_bytes"), 0);
	ck_assert_int_eq(integer("failed_calls"), 0);
}
END_TEST

START_TEST(should_hit_more_with_one_shared_pool_than_with_private_ones)
{
	static const char options[] =
		"--json --processes 4 --requests " REQUESTS_STR " --block-bytes 4K --pool 64M ";
	char line[512];
	double shared;

	snprintf(line, sizeof(line), "%s%s", options, EXCERPT);
	replay_json(line);
	ck_assert_int_eq(command.code, 0);
	ck_assert_int_eq(integer("wrong_bytes"), 0);
	ck_assert_int_eq(integer("pools"), 1);
	ck_assert_int_eq(integer("pool_bytes"), 64 << 20);
	shared = real("token_hit_rate");

	snprintf(line, sizeof(line), "%s--private %s", options, EXCERPT);
	replay_json(line);
	ck_assert_int_eq(command.code, 0);
	ck_assert_int_eq(integer("wrong_bytes"), 0);
	ck_assert_int_eq(integer("pools"), 4);
	ck_assert_int_eq(integer("pool_bytes"), 64 << 20);
	ck_assert_int_eq(integer("requests"), REQUESTS);
	ck_assert_double_gt(shared, 1.5 * real("token_hit_rate"));
}
END_TEST

START_TEST(should_report_every_field_that_scripts_rely_on)
{
	static const char *const numbers[] = {"token_hit_rate", "block_hit_rate", "store_gbps",
					      "load_gbps",      "memcpy_gbps",    "seconds"};
	const json_t *lookup;
	int64_t requests = 0;
	const json_t *process;
	size_t i;

	replay_json(
		"--json --processes 3 --requests 300 --pool-blocks 9000 --block-bytes 4K " EXCERPT);
	ck_assert_int_eq(integer("schema_version"), 1);
	ck_assert_int_eq(integer("requests"), 300);
	ck_assert_int_eq(integer("processes"), 3);
	ck_assert_int_ge(integer("pool_bytes"), INT64_C(9000) * 4096);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(numbers); i++)
		ck_assert_double_gt(real(numbers[i]), 0);
	lookup = json_object_get(report, "lookup_ns");
	ck_assert_int_gt(json_integer_value(json_object_get(lookup, "p50")), 0);
	ck_assert_int_ge(json_integer_value(json_object_get(lookup, "p99")),
			 json_integer_value(json_object_get(lookup, "p50")));
	ck_assert_uint_eq(json_array_size(json_object_get(report, "per_process")), 3);
	json_array_foreach(json_object_get(report, "per_process"), i, process) requests +=
		json_integer_value(json_object_get(process, "requests"));
	ck_assert_int_eq(requests, 300);
}
END_TEST

START_TEST(should_chain_ids_that_are_local_to_a_conversation)
{
	replay_json("--json --processes 1 --pool 64M --block-bytes 4K " DATA
		    "conversations_weka.jsonl");
	ck_assert_str_eq(json_string_value(json_object_get(report, "format")), "weka");
	ck_assert_int_eq(integer("blocks"), 25);
	/* 4 of the second turn of conversation 0, 3 of that of conversation 1, nothing else. */
	ck_assert_int_eq(integer("hit_blocks"), 7);
	/* Each turn finds what the one before left, whichever process that was. */
	replay_json("--json --processes 3 --pool 64M --block-bytes 4K " DATA
		    "conversations_weka.jsonl");
	ck_assert_int_eq(integer("hit_blocks"), 7);
}
END_TEST

START_TEST(should_share_ids_that_are_known_in_every_session)
{
	replay_json("--json --processes 1 --pool 64M --block-bytes 4K " DATA
		    "conversations_lmcache.jsonl");
	ck_assert_str_eq(json_string_value(json_object_get(report, "format")), "lmcache");
	ck_assert_int_eq(integer("blocks"), 19);
	ck_assert_int_eq(integer("hit_blocks"), 11);
}
END_TEST

START_TEST(should_print_a_table_and_nothing_else_on_stdout)
{
	replay("--processes 2 --requests 100 --pool 64M --block-bytes 4K " EXCERPT);
	ck_assert_int_eq(command.code, 0);
	ck_assert_ptr_nonnull(strstr(command.out, "token hit rate"));
	ck_assert_ptr_nonnull(strstr(command.out, "one shared pool"));
	/* No terminal, no progress bar. */
	ck_assert_str_eq(command.err, "");
}
END_TEST

START_TEST(should_name_the_line_of_a_bad_trace)
{
	replay("--json " DATA "bad_json.jsonl");
	must_fail(2, "bad_json.jsonl:3: not JSON");
	replay("--json " DATA "bad_fields.jsonl");
	must_fail(2, "bad_fields.jsonl:2: \"input_length\" is missing");
	replay("--json " DATA "no_such_trace.jsonl");
	must_fail(2, "no_such_trace.jsonl: No such file");
}
END_TEST

START_TEST(should_count_bad_lines_when_told_to_skip_them)
{
	replay_json("--json --processes 1 --pool 64M --block-bytes 4K --skip-bad-lines " DATA
		    "bad_fields.jsonl");
	ck_assert_int_eq(command.code, 0);
	ck_assert_int_eq(integer("requests"), 2);
	ck_assert_int_eq(integer("skipped_lines"), 9);
	ck_assert_ptr_nonnull(strstr(command.err, "skipped 9 bad lines"));
}
END_TEST

static const struct {
	const char *arguments;
	const char *said;
} wrong[] = {
	{"", "which trace?"},
	{"a b", "one trace at a time"},
	{"--frobnicate t", "--frobnicate is no option"},
	{"--processes", "--processes needs a value"},
	{"--processes 0 t", "1 to 64"},
	{"--processes 65 t", "1 to 64"},
	{"--processes two t", "whole number"},
	{"--pool 1K t", "--pool 1K: must be a size of 16 MiB"},
	{"--pool big t", "--pool big: must be a size"},
	{"--block-bytes 100 t", "--block-bytes 100: must be a size of 256 B"},
	{"--block-bytes 300 t", "multiple of 256"},
	{"--requests 0 t", "--requests 0"},
	{"--pool 64M --pool-blocks 100 t", "give one"},
	{"--socket /nowhere --private t", "do not go with it"},
	{"--socket /nowhere --pool 1G t", "do not go with it"},
	{"--json --against x t", "--against is for the table"},
};

START_TEST(should_say_what_is_wrong_with_the_command_line)
{
	replay(wrong[_i].arguments);
	must_fail(2, wrong[_i].said);
}
END_TEST

START_TEST(should_exit_with_3_where_no_daemon_answers)
{
	replay("--processes 2 --socket /tmp/kvpool-no-such.sock --requests 10 " EXCERPT);
	must_fail(3, "/tmp/kvpool-no-such.sock");
}
END_TEST

/* Puts zeros into the pool under the first key of the excerpt, as a faulty writer would. */
static void poison(const char *socket)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.socket = socket,
		.deadline_ns = UINT64_C(10000000000),
		.flags = KVPOOL_OPEN_REQUIRE,
	};
	struct kvpool_trace_options first = {1, false};
	static uint8_t zeros[4096];
	struct kvpool_piece piece = {zeros, sizeof(zeros)};
	struct kvpool_replay_keys *keys = NULL;
	struct kvpool_channel *channel = NULL;
	struct kvpool_layout *layout = NULL;
	struct kvpool_trace *trace = NULL;
	struct kvpool *pool = NULL;
	struct kvpool_block block;
	uint8_t key_bytes[256 * KVPOOL_KEY_SIZE];
	char why[256];

	ck_assert_int_eq(kvpool_trace_read(EXCERPT, &first, why, sizeof(why), &trace), 0);
	ck_assert_int_eq(kvpool_open(&options, &pool), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &channel), 0);
	ck_assert_int_eq(kvpool_replay_layout(pool, trace, sizeof(zeros), &layout), 0);
	ck_assert_int_eq(kvpool_replay_keys_new(kvpool_layout_fingerprint(layout), &keys), 0);
	ck_assert_int_eq(kvpool_replay_keys_make(keys, trace, &trace->requests[0], key_bytes), 0);
	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, key_bytes, 1, 0, &block), 1);
	ck_assert_int_eq(kvpool_store(channel, layout, 0, &block, 0, &piece, 1), 0);
	ck_assert_int_eq(kvpool_commit(channel, &block, 1, KVPOOL_ALL_SHARDS, 0), 1);
	kvpool_replay_keys_free(keys);
	kvpool_trace_free(trace);
	kvpool_channel_close(channel);
	kvpool_close(pool);
}

START_TEST(should_count_wrong_bytes_and_fail)
{
	struct kvpool_harness *daemon_ = NULL;
	char line[512];

	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	poison(kvpool_harness_socket(daemon_));
	snprintf(line, sizeof(line),
		 "--json --processes 1 --requests 1 --block-bytes 4K --socket %s " EXCERPT,
		 kvpool_harness_socket(daemon_));
	replay_json(line);
	ck_assert_int_eq(command.code, 1);
	ck_assert_int_eq(integer("hit_blocks"), 1);
	ck_assert_int_gt(integer("wrong_bytes"), 4000);
	ck_assert_ptr_nonnull(strstr(command.err, "a byte was wrong"));
	kvpool_harness_free(daemon_);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("replay");
	TCase *tcase = tcase_create("replay");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, should_hit_what_an_endless_cache_would_when_the_pool_is_large);
	tcase_add_test(tcase, should_hit_more_with_one_shared_pool_than_with_private_ones);
	tcase_add_test(tcase, should_report_every_field_that_scripts_rely_on);
	tcase_add_test(tcase, should_chain_ids_that_are_local_to_a_conversation);
	tcase_add_test(tcase, should_share_ids_that_are_known_in_every_session);
	tcase_add_test(tcase, should_print_a_table_and_nothing_else_on_stdout);
	tcase_add_test(tcase, should_name_the_line_of_a_bad_trace);
	tcase_add_test(tcase, should_count_bad_lines_when_told_to_skip_them);
	tcase_add_loop_test(tcase, should_say_what_is_wrong_with_the_command_line, 0,
			    (int)KVPOOL_ARRAY_SIZE(wrong));
	tcase_add_test(tcase, should_exit_with_3_where_no_daemon_answers);
	tcase_add_test(tcase, should_count_wrong_bytes_and_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(make_suite());
}
