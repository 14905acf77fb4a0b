/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that says no: io_uring refused, epoll asked for, descriptors used up.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct kvpool_harness *daemon_;

static void teardown(void)
{
	kvpool_harness_free(daemon_);
}

static const char *path(void)
{
	return kvpool_harness_socket(daemon_);
}

static const char *admin(void)
{
	return kvpool_harness_admin_socket(daemon_);
}

static void start(const char *const *args)
{
	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
}

/* As container runtimes do by default: io_uring_setup() gives `error`, here and in children. */
static void refuse_io_uring(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = KVPOOL_ARRAY_SIZE(filter), .filter = filter};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Attach, store, find, wait for something that sleeps: all that the loop has to do. */
static void expect_service(const char *backend)
{
	struct kvpool_raw raw;
	struct kvpool_reply reply;
	json_t *page;

	kvpool_raw_attach(path(), "served", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	ck_assert_int_eq(kvpool_raw_match(&raw, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	page = kvpool_raw_get(admin(), "/v1/status");
	ck_assert_str_eq(
		json_string_value(json_object_get(json_object_get(page, "loop"), "backend")),
		backend);
	json_decref(page);
	kvpool_raw_close(&raw);
}

static int count(const char *text, const char *part)
{
	int n = 0;

	for (text = strstr(text, part); text; text = strstr(text + 1, part))
		n++;
	return n;
}

START_TEST(should_serve_with_epoll_where_io_uring_is_refused_and_say_so_once)
{
	static const int errors[] = {EPERM, ENOSYS};

	refuse_io_uring(errors[_i]);
	start(NULL);
	expect_service("epoll");
	ck_assert_int_eq(count(kvpool_harness_stderr(daemon_), "io_uring (refused"), 1);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	ck_assert_int_eq(count(kvpool_harness_stderr(daemon_), "io_uring"), 1);
	teardown();
}
END_TEST

START_TEST(should_serve_with_epoll_where_it_is_asked_for)
{
	static const char *const args[] = {"--loop", "epoll", NULL};

	start(args);
	expect_service("epoll");
	teardown();
}
END_TEST

START_TEST(should_fail_where_io_uring_is_demanded_and_refused)
{
	static const char *const args[] = {"--loop", "io_uring", NULL};

	refuse_io_uring(EPERM);
	/* Its stderr is on ours: "cannot have io_uring (--loop auto goes on with epoll)". */
	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), -ECHILD);
}
END_TEST

static int64_t turns(void)
{
	return kvpool_raw_status(admin(), "service.turns");
}

static bool can_attach(void *cookie)
{
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	int fd = kvpool_raw_connect(path());
	uint32_t n;

	(void)cookie;
	ck_assert_int_ge(fd, 0);
	n = kvpool_raw_receive(fd, buffer, NULL);
	(void)close(fd);
	return n == sizeof(struct kvpool_hello);
}

/*
 * The admin socket, too, answers with a refusal instead of leaving its caller hanging. A connection
 * that was refused for want of its second descriptor leaves one free, and so does a client that
 * left and is noticed meanwhile: take these away as well.
 */
static void expect_admin_busy(struct rlimit *few)
{
	int code = 0, tries;

	for (tries = 0; tries < 16 && code != 503; tries++) {
		ck_assert_int_eq(prlimit(kvpool_harness_pid(daemon_), RLIMIT_NOFILE, few, NULL), 0);
		json_decref(kvpool_raw_http(admin(), "GET", "/v1/status", &code));
		few->rlim_cur--;
	}
	ck_assert_int_eq(code, 503);
}

START_TEST(should_refuse_politely_without_descriptors_and_recover)
{
	static const char *const epoll[] = {"--loop", "epoll", NULL};
	struct rlimit few = {48, 48};
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_refused refused;
	int fds[48], n = 0;
	int64_t before;

	start(_i ? epoll : NULL);
	before = turns();
	ck_assert_int_eq(prlimit(kvpool_harness_pid(daemon_), RLIMIT_NOFILE, &few, NULL), 0);
	for (;;) {
		ck_assert_int_lt(n, 30);
		fds[n] = kvpool_raw_connect(path());
		ck_assert_int_ge(fds[n], 0);
		if (kvpool_raw_receive(fds[n++], buffer, NULL) != sizeof(struct kvpool_hello))
			break;
	}
	memcpy(&refused, buffer, sizeof(refused));
	ck_assert_uint_eq(refused.head.type, KVPOOL_MESSAGE_REFUSED);
	ck_assert_uint_eq(refused.reason, KVPOOL_REFUSAL_RESOURCES);
	expect_admin_busy(&few);
	while (n > 0)
		(void)close(fds[--n]);
	ck_assert(kvpool_harness_until(can_attach, NULL, KVPOOL_RAW_MS));
	/* It did not run in circles over a connection that it could not accept. */
	ck_assert_int_lt(turns() - before, 20000);
	expect_service(_i ? "epoll" : "io_uring");
	teardown();
}
END_TEST

static Suite *refused_suite(void)
{
	Suite *suite = suite_create("refused");
	TCase *host = tcase_create("host");

	tcase_set_timeout(host, 60);
	tcase_add_loop_test(host, should_serve_with_epoll_where_io_uring_is_refused_and_say_so_once,
			    0, 2);
	tcase_add_test(host, should_serve_with_epoll_where_it_is_asked_for);
	tcase_add_test(host, should_fail_where_io_uring_is_demanded_and_refused);
	tcase_add_loop_test(host, should_refuse_politely_without_descriptors_and_recover, 0, 2);
	suite_add_tcase(suite, host);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(refused_suite());
}
