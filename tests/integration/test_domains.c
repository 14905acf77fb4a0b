/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two users on one daemon: two domains that never see each other, and a pool that they share
 * fairly. Needs root, to be two users.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER_A 54321u
#define USER_B 54322u

static struct kvpool_harness *daemon_;
static char socket_[108];
static char admin_[108];

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	(void)snprintf(socket_, sizeof(socket_), "%s", kvpool_harness_socket(daemon_));
	(void)snprintf(admin_, sizeof(admin_), "%s", kvpool_harness_admin_socket(daemon_));
	ck_assert_int_eq(chmod(kvpool_harness_folder(daemon_), 0711), 0);
	ck_assert_int_eq(chmod(socket_, 0666), 0);
	kvpool_raw_await(admin_, "pool.ready_bytes", 64 << 20);
}

static void teardown(void)
{
	kvpool_harness_free(daemon_);
}

/* A process of another user that does one thing after the other, as it is told. */
struct user {
	pid_t pid;
	int to, from;
};

static void say(int fd)
{
	ck_assert_int_eq(write(fd, "x", 1), 1);
}

static void hear(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char byte;

	ck_assert_int_eq(poll(&p, 1, 60000), 1);
	ck_assert_int_eq(read(fd, &byte, 1), 1);
}

static struct user user_begin(uid_t uid, void (*body)(int from, int to))
{
	int down[2], up[2];
	struct user u;

	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	u.pid = fork();
	ck_assert_int_ge(u.pid, 0);
	if (u.pid == 0) {
		(void)close(down[1]);
		(void)close(up[0]);
		if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
			_exit(3);
		body(down[0], up[1]);
		_exit(0);
	}
	(void)close(down[0]);
	(void)close(up[1]);
	u.to = down[1];
	u.from = up[0];
	return u;
}

static void user_end(struct user *u)
{
	int status;

	(void)close(u->to);
	ck_assert_int_eq(waitpid(u->pid, &status, 0), u->pid);
	ck_assert_int_eq(status, 0);
	(void)close(u->from);
}

static void paint(struct kvpool_raw *raw, const struct kvpool_wire_block *block, size_t bytes)
{
	struct kvpool_segment_grant grant;
	int fd = kvpool_raw_segment(raw, block->segment, &grant);
	uint8_t *map;

	ck_assert_int_ge(fd, 0);
	map = mmap(NULL, grant.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	memset(map + (uint64_t)block->offset * KVPOOL_UNIT_BYTES, 0xc7, bytes);
	(void)munmap(map, grant.bytes);
	(void)close(fd);
}

/* Stores one block of a megabyte after the other until the pool is full of them. */
static void fill(int from, int to)
{
	struct kvpool_wire_block block;
	struct kvpool_raw raw;
	uint32_t i;

	kvpool_raw_attach(socket_, "a", 0, NULL, &raw);
	ck_assert_str_eq(raw.welcome.domain, "uid-54321");
	kvpool_raw_layout(&raw, 1 << 20);
	for (i = 0; i < 64; i++) {
		block = kvpool_raw_store(&raw, i);
		paint(&raw, &block, 1 << 20);
	}
	say(to);
	hear(from);
	kvpool_raw_close(&raw);
}

static void expect_zero(struct kvpool_raw *raw, const struct kvpool_wire_block *block, size_t bytes)
{
	struct kvpool_segment_grant grant;
	int fd = kvpool_raw_segment(raw, block->segment, &grant);
	const uint8_t *at;
	size_t i = 0;
	void *map;

	ck_assert_int_ge(fd, 0);
	map = mmap(NULL, grant.bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	at = (const uint8_t *)map + (uint64_t)block->offset * KVPOOL_UNIT_BYTES;
	while (i < bytes && at[i] == 0)
		i++;
	ck_assert_msg(i == bytes, "byte %zu of another domain is readable", i);
	(void)munmap(map, grant.bytes);
	(void)close(fd);
}

/* Knows every key of the other, sees none of it, and gets its share of the memory, zeroed. */
static void claim(int from, int to)
{
	struct kvpool_segment_grant grant;
	struct kvpool_reply reply;
	struct kvpool_raw raw;
	uint32_t i, got = 0, first = 0, second = 0;

	kvpool_raw_attach(socket_, "b", 0, NULL, &raw);
	ck_assert_str_eq(raw.welcome.domain, "uid-54322");
	kvpool_raw_layout(&raw, 1 << 20);
	for (i = 0; i < 64; i++) {
		ck_assert_int_eq(kvpool_raw_match(&raw, i, KVPOOL_REQUEST_PENDING, &reply),
				 KVPOOL_STATUS_OK);
		ck_assert_uint_eq(reply.blocks, 0);
		ck_assert_uint_eq(reply.pending, 0);
	}
	for (i = 1; i <= 4; i++)
		ck_assert_int_eq(kvpool_raw_segment(&raw, i, &grant), -1);
	/* Until it has a block in each of the two segments of its share. */
	while (second == 0) {
		ck_assert_int_eq(kvpool_raw_reserve(&raw, 1000 + got, &reply), KVPOOL_STATUS_OK);
		if (reply.granted == 0) {
			ck_assert_uint_eq(reply.block.generation, KVPOOL_STATUS_NO_SPACE);
			ck_assert_uint_eq(reply.detail, KVPOOL_NO_SPACE_GROWING);
			(void)poll(NULL, 0, 1);
			continue;
		}
		if (first == 0)
			first = reply.block.segment;
		if (reply.block.segment != first)
			second = reply.block.segment;
		/* It writes nothing itself: whatever is not zero is another's. */
		expect_zero(&raw, &reply.block, 1 << 20);
		ck_assert_int_eq(kvpool_raw_commit(&raw, &reply.block), KVPOOL_STATUS_OK);
		got++;
	}
	say(to);
	hear(from);
	kvpool_raw_close(&raw);
}

/* Tries to join a client of the other domain with its token, which it read from the pipe. */
static void join(int from, int to)
{
	uint8_t token[KVPOOL_TOKEN_BYTES];
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_attach attach;
	int fd;

	ck_assert_int_eq(read(from, token, sizeof(token)), sizeof(token));
	attach = kvpool_raw_attach_message("thief", KVPOOL_ATTACH_JOIN, token);
	fd = kvpool_raw_connect(socket_);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(kvpool_raw_receive(fd, buffer, NULL), sizeof(struct kvpool_hello));
	kvpool_raw_send(fd, &attach, sizeof(attach));
	kvpool_raw_expect_refusal(fd, KVPOOL_REFUSAL_TOKEN);
	(void)close(fd);
	say(to);
}

START_TEST(should_keep_two_users_apart_and_share_the_pool_between_them)
{
	struct user a = user_begin(USER_A, fill), b;
	const json_t *domains;
	json_t *page;
	size_t i;

	hear(a.from);
	b = user_begin(USER_B, claim);
	hear(b.from);
	page = kvpool_raw_get(admin_, "/v1/status");
	ck_assert_uint_eq(json_array_size(json_object_get(page, "domains")), 2);
	ck_assert_int_ge(kvpool_raw_number(page, "service.segments_taken"), 1);
	domains = json_object_get(page, "domains");
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(kvpool_raw_number(json_array_get(domains, i), "segments"), 2);
	json_decref(page);
	kvpool_raw_expect_exact(admin_);
	say(a.to);
	say(b.to);
	user_end(&a);
	user_end(&b);
}
END_TEST

START_TEST(should_not_let_another_user_join_with_a_token)
{
	struct kvpool_raw raw;
	struct user b;

	kvpool_raw_attach(socket_, "root", 0, NULL, &raw);
	b = user_begin(USER_B, join);
	ck_assert_int_eq(write(b.to, raw.welcome.token, KVPOOL_TOKEN_BYTES), KVPOOL_TOKEN_BYTES);
	hear(b.from);
	user_end(&b);
	kvpool_raw_close(&raw);
}
END_TEST

static Suite *domains_suite(void)
{
	Suite *suite = suite_create("domains");
	TCase *users = tcase_create("users");

	tcase_add_checked_fixture(users, setup, teardown);
	tcase_set_timeout(users, 120);
	tcase_add_test(users, should_keep_two_users_apart_and_share_the_pool_between_them);
	tcase_add_test(users, should_not_let_another_user_join_with_a_token);
	suite_add_tcase(suite, users);
	return suite;
}

int main(void)
{
	if (geteuid() != 0) {
		printf("skipped: only root can be two users\n");
		return 77;
	}
	return kvpool_harness_run(domains_suite());
}
