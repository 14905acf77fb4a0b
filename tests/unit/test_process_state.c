/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of a process: texts as the kernel and hostile names make them, and real
 * processes.
 */
#include "daemon/process_state.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(should_read_the_state_behind_the_name)
{
	static const struct {
		const char *stat;
		enum kvpool_process_state state;
	} cases[] = {
		{"12 (engine) S 1 12 12", KVPOOL_PROCESS_RUNNING},
		{"12 (engine) R 1", KVPOOL_PROCESS_RUNNING},
		{"12 (engine) D 1", KVPOOL_PROCESS_RUNNING},
		{"12 (engine) T 1", KVPOOL_PROCESS_STOPPED},
		{"12 (engine) t 1", KVPOOL_PROCESS_STOPPED},
		{"12 (engine) Z 1", KVPOOL_PROCESS_GONE},
		{"12 (engine) X 1", KVPOOL_PROCESS_GONE},
		{"12 (a) T b) S 1", KVPOOL_PROCESS_RUNNING},
		{"12 (a (b) T 1", KVPOOL_PROCESS_STOPPED},
		{"12 (engine", KVPOOL_PROCESS_UNKNOWN},
		{"12 (engine)", KVPOOL_PROCESS_UNKNOWN},
		{"12 (engine) ", KVPOOL_PROCESS_UNKNOWN},
		{"", KVPOOL_PROCESS_UNKNOWN},
	};

	ck_assert_int_eq(kvpool_process_state_parse(cases[_i].stat), cases[_i].state);
}
END_TEST

START_TEST(should_tell_a_stopped_process_from_a_running_one)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		for (;;)
			pause();
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(kvpool_process_state_read(child), KVPOOL_PROCESS_RUNNING);
	ck_assert_int_eq(kill(child, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert_int_eq(kvpool_process_state_read(child), KVPOOL_PROCESS_STOPPED);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(kvpool_process_state_read(child), KVPOOL_PROCESS_UNKNOWN);
}
END_TEST

START_TEST(should_not_know_a_process_that_is_not_visible)
{
	ck_assert_int_eq(kvpool_process_state_read(0), KVPOOL_PROCESS_UNKNOWN);
	ck_assert_str_eq(kvpool_process_state_name(KVPOOL_PROCESS_UNKNOWN), "unknown");
	ck_assert_str_eq(kvpool_process_state_name(KVPOOL_PROCESS_STOPPED), "stopped");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process_state");
	TCase *tcase = tcase_create("state");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, should_read_the_state_behind_the_name, 0, 13);
	tcase_add_test(tcase, should_tell_a_stopped_process_from_a_running_one);
	tcase_add_test(tcase, should_not_know_a_process_that_is_not_visible);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
