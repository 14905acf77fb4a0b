/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-torture from the outside: a short run, in which nothing is wrong, leaked or lost, and what
 * it says about itself.
 *
 * One thread; the tool starts and ends all processes.
 */
#include "tests/integration/command.h"
#include "tests/integration/harness.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *torture(void)
{
	return getenv("KVPOOL_TORTURE");
}

static json_int_t number(const json_t *report, const char *field)
{
	const json_t *value = json_object_get(report, field);

	ck_assert_msg(json_is_integer(value), "%s is no whole number", field);
	return json_integer_value(value);
}

START_TEST(should_find_nothing_wrong_while_clients_and_daemon_are_killed)
{
	const char *arguments[] = {torture(),     "--json",   "--seconds=10",
				   "--clients=4", "--seed=7", "--daemon-kill-every=2",
				   NULL};
	struct kvpool_command command;
	const json_t *quiet;
	json_t *report;

	kvpool_command_run(arguments, &command);
	ck_assert_msg(command.code == 0, "%s%s", command.out, command.err);
	report = json_loads(command.out, 0, NULL);
	ck_assert_ptr_nonnull(report);
	ck_assert_int_eq(number(report, "wrong_bytes"), 0);
	ck_assert_int_eq(number(report, "leaked_blocks"), 0);
	ck_assert(json_is_true(json_object_get(report, "accounting_exact")));
	/* The run is worth something only if all of this happened. */
	ck_assert_int_gt(number(report, "client_kills"), 0);
	ck_assert_int_gt(number(report, "daemon_kills"), 0);
	ck_assert_int_gt(number(report, "blocks_checked"), 0);
	quiet = json_object_get(json_object_get(report, "kept_ratio"), "quiet");
	if (json_is_object(quiet))
		ck_assert(json_number_value(json_object_get(quiet, "min")) == 1.0);
	json_decref(report);
	kvpool_command_clear(&command);
}
END_TEST

START_TEST(should_end_with_2_where_the_command_line_is_wrong)
{
	static const char *const wrong[] = {"--seconds=0", "--clients=65", "--no-such", "extra"};
	const char *arguments[] = {torture(), wrong[_i], NULL};
	struct kvpool_command command;

	kvpool_command_run(arguments, &command);
	ck_assert_int_eq(command.code, 2);
	ck_assert_str_ne(command.err, "");
	kvpool_command_clear(&command);
}
END_TEST

START_TEST(should_end_with_1_where_there_is_no_daemon_to_start)
{
	const char *arguments[] = {torture(), "--daemon", "/nonexistent/kvpoold", NULL};
	struct kvpool_command command;

	kvpool_command_run(arguments, &command);
	ck_assert_int_eq(command.code, 1);
	ck_assert_ptr_nonnull(strstr(command.err, "/nonexistent/kvpoold"));
	kvpool_command_clear(&command);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("torture");
	TCase *tc = tcase_create("torture");

	tcase_set_timeout(tc, 170);
	tcase_add_test(tc, should_find_nothing_wrong_while_clients_and_daemon_are_killed);
	tcase_add_loop_test(tc, should_end_with_2_where_the_command_line_is_wrong, 0, 4);
	tcase_add_test(tc, should_end_with_1_where_there_is_no_daemon_to_start);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
