/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor store from the daemon's side; the test is the manager that keeps.
 *
 * Each test is a process of its own (Check forks): the way to the manager is made once a process.
 */
#include "daemon/manager.h"
#include "daemon/store.h"
#include "shm/base.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char address[128];
static char folder[64];

/* Binds a manager's socket at the name that `address` has, or at one that the kernel picks. */
static int manage_at(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	socklen_t bytes = sizeof(sa_family_t);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	if (name) {
		ck_assert_uint_lt(strlen(name), sizeof(at.sun_path));
		memcpy(at.sun_path, name, strlen(name));
		bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
		if (name[0] == '@')
			at.sun_path[0] = '\0';
		else
			bytes++;
	}
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, bytes), 0);
	if (name)
		return fd;
	bytes = sizeof(at);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
	memset(address, 0, sizeof(address));
	memcpy(address, at.sun_path, bytes - offsetof(struct sockaddr_un, sun_path));
	address[0] = '@';
	return fd;
}

static int manage(void)
{
	int fd = manage_at(NULL);

	ck_assert_int_eq(setenv("NOTIFY_SOCKET", address, 1), 0);
	return fd;
}

static void setup(void)
{
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("FDSTORE");
}

/* Takes one message; its descriptor, or -1. */
static int heard(int manager, const char *expected)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	char text[512];
	struct iovec data = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(manager, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	int fd = -1;

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	ck_assert_str_eq(text, expected);
	if (c) {
		ck_assert_uint_eq(c->cmsg_len, CMSG_LEN(sizeof(int)));
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	}
	return fd;
}

static void heard_nothing(int manager)
{
	char byte;

	ck_assert_int_eq(recv(manager, &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN);
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static int memory(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static const struct {
	const char *name;
	bool valid;
} names[] = {
	{"kvpool-a", true},
	{"kvpool-segment-0123", true},
	{"kvpool-", false},
	{"kvpool", false},
	{"", false},
	{"data", false},
	{"xkvpool-a", false},
	{"kvpool-A", false},
	{"kvpool-a_b", false},
	{"kvpool-a.b", false},
	{"kvpool-a:b", false},
	{"kvpool-a\nREADY=1", false},
	{"kvpool-admin.socket", false},
	{"kvpool-789012345678901234567890", true},
	{"kvpool-7890123456789012345678901", false},
};

START_TEST(should_know_a_name_that_may_be_kept)
{
	ck_assert_int_eq(kvpool_store_name_valid(names[_i].name), names[_i].valid);
}
END_TEST

START_TEST(should_fit_all_names_into_one_variable_of_the_environment)
{
	/* Linux's MAX_ARG_STRLEN, less the variable's name and what the sockets are called. */
	ck_assert_uint_le(KVPOOL_STORE_MAX * KVPOOL_STORE_NAME_BYTES, 131072 - 1024);
}
END_TEST

START_TEST(should_say_that_nobody_keeps_where_nobody_does)
{
	int fd = memory();

	ck_assert(!kvpool_store_kept());
	ck_assert_int_eq(kvpool_store_put("kvpool-a", fd), KVPOOL_STORE_E_NONE);
	ck_assert_int_eq(kvpool_store_remove("kvpool-a"), KVPOOL_STORE_E_NONE);
	/* A store without the way to it. */
	ck_assert_int_eq(setenv("FDSTORE", "10", 1), 0);
	ck_assert(!kvpool_store_kept());
	(void)close(fd);
}
END_TEST

static const struct {
	const char *said;
	bool kept;
} rooms[] = {{NULL, false}, {"0", false}, {"", false},  {"-1", false},
	     {"7x", false}, {"1", true},  {"99", true}, {"18446744073709551615", true}};

START_TEST(should_believe_that_somebody_keeps_where_the_store_has_room)
{
	int manager = manage();

	if (rooms[_i].said)
		ck_assert_int_eq(setenv("FDSTORE", rooms[_i].said, 1), 0);
	ck_assert_int_eq(kvpool_store_kept(), rooms[_i].kept);
	(void)close(manager);
}
END_TEST

START_TEST(should_send_a_descriptor_with_its_name)
{
	int manager = manage(), fd = memory(), came;

	ck_assert_int_eq(kvpool_store_put("kvpool-a", fd), 0);
	came = heard(manager, "FDSTORE=1\nFDNAME=kvpool-a\nFDPOLL=0");
	ck_assert(same_file(came, fd));
	ck_assert_int_eq(kvpool_store_remove("kvpool-a"), 0);
	ck_assert_int_eq(heard(manager, "FDSTOREREMOVE=1\nFDNAME=kvpool-a"), -1);
	(void)close(came);
	(void)close(fd);
	(void)close(manager);
}
END_TEST

START_TEST(should_put_no_more_than_the_store_may_hold)
{
	struct kvpool_store_list list = {.fds = NULL};
	int manager = manage(), fd = memory();

	ck_assert_int_eq(setenv("FDSTORE", "2", 1), 0);
	/* What came back is in the store. */
	ck_assert_int_eq(kvpool_store_list_add(&list, "kvpool-a", memory()), 0);
	ck_assert_int_eq(kvpool_store_put("kvpool-b", fd), 0);
	(void)close(heard(manager, "FDSTORE=1\nFDNAME=kvpool-b\nFDPOLL=0"));
	ck_assert_int_eq(kvpool_store_put("kvpool-c", fd), KVPOOL_STORE_E_FULL);
	heard_nothing(manager);
	ck_assert_int_eq(kvpool_store_remove("kvpool-b"), 0);
	ck_assert_int_eq(heard(manager, "FDSTOREREMOVE=1\nFDNAME=kvpool-b"), -1);
	ck_assert_int_eq(kvpool_store_put("kvpool-c", fd), 0);
	kvpool_store_list_free(&list);
	(void)close(fd);
	(void)close(manager);
}
END_TEST

START_TEST(should_hold_many_that_came_back)
{
	struct kvpool_store_list list = {.fds = NULL};
	char name[KVPOOL_STORE_NAME_BYTES];

	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "kvpool-%d", i);
		ck_assert_int_eq(kvpool_store_list_add(&list, name, memory()), 0);
	}
	ck_assert_uint_eq(list.n, 100);
	for (size_t i = 0; i < list.n; i++) {
		(void)snprintf(name, sizeof(name), "kvpool-%d", (int)i);
		ck_assert_str_eq(list.fds[i].name, name);
	}
	kvpool_store_list_free(&list);
	ck_assert_uint_eq(list.n, 0);
	ck_assert_ptr_null(list.fds);
}
END_TEST

START_TEST(should_drop_from_the_store_what_nobody_took_out)
{
	struct kvpool_store_list list = {.fds = NULL};
	int manager = manage(), taken = memory(), left = memory();

	ck_assert_int_eq(kvpool_store_list_add(&list, "kvpool-taken", taken), 0);
	ck_assert_int_eq(kvpool_store_list_add(&list, "kvpool-left", left), 0);
	list.fds[0].fd = -1;
	kvpool_store_list_drop(&list);
	ck_assert_int_eq(heard(manager, "FDSTOREREMOVE=1\nFDNAME=kvpool-left"), -1);
	heard_nothing(manager);
	ck_assert_int_eq(fcntl(left, F_GETFD), -1);
	ck_assert_int_eq(fcntl(taken, F_GETFD), FD_CLOEXEC);
	(void)close(taken);
	(void)close(manager);
}
END_TEST

START_TEST(should_give_nothing_to_a_stranger_who_took_the_dead_managers_name)
{
	int manager = manage(), fd = memory(), stranger;

	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), 0);
	(void)close(manager);
	stranger = manage_at(address);
	ck_assert_int_eq(kvpool_store_put("kvpool-a", fd), -ECONNREFUSED);
	ck_assert_int_lt(kvpool_store_put("kvpool-a", fd), 0);
	heard_nothing(stranger);
	(void)close(fd);
	(void)close(stranger);
}
END_TEST

START_TEST(should_find_a_manager_again_that_made_its_socket_anew_at_its_path)
{
	char path[96];
	int manager;

	(void)snprintf(folder, sizeof(folder), "/tmp/kvpool-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/notify", folder);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
	manager = manage_at(path);
	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), 0);
	(void)close(manager);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), -ENOENT);
	manager = manage_at(path);
	ck_assert_int_eq(kvpool_manager_send("READY=2", -1), 0);
	ck_assert_int_eq(heard(manager, "READY=2"), -1);
	(void)close(manager);
	(void)unlink(path);
	(void)rmdir(folder);
}
END_TEST

START_TEST(should_not_wait_for_ever_for_a_manager_that_does_not_read)
{
	int manager = manage(), fd = memory(), r = 0;

	/* The kernel lets only so many messages wait. */
	for (int i = 0; i < 100000 && r == 0; i++)
		r = kvpool_manager_send("STATUS=still here", -1);
	ck_assert_int_eq(r, -EAGAIN);
	(void)close(fd);
	(void)close(manager);
}
END_TEST

START_TEST(should_refuse_a_manager_whose_name_is_none)
{
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", "vsock:2:1234", 1), 0);
	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), -EAFNOSUPPORT);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", "@", 1), 0);
	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), -EAFNOSUPPORT);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", "", 1), 0);
	ck_assert_int_eq(kvpool_manager_send("READY=1", -1), KVPOOL_MANAGER_E_NONE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *tcase = tcase_create("store");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, should_know_a_name_that_may_be_kept, 0,
			    (int)KVPOOL_ARRAY_SIZE(names));
	tcase_add_test(tcase, should_fit_all_names_into_one_variable_of_the_environment);
	tcase_add_test(tcase, should_say_that_nobody_keeps_where_nobody_does);
	tcase_add_loop_test(tcase, should_believe_that_somebody_keeps_where_the_store_has_room, 0,
			    (int)KVPOOL_ARRAY_SIZE(rooms));
	tcase_add_test(tcase, should_send_a_descriptor_with_its_name);
	tcase_add_test(tcase, should_put_no_more_than_the_store_may_hold);
	tcase_add_test(tcase, should_hold_many_that_came_back);
	tcase_add_test(tcase, should_drop_from_the_store_what_nobody_took_out);
	tcase_add_test(tcase, should_give_nothing_to_a_stranger_who_took_the_dead_managers_name);
	tcase_add_test(tcase, should_find_a_manager_again_that_made_its_socket_anew_at_its_path);
	tcase_add_test(tcase, should_not_wait_for_ever_for_a_manager_that_does_not_read);
	tcase_add_test(tcase, should_refuse_a_manager_whose_name_is_none);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
