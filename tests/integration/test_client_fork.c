/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle that a child inherited through fork(): it says so, and can be closed.
 *
 * The child reports by its exit code: which check failed, 0 where none did.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &rig);
}

static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
}

static int wait_for(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status), "the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* Every function in the child, on a handle with a lease and a reservation out. */
static int use_inherited(const struct kvpool_match *match, const struct kvpool_block *block)
{
	uint8_t key[KVPOOL_KEY_SIZE] = {1}, token[16];
	struct kvpool_block out;
	struct kvpool_match m;
	struct kvpool_channel *channel;
	struct kvpool_layout *layout;
	struct kvpool_layout_spec spec = {.size = sizeof(spec)};
	uint32_t tokens[KVPOOL_RIG_TOKENS] = {0};
	uint8_t byte;
	struct kvpool_piece piece = {&byte, 1};
	void *address;
	const int64_t results[] = {
		kvpool_token(rig.pool, token),
		kvpool_channel_open(rig.pool, &channel),
		kvpool_layout(rig.pool, &spec, &layout),
		kvpool_keys(rig.layout, NULL, 0, NULL, tokens, KVPOOL_RIG_TOKENS, key),
		kvpool_match(rig.channel, rig.layout, key, 1, 0, 0, 0, &out, 1, &m),
		kvpool_match(rig.channel, rig.layout, key, 0, 0, 0, 0, &out, 1, &m),
		kvpool_wait(rig.channel, rig.layout, 0, key, 0),
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, key, 1, 0, &out),
		kvpool_commit(rig.channel, block, 1, KVPOOL_ALL_SHARDS, 0),
		kvpool_commit_crc(rig.channel, block, &(uint32_t){0}, 1, 0, 0),
		kvpool_abort(rig.channel, block, 1, 0),
		kvpool_forget(rig.channel, rig.layout, 0, NULL, 0, 0),
		kvpool_pointer(rig.channel, rig.layout, 0, block, 0, &address),
		kvpool_check(rig.channel, match->epoch),
		kvpool_store(rig.channel, rig.layout, 0, block, 0, &piece, 1),
		kvpool_load(rig.channel, rig.layout, 0, block, 0, &piece, 1),
		kvpool_store_pages(rig.channel, rig.layout, 0, block, 1, 0, NULL, 0, NULL, 0),
		kvpool_load_pages(rig.channel, rig.layout, 0, block, 1, 0, NULL, 0, NULL, 0),
	};

	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i] != -EOWNERDEAD)
			return (int)i + 1;
	if (kvpool_attached(rig.pool) != 0)
		return 50;
	if (!strstr(kvpool_error(rig.pool), "fork") ||
	    !strstr(kvpool_channel_error(rig.channel), "fork"))
		return 51;
	kvpool_release(rig.channel, match, 0);
	kvpool_channel_close(rig.channel);
	kvpool_close(rig.pool);
	return 0;
}

START_TEST(should_tell_a_child_that_the_handle_is_not_its_own)
{
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_block found, reserved;
	struct kvpool_match match;
	uint64_t words[KVPOOL_RIG_BYTES / 8];
	struct kvpool_piece piece = {words, sizeof(words)};
	pid_t child;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	kvpool_rig_keys(1, 0, 2, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, 1, 0, 0, 0, &found, 1, &match),
			 1);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, keys, keys + KVPOOL_KEY_SIZE, 1,
					0, &reserved),
			 1);
	child = fork();
	if (child == 0)
		_exit(use_inherited(&match, &reserved));
	ck_assert_int_eq(wait_for(child), 0);
	/* The parent goes on as if there had been no child. */
	ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &found, 0, &piece, 1), 0);
	ck_assert_uint_eq(kvpool_rig_wrong(1, 0, words, KVPOOL_RIG_BYTES / 8), 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 1);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 1);
	kvpool_release(rig.channel, &match, 0);
	ck_assert_int_eq(kvpool_commit(rig.channel, &reserved, 1, KVPOOL_ALL_SHARDS, 0), 1);
	ck_assert_int_eq(kvpool_rig_put(&rig, 1, 0, 2), 0);
}
END_TEST

/* How many memfds this process maps. */
static int count_memfds(void)
{
	char line[512];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "/memfd:") != NULL;
	if (f)
		fclose(f);
	return n;
}

START_TEST(should_not_let_a_child_inherit_the_memory)
{
	pid_t child;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 4, 0, 1), 1);
	/* A channel and a segment. */
	ck_assert_int_ge(count_memfds(), 2);
	child = fork();
	if (child == 0)
		_exit(count_memfds());
	ck_assert_int_eq(wait_for(child), 0);
}
END_TEST

START_TEST(should_let_a_child_open_a_handle_of_its_own)
{
	pid_t child;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 3), 3);
	child = fork();
	if (child == 0) {
		struct kvpool_rig own;
		int64_t hit;

		kvpool_close(rig.pool);
		kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &own);
		hit = kvpool_rig_get(&own, 2, 3);
		kvpool_rig_close(&own);
		_exit((int)hit);
	}
	ck_assert_int_eq(wait_for(child), 3);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 3), 3);
}
END_TEST

static _Atomic bool stop;

static void *keep_busy(void *cookie)
{
	struct kvpool *pool = cookie;

	while (!atomic_load(&stop)) {
		struct kvpool_channel *channel;

		if (kvpool_channel_open(pool, &channel) != 0)
			break;
		kvpool_channel_close(channel);
	}
	return NULL;
}

/* Whatever the other thread was in the middle of, the child must not hang or fault. */
START_TEST(should_survive_a_fork_in_the_middle_of_another_threads_call)
{
	pthread_t thread;

	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_busy, rig.pool), 0);
	for (uint32_t i = 0; i < 200; i++) {
		pid_t child = fork();

		if (child == 0) {
			uint8_t token[16];
			int bad = kvpool_token(rig.pool, token) != -EOWNERDEAD;

			kvpool_close(rig.pool);
			_exit(bad);
		}
		ck_assert_int_eq(wait_for(child), 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ck_assert_int_eq(kvpool_rig_get(&rig, 3, 1), 0);
}
END_TEST

START_TEST(should_end_with_the_parent_though_a_child_lives_on)
{
	struct kvpool_rig own;
	int go[2];
	pid_t child;
	char byte;

	ck_assert_int_eq(pipe(go), 0);
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 1);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){0}, &own);
	child = fork();
	if (child == 0) {
		close(go[1]);
		kvpool_close(own.pool);
		_exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
	}
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 2);
	kvpool_rig_close(&own);
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 1);
	close(go[1]);
	ck_assert_int_eq(wait_for(child), 0);
	close(go[0]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_fork");
	TCase *t = tcase_create("fork");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_tell_a_child_that_the_handle_is_not_its_own);
	tcase_add_test(t, should_not_let_a_child_inherit_the_memory);
	tcase_add_test(t, should_let_a_child_open_a_handle_of_its_own);
	tcase_add_test(t, should_survive_a_fork_in_the_middle_of_another_threads_call);
	tcase_add_test(t, should_end_with_the_parent_though_a_child_lives_on);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
