/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Too few descriptors: from the start, so that the daemon ends with a word or serves as many as it
 * can; and while it serves, so that whoever is refused is told, the others go on, and all of them
 * come back.
 *
 * One process, but for the daemon.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FEWEST    3
#define ENOUGH    48
#define CLIENTS   40u
#define NO_LOADER 127 /* of a program whose libraries cannot be loaded */

static struct kvpool_harness *daemon_;

static void attach(struct kvpool_rig *rig, uint32_t flags)
{
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){.flags = flags},
			rig);
}

/* Makes KVPOOLD a program that has only `n` descriptors when it begins. */
static void allow(const char *script, int n)
{
	FILE *file = fopen(script, "we");

	ck_assert_ptr_nonnull(file);
	(void)fprintf(file, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", n,
		      getenv("KVPOOL_REAL_DAEMON"));
	(void)fclose(file);
	ck_assert_int_eq(chmod(script, 0700), 0);
	ck_assert_int_eq(setenv("KVPOOLD", script, 1), 0);
}

/* It said why, and left nothing. */
static void judge_ended(void)
{
	int status = kvpool_harness_status(daemon_);
	const char *text = kvpool_harness_stderr(daemon_);

	ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == EXIT_FAILURE ||
					    WEXITSTATUS(status) == NO_LOADER),
		      "wait status %d: %s", status, text);
	ck_assert_msg(WEXITSTATUS(status) == NO_LOADER || strstr(text, strerror(EMFILE)) ||
			      strstr(text, "descriptor"),
		      "%s", text);
	ck_assert_int_eq(access(kvpool_harness_socket(daemon_), F_OK), -1);
	ck_assert_int_eq(access(kvpool_harness_admin_socket(daemon_), F_OK), -1);
}

/* Stores and finds. */
static bool judge_service(void)
{
	struct kvpool_rig rig;
	bool served;

	attach(&rig, 0);
	kvpool_rig_try_put(&rig, 1, 4);
	served = kvpool_rig_get(&rig, 1, 4) == 4;
	kvpool_rig_close(&rig);
	return served;
}

/* Whether a client is attached; one that is not is told why. */
static bool attaches(void)
{
	struct kvpool_rig rig;
	bool yes;

	attach(&rig, 0);
	yes = kvpool_rig_get(&rig, 1, 1) >= 0;
	if (!yes)
		ck_assert_msg(strlen(kvpool_channel_error(rig.channel)) > 0, "refused in silence");
	kvpool_rig_close(&rig);
	return yes;
}

START_TEST(should_end_with_a_word_or_serve_with_any_number_of_descriptors)
{
	char folder[] = "/tmp/kvpool-few-XXXXXX", script[64];
	const char *const args[] = {"--size", "4M", "--segment-size", "1M", NULL};
	int ended = 0, served = 0;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(script, sizeof(script), "%s/kvpoold", folder);
	for (int n = FEWEST; n <= ENOUGH; n++) {
		allow(script, n);
		ck_assert_int_eq(kvpool_harness_try(args, &daemon_), 0);
		if (kvpool_harness_pid(daemon_) == 0) {
			judge_ended();
			ck_assert_int_eq(served, 0);
			ended++;
		} else if (attaches()) {
			ck_assert_msg(judge_service(), "%d descriptors", n);
			served++;
		}
		kvpool_harness_free(daemon_);
	}
	(void)unlink(script);
	(void)rmdir(folder);
	printf("%d to %d descriptors: %d ended at the start, %d served\n", FEWEST, ENOUGH, ended,
	       served);
	ck_assert_int_gt(ended, 0);
	ck_assert_int_gt(served, 0);
}
END_TEST

/* How many it may have from now on. The hard limit stays: not everybody may raise it again. */
static void limit(int n)
{
	struct rlimit files;

	ck_assert_int_eq(prlimit(kvpool_harness_pid(daemon_), RLIMIT_NOFILE, NULL, &files), 0);
	files.rlim_cur = (rlim_t)n;
	ck_assert_int_eq(prlimit(kvpool_harness_pid(daemon_), RLIMIT_NOFILE, &files, NULL), 0);
}

static int used(void)
{
	return kvpool_harness_descriptors(kvpool_harness_pid(daemon_), "");
}

static bool as_many(void *cookie)
{
	return used() <= *(const int *)cookie;
}

/* Attaches clients until one is refused; returns how many were not. */
static uint32_t fill(struct kvpool_rig *rigs)
{
	uint32_t n = 0;

	for (; n < CLIENTS; n++) {
		attach(&rigs[n], 0);
		if (kvpool_rig_get(&rigs[n], 1, 1) < 0)
			break;
	}
	ck_assert_uint_lt(n, CLIENTS);
	ck_assert_msg(strstr(kvpool_error(rigs[n].pool), "refuses"), "%s",
		      kvpool_error(rigs[n].pool));
	kvpool_rig_close(&rigs[n]);
	return n;
}

static bool reads_again(void *cookie)
{
	uint32_t read = 0;

	return kvpool_rig_try_get(cookie, 1, 4, &read) == 4 && read == 4;
}

/* A member that only reads needs a descriptor of its own for a segment, made when it asks. */
static void expect_no_segment(struct kvpool_rig *reader)
{
	uint32_t read = 1;

	ck_assert_int_eq(kvpool_rig_try_get(reader, 1, 4, &read), 4);
	ck_assert_uint_eq(read, 0);
}

START_TEST(should_refuse_with_a_word_those_who_come_too_late_and_serve_the_others)
{
	static const char *const epoll[] = {"--loop", "epoll", NULL};
	struct kvpool_rig first, reader, rigs[CLIENTS];
	uint32_t n;
	int before;

	ck_assert_int_eq(kvpool_harness_new(_i ? epoll : NULL, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	attach(&first, 0);
	ck_assert_uint_eq(kvpool_rig_put(&first, 1, 0, 4), 4);
	attach(&reader, KVPOOL_OPEN_READ_ONLY);
	kvpool_rig_until_attached(&reader);
	before = used();
	limit(before + 20);
	n = fill(rigs);
	ck_assert_uint_gt(n, 0);
	/* Not one left, whatever the refused one would have taken. */
	limit(3);
	expect_no_segment(&reader);
	/* Who is there goes on, which takes none. */
	ck_assert_uint_eq(kvpool_rig_put(&first, 2, 0, 10), 10);
	ck_assert_int_eq(kvpool_rig_get(&first, 2, 10), 10);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_ge(kvpool_rig_get(&rigs[i], 3, 1), 0);
	limit(before + 20);
	while (n > 0)
		kvpool_rig_close(&rigs[--n]);
	ck_assert_msg(kvpool_harness_until(as_many, &before, KVPOOL_RIG_MS),
		      "%d descriptors, %d before", used(), before);
	ck_assert(kvpool_harness_until(reads_again, &reader, KVPOOL_RIG_MS));
	attach(&rigs[0], 0);
	kvpool_rig_until_attached(&rigs[0]);
	ck_assert_int_eq(kvpool_rig_get(&rigs[0], 2, 10), 10);
	kvpool_rig_close(&rigs[0]);
	kvpool_rig_close(&reader);
	kvpool_rig_end(daemon_, &first);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("descriptors");
	TCase *tc = tcase_create("descriptors");
	const char *binary = getenv("KVPOOLD");

	if (binary)
		(void)setenv("KVPOOL_REAL_DAEMON", binary, 1);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, should_end_with_a_word_or_serve_with_any_number_of_descriptors);
	tcase_add_loop_test(
		tc, should_refuse_with_a_word_those_who_come_too_late_and_serve_the_others, 0, 2);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
