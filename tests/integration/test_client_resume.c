/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client goes on over the death of its daemon: `kvpoold --supervise`, whose child is killed, and
 * clients that hold leases, reservations and addresses meanwhile.
 *
 * The harness runs the supervisor; the daemon's own process is the one that the status page names.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
	const char *args[] = {"--supervise", "--size", "64M", "--crash-window", "0", NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &rig);
	kvpool_rig_until_attached(&rig);
}

/* Nothing is left of anybody, once he is gone. */
static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_rig_until_number(daemon_, "clients.attached_or_quarantined", 0);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_int_eq(number("accounting.blocks.reserved"), 0);
	ck_assert_int_eq(number("accounting.blocks.quarantined"), 0);
	ck_assert_int_eq(number("accounting.blocks.leased_only"), 0);
	kvpool_harness_free(daemon_);
}

static bool gone(void *cookie)
{
	return kill(*(pid_t *)cookie, 0) < 0;
}

static void kill_daemon(void)
{
	pid_t pid = (pid_t)number("pid");

	ck_assert_int_ne(pid, kvpool_harness_pid(daemon_));
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert(kvpool_harness_until(gone, &pid, KVPOOL_RIG_MS));
}

/* The daemon is killed, and this client is back. */
static void next_life(void)
{
	kill_daemon();
	kvpool_rig_until_attached(&rig);
}

/* A number of the one client that there is. */
static int64_t of_client(const char *name)
{
	json_t *list = kvpool_raw_get(kvpool_harness_admin_socket(daemon_), "/v1/clients");
	const json_t *clients = json_object_get(list, "clients");
	int64_t value;

	ck_assert_uint_eq(json_array_size(clients), 1);
	value = json_integer_value(json_object_get(json_array_get(clients, 0), name));
	json_decref(list);
	return value;
}

struct wanted {
	const char *name;
	int64_t value;
};

static bool has(void *cookie)
{
	const struct wanted *w = cookie;

	return of_client(w->name) == w->value;
}

static void until_client(const char *name, int64_t value)
{
	struct wanted w = {name, value};

	ck_assert_msg(kvpool_harness_until(has, &w, KVPOOL_RIG_MS), "%s: %lld", name,
		      (long long)of_client(name));
}

static void lease(uint64_t chain, uint32_t n, struct kvpool_block *blocks,
		  struct kvpool_match *match)
{
	uint8_t keys[KVPOOL_RIG_KEYS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, n, keys);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, keys, n, 0, 0, KVPOOL_RIG_LONG,
				      blocks, n, match),
			 n);
}

static void reserve(struct kvpool_layout *layout, uint64_t chain, uint32_t n,
		    struct kvpool_block *blocks)
{
	uint8_t keys[KVPOOL_RIG_KEYS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, n, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, layout, 0, NULL, keys, n, KVPOOL_RIG_LONG, blocks), n);
}

static void store(struct kvpool_layout *layout, uint64_t chain, uint32_t i, uint32_t shard,
		  const struct kvpool_block *block)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	kvpool_rig_stamp(chain, i, words, WORDS);
	ck_assert_int_eq(kvpool_store(rig.channel, layout, 0, block, shard, &piece, 1), 0);
}

START_TEST(should_read_on_what_it_leased)
{
	struct kvpool_block blocks[4];
	struct kvpool_match match;
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	void *before[4], *after;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 4), 4);
	lease(1, 4, blocks, &match);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(
			kvpool_pointer(rig.channel, rig.layout, 0, &blocks[i], 0, &before[i]), 0);
	for (uint32_t life = 0; life < 3; life++) {
		next_life();
		ck_assert_int_eq(of_client("leases"), 1);
		for (uint32_t i = 0; i < 4; i++) {
			ck_assert_uint_eq(kvpool_rig_wrong(1, i, before[i], WORDS), 0);
			ck_assert_int_eq(
				kvpool_pointer(rig.channel, rig.layout, 0, &blocks[i], 0, &after),
				0);
			ck_assert_ptr_eq(before[i], after);
			ck_assert_int_eq(
				kvpool_load(rig.channel, rig.layout, 0, &blocks[i], 0, &piece, 1),
				0);
			ck_assert_uint_eq(kvpool_rig_wrong(1, i, words, WORDS), 0);
		}
		ck_assert_int_eq(kvpool_check(rig.channel, match.epoch), 0);
	}
	kvpool_release(rig.channel, &match, 0);
	until_client("leases", 0);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
}
END_TEST

START_TEST(should_commit_what_it_reserved_for_others_to_find)
{
	struct kvpool_block blocks[3];
	struct kvpool_rig other;

	reserve(rig.layout, 1, 3, blocks);
	store(rig.layout, 1, 0, 0, &blocks[0]);
	next_life();
	store(rig.layout, 1, 1, 0, &blocks[1]);
	store(rig.layout, 1, 2, 0, &blocks[2]);
	ck_assert_int_eq(of_client("reserved_blocks"), 3);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 3, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			 3);
	ck_assert_int_eq(of_client("reserved_blocks"), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &other);
	ck_assert_int_eq(kvpool_rig_get(&other, 1, 3), 3);
	kvpool_rig_close(&other);
}
END_TEST

START_TEST(should_commit_the_last_shard_where_the_first_was_before)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 2, KVPOOL_RIG_BYTES);
	struct kvpool_block block, found;
	struct kvpool_match match;
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	reserve(layout, 1, 1, &block);
	store(layout, 1, 0, 0, &block);
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, 0, KVPOOL_RIG_LONG), 1);
	next_life();
	/* Where the second shard is, the client knows from the last life. */
	store(layout, 1, 1, 1, &block);
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, 1, KVPOOL_RIG_LONG), 1);
	ck_assert_int_eq(kvpool_match(rig.channel, layout, kvpool_rig_key(1, 0), 1, 0, 0,
				      KVPOOL_RIG_LONG, &found, 1, &match),
			 1);
	for (uint32_t shard = 0; shard < 2; shard++) {
		ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &found, shard, &piece, 1), 0);
		ck_assert_uint_eq(kvpool_rig_wrong(1, shard, words, WORDS), 0);
	}
	kvpool_release(rig.channel, &match, 0);
}
END_TEST

START_TEST(should_give_back_in_the_gap_what_the_next_life_is_told_of)
{
	struct kvpool_block leased[2], reserved[2];
	struct kvpool_match match;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 2), 2);
	lease(1, 2, leased, &match);
	reserve(rig.layout, 2, 2, reserved);
	/* The next life begins when this thread is done. */
	kvpool_harness_pause(daemon_);
	ck_assert_int_eq(kill((pid_t)number("pid"), SIGKILL), 0);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, kvpool_rig_key(1, 0), 1000000000),
			 -ENOTCONN);
	kvpool_release(rig.channel, &match, 0);
	(void)kvpool_abort(rig.channel, reserved, 2, 1000000);
	kvpool_harness_resume(daemon_);
	kvpool_rig_until_attached(&rig);
	until_client("leases", 0);
	until_client("reserved_blocks", 0);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 2), 2);
}
END_TEST

START_TEST(should_leak_nothing_that_came_in_an_answer_that_was_not_read)
{
	pid_t pid = (pid_t)number("pid");
	struct kvpool_block block;
	struct kvpool_match match;
	struct kvpool_rig other;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	/* Given up while the daemon sleeps, and answered when it wakes. */
	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, kvpool_rig_key(1, 0), 1, 0, 0,
				      1000000, &block, 1, &match),
			 -ETIMEDOUT);
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(2, 0), 1,
					1000000, &block),
			 -ETIMEDOUT);
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	until_client("leases", 1);
	until_client("reserved_blocks", 1);
	next_life();
	until_client("leases", 0);
	until_client("reserved_blocks", 0);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &other);
	ck_assert_uint_eq(kvpool_rig_put(&other, 2, 0, 1), 1);
	kvpool_rig_close(&other);
}
END_TEST

/* ---- several processes ---- */

struct member {
	pid_t pid;
	int to, from; /* owned: pipes */
};

static void say(int fd, char c)
{
	if (write(fd, &c, 1) != 1)
		_exit(99);
}

static char hear(int fd)
{
	char c = 0;

	return read(fd, &c, 1) == 1 ? c : 0;
}

/* Leases a block and reserves another; after the restart reads the one, and ends both. */
static int be_member(const uint8_t *token, int in, int out)
{
	struct kvpool_options options = {
		.join = token, .name = "member", .deadline_ns = KVPOOL_RIG_LONG};
	struct kvpool_block leased, reserved;
	struct kvpool_match match;
	struct kvpool_rig own;
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	kvpool_rig_open(kvpool_harness_socket(daemon_), options, &own);
	if (kvpool_match(own.channel, own.layout, kvpool_rig_key(1, 0), 1, 0, 0, KVPOOL_RIG_LONG,
			 &leased, 1, &match) != 1)
		return 1;
	if (kvpool_reserve(own.channel, own.layout, 0, NULL, kvpool_rig_key(2, 0), 1,
			   KVPOOL_RIG_LONG, &reserved) != 1)
		return 2;
	say(out, 'h');
	if (hear(in) != 'g')
		return 3;
	/* Nothing but the copy attaches it. */
	for (int i = 0; kvpool_load(own.channel, own.layout, 0, &leased, 0, &piece, 1) != 0; i++) {
		if (i == 20000)
			return 4;
		usleep(1000);
	}
	if (kvpool_rig_wrong(1, 0, words, WORDS) != 0)
		return 5;
	say(out, 'r');
	if (hear(in) != 'e')
		return 6;
	kvpool_rig_stamp(2, 0, words, WORDS);
	if (kvpool_store(own.channel, own.layout, 0, &reserved, 0, &piece, 1) != 0 ||
	    kvpool_commit(own.channel, &reserved, 1, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG) != 1)
		return 7;
	kvpool_release(own.channel, &match, 0);
	kvpool_rig_close(&own);
	return 0;
}

static struct member begin_member(const uint8_t *token)
{
	int to[2], from[2];
	pid_t pid;

	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	pid = fork();
	if (pid == 0) {
		close(to[1]);
		close(from[0]);
		_exit(be_member(token, to[0], from[1]));
	}
	ck_assert_int_gt(pid, 0);
	close(to[0]);
	close(from[1]);
	return (struct member){.pid = pid, .to = to[1], .from = from[0]};
}

START_TEST(should_be_one_client_again_with_all_its_members)
{
	uint8_t token[KVPOOL_TOKEN_BYTES], after[KVPOOL_TOKEN_BYTES];
	struct kvpool_block block;
	struct kvpool_match match;
	struct member member;
	int64_t id;
	int status;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	member = begin_member(token);
	ck_assert_int_eq(hear(member.from), 'h');
	lease(1, 1, &block, &match);
	id = of_client("id");
	next_life();
	/* The member is not back yet; what it holds stays. */
	ck_assert_int_eq(of_client("id"), id);
	ck_assert_int_eq(of_client("not_back"), 1);
	ck_assert_int_eq(of_client("leases"), 2);
	ck_assert_int_eq(of_client("reserved_blocks"), 1);
	ck_assert_int_eq(kvpool_token(rig.pool, after), 0);
	ck_assert_mem_eq(token, after, sizeof(token));
	say(member.to, 'g');
	ck_assert_int_eq(hear(member.from), 'r');
	ck_assert_int_eq(of_client("id"), id);
	ck_assert_int_eq(of_client("not_back"), 0);
	ck_assert_int_eq(of_client("leases"), 2);
	say(member.to, 'e');
	ck_assert_int_eq(waitpid(member.pid, &status, 0), member.pid);
	ck_assert_int_eq(status, 0);
	until_client("leases", 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 1), 1);
	kvpool_release(rig.channel, &match, 0);
	until_client("leases", 0);
	close(member.to);
	close(member.from);
}
END_TEST

/* ---- several threads ---- */

static _Atomic bool stop;
/* Relaxed: counts. */
static _Atomic uint64_t wrong, read_blocks, written;

static void one_request(struct kvpool_channel *channel, uint64_t chain)
{
	struct kvpool_block found[8], blocks[8];
	uint8_t keys[8 * KVPOOL_KEY_SIZE];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_match match;
	int64_t n;

	kvpool_rig_keys(chain, 0, 8, keys);
	n = kvpool_match(channel, rig.layout, keys, 8, 0, 0, 0, found, 8, &match);
	if (n < 0)
		return;
	for (uint32_t i = 0; i < match.reported; i++) {
		if (kvpool_load(channel, rig.layout, 0, &found[i], 0, &piece, 1) != 0)
			continue;
		atomic_fetch_add(&wrong, kvpool_rig_wrong(chain, i, words, WORDS));
		atomic_fetch_add(&read_blocks, 1);
	}
	if (n < 8 &&
	    kvpool_reserve(channel, rig.layout, 0, n > 0 ? keys + (n - 1) * KVPOOL_KEY_SIZE : NULL,
			   keys + n * KVPOOL_KEY_SIZE, 8 - (uint32_t)n, 0, blocks) > 0) {
		uint32_t count = 8 - (uint32_t)n;
		bool good = true;

		for (uint32_t i = 0; i < count; i++) {
			kvpool_rig_stamp(chain, (uint32_t)n + i, words, WORDS);
			if (blocks[i].block != 0)
				good &= kvpool_store(channel, rig.layout, 0, &blocks[i], 0, &piece,
						     1) == 0;
		}
		if (good && kvpool_commit(channel, blocks, count, KVPOOL_ALL_SHARDS, 0) > 0)
			atomic_fetch_add(&written, 1);
		else
			(void)kvpool_abort(channel, blocks, count, 0);
	}
	kvpool_release(channel, &match, 0);
}

static void *make_requests(void *cookie)
{
	uint64_t chain = 100 * (uint64_t)(uintptr_t)cookie;
	struct kvpool_channel *channel;

	ck_assert_int_eq(kvpool_channel_open(rig.pool, &channel), 0);
	for (uint64_t i = 0; !atomic_load(&stop); i++)
		one_request(channel, chain + i % 60);
	kvpool_channel_close(channel);
	return NULL;
}

/* Until the threads have read so many blocks more: they are in the midst of it. */
static void until_read(uint64_t more)
{
	uint64_t wanted = atomic_load(&read_blocks) + more;

	while (atomic_load(&read_blocks) < wanted)
		usleep(1000);
}

START_TEST(should_hold_nothing_after_deaths_under_many_threads)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, make_requests, (void *)(i / 2)),
				 0);
	for (uint32_t life = 0; life < 6; life++) {
		until_read(500);
		kill_daemon();
		kvpool_rig_until_attached(&rig);
	}
	until_read(500);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&wrong), 0);
	ck_assert_uint_gt(atomic_load(&read_blocks), 0);
	ck_assert_uint_gt(atomic_load(&written), 0);
	/* A call pays what is owed. */
	kvpool_rig_until_attached(&rig);
	until_client("leases", 0);
	until_client("reserved_blocks", 0);
	kvpool_rig_until_number(daemon_, "restart.past_clients", 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_resume");
	TCase *tc = tcase_create("resume");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, should_read_on_what_it_leased);
	tcase_add_test(tc, should_commit_what_it_reserved_for_others_to_find);
	tcase_add_test(tc, should_commit_the_last_shard_where_the_first_was_before);
	tcase_add_test(tc, should_give_back_in_the_gap_what_the_next_life_is_told_of);
	tcase_add_test(tc, should_leak_nothing_that_came_in_an_answer_that_was_not_read);
	tcase_add_test(tc, should_be_one_client_again_with_all_its_members);
	tcase_add_test(tc, should_hold_nothing_after_deaths_under_many_threads);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
