/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon dies and the next life has its pool: `kvpoold --supervise`, whose child is killed.
 *
 * The harness runs the supervisor; the daemon's own process is the one that the status page names.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (KVPOOL_RIG_BYTES / 8)

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static int64_t number(const char *path)
{
	return kvpool_raw_status(kvpool_harness_admin_socket(daemon_), path);
}

static void setup(void)
{
	const char *args[] = {"--supervise", "--size", "64M", NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &rig);
	kvpool_rig_until_attached(&rig);
}

static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
}

static bool gone(void *cookie)
{
	return kill(*(pid_t *)cookie, 0) < 0;
}

/* A signal ends the daemon; waits until the next life answers. */
static void next_life(pid_t to, int signal)
{
	pid_t pid = (pid_t)number("pid");

	ck_assert_int_ne(pid, kvpool_harness_pid(daemon_));
	ck_assert_int_eq(kill(to ? to : pid, signal), 0);
	ck_assert(kvpool_harness_until(gone, &pid, KVPOOL_RIG_MS));
	kvpool_rig_until_attached(&rig);
}

static void kill_daemon(void)
{
	next_life(0, SIGKILL);
}

START_TEST(should_have_all_blocks_after_the_daemon_was_killed)
{
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 20), 20);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 5), 5);
	kill_daemon();
	ck_assert_int_eq(number("restart.blocks"), 25);
	ck_assert_int_eq(number("restart.torn") + number("restart.misplaced") +
				 number("restart.orphaned"),
			 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 20), 20);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 5), 5);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 5, 5), 5);
	kill_daemon();
	ck_assert_int_eq(number("restart.blocks"), 30);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 10), 10);
}
END_TEST

START_TEST(should_go_on_reading_what_was_leased_before_though_it_was_forgotten_since)
{
	struct kvpool_block blocks[4];
	struct kvpool_match match;
	uint8_t keys[4 * 32];
	uint64_t words[WORDS];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
	kvpool_rig_keys(1, 0, 4, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 4, 0, 0, KVPOOL_RIG_LONG,
				      blocks, 4, &match),
			 4);
	kill_daemon();
	ck_assert_int_eq(number("restart.past_clients"), 1);
	/* The whole domain's blocks go, but not their memory. */
	ck_assert_int_eq(kvpool_forget(rig.channel, rig.layout, 0, keys, 1, KVPOOL_RIG_LONG), 4);
	ck_assert_int_eq(number("accounting.blocks.leased_only"), 4);
	for (uint32_t i = 0; i < 4; i++) {
		struct kvpool_piece piece = {words, sizeof(words)};

		ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &blocks[i], 0, &piece, 1),
				 0);
		ck_assert_uint_eq(kvpool_rig_wrong(1, i, words, WORDS), 0);
	}
	kvpool_release(rig.channel, &match, 0);
	kvpool_rig_until_attached(&rig);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_int_eq(number("accounting.blocks.leased_only"), 0);
}
END_TEST

START_TEST(should_go_on_writing_what_was_reserved_before)
{
	struct kvpool_block blocks[3];
	uint8_t keys[3 * 32];

	kvpool_rig_keys(1, 0, 3, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 3, KVPOOL_RIG_LONG, blocks),
		3);
	kill_daemon();
	ck_assert_int_eq(number("restart.past_clients"), 1);
	ck_assert_int_eq(number("restart.writing"), 3);
	ck_assert_int_eq(number("accounting.blocks.reserved"), 3);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 3), 0);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t words[WORDS];
		struct kvpool_piece piece = {words, sizeof(words)};

		kvpool_rig_stamp(1, i, words, WORDS);
		ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &blocks[i], 0, &piece, 1),
				 0);
	}
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 2, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			 2);
	ck_assert_int_eq(number("restart.past_clients"), 1);
	ck_assert_int_eq(kvpool_abort(rig.channel, &blocks[2], 1, KVPOOL_RIG_LONG), 1);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_int_eq(number("accounting.blocks.reserved"), 0);
	ck_assert_int_eq(number("accounting.blocks.quarantined"), 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 3), 2);
}
END_TEST

START_TEST(should_let_go_of_what_a_handle_held_that_was_closed_while_no_daemon_was_there)
{
	pid_t supervisor = kvpool_harness_pid(daemon_), pid = (pid_t)number("pid");
	struct kvpool_block blocks[4];
	struct kvpool_match match;
	struct kvpool_rig own;
	uint8_t keys[4 * 32];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
	kvpool_rig_keys(1, 0, 4, keys);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &own);
	ck_assert_int_eq(kvpool_match(own.channel, own.layout, keys, 4, 0, 0, KVPOOL_RIG_LONG,
				      blocks, 4, &match),
			 4);
	ck_assert_int_eq(kill(supervisor, SIGSTOP), 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	while (kvpool_attached(own.pool))
		(void)sched_yield();
	kvpool_rig_close(&own);
	ck_assert_int_eq(kill(supervisor, SIGCONT), 0);
	kvpool_rig_until_attached(&rig);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_int_eq(number("accounting.leases"), 0);
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 4), 4);
}
END_TEST

/* A client that is stopped in the middle of writing three blocks. */
static pid_t begin_writer(void)
{
	struct kvpool_block blocks[3];
	uint8_t keys[3 * 32];
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct kvpool_rig own;

		kvpool_rig_open(kvpool_harness_socket(daemon_),
				(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &own);
		kvpool_rig_keys(7, 0, 3, keys);
		if (kvpool_reserve(own.channel, own.layout, 0, NULL, keys, 3, KVPOOL_RIG_LONG,
				   blocks) != 3)
			_exit(1);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	return child;
}

START_TEST(should_have_all_blocks_though_a_client_died_while_no_daemon_was_there)
{
	pid_t supervisor = kvpool_harness_pid(daemon_), pid = (pid_t)number("pid");
	pid_t child;
	int status;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
	child = begin_writer();
	ck_assert_int_eq(kill(supervisor, SIGSTOP), 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	/* Reaped: nothing in /proc says any more what process it was. */
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(kill(supervisor, SIGCONT), 0);
	while (kvpool_attached(rig.pool))
		(void)sched_yield();
	kvpool_rig_until_attached(&rig);
	ck_assert_int_eq(number("restart.blocks"), 4);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 4), 4);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_int_eq(number("accounting.blocks.reserved"), 0);
	ck_assert_int_eq(number("accounting.blocks.quarantined"), 0);
}
END_TEST

START_TEST(should_free_what_a_dead_client_was_writing)
{
	pid_t child = begin_writer();
	int status;

	kill_daemon();
	/* Stopped: it may go on writing one day. */
	ck_assert_int_eq(number("accounting.blocks.reserved"), 3);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 0);
	ck_assert_int_eq(number("accounting.blocks.quarantined"), 0);
	ck_assert_int_eq(number("restart.past_clients"), 0);
}
END_TEST

/* As the status page says it. */
static bool gave_up(void)
{
	json_t *page = kvpool_raw_get(kvpool_harness_admin_socket(daemon_), "/v1/status");
	const json_t *restart = json_object_get(page, "restart");
	bool gave = json_is_string(json_object_get(restart, "fault"));

	json_decref(page);
	return gave;
}

START_TEST(should_give_the_pool_up_after_three_lives_that_ended_at_once)
{
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
	for (int i = 0; i < 3; i++) {
		kill_daemon();
		ck_assert_int_eq(kvpool_rig_get(&rig, 1, 4), 4);
	}
	kill_daemon();
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 4), 0);
	ck_assert_ptr_nonnull(strstr(kvpool_harness_stderr(daemon_), "starts empty"));
	ck_assert(gave_up());
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
}
END_TEST

START_TEST(should_leave_the_pool_to_the_next_life_when_told_to_restart)
{
	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 6), 6);
	next_life(kvpool_harness_pid(daemon_), SIGUSR2);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 6), 6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("restart");
	TCase *tc = tcase_create("restart");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, should_have_all_blocks_after_the_daemon_was_killed);
	tcase_add_test(tc,
		       should_go_on_reading_what_was_leased_before_though_it_was_forgotten_since);
	tcase_add_test(tc, should_go_on_writing_what_was_reserved_before);
	tcase_add_test(
		tc, should_let_go_of_what_a_handle_held_that_was_closed_while_no_daemon_was_there);
	tcase_add_test(tc, should_have_all_blocks_though_a_client_died_while_no_daemon_was_there);
	tcase_add_test(tc, should_free_what_a_dead_client_was_writing);
	tcase_add_test(tc, should_give_the_pool_up_after_three_lives_that_ended_at_once);
	tcase_add_test(tc, should_leave_the_pool_to_the_next_life_when_told_to_restart);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
