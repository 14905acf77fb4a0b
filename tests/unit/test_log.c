/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log's lines as they arrive on stderr, and the limit on how many pass.
 *
 * Each test is a process of its own (Check forks): it gives its stderr away.
 */
#include "daemon/log.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int sink;

/* From here on stderr is a file of the test's. */
static void setup(void)
{
	sink = memfd_create("stderr", MFD_CLOEXEC);
	ck_assert_int_ge(sink, 0);
	ck_assert_int_eq(dup2(sink, STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(unsetenv("JOURNAL_STREAM"), 0);
}

static const char *lines(void)
{
	static char text[8192];
	ssize_t n = pread(sink, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

static void pretend_journal(int fd)
{
	char text[64];
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	(void)snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", text, 1), 0);
}

START_TEST(should_write_words_where_stderr_is_no_journal)
{
	kvpool_log_start(KVPOOL_LOG_INFO);
	kvpool_log(KVPOOL_LOG_ERROR, "no %s", "luck");
	kvpool_log(KVPOOL_LOG_WARNING, "%d", 3);
	kvpool_log(KVPOOL_LOG_INFO, "plain");
	kvpool_log(KVPOOL_LOG_DEBUG, "not shown");
	ck_assert_str_eq(lines(), "kvpoold: error: no luck\n"
				  "kvpoold: warning: 3\n"
				  "kvpoold: plain\n");
}
END_TEST

START_TEST(should_write_priorities_where_stderr_is_the_journal)
{
	pretend_journal(sink);
	kvpool_log_start(KVPOOL_LOG_WARNING);
	kvpool_log(KVPOOL_LOG_WARNING, "a");
	kvpool_log(KVPOOL_LOG_ERROR, "b");
	kvpool_log(KVPOOL_LOG_NOTICE, "c");
	ck_assert_str_eq(lines(), "<4>a\n<3>b\n");
	ck_assert(kvpool_log_enabled(KVPOOL_LOG_WARNING));
	ck_assert(!kvpool_log_enabled(KVPOOL_LOG_NOTICE));
}
END_TEST

START_TEST(should_know_the_journal_by_device_and_inode)
{
	int other = memfd_create("other", MFD_CLOEXEC);

	pretend_journal(other);
	ck_assert(kvpool_log_is_journal(other, getenv("JOURNAL_STREAM")));
	ck_assert(!kvpool_log_is_journal(sink, getenv("JOURNAL_STREAM")));
	ck_assert(!kvpool_log_is_journal(sink, NULL));
	ck_assert(!kvpool_log_is_journal(sink, ""));
	ck_assert(!kvpool_log_is_journal(sink, "1"));
	ck_assert(!kvpool_log_is_journal(sink, "1:2x"));
	ck_assert(!kvpool_log_is_journal(-1, getenv("JOURNAL_STREAM")));
}
END_TEST

START_TEST(should_let_nobody_forge_a_line)
{
	kvpool_log_start(KVPOOL_LOG_NOTICE);
	kvpool_log(KVPOOL_LOG_NOTICE, "client \"%s\"", "x\n<0>kvpoold: on fire\r\x1b[31m\x7f");
	ck_assert_str_eq(lines(), "kvpoold: client \"x?<0>kvpoold: on fire??[31m?\"\n");
}
END_TEST

START_TEST(should_cut_a_long_line_and_show_it)
{
	char text[3 * KVPOOL_LOG_TEXT_MAX];
	const char *line;

	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	kvpool_log_start(KVPOOL_LOG_NOTICE);
	errno = ENOENT;
	kvpool_log(KVPOOL_LOG_NOTICE, "%s", text);
	ck_assert_int_eq(errno, ENOENT);
	line = lines();
	ck_assert_uint_eq(strlen(line),
			  strlen("kvpoold: ") + KVPOOL_LOG_TEXT_MAX + strlen("...\n"));
	ck_assert_str_eq(line + strlen(line) - 6, "yy...\n");
}
END_TEST

START_TEST(should_let_only_so_many_lines_pass_and_count_the_others)
{
	struct kvpool_log_limit limit = KVPOOL_LOG_LIMIT(3, 1000);
	uint64_t suppressed = 42, now = 5000;

	for (int i = 0; i < 3; i++) {
		ck_assert(kvpool_log_limit_pass(&limit, now + 1, &suppressed));
		ck_assert_uint_eq(suppressed, 0);
	}
	suppressed = 42;
	for (int i = 0; i < 7; i++)
		ck_assert(!kvpool_log_limit_pass(&limit, now + 999, &suppressed));
	ck_assert_uint_eq(suppressed, 42);
	ck_assert(kvpool_log_limit_pass(&limit, now + 1001, &suppressed));
	ck_assert_uint_eq(suppressed, 7);
	ck_assert(kvpool_log_limit_pass(&limit, now + 1002, &suppressed));
	ck_assert_uint_eq(suppressed, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("lines");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, should_write_words_where_stderr_is_no_journal);
	tcase_add_test(tcase, should_write_priorities_where_stderr_is_the_journal);
	tcase_add_test(tcase, should_know_the_journal_by_device_and_inode);
	tcase_add_test(tcase, should_let_nobody_forge_a_line);
	tcase_add_test(tcase, should_cut_a_long_line_and_show_it);
	tcase_add_test(tcase, should_let_only_so_many_lines_pass_and_count_the_others);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
