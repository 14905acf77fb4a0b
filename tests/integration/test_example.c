/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The example of the README: the first process computes, the next one reads what it left.
 */
#include "tests/integration/client_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *run_example(char *line, int bytes)
{
	FILE *out = popen(getenv("KVPOOL_EXAMPLE"), "re");

	ck_assert_ptr_nonnull(out);
	ck_assert_ptr_nonnull(fgets(line, bytes, out));
	ck_assert_int_eq(pclose(out), 0);
	return line;
}

START_TEST(should_compute_once_and_read_the_second_time)
{
	struct kvpool_harness *daemon;
	char line[80];

	ck_assert_ptr_nonnull(getenv("KVPOOL_EXAMPLE"));
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon), 0);
	/* While the pool grows, there may be no space for a moment. */
	kvpool_rig_until_number(daemon, "pool.ready_bytes", 64 << 20);
	ck_assert_int_eq(setenv("KVPOOL_SOCKET", kvpool_harness_socket(daemon), 1), 0);
	ck_assert_str_eq(run_example(line, sizeof(line)), "computed, and left in the pool\n");
	ck_assert_str_eq(run_example(line, sizeof(line)), "read from the pool\n");
	kvpool_harness_kill(daemon);
	ck_assert_str_eq(run_example(line, sizeof(line)), "computed, and left in the pool\n");
	kvpool_harness_free(daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("example");
	TCase *tcase = tcase_create("example");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, should_compute_once_and_read_the_second_time);
	suite_add_tcase(suite, tcase);
	return kvpool_harness_run(suite);
}
