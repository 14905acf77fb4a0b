/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that die: what they held comes back at once, what they may still be writing to only when
 * nobody is left who could, and nobody else sees half of anything.
 *
 * The dying are processes of their own (actor.h); `other` is a client that looks on.
 */
#include "tests/integration/actor.h"
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SHARED       1u /* the chain that is READY and leased by the dying */
#define OWN          2u /* the chain that the dying reserve */
#define CYCLES       200
#define GPU_GRACE_MS 2000

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#ifdef SANITIZED
#define RSS_SLACK_KIB (32l << 10) /* freed memory is kept for a while */
#else
#define RSS_SLACK_KIB (2l << 10)
#endif

static struct kvpool_harness *daemon_;
static struct kvpool_raw other;

static const char *admin(void)
{
	return kvpool_harness_admin_socket(daemon_);
}

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_raw_await(admin(), "pool.ready_bytes", 64 << 20);
	kvpool_raw_attach(kvpool_harness_socket(daemon_), "other", 0, NULL, &other);
	kvpool_raw_layout(&other, 4096);
	(void)kvpool_raw_store(&other, SHARED);
}

static void teardown(void)
{
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 0);
	kvpool_raw_expect_exact(admin());
	kvpool_raw_close(&other);
	kvpool_raw_await(admin(), "accounting.leases", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 0);
	kvpool_harness_free(daemon_);
}

/* Attaches, leases one block and reserves one. A copy of the test's own socket is not kept. */
static void take(uint32_t flags, const uint8_t *token, struct kvpool_raw *raw)
{
	struct kvpool_reply reply;

	(void)close(other.fd);
	kvpool_raw_attach(kvpool_harness_socket(daemon_), "dying",
			  flags | (token ? KVPOOL_ATTACH_JOIN : 0), token, raw);
	kvpool_raw_layout(raw, 4096);
	if (kvpool_raw_match(raw, SHARED, 0, &reply) != KVPOOL_STATUS_OK || reply.lease == 0)
		_exit(3);
	if (kvpool_raw_reserve(raw, token ? OWN + 1 : OWN, &reply) != KVPOOL_STATUS_OK ||
	    reply.granted != 1)
		_exit(4);
}

static void hold(int in, int out, void *cookie)
{
	struct kvpool_raw raw;

	(void)in;
	take(0, cookie, &raw);
	kvpool_actor_say(out, raw.welcome.token, KVPOOL_TOKEN_BYTES);
}

/* A child that has a copy of the socket, and of the channel's mapping, until it is dismissed. */
static void hold_with_child(int in, int out, void *cookie)
{
	struct kvpool_raw raw;

	(void)cookie;
	take(0, NULL, &raw);
	if (fork() == 0) {
		(void)kvpool_actor_wait(in);
		_exit(0);
	}
	kvpool_actor_say(out, "h", 1);
}

/* Sends the socket to whoever has the other end of `cookie`. */
static void hold_and_pass_on(int in, int out, void *cookie)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {"s", 1};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	struct kvpool_raw raw;

	(void)in;
	take(0, NULL, &raw);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &raw.fd, sizeof(raw.fd));
	if (sendmsg(((int *)cookie)[0], &msg, 0) != 1)
		_exit(5);
	kvpool_actor_say(out, "h", 1);
}

/* Takes the socket, and keeps it until it is dismissed. */
static void receive_and_keep(int in, int out, void *cookie)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	(void)close(other.fd);
	if (recvmsg(((int *)cookie)[1], &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		_exit(6);
	kvpool_actor_say(out, "r", 1);
	(void)kvpool_actor_wait(in);
	_exit(0);
}

/* A string or number of the first member of the dying client. NULL: there is no such client. */
static json_t *dying(json_t **page)
{
	const json_t *clients;
	size_t i;

	*page = kvpool_raw_get(admin(), "/v1/clients");
	clients = json_object_get(*page, "clients");
	for (i = 0; i < json_array_size(clients); i++) {
		json_t *client = json_array_get(clients, i);

		if (strcmp(json_string_value(json_object_get(client, "name")), "dying") == 0)
			return client;
	}
	return NULL;
}

static void expect_member(const char *state, const char *process, const char *socket)
{
	json_t *page;
	const json_t *client = dying(&page);
	const json_t *member = json_array_get(json_object_get(client, "members"), 0);

	ck_assert_ptr_nonnull(member);
	ck_assert_str_eq(json_string_value(json_object_get(member, "state")), state);
	ck_assert_str_eq(json_string_value(json_object_get(member, "process")), process);
	ck_assert_str_eq(json_string_value(json_object_get(member, "socket")), socket);
	json_decref(page);
}

/* The member died, but its socket did not. */
static void expect_quarantine(void)
{
	/* They end with the process, so from here on the daemon knows of its death. */
	kvpool_raw_await(admin(), "accounting.leases", 0);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.quarantined"), 1);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.reserved"), 0);
	ck_assert_int_eq(kvpool_raw_status(admin(), "clients.attached_or_quarantined"), 2);
	expect_member("gone", "gone", "open");
}

START_TEST(should_give_everything_back_when_every_member_was_killed)
{
	struct kvpool_actor first, second;
	uint8_t token[KVPOOL_TOKEN_BYTES];

	kvpool_actor_begin(hold, NULL, &first);
	kvpool_actor_hear(&first, token, sizeof(token));
	kvpool_actor_begin(hold, token, &second);
	kvpool_actor_hear(&second, token, sizeof(token));
	kvpool_actor_kill(&first);
	/* It is one client: as long as a member lives, all that any of them took is held. */
	kvpool_raw_await(admin(), "service.channels", 2);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.leases"), 2);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.reserved"), 2);
	kvpool_actor_kill(&second);
	kvpool_raw_await(admin(), "accounting.leases", 0);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 0);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 1);
	kvpool_actor_dismiss(&first);
	kvpool_actor_dismiss(&second);
}
END_TEST

START_TEST(should_keep_blocks_in_quarantine_while_a_forked_child_has_the_socket)
{
	struct kvpool_actor actor;
	char byte;

	kvpool_actor_begin(hold_with_child, NULL, &actor);
	kvpool_actor_hear(&actor, &byte, 1);
	kvpool_raw_await(admin(), "accounting.leases", 1);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 1);
	kvpool_actor_kill(&actor);
	expect_quarantine();
	kvpool_actor_dismiss(&actor);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 1);
}
END_TEST

START_TEST(should_keep_blocks_in_quarantine_while_somebody_was_passed_the_socket)
{
	struct kvpool_actor actor, keeper;
	int pair[2];
	char byte;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	kvpool_actor_begin(receive_and_keep, pair, &keeper);
	kvpool_actor_begin(hold_and_pass_on, pair, &actor);
	kvpool_actor_hear(&actor, &byte, 1);
	kvpool_actor_hear(&keeper, &byte, 1);
	kvpool_actor_kill(&actor);
	expect_quarantine();
	kvpool_actor_dismiss(&keeper);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 1);
	kvpool_actor_kill(&keeper);
	kvpool_actor_dismiss(&actor);
	(void)close(pair[0]);
	(void)close(pair[1]);
}
END_TEST

static void hold_with_gpu(int in, int out, void *cookie)
{
	struct kvpool_raw raw;

	(void)in;
	(void)cookie;
	take(KVPOOL_ATTACH_GPU, NULL, &raw);
	kvpool_actor_say(out, "h", 1);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* However late this test runs, it is never too early. */
START_TEST(should_leave_the_gpu_of_a_dead_client_time_to_finish)
{
	struct kvpool_actor actor;
	uint64_t from;
	char byte;

	kvpool_actor_begin(hold_with_gpu, NULL, &actor);
	kvpool_actor_hear(&actor, &byte, 1);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 1);
	from = now_ms();
	kvpool_actor_kill(&actor);
	kvpool_raw_await(admin(), "accounting.leases", 0);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 0);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	ck_assert_uint_ge(now_ms() - from, GPU_GRACE_MS);
	kvpool_actor_dismiss(&actor);
}
END_TEST

/* Asks once the daemon hung up, and says whether an answer was there when it was told to look. */
static void ask_in_vain(struct kvpool_raw *raw, int in, int out)
{
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_reply reply;
	uint8_t end[8];

	if (recv(raw->fd, end, sizeof(end), 0) != 0)
		_exit(7);
	(void)kvpool_raw_push(&raw->channel, &nop);
	kvpool_actor_say(out, "a", 1);
	(void)kvpool_actor_wait(in);
	kvpool_actor_say(out, kvpool_consumer_pop(&raw->channel.replies, &reply) ? "y" : "n", 1);
	(void)kvpool_actor_wait(in);
	_exit(0);
}

static void hold_with_asking_child(int in, int out, void *cookie)
{
	struct kvpool_raw raw;

	(void)cookie;
	take(0, NULL, &raw);
	if (fork() == 0)
		ask_in_vain(&raw, in, out);
	kvpool_actor_say(out, "h", 1);
}

START_TEST(should_not_serve_whoever_has_the_channel_of_a_dead_member)
{
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_actor actor;
	struct kvpool_reply reply;
	char byte;
	int from;

	kvpool_actor_begin(hold_with_asking_child, NULL, &actor);
	kvpool_actor_hear(&actor, &byte, 1);
	from = dup(actor.from);
	kvpool_actor_kill(&actor);
	actor.from = from;
	kvpool_actor_hear(&actor, &byte, 1);
	ck_assert_int_eq(byte, 'a');
	/* The daemon has been through its turn since. */
	ck_assert_int_eq(kvpool_raw_call(&other.channel, &nop, &reply), KVPOOL_STATUS_OK);
	ck_assert_int_eq(kvpool_raw_status(admin(), "service.channels"), 1);
	kvpool_actor_tell(&actor);
	kvpool_actor_hear(&actor, &byte, 1);
	ck_assert_int_eq(byte, 'n');
	kvpool_actor_dismiss(&actor);
	(void)close(from);
}
END_TEST

/* A layout of several shards, for which kvpool_raw_layout() is too simple. */
static void layout_of_shards(struct kvpool_raw *raw, uint16_t n_shards)
{
	struct kvpool_wire_layout wire = {
		.fingerprint = "a layout of several shards",
		.block_tokens = 16,
		.n_groups = 1,
		.n_shards = n_shards,
		.label = "shards",
		.groups = {{.kind = KVPOOL_GROUP_FULL, .slot_bytes = 1024}},
	};
	struct kvpool_request request = {.op = KVPOOL_OP_LAYOUT, .keys = 0, .result = 1024};
	struct kvpool_reply reply;

	memcpy(raw->channel.arena, &wire, sizeof(wire));
	ck_assert_int_eq(kvpool_raw_call(&raw->channel, &request, &reply), KVPOOL_STATUS_OK);
	raw->layout = (uint16_t)reply.layout;
}

static void write_shards_one_by_one(int in, int out, void *cookie)
{
	struct kvpool_request commit = {
		.op = KVPOOL_OP_COMMIT,
		.flags = KVPOOL_REQUEST_INLINE_KEY,
		.n = 1,
	};
	uint16_t n_shards = *(uint16_t *)cookie;
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	(void)close(other.fd);
	kvpool_raw_attach(kvpool_harness_socket(daemon_), "dying", 0, NULL, &raw);
	layout_of_shards(&raw, n_shards);
	if (kvpool_raw_reserve(&raw, OWN, &reply) != KVPOOL_STATUS_OK)
		_exit(8);
	commit.layout = raw.layout;
	commit.handle.block = reply.block.block;
	commit.handle.generation = reply.block.generation;
	do {
		kvpool_actor_say(out, "s", 1);
		if (!kvpool_actor_wait(in))
			break;
	} while (kvpool_raw_call(&raw.channel, &commit, &reply) == KVPOOL_STATUS_OK &&
		 ++commit.shard < n_shards);
}

static void expect_found(uint32_t blocks)
{
	struct kvpool_reply reply;

	ck_assert_int_eq(kvpool_raw_match(&other, OWN, KVPOOL_REQUEST_NO_LEASE, &reply),
			 KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, blocks);
}

/* _i: shards that are committed when the writer is killed. */
START_TEST(should_never_show_a_block_whose_writer_died_between_its_shards)
{
	uint16_t n_shards = 3;
	struct kvpool_actor actor;
	char byte;
	int i;

	layout_of_shards(&other, n_shards);
	kvpool_actor_begin(write_shards_one_by_one, &n_shards, &actor);
	for (i = 0; i <= _i; i++) {
		kvpool_actor_hear(&actor, &byte, 1);
		expect_found(0);
		if (i < _i)
			kvpool_actor_tell(&actor);
	}
	kvpool_actor_kill(&actor);
	expect_found(0);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 1);
	expect_found(0);
	(void)kvpool_raw_store(&other, OWN);
	expect_found(1);
	kvpool_actor_dismiss(&actor);
}
END_TEST

struct footprint {
	long fds; /* -1: this user may not look */
	long threads;
	long rss_kib;
};

static long count_fds(void)
{
	char path[64];
	long n = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)kvpool_harness_pid(daemon_));
	d = opendir(path);
	if (!d)
		return -1;
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static struct footprint read_footprint(void)
{
	struct footprint f = {.fds = count_fds()};
	char path[64], line[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)kvpool_harness_pid(daemon_));
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		(void)sscanf(line, "Threads: %ld", &f.threads);
		(void)sscanf(line, "VmRSS: %ld", &f.rss_kib);
	}
	(void)fclose(file);
	return f;
}

static bool fds_are_back(void *cookie)
{
	return count_fds() <= *(long *)cookie;
}

static void live_and_die(int cycles)
{
	uint8_t token[KVPOOL_TOKEN_BYTES];
	struct kvpool_actor actor;

	while (cycles-- > 0) {
		kvpool_actor_begin(hold, NULL, &actor);
		kvpool_actor_hear(&actor, token, sizeof(token));
		kvpool_actor_kill(&actor);
		kvpool_actor_dismiss(&actor);
	}
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 1);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "accounting.leases", 0);
}

START_TEST(should_take_no_more_after_many_deaths_than_before_them)
{
	struct footprint before, after;
	int64_t metadata;

	live_and_die(CYCLES / 10);
	before = read_footprint();
	metadata = kvpool_raw_status(admin(), "accounting.metadata_bytes");
	live_and_die(CYCLES);
	/* The connection that asked last may be on its way out. */
	ck_assert_msg(kvpool_harness_until(fds_are_back, &before.fds, KVPOOL_RAW_MS),
		      "%ld descriptors before, %ld after", before.fds, count_fds());
	after = read_footprint();
	ck_assert_int_eq(after.threads, before.threads);
	ck_assert_int_le(after.rss_kib, before.rss_kib + RSS_SLACK_KIB);
	/* Two of them may have been in quarantine together. */
	ck_assert_int_le(kvpool_raw_status(admin(), "accounting.metadata_bytes"), metadata + 4096);
	ck_assert_int_eq(kvpool_raw_status(admin(), "service.channels"), 1);
	ck_assert_int_eq(kvpool_raw_status(admin(), "service.waits"), 0);
}
END_TEST

static Suite *death_suite(void)
{
	Suite *suite = suite_create("client_death");
	TCase *death = tcase_create("death");

	tcase_add_checked_fixture(death, setup, teardown);
	tcase_set_timeout(death, 120);
	tcase_add_test(death, should_give_everything_back_when_every_member_was_killed);
	tcase_add_test(death, should_keep_blocks_in_quarantine_while_a_forked_child_has_the_socket);
	tcase_add_test(death,
		       should_keep_blocks_in_quarantine_while_somebody_was_passed_the_socket);
	tcase_add_test(death, should_leave_the_gpu_of_a_dead_client_time_to_finish);
	tcase_add_test(death, should_not_serve_whoever_has_the_channel_of_a_dead_member);
	tcase_add_loop_test(death, should_never_show_a_block_whose_writer_died_between_its_shards,
			    0, 3);
	tcase_add_test(death, should_take_no_more_after_many_deaths_than_before_them);
	suite_add_tcase(suite, death);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(death_suite());
}
