/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench from the outside: each command runs with tiny parameters, and its JSON has the
 * fields that scripts read. No figure is judged: a machine under load measures rubbish.
 *
 * One thread; the bench starts and stops its own daemons.
 */
#include "tests/integration/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 30

/* In the child: becomes kvpool-bench with arguments that blanks part; both outputs to `to`. */
static void become_bench(const char *arguments, int to)
{
	char *program = getenv("KVPOOL_BENCH");
	char *argv[ARGUMENTS_MAX + 2] = {program};
	char *copy = strdup(arguments);
	char *rest = NULL;
	int n = 1;

	if (!program || !copy)
		_exit(127);
	for (char *word = strtok_r(copy, " ", &rest); word && n <= ARGUMENTS_MAX;
	     word = strtok_r(NULL, " ", &rest))
		argv[n++] = word;
	if (dup2(to, STDOUT_FILENO) >= 0 && dup2(to, STDERR_FILENO) >= 0)
		execv(program, argv);
	_exit(127);
}

/* Runs kvpool-bench with these arguments; its exit status, and what it printed (owned). */
static int run_bench(const char *arguments, char **out)
{
	size_t bytes = 0;
	char *text = NULL;
	FILE *memory = open_memstream(&text, &bytes);
	char buffer[4096];
	int pipes[2];
	int status;
	ssize_t n;
	pid_t pid;

	ck_assert_ptr_nonnull(memory);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become_bench(arguments, pipes[1]);
	close(pipes[1]);
	while ((n = read(pipes[0], buffer, sizeof(buffer))) > 0)
		ck_assert_uint_eq(fwrite(buffer, 1, (size_t)n, memory), (size_t)n);
	close(pipes[0]);
	fclose(memory);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	*out = text;
	return WEXITSTATUS(status);
}

/* The report of a run that must succeed. */
static json_t *report_of(const char *command, const char *arguments)
{
	static const char *const strings[] = {"kernel", "commit", "date"};
	char line[512];
	json_error_t error;
	json_t *report;
	char *text;
	int status;

	snprintf(line, sizeof(line), "%s --json %s", command, arguments);
	status = run_bench(line, &text);
	ck_assert_msg(status == 0, "kvpool-bench %s: exit status %d: %s", line, status, text);
	/* What it said on stderr stands before. */
	report = json_loads(strchr(text, '{') ? strchr(text, '{') : text, 0, &error);
	ck_assert_msg(report != NULL, "kvpool-bench %s: %s in: %s", line, error.text, text);
	free(text);
	ck_assert_int_eq(json_integer_value(json_object_get(report, "schema_version")), 1);
	ck_assert_str_eq(json_string_value(json_object_get(report, "command")), command);
	ck_assert(json_is_object(json_object_get(report, "machine")));
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		ck_assert(json_is_string(json_object_get(report, strings[i])));
	return report;
}

static void assert_positive(const json_t *object, const char *field)
{
	const json_t *value = json_object_get(object, field);

	ck_assert_msg(json_is_number(value), "%s is no number", field);
	ck_assert_msg(json_number_value(value) > 0, "%s is %f", field, json_number_value(value));
}

static void assert_percentiles(const json_t *report, const char *field)
{
	const json_t *value = json_object_get(report, field);

	ck_assert_msg(json_is_object(value), "%s is no object", field);
	assert_positive(value, "p50");
	assert_positive(value, "p99");
	ck_assert(json_number_value(json_object_get(value, "p50")) <=
		  json_number_value(json_object_get(value, "p99")));
}

/* Element i of an array that must have n. */
static const json_t *row(const json_t *report, const char *array, size_t n, size_t i)
{
	const json_t *rows = json_object_get(report, array);

	ck_assert_uint_eq(json_array_size(rows), n);
	ck_assert(json_is_object(json_array_get(rows, i)));
	return json_array_get(rows, i);
}

static int cores(void)
{
	cpu_set_t allowed;

	CPU_ZERO(&allowed);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	return CPU_COUNT(&allowed);
}

START_TEST(should_report_the_ping_pong)
{
	json_t *report;
	char *text;

	if (cores() < 2) {
		ck_assert_int_eq(run_bench("pingpong", &text), 1);
		ck_assert_ptr_nonnull(strstr(text, "two cores"));
		free(text);
		return;
	}
	report = report_of("pingpong", "--rounds 2 --samples 2000");
	assert_percentiles(report, "pingpong_ns");
	ck_assert_int_eq(json_integer_value(json_object_get(report, "samples")), 4000);
	json_decref(report);
}
END_TEST

START_TEST(should_report_lookups_hit_and_missed)
{
	static const int keys[] = {1, 32, 1024};
	json_t *report = report_of("match", "--resident 6000 --keys 1,32,1024 --rounds 1 "
					    "--samples 50");

	if (cores() >= 2)
		assert_percentiles(report, "pingpong_ns");
	assert_positive(report, "metadata_bytes_per_block");
	for (size_t i = 0; i < 6; i++) {
		const json_t *figure = row(report, "results", 6, i);

		ck_assert_int_eq(json_integer_value(json_object_get(figure, "keys")), keys[i / 2]);
		ck_assert(json_is_boolean(json_object_get(figure, "hit")));
		ck_assert_int_eq(json_is_true(json_object_get(figure, "hit")), i % 2 == 0);
		assert_positive(figure, "p50_ns");
		assert_positive(figure, "p99_ns");
		assert_positive(figure, "keys_per_second");
	}
	ck_assert_int_eq(json_integer_value(json_object_get(report, "resident")), 6000);
	json_decref(report);
}
END_TEST

START_TEST(should_report_copies_in_pieces)
{
	json_t *report = report_of(
		"copy", "--buffer 8M --blocks 64K,384K --pieces 1,32 --rounds 1 --checksum");

	for (size_t i = 0; i < 4; i++) {
		const json_t *figure = row(report, "results", 4, i);

		ck_assert_int_eq(json_integer_value(json_object_get(figure, "block_bytes")),
				 i < 2 ? 65536 : 393216);
		ck_assert_int_eq(json_integer_value(json_object_get(figure, "pieces")),
				 i % 2 ? 32 : 1);
		assert_positive(figure, "memcpy_gbps");
		assert_positive(figure, "store_gbps");
		assert_positive(figure, "load_gbps");
		ck_assert(json_is_boolean(json_object_get(figure, "met")));
		figure = row(report, "checksums", 4, i);
		assert_positive(figure, "store_summed_gbps");
		assert_positive(figure, "store_ratio");
		assert_positive(figure, "load_verified_gbps");
		assert_positive(figure, "load_ratio");
	}
	json_decref(report);
}
END_TEST

START_TEST(should_report_many_channels)
{
	json_t *report = report_of("scale", "--channels 1,3,20 --busy 2 --rounds 1 --samples 100");
	static const int n[] = {1, 3, 20};

	for (size_t i = 0; i < 3; i++) {
		const json_t *figure = row(report, "channels", 3, i);

		ck_assert_int_eq(json_integer_value(json_object_get(figure, "n")), n[i]);
		assert_positive(figure, "busy");
		assert_positive(figure, "requests_per_second");
		assert_positive(figure, "p50_ns");
		assert_positive(figure, "p99_ns");
	}
	json_decref(report);
}
END_TEST

START_TEST(should_report_a_start)
{
	json_t *report = report_of("start", "--pool 64M --rounds 1");
	double ready = json_number_value(json_object_get(report, "ready_ms"));
	double hit = json_number_value(json_object_get(report, "first_hit_ms"));
	double full = json_number_value(json_object_get(report, "full_ms"));

	ck_assert(ready > 0 && ready < hit && hit <= full);
	ck_assert_int_eq(json_integer_value(json_object_get(report, "pool_bytes")), 64 << 20);
	ck_assert(json_is_boolean(json_object_get(report, "met")));
	json_decref(report);
}
END_TEST

START_TEST(should_report_when_the_leases_of_a_dead_client_are_back)
{
	static const char *const figures[] = {"lease_return_ms", "lease_return_asleep_ms"};
	json_t *report = report_of("death", "--cycles 3");

	ck_assert_int_eq(json_integer_value(json_object_get(report, "cycles")), 3);
	assert_positive(report, "leases");
	assert_positive(report, "leased_blocks");
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		assert_percentiles(report, figures[i]);
		assert_positive(json_object_get(report, figures[i]), "max");
	}
	ck_assert(json_is_string(json_object_get(report, "method")));
	ck_assert(json_is_boolean(json_object_get(report, "met")));
	json_decref(report);
}
END_TEST

START_TEST(should_report_a_restart)
{
	static const char *const times[] = {"first_hit_ms", "adopt_ms", "client_gap_ms"};
	json_t *report = report_of("restart", "--blocks 1280 --rounds 2");

	ck_assert_int_eq(json_integer_value(json_object_get(report, "blocks")), 1280);
	ck_assert(json_number_value(json_object_get(report, "kept_ratio")) == 1.0);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		const json_t *time = json_object_get(report, times[i]);

		assert_positive(time, "p50");
		assert_positive(time, "max");
		assert_positive(row(report, "laps", 2, 1), times[i]);
	}
	json_decref(report);
}
END_TEST

START_TEST(should_report_an_idle_daemon)
{
	json_t *report = report_of("idle", "--seconds 1 --samples 3");

	ck_assert(json_is_number(json_object_get(report, "cpu_ms_per_10s")));
	ck_assert(json_is_number(json_object_get(report, "wakeups_per_10s")));
	assert_percentiles(report, "sleep_wake_us");
	json_decref(report);
}
END_TEST

START_TEST(should_compare_with_the_peers_that_are_there)
{
	json_t *report = report_of("compare", "--peers redis,memcached --resident 3000 --rounds 1 "
					      "--keys 1,32 --samples 20");
	const json_t *peers = json_object_get(report, "peers");
	size_t present = 0;
	const json_t *item;
	size_t i;

	ck_assert_uint_eq(json_array_size(peers), 2);
	json_array_foreach(peers, i, item) present +=
		json_is_true(json_object_get(item, "present"));
	/* For each peer two lookups, a store and a load. */
	ck_assert_uint_eq(json_array_size(json_object_get(report, "results")), 4 * present);
	json_array_foreach(json_object_get(report, "results"), i, item)
	{
		ck_assert(json_is_string(json_object_get(item, "peer")));
		assert_positive(item, i % 4 < 2 ? "keys" : "block_bytes");
		assert_positive(item, "p50_ns");
		assert_positive(item, "kvpool_p50_ns");
		assert_positive(item, "ratio");
	}
	json_decref(report);
}
END_TEST

START_TEST(should_leave_out_a_peer_that_is_not_installed)
{
	json_t *report;
	const char *path = getenv("PATH");
	char *kept = strdup(path ? path : "");

	setenv("PATH", "/nonexistent", 1);
	report = report_of("compare", "--resident 3000 --rounds 1 --keys 1 --samples 2");
	ck_assert(json_is_false(json_object_get(row(report, "peers", 2, 0), "present")));
	ck_assert_uint_eq(json_array_size(json_object_get(report, "results")), 0);
	json_decref(report);
	setenv("PATH", kept, 1);
	free(kept);
}
END_TEST

START_TEST(should_measure_a_daemon_that_runs_already)
{
	struct kvpool_harness *harness;
	char arguments[256];
	json_t *report;

	ck_assert_int_eq(kvpool_harness_new(NULL, &harness), 0);
	snprintf(arguments, sizeof(arguments),
		 "--socket %s --admin-socket %s --resident 300 --keys 1 --rounds 1 --samples 10",
		 kvpool_harness_socket(harness), kvpool_harness_admin_socket(harness));
	/* The second run finds the blocks of the first. */
	for (int i = 0; i < 2; i++) {
		report = report_of("match", arguments);
		ck_assert_int_eq(json_integer_value(json_object_get(report, "resident")), 300);
		json_decref(report);
	}
	kvpool_harness_free(harness);
}
END_TEST

START_TEST(should_print_a_table_without_json)
{
	char *text;

	ck_assert_int_eq(run_bench("match --resident 300 --keys 1 --rounds 1 --samples 10", &text),
			 0);
	ck_assert_ptr_nonnull(strstr(text, "keys/s"));
	ck_assert_ptr_nonnull(strstr(text, "metadata_bytes_per_block"));
	free(text);
}
END_TEST

static const struct {
	const char *arguments;
	int status;
	const char *says;
} refusals[] = {
	{"", 2, "usage"},
	{"measure", 2, "unknown command measure"},
	{"match --frob", 2, "unknown option --frob"},
	{"match --resident", 2, "--resident needs a value"},
	{"match --resident many", 2, "--resident many"},
	{"match --keys 1,,2", 2, "--keys 1,,2"},
	{"idle --pool 1G", 2, "idle takes no option --pool"},
	{"match 12", 2, "unexpected argument 12"},
	{"match --keys 65536", 1, "65536 keys"},
	{"match --keys 1024 --resident 10", 1, "--resident 1024"},
	{"copy --pieces 65", 1, "at most 64"},
	{"copy --blocks 100 --pieces 32", 1, "does not fall into"},
	{"compare --peers redis,etcd --resident 300 --keys 1", 1, "etcd"},
	{"match --socket /nonexistent/kvpool.sock --resident 300 --keys 1", 1,
	 "/nonexistent/kvpool.sock"},
	{"match --daemon /nonexistent/kvpoold --resident 300 --keys 1", 1, "/nonexistent/kvpoold"},
	{"start --pool 1000T", 1, "kvpoold did not start"},
	{"match --client-cpu 4000 --resident 300 --keys 1", 1, "4000"},
};

START_TEST(should_say_what_is_wrong)
{
	char *text;
	int status = run_bench(refusals[_i].arguments, &text);

	ck_assert_msg(status == refusals[_i].status, "kvpool-bench %s: exit status %d: %s",
		      refusals[_i].arguments, status, text);
	ck_assert_msg(strstr(text, refusals[_i].says) != NULL, "kvpool-bench %s says: %s",
		      refusals[_i].arguments, text);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bench");
	TCase *figures = tcase_create("figures");
	TCase *wrong = tcase_create("wrong");

	if (!getenv("KVPOOL_BENCH")) {
		puts("skipped: $KVPOOL_BENCH does not name kvpool-bench");
		return 77;
	}
	tcase_set_timeout(figures, 60);
	tcase_add_test(figures, should_report_the_ping_pong);
	tcase_add_test(figures, should_report_lookups_hit_and_missed);
	tcase_add_test(figures, should_report_copies_in_pieces);
	tcase_add_test(figures, should_report_many_channels);
	tcase_add_test(figures, should_report_a_start);
	tcase_add_test(figures, should_report_when_the_leases_of_a_dead_client_are_back);
	tcase_add_test(figures, should_report_a_restart);
	tcase_add_test(figures, should_report_an_idle_daemon);
	tcase_add_test(figures, should_compare_with_the_peers_that_are_there);
	tcase_add_test(figures, should_leave_out_a_peer_that_is_not_installed);
	tcase_add_test(figures, should_measure_a_daemon_that_runs_already);
	tcase_add_test(figures, should_print_a_table_without_json);
	suite_add_tcase(suite, figures);
	tcase_set_timeout(wrong, 30);
	tcase_add_loop_test(wrong, should_say_what_is_wrong, 0,
			    sizeof(refusals) / sizeof(refusals[0]));
	suite_add_tcase(suite, wrong);
	return kvpool_harness_run(suite);
}
