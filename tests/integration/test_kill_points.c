/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon dies at each named point of each change (daemon/kill_point.h), once while it begins or
 * as soon as it gets there, once with a pool in use; and the next life goes on from there.
 *
 * Two users' domains share four segments, so that segments move; a client of its own dies with
 * reservations; the daemon is killed by a signal too, so that adoption is among what is killed.
 * After it all: what was committed is found with the right bytes, and nothing is held. Owned by the
 * test's only thread; clients are processes.
 */
#include "daemon/kill_point.h"
#include "tests/integration/client_rig.h"

#include <fcntl.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_USER 65534
#define SKIPPED    77
#define KEPT       5u   /* blocks of the chain that must stay */
#define FILL       40u  /* chains of 60 blocks: more than the pool holds */
#define TRIES      200u /* of a call that a daemon's death makes miss */

#define NAME(name) #name,

static const char *const names[KVPOOL_KILL_POINT_COUNT] = {KVPOOL_KILL_POINTS(NAME)};

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;
static char die_file[64];

static int64_t number(const char *path)
{
	return kvpool_raw_status(kvpool_harness_admin_socket(daemon_), path);
}

static void arm(void)
{
	int fd = open(die_file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);

	ck_assert_int_ge(fd, 0);
	(void)close(fd);
}

static bool armed(void)
{
	return access(die_file, F_OK) == 0;
}

/* All of these keys are READY in the end, whatever dies meanwhile. */
static void put_all(struct kvpool_rig *r, uint64_t chain, uint32_t n)
{
	for (uint32_t try = 0; try < TRIES; try++) {
		kvpool_rig_try_put(r, chain, n);
		if (kvpool_rig_try_get(r, chain, n, NULL) == n)
			return;
	}
	ck_abort_msg("chain %lu cannot be stored", chain);
}

static bool gone(void *cookie)
{
	return kill(*(pid_t *)cookie, 0) < 0;
}

static void kill_daemon(void)
{
	pid_t pid;

	kvpool_rig_until_attached(&rig);
	pid = (pid_t)number("pid");
	(void)kill(pid, SIGKILL);
	ck_assert(kvpool_harness_until(gone, &pid, KVPOOL_RIG_MS));
	kvpool_rig_until_attached(&rig);
}

static bool zero(void *path)
{
	/* Whoever was granted something says in its next call that it has let go. */
	kvpool_rig_until_attached(&rig);
	return kvpool_raw_is(kvpool_harness_admin_socket(daemon_), path, 0);
}

/* The daemon may die meanwhile. */
static void until_zero(const char *path)
{
	char copy[64];

	(void)snprintf(copy, sizeof(copy), "%s", path);
	ck_assert_msg(kvpool_harness_until(zero, copy, KVPOOL_RIG_MS), "%s never is 0", path);
}

/* A client that holds reservations and a lease when it is killed, `uid` its user. */
static pid_t begin_client(uid_t uid, uint64_t chain)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct kvpool_rig own;
		struct kvpool_block blocks[3];
		uint8_t keys[3 * 32];

		/* Another user who may still connect: each life makes its socket anew. */
		if (uid != 0 &&
		    (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0 || setuid(uid) != 0))
			_exit(1);
		kvpool_rig_open(kvpool_harness_socket(daemon_),
				(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &own);
		kvpool_rig_try_put(&own, chain, 10);
		kvpool_rig_keys(chain + 1, 0, 3, keys);
		(void)kvpool_reserve(own.channel, own.layout, 0, NULL, keys, 3, KVPOOL_RIG_LONG,
				     blocks);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	return child;
}

static void end_client(pid_t child)
{
	int status;

	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
}

/* Fills the pool, lets another user take a part of it, leaves clients dead and the daemon too. */
static void work(bool later)
{
	pid_t mine, other;

	for (uint64_t chain = 100; chain < 100 + FILL; chain++)
		kvpool_rig_try_put(&rig, chain, 60);
	if (later)
		arm();
	other = begin_client(OTHER_USER, 200);
	end_client(begin_client(0, 400));
	mine = begin_client(0, 300);
	/* Nothing moves between the users from here on. */
	put_all(&rig, 1, KEPT);
	kvpool_rig_try_put(&rig, 2, 20);
	kill_daemon();
	ck_assert_int_eq(kvpool_rig_try_get(&rig, 1, KEPT, NULL), KEPT);
	kvpool_rig_try_put(&rig, 3, 20);
	end_client(mine);
	end_client(other);
	kvpool_rig_try_put(&rig, 4, 20);
	/* Now nobody holds anything. */
	until_zero("restart.past_clients");
	kill_daemon();
	kvpool_rig_try_put(&rig, 5, 20);
}

/* Nothing is held, the accounting is exact, and what must be there is. */
static void judge(void)
{
	const char *const nothing[] = {"accounting.leases", "accounting.blocks.reserved",
				       "accounting.blocks.quarantined",
				       "accounting.blocks.leased_only", "restart.past_clients"};

	kvpool_rig_until_attached(&rig);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(nothing); i++)
		until_zero(nothing[i]);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon_));
	ck_assert_int_eq(kvpool_rig_try_get(&rig, 1, KEPT, NULL), KEPT);
	/* Whatever else is found has the right bytes. */
	for (uint64_t chain = 100; chain < 100 + FILL; chain++)
		(void)kvpool_rig_try_get(&rig, chain, 60, NULL);
}

static void run(const char *point, bool later)
{
	const char *args[] = {"--supervise", "--size",        "4M",  "--segment-size",
			      "1M",          "--extent-size", "64K", NULL};
	char folder[] = "/tmp/kvpool-kill-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(die_file, sizeof(die_file), "%s/die", folder);
	ck_assert_int_eq(setenv("KVPOOL_DIE_AT", point, 1), 0);
	ck_assert_int_eq(setenv("KVPOOL_DIE_FILE", die_file, 1), 0);
	if (!later)
		arm();
	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &rig);
	work(later);
	/* A point that only a beginning comes to is not come to later. */
	ck_assert_msg(later || !armed(), "%s is never come to", point);
	judge();
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
	(void)unlink(die_file);
	(void)rmdir(folder);
}

START_TEST(should_go_on_after_a_death_as_soon_as_it_can_be)
{
	run(names[_i], false);
}
END_TEST

START_TEST(should_go_on_after_a_death_with_a_pool_in_use)
{
	run(names[_i], true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kill_points");
	TCase *tc = tcase_create("kill_points");

	if (geteuid() != 0) {
		printf("skipped: two users are needed, and so root\n");
		return SKIPPED;
	}
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, should_go_on_after_a_death_as_soon_as_it_can_be, 0,
			    KVPOOL_KILL_POINT_COUNT);
	tcase_add_loop_test(tc, should_go_on_after_a_death_with_a_pool_in_use, 0,
			    KVPOOL_KILL_POINT_COUNT);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
