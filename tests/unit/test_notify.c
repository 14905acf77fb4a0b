/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager hears and hands over; the test is the service manager.
 *
 * Each test is a process of its own (Check forks): descriptors from 3 on are what was passed.
 * Check's own file may have been one of them: a test that fails afterwards does so without its
 * message.
 */
#include "daemon/notify.h"
#include "shm/base.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Above whatever Check itself has open. */
#define PARK 200

static char error[256];
static struct kvpool_store_list kept;

static int listener(int type)
{
	const struct sockaddr_un nameless = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type, 0);
	int high;

	ck_assert_int_ge(fd, 0);
	/* Bound to a name that the kernel picks. */
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&nameless, sizeof(sa_family_t)), 0);
	if (type != SOCK_DGRAM)
		ck_assert_int_eq(listen(fd, 4), 0);
	high = fcntl(fd, F_DUPFD, PARK);
	ck_assert_int_ge(high, 0);
	ck_assert_int_eq(close(fd), 0);
	return high;
}

/* Memory with one byte, by which it can be known again. */
#define MEMORY(mark) (-(mark))

static int memory(int mark)
{
	char byte = (char)mark;
	int fd = memfd_create("test", 0), high;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, &byte, 1), 1);
	high = fcntl(fd, F_DUPFD, PARK);
	ck_assert_int_ge(high, 0);
	ck_assert_int_eq(close(fd), 0);
	return high;
}

static char mark_of(int fd)
{
	char byte;

	ck_assert_int_eq(pread(fd, &byte, 1, 0), 1);
	return byte;
}

/* Passes sockets of these types, or memory, as descriptors 3, 4, ... */
static void pass(const char *names, const int *types, int n)
{
	char number[16];
	int fds[4];

	for (int i = 0; i < n; i++)
		fds[i] = types[i] < 0 ? memory(-types[i]) : listener(types[i]);
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(dup2(fds[i], 3 + i), 3 + i);
		ck_assert_int_eq(close(fds[i]), 0);
	}
	(void)snprintf(number, sizeof(number), "%d", n);
	ck_assert_int_eq(setenv("LISTEN_FDS", number, 1), 0);
	(void)snprintf(number, sizeof(number), "%d", (int)getpid());
	ck_assert_int_eq(setenv("LISTEN_PID", number, 1), 0);
	ck_assert_int_eq(setenv("LISTEN_FDNAMES", names, 1), 0);
}

START_TEST(should_find_no_sockets_where_none_were_passed)
{
	struct kvpool_notify_sockets s = {0, 0};

	ck_assert_int_eq(unsetenv("LISTEN_FDS"), 0);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_int_eq(s.data, -1);
	ck_assert_int_eq(s.admin, -1);
}
END_TEST

static const char *const good_names[] = {"admin:data", "kvpool-admin.socket:kvpool.socket"};

START_TEST(should_sort_sockets_by_their_names)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	struct kvpool_notify_sockets s;

	pass(good_names[_i], types, 2);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_int_eq(s.admin, 3);
	ck_assert_int_eq(s.data, 4);
	ck_assert_int_eq(fcntl(3, F_GETFD), FD_CLOEXEC);
	ck_assert_ptr_null(getenv("LISTEN_FDS"));
	/* Once only. */
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_int_eq(s.data, -1);
}
END_TEST

static const struct {
	const char *names;
	int types[2]; /* or memory */
	int n;
	const char *text; /* in the message */
} bad[] = {
	{"metrics", {SOCK_STREAM}, 1, "a socket named \"metrics\"; known are"},
	{"data:data", {SOCK_SEQPACKET, SOCK_SEQPACKET}, 2, "more than one socket named \"data\""},
	{"data", {SOCK_STREAM}, 1, "type sequential packet (ListenSequentialPacket=)"},
	{"data:admin", {SOCK_SEQPACKET, SOCK_DGRAM}, 2, "\"admin\""},
	{"kvpool-a:admin", {MEMORY('a'), SOCK_DGRAM}, 2, "\"admin\""},
	{"data", {MEMORY('a')}, 1, "\"data\""},
	{"kvpool-A", {SOCK_STREAM}, 1, "a socket named \"kvpool-A\"; known are"},
};

START_TEST(should_refuse_sockets_that_are_not_what_they_should_be)
{
	struct kvpool_notify_sockets s = {42, 42};

	pass(bad[_i].names, bad[_i].types, bad[_i].n);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept),
			 KVPOOL_NOTIFY_E_SOCKET);
	ck_assert_msg(strstr(error, bad[_i].text) != NULL, "%s", error);
	ck_assert_int_eq(s.data, 42);
	for (int i = 0; i < bad[_i].n; i++) {
		ck_assert_int_eq(fcntl(3 + i, F_GETFD), -1);
		ck_assert_int_eq(errno, EBADF);
	}
}
END_TEST

START_TEST(should_hand_over_what_the_store_held_beside_the_sockets)
{
	static const int types[] = {MEMORY('a'), SOCK_SEQPACKET, MEMORY('b')};
	struct kvpool_notify_sockets s;

	pass("kvpool-a:data:kvpool-b-2", types, 3);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_int_eq(s.data, 4);
	ck_assert_uint_eq(kept.n, 2);
	ck_assert_str_eq(kept.fds[0].name, "kvpool-a");
	ck_assert_int_eq(mark_of(kept.fds[0].fd), 'a');
	ck_assert_int_eq(fcntl(kept.fds[0].fd, F_GETFD), FD_CLOEXEC);
	ck_assert_str_eq(kept.fds[1].name, "kvpool-b-2");
	ck_assert_int_eq(mark_of(kept.fds[1].fd), 'b');
	kvpool_store_list_free(&kept);
	ck_assert_int_eq(fcntl(3, F_GETFD), -1);
	ck_assert_int_eq(fcntl(5, F_GETFD), -1);
}
END_TEST

START_TEST(should_close_what_is_no_socket_and_has_no_known_name)
{
	static const int types[] = {MEMORY('a'), SOCK_SEQPACKET, MEMORY('b')};
	struct kvpool_notify_sockets s;

	pass("stored:data:kvpool-UPPER", types, 3);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_int_eq(s.data, 4);
	ck_assert_uint_eq(kept.n, 0);
	ck_assert_int_eq(fcntl(3, F_GETFD), -1);
	ck_assert_int_eq(fcntl(5, F_GETFD), -1);
}
END_TEST

static void heard(int manager, const char *expected)
{
	char text[512];
	ssize_t n = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	ck_assert_str_eq(text, expected);
}

static int manage(void)
{
	int manager = listener(SOCK_DGRAM);
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);

	ck_assert_int_eq(getsockname(manager, (struct sockaddr *)&address, &bytes), 0);
	/* The kernel's names are abstract: a zero byte first, which is written '@'. */
	ck_assert_int_eq(address.sun_path[0], '\0');
	address.sun_path[0] = '@';
	((char *)&address)[bytes] = '\0';
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
	return manager;
}

START_TEST(should_tell_the_service_manager)
{
	int manager = manage();

	kvpool_notify_status("%d of %d\nREADY=1", 3, 4);
	heard(manager, "STATUS=3 of 4");
	kvpool_notify_ready();
	heard(manager, "READY=1");
	kvpool_notify_extend(1500000);
	heard(manager, "EXTEND_TIMEOUT_USEC=1500");
	kvpool_notify_stopping();
	heard(manager, "STOPPING=1");
}
END_TEST

START_TEST(should_use_the_first_of_two_with_one_name_and_have_the_store_do_so_too)
{
	static const int types[] = {MEMORY('a'), MEMORY('b')};
	struct kvpool_notify_sockets s;
	int manager = manage();
	char byte;

	pass("kvpool-a:kvpool-a", types, 2);
	ck_assert_int_eq(kvpool_notify_take_sockets(error, sizeof(error), &s, &kept), 0);
	ck_assert_uint_eq(kept.n, 1);
	ck_assert_int_eq(mark_of(kept.fds[0].fd), 'a');
	/* The number may be another's by now: the way to the manager's. */
	ck_assert_int_eq(pread(4, &byte, 1, 0), -1);
	heard(manager, "FDSTOREREMOVE=1\nFDNAME=kvpool-a");
	heard(manager, "FDSTORE=1\nFDNAME=kvpool-a\nFDPOLL=0");
	kvpool_store_list_free(&kept);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("notify");
	TCase *tcase = tcase_create("service manager");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, should_find_no_sockets_where_none_were_passed);
	tcase_add_loop_test(tcase, should_sort_sockets_by_their_names, 0,
			    (int)KVPOOL_ARRAY_SIZE(good_names));
	tcase_add_loop_test(tcase, should_refuse_sockets_that_are_not_what_they_should_be, 0,
			    (int)KVPOOL_ARRAY_SIZE(bad));
	tcase_add_test(tcase, should_hand_over_what_the_store_held_beside_the_sockets);
	tcase_add_test(tcase, should_close_what_is_no_socket_and_has_no_known_name);
	tcase_add_test(tcase, should_tell_the_service_manager);
	tcase_add_test(tcase,
		       should_use_the_first_of_two_with_one_name_and_have_the_store_do_so_too);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
