/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor's descriptor store: what it takes, and that it survives whatever is sent. The test
 * is the child, and a process that it forks is a stranger.
 */
#include "daemon/keeper.h"
#include "shm/base.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM    3u
#define FDS_MAX 253 /* the kernel's SCM_MAX_FD */

static struct kvpool_keeper keeper;
static struct kvpool_keeper_note note;
static int sender;

/* Open descriptors of this process. */
static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int connect_to(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	memcpy(at.sun_path, name, strlen(name));
	at.sun_path[0] = '\0';
	ck_assert_int_eq(
		connect(fd, (const struct sockaddr *)&at,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
		0);
	return fd;
}

static void setup(void)
{
	ck_assert_int_eq(kvpool_keeper_open(ROOM, &keeper), 0);
	ck_assert_uint_eq(keeper.room, ROOM);
	sender = connect_to(keeper.address);
}

static void teardown(void)
{
	(void)close(sender);
	kvpool_keeper_close(&keeper);
}

/* Sends these bytes with `fd` n times. */
static void send_bytes(const char *text, size_t bytes, int fd, int n)
{
	static union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec data = {.iov_base = (void *)(uintptr_t)text, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (n > 0) {
		memset(&control, 0, sizeof(control));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		for (int i = 0; i < n; i++)
			memcpy(CMSG_DATA(&control.head) + (size_t)i * sizeof(int), &fd,
			       sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(sender, &message, MSG_NOSIGNAL), (ssize_t)bytes);
}

static int say(const char *text, int fd)
{
	send_bytes(text, strlen(text), fd, fd >= 0);
	return kvpool_keeper_receive(&keeper, getpid(), &note);
}

static int memory(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static bool keeps(const char *name, int like)
{
	struct stat x, y;

	for (uint32_t i = 0; i < keeper.n; i++) {
		if (strcmp(keeper.kept[i].name, name) == 0)
			return fstat(keeper.kept[i].fd, &x) == 0 && fstat(like, &y) == 0 &&
			       x.st_dev == y.st_dev && x.st_ino == y.st_ino;
	}
	return false;
}

START_TEST(should_keep_a_descriptor_until_it_is_removed)
{
	int a = memory(), b = memory();

	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-a\nFDPOLL=0", a), 0);
	ck_assert_int_eq(say("FDNAME=kvpool-b\nFDSTORE=1\n", b), 0);
	ck_assert_uint_eq(keeper.n, 2);
	ck_assert(keeps("kvpool-a", a));
	ck_assert(keeps("kvpool-b", b));
	ck_assert_int_eq(fcntl(keeper.kept[0].fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(say("FDSTOREREMOVE=1\nFDNAME=kvpool-a", -1), 0);
	ck_assert_int_eq(say("FDSTOREREMOVE=1\nFDNAME=kvpool-never", -1), 0);
	ck_assert_uint_eq(keeper.n, 1);
	ck_assert(keeps("kvpool-b", b));
	ck_assert_int_eq(say("", -1), 0);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_EMPTY);
	(void)close(a);
	(void)close(b);
}
END_TEST

START_TEST(should_replace_what_has_the_same_name)
{
	int a = memory(), b = memory(), before;

	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-a", a), 0);
	before = open_fds();
	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-a", b), 0);
	ck_assert_uint_eq(keeper.n, 1);
	ck_assert(keeps("kvpool-a", b));
	ck_assert_int_eq(open_fds(), before);
	(void)close(a);
	(void)close(b);
}
END_TEST

START_TEST(should_hold_no_more_than_it_has_room_for)
{
	int fd = memory(), before;
	char text[64];

	for (unsigned int i = 0; i < ROOM; i++) {
		(void)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=kvpool-%u", i);
		ck_assert_int_eq(say(text, fd), 0);
	}
	before = open_fds();
	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-more", fd), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(open_fds(), before);
	ck_assert_uint_eq(keeper.n, ROOM);
	ck_assert_int_eq(say("FDSTOREREMOVE=1\nFDNAME=kvpool-1", -1), 0);
	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-more", fd), 0);
	(void)close(fd);
}
END_TEST

static const struct {
	const char *text;
	int fds;
} wrong[] = {
	{"FDSTORE=1\nFDNAME=kvpool-a", 0},
	{"FDSTORE=1\nFDNAME=kvpool-a", 2},
	{"FDSTORE=1\nFDNAME=kvpool-a", FDS_MAX},
	{"FDSTORE=1", 1},
	{"FDSTORE=1\nFDNAME=", 1},
	{"FDSTORE=1\nFDNAME=data", 1},
	{"FDSTORE=1\nFDNAME=kvpool-A", 1},
	{"FDSTORE=1\nFDNAME=kvpool-a:data", 1},
	{"FDSTORE=1\nFDNAME=kvpool-7890123456789012345678901", 1},
	{"FDSTORE=1\nFDSTOREREMOVE=1\nFDNAME=kvpool-a", 1},
	{"FDSTOREREMOVE=1", 0},
	{"FDSTOREREMOVE=1\nFDNAME=data", 0},
	{"FDSTOREREMOVE=1\nFDNAME=kvpool-a", 1},
	{"READY=1", 1},
	{"", FDS_MAX},
};

START_TEST(should_drop_a_message_that_breaks_the_rules_and_what_came_with_it)
{
	int fd = memory(), before = open_fds();

	send_bytes(wrong[_i].text, strlen(wrong[_i].text), fd, wrong[_i].fds);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(open_fds(), before);
	ck_assert_uint_eq(keeper.n, 0);
	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-a", fd), 0);
	(void)close(fd);
}
END_TEST

static const size_t lengths[] = {KVPOOL_KEEPER_TEXT_MAX, KVPOOL_KEEPER_TEXT_MAX + 1,
				 KVPOOL_KEEPER_TEXT_MAX + 2, 10 * KVPOOL_KEEPER_TEXT_MAX};

START_TEST(should_take_a_message_of_the_allowed_length_and_none_longer)
{
	static char text[10 * KVPOOL_KEEPER_TEXT_MAX + 1];
	int fd = memory(), before = open_fds();
	bool fits = lengths[_i] <= KVPOOL_KEEPER_TEXT_MAX;

	memset(text, 'x', sizeof(text));
	memcpy(text, "STATUS=", strlen("STATUS="));
	send_bytes(text, lengths[_i], fd, 0);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note),
			 fits ? 0 : KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_uint_eq(strlen(note.said), fits ? lengths[_i] : 0);
	memcpy(text, "FDSTORE=1\nFDNAME=kvpool-a\n", strlen("FDSTORE=1\nFDNAME=kvpool-a\n"));
	send_bytes(text, lengths[_i], fd, 1);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note),
			 fits ? 0 : KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(open_fds(), before + fits);
	(void)close(fd);
}
END_TEST

START_TEST(should_drop_a_message_that_is_no_text)
{
	static const char text[] = "FDSTORE=1\nFDNAME=kvpool-a\0b";
	int fd = memory(), before = open_fds();

	send_bytes(text, sizeof(text) - 1, fd, 1);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(open_fds(), before);
	(void)close(fd);
}
END_TEST

START_TEST(should_drop_a_message_whose_descriptors_it_has_no_numbers_for)
{
	struct rlimit files, few;
	int fd = memory(), before = open_fds();

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	send_bytes("FDSTORE=1\nFDNAME=kvpool-a", strlen("FDSTORE=1\nFDNAME=kvpool-a"), fd, 1);
	few = files;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(open_fds(), before);
	ck_assert_uint_eq(keeper.n, 0);
	(void)close(fd);
}
END_TEST

START_TEST(should_take_nothing_from_a_stranger)
{
	int fd = memory(), before = open_fds(), status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		send_bytes("FDSTORE=1\nFDNAME=kvpool-a", strlen("FDSTORE=1\nFDNAME=kvpool-a"), fd,
			   1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), KVPOOL_KEEPER_E_EMPTY);
	/* Nor from anybody while there is no child. */
	send_bytes("READY=1", strlen("READY=1"), -1, 0);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, 0, &note), KVPOOL_KEEPER_E_MESSAGE);
	ck_assert_int_eq(open_fds(), before);
	ck_assert_uint_eq(keeper.n, 0);
	(void)close(fd);
}
END_TEST

START_TEST(should_answer_a_barrier_by_closing_its_descriptor)
{
	int ends[2];
	char byte;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	send_bytes("BARRIER=1", strlen("BARRIER=1"), ends[1], 1);
	(void)close(ends[1]);
	ck_assert_int_eq(read(ends[0], &byte, 1), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(kvpool_keeper_receive(&keeper, getpid(), &note), 0);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	(void)close(ends[0]);
}
END_TEST

START_TEST(should_pass_on_what_its_own_manager_wants_to_know)
{
	ck_assert_int_eq(say("READY=1\nMAINPID=1\nSTATUS=fine\nERRNO=5\nWATCHDOG=1\n"
			     "EXTEND_TIMEOUT_USEC=7\nNOTIFYACCESS=all",
			     -1),
			 0);
	ck_assert_str_eq(note.said, "READY=1\nSTATUS=fine\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=7");
	ck_assert(!note.stopping);
	ck_assert_int_eq(say("STOPPING=1", -1), 0);
	ck_assert_str_eq(note.said, "");
	ck_assert(note.stopping);
}
END_TEST

START_TEST(should_close_what_it_holds)
{
	int fd = memory(), before;

	ck_assert_int_eq(say("FDSTORE=1\nFDNAME=kvpool-a", fd), 0);
	before = open_fds();
	kvpool_keeper_close(&keeper);
	ck_assert_int_eq(open_fds(), before - 2);
	kvpool_keeper_close(&keeper);
	(void)close(fd);
}
END_TEST

START_TEST(should_have_room_for_what_the_limit_of_descriptors_leaves)
{
	struct rlimit files, some;
	struct kvpool_keeper other;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	some = files;
	some.rlim_cur = 1000;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &some), 0);
	ck_assert_int_eq(kvpool_keeper_open(KVPOOL_STORE_MAX, &other), 0);
	ck_assert_uint_eq(other.room, 350);
	kvpool_keeper_close(&other);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keeper");
	TCase *tcase = tcase_create("keeper");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_keep_a_descriptor_until_it_is_removed);
	tcase_add_test(tcase, should_replace_what_has_the_same_name);
	tcase_add_test(tcase, should_hold_no_more_than_it_has_room_for);
	tcase_add_loop_test(tcase,
			    should_drop_a_message_that_breaks_the_rules_and_what_came_with_it, 0,
			    (int)KVPOOL_ARRAY_SIZE(wrong));
	tcase_add_loop_test(tcase, should_take_a_message_of_the_allowed_length_and_none_longer, 0,
			    (int)KVPOOL_ARRAY_SIZE(lengths));
	tcase_add_test(tcase, should_drop_a_message_that_is_no_text);
	tcase_add_test(tcase, should_drop_a_message_whose_descriptors_it_has_no_numbers_for);
	tcase_add_test(tcase, should_take_nothing_from_a_stranger);
	tcase_add_test(tcase, should_answer_a_barrier_by_closing_its_descriptor);
	tcase_add_test(tcase, should_pass_on_what_its_own_manager_wants_to_know);
	tcase_add_test(tcase, should_close_what_it_holds);
	tcase_add_test(tcase, should_have_room_for_what_the_limit_of_descriptors_leaves);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
