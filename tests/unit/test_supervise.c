/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the supervisor that need no process: how long it waits, and how it calls its child.
 * The rest is in tests/integration/test_supervised.c.
 */
#include "daemon/clock.h"
#include "daemon/supervise.h"
#include "shm/base.h"

#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHORT_NS (9999 * KVPOOL_NS_PER_MS)
#define LONG_NS  (10 * KVPOOL_NS_PER_S)

START_TEST(should_wait_longer_and_longer_for_a_child_that_dies_soon)
{
	static const uint64_t ms[] = {0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000};
	struct kvpool_supervise_pause pause = {.max_ns = 5 * KVPOOL_NS_PER_S, .long_ns = LONG_NS};

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(ms); i++)
		ck_assert_uint_eq(kvpool_supervise_pause_after(&pause, SHORT_NS),
				  ms[i] * KVPOOL_NS_PER_MS);
}
END_TEST

START_TEST(should_start_at_once_after_a_long_life)
{
	struct kvpool_supervise_pause pause = {.max_ns = 5 * KVPOOL_NS_PER_S, .long_ns = LONG_NS};

	(void)kvpool_supervise_pause_after(&pause, SHORT_NS);
	(void)kvpool_supervise_pause_after(&pause, SHORT_NS);
	ck_assert_uint_eq(kvpool_supervise_pause_after(&pause, LONG_NS), 0);
	ck_assert_uint_eq(kvpool_supervise_pause_after(&pause, LONG_NS), 0);
	ck_assert_uint_eq(kvpool_supervise_pause_after(&pause, SHORT_NS), 100 * KVPOOL_NS_PER_MS);
}
END_TEST

static const struct {
	const char *given[5];
	const char *passed[5]; /* behind the path */
} calls[] = {
	{{"kvpoold"}, {NULL}},
	{{"kvpoold", "--supervise"}, {NULL}},
	{{"kvpoold", "--size", "1G", "--supervise"}, {"--size", "1G"}},
	{{"kvpoold", "--supervise", "--size=1G", "--superv"}, {"--size=1G"}},
	{{"kvpoold", "--su", "--s", "--supervised"}, {"--s", "--supervised"}},
};

START_TEST(should_call_the_child_as_itself_without_the_flag)
{
	char *argv[5];
	char *const *child;
	char self[PATH_MAX];
	int argc = 0, n = 0;

	while (argc < 5 && calls[_i].given[argc]) {
		argv[argc] = (char *)(uintptr_t)calls[_i].given[argc];
		argc++;
	}
	ck_assert_int_eq(kvpool_supervise_argv(argc, argv, &child), 0);
	ck_assert_ptr_nonnull(realpath("/proc/self/exe", self));
	ck_assert_str_eq(child[0], self);
	while (n < 5 && calls[_i].passed[n]) {
		ck_assert_str_eq(child[n + 1], calls[_i].passed[n]);
		n++;
	}
	ck_assert_ptr_null(child[n + 1]);
	kvpool_supervise_argv_free(child);
	kvpool_supervise_argv_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("supervise");
	TCase *tcase = tcase_create("supervise");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, should_wait_longer_and_longer_for_a_child_that_dies_soon);
	tcase_add_test(tcase, should_start_at_once_after_a_long_life);
	tcase_add_loop_test(tcase, should_call_the_child_as_itself_without_the_flag, 0,
			    (int)KVPOOL_ARRAY_SIZE(calls));
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
