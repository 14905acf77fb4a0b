/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as a process: its sockets, its end, and what it does where the host refuses something.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct kvpool_harness *daemon_;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
}

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

static uint64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Runs kvpoold with these arguments until it ends; its exit code, and its stderr in `text`. */
static int run_kvpoold(const char *const *args, char *text, size_t text_bytes)
{
	const char *argv[16] = {getenv("KVPOOLD")};
	int ends[2], status, i;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	for (i = 0; args[i]; i++)
		argv[i + 1] = args[i];
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)alarm(30);
		(void)dup2(ends[1], STDERR_FILENO);
		(void)dup2(ends[1], STDOUT_FILENO);
		(void)execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	(void)close(ends[1]);
	while (have + 1 < text_bytes && (n = read(ends[0], text + have, text_bytes - 1 - have)) > 0)
		have += (size_t)n;
	text[have] = '\0';
	(void)close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "kvpoold ended with wait status %d: %s", status, text);
	return WEXITSTATUS(status);
}

START_TEST(should_refuse_a_socket_that_a_live_daemon_serves)
{
	const char *const args[] = {"--socket", path(), "--size", "64M", NULL};
	struct kvpool_raw raw;
	char text[4096], pid[32];

	ck_assert_int_eq(run_kvpoold(args, text, sizeof(text)), 1);
	(void)snprintf(pid, sizeof(pid), "process %d", (int)kvpool_harness_pid(daemon_));
	ck_assert_msg(strstr(text, "in use") && strstr(text, pid), "it said: %s", text);
	/* And the first one is none the worse for it. */
	kvpool_raw_attach(path(), "still", 0, NULL, &raw);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_take_over_the_sockets_of_a_dead_daemon)
{
	struct kvpool_raw raw;
	struct stat st;

	kvpool_harness_kill(daemon_);
	ck_assert_int_eq(stat(path(), &st), 0);
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_raw_attach(path(), "after", 0, NULL, &raw);
	json_decref(kvpool_raw_get(admin(), "/healthz"));
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_leave_a_file_alone_that_is_no_socket)
{
	char file[PATH_MAX], text[4096];
	const char *const args[] = {"--socket", file, "--size", "64M", NULL};
	struct stat st;
	int fd;

	(void)snprintf(file, sizeof(file), "%s/precious", kvpool_harness_folder(daemon_));
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_eq(run_kvpoold(args, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "not a socket"), "it said: %s", text);
	ck_assert_int_eq(stat(file, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
}
END_TEST

START_TEST(should_refuse_a_socket_path_that_is_too_long)
{
	char file[300], text[4096];
	const char *const args[] = {"--socket", file, "--size", "64M", NULL};

	memset(file, 'x', sizeof(file) - 1);
	memcpy(file, "/tmp/", 5);
	file[sizeof(file) - 1] = '\0';
	ck_assert_int_eq(run_kvpoold(args, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "299 bytes") && strstr(text, "107"), "it said: %s", text);
}
END_TEST

START_TEST(should_say_where_it_may_not_make_a_socket)
{
	char text[4096];
	const char *const args[] = {"--socket", "/proc/kvpool.sock", "--size", "64M", NULL};

	ck_assert_int_eq(run_kvpoold(args, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "cannot bind /proc/kvpool.sock"), "it said: %s", text);
}
END_TEST

START_TEST(should_make_sockets_for_its_user_alone_and_remove_them)
{
	struct stat st;

	ck_assert_int_eq(stat(path(), &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(stat(admin(), &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	ck_assert_int_ne(stat(path(), &st), 0);
	ck_assert_int_ne(stat(admin(), &st), 0);
}
END_TEST

START_TEST(should_not_remove_a_socket_that_another_daemon_put_there)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct stat st;

	(void)strncpy(address.sun_path, path(), sizeof(address.sun_path) - 1);
	ck_assert_int_eq(unlink(path()), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	ck_assert_int_eq(stat(path(), &st), 0);
	(void)close(fd);
}
END_TEST

START_TEST(should_leave_within_two_seconds_with_clients_attached)
{
	uint64_t start;
	struct kvpool_reply reply;
	struct kvpool_raw idle, reader, writer;
	uint8_t end[8];

	kvpool_raw_attach(path(), "idle", 0, NULL, &idle);
	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 4096);
	(void)kvpool_raw_store(&writer, 1);
	ck_assert_int_eq(kvpool_raw_reserve(&writer, 2, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_attach(path(), "reader", 0, NULL, &reader);
	kvpool_raw_layout(&reader, 4096);
	ck_assert_int_eq(kvpool_raw_match(&reader, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	start = now_ms();
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	ck_assert_uint_lt(now_ms() - start, 2000);
	ck_assert_int_eq(recv(idle.fd, end, sizeof(end), 0), 0);
	kvpool_raw_close(&idle);
	kvpool_raw_close(&reader);
	kvpool_raw_close(&writer);
}
END_TEST

START_TEST(should_let_a_writer_finish_while_it_drains)
{
	struct kvpool_raw writer;
	struct kvpool_reply reply;
	struct kvpool_wire_block block;
	uint8_t end[8];

	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 4096);
	ck_assert_int_eq(kvpool_raw_reserve(&writer, 1, &reply), KVPOOL_STATUS_OK);
	block = reply.block;
	ck_assert_int_eq(kill(kvpool_harness_pid(daemon_), SIGTERM), 0);
	/* Its listening socket goes first, then it waits for the one reservation. */
	while (kvpool_raw_reserve(&writer, 2, &reply) == KVPOOL_STATUS_OK)
		;
	ck_assert_int_eq(reply.status, KVPOOL_STATUS_DRAINING);
	ck_assert_int_eq(kvpool_raw_connect(path()), -ENOENT);
	ck_assert_int_eq(kvpool_raw_commit(&writer, &block), KVPOOL_STATUS_OK);
	ck_assert_int_eq(recv(writer.fd, end, sizeof(end), 0), 0);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	kvpool_raw_close(&writer);
}
END_TEST

START_TEST(should_end_the_supervisor_too_where_the_settings_are_wrong)
{
	/* Only the child finds out that there is not so much memory. */
	static const char *const args[] = {"--supervise", "--size", "8000T", NULL};
	char text[4096];

	ck_assert_int_eq(run_kvpoold(args, text, sizeof(text)), 2);
	ck_assert_msg(strstr(text, "is more than may be used") && !strstr(text, "again"),
		      "it said: %s", text);
}
END_TEST

START_TEST(should_ignore_a_hangup)
{
	struct kvpool_raw raw;

	ck_assert_int_eq(kill(kvpool_harness_pid(daemon_), SIGHUP), 0);
	kvpool_raw_attach(path(), "after", 0, NULL, &raw);
	kvpool_raw_close(&raw);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
}
END_TEST

static void restart_with(const char *const *args)
{
	kvpool_harness_free(daemon_);
	daemon_ = NULL;
	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
}

static void await(const char *name, int64_t value)
{
	kvpool_raw_await(admin(), name, value);
}

START_TEST(should_drop_blocks_that_nobody_used_for_the_idle_limit_and_then_the_domain)
{
	static const char *const args[] = {"--idle-limit", "1", NULL};
	struct kvpool_raw raw;

	restart_with(args);
	kvpool_raw_attach(path(), "idle", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	await("counters.expired", 1);
	await("accounting.blocks.ready", 0);
	kvpool_raw_expect_exact(admin());
	(void)kvpool_raw_store(&raw, 2);
	kvpool_raw_close(&raw);
	/* The client is gone; its block stays for others until the limit, the domain with it. */
	await("clients.attached_or_quarantined", 0);
	await("clients.domains", 0);
	await("pool.lent_bytes", 0);
}
END_TEST

START_TEST(should_sleep_without_waking_up_while_nobody_asks)
{
	struct kvpool_raw raw;
	int64_t before;

	kvpool_raw_attach(path(), "quiet", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	await("pool.ready_bytes", 64 << 20);
	await("service.channels_hot", 0);
	before = kvpool_raw_status(admin(), "service.wakeups");
	/* Nothing is waited for here: this is the time in which nothing must happen. */
	(void)poll(NULL, 0, 500);
	/* One question costs a few: the end of the one before, accept, request. */
	ck_assert_int_le(kvpool_raw_status(admin(), "service.wakeups") - before, 10);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_give_signs_of_life_while_a_watchdog_waits)
{
	int manager = kvpool_harness_manage(), alive = 0;
	char text[512];

	ck_assert_int_eq(setenv("WATCHDOG_USEC", "20000", 1), 0);
	restart_with(NULL);
	while (alive < 5) {
		ck_assert(kvpool_harness_heard(manager, text, sizeof(text), 20000));
		alive += strcmp(text, "WATCHDOG=1") == 0;
	}
	(void)close(manager);
}
END_TEST

START_TEST(should_refuse_more_clients_than_allowed)
{
	static const char *const args[] = {"--max-clients", "2", NULL};
	struct kvpool_attach attach = kvpool_raw_attach_message("third", 0, NULL);
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_raw first, second;
	int fd;

	restart_with(args);
	kvpool_raw_attach(path(), "first", 0, NULL, &first);
	kvpool_raw_attach(path(), "second", 0, NULL, &second);
	fd = kvpool_raw_connect(path());
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(kvpool_raw_receive(fd, buffer, NULL), sizeof(struct kvpool_hello));
	kvpool_raw_send(fd, &attach, sizeof(attach));
	kvpool_raw_expect_refusal(fd, KVPOOL_REFUSAL_LIMIT);
	(void)close(fd);
	kvpool_raw_close(&first);
	await("clients.attached_or_quarantined", 1);
	kvpool_raw_attach(path(), "third", 0, NULL, &first);
	kvpool_raw_close(&first);
	kvpool_raw_close(&second);
}
END_TEST

START_TEST(should_leave_no_core_file)
{
	char name[64], line[256];
	bool found = false;
	FILE *file;

	(void)snprintf(name, sizeof(name), "/proc/%d/limits", (int)kvpool_harness_pid(daemon_));
	file = fopen(name, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long soft = 1, hard = 1;

		if (sscanf(line, "Max core file size %lu %lu", &soft, &hard) != 2)
			continue;
		found = true;
		ck_assert_uint_eq(soft, 0);
		ck_assert_uint_eq(hard, 0);
	}
	(void)fclose(file);
	ck_assert(found);
}
END_TEST

/* As the service manager does it: descriptor 3 listens, the environment says what it is. */
static pid_t activate(int listening, const char *admin_path)
{
	const char *binary = getenv("KVPOOLD");
	char pid_text[16];
	pid_t pid;

	ck_assert_ptr_nonnull(binary);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)dup2(listening, 3);
	(void)snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
	(void)setenv("LISTEN_PID", pid_text, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
	(void)setenv("LISTEN_FDNAMES", "data", 1);
	(void)execl(binary, "kvpoold", "--size", "64M", "--admin-socket", admin_path, (char *)NULL);
	_exit(127);
}

START_TEST(should_serve_a_socket_that_the_service_manager_made_and_leave_it_there)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), status;
	struct kvpool_raw raw;
	char admin_path[128];
	struct stat st;
	pid_t pid;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/given.sock",
		       kvpool_harness_folder(daemon_));
	(void)snprintf(admin_path, sizeof(admin_path), "%s/given-admin.sock",
		       kvpool_harness_folder(daemon_));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	pid = activate(fd, admin_path);
	/* Whoever connects before the daemon is there waits in the queue. */
	kvpool_raw_attach(address.sun_path, "early", 0, NULL, &raw);
	json_decref(kvpool_raw_get(admin_path, "/healthz"));
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(stat(address.sun_path, &st), 0);
	ck_assert_int_ne(stat(admin_path, &st), 0);
	kvpool_raw_close(&raw);
	(void)close(fd);
}
END_TEST

static Suite *daemon_suite(void)
{
	Suite *suite = suite_create("daemon");
	TCase *sockets = tcase_create("sockets");
	TCase *end = tcase_create("end");
	TCase *life = tcase_create("life");

	tcase_add_checked_fixture(sockets, setup, teardown);
	tcase_set_timeout(sockets, 60);
	tcase_add_test(sockets, should_refuse_a_socket_that_a_live_daemon_serves);
	tcase_add_test(sockets, should_take_over_the_sockets_of_a_dead_daemon);
	tcase_add_test(sockets, should_leave_a_file_alone_that_is_no_socket);
	tcase_add_test(sockets, should_refuse_a_socket_path_that_is_too_long);
	tcase_add_test(sockets, should_say_where_it_may_not_make_a_socket);
	tcase_add_test(sockets, should_make_sockets_for_its_user_alone_and_remove_them);
	tcase_add_test(sockets, should_not_remove_a_socket_that_another_daemon_put_there);
	suite_add_tcase(suite, sockets);
	tcase_add_checked_fixture(end, setup, teardown);
	tcase_set_timeout(end, 60);
	tcase_add_test(end, should_leave_within_two_seconds_with_clients_attached);
	tcase_add_test(end, should_let_a_writer_finish_while_it_drains);
	tcase_add_test(end, should_end_the_supervisor_too_where_the_settings_are_wrong);
	tcase_add_test(end, should_ignore_a_hangup);
	suite_add_tcase(suite, end);
	tcase_add_checked_fixture(life, setup, teardown);
	tcase_set_timeout(life, 60);
	tcase_add_test(life,
		       should_drop_blocks_that_nobody_used_for_the_idle_limit_and_then_the_domain);
	tcase_add_test(life, should_sleep_without_waking_up_while_nobody_asks);
	tcase_add_test(life, should_give_signs_of_life_while_a_watchdog_waits);
	tcase_add_test(life, should_refuse_more_clients_than_allowed);
	tcase_add_test(life, should_leave_no_core_file);
	tcase_add_test(life,
		       should_serve_a_socket_that_the_service_manager_made_and_leave_it_there);
	suite_add_tcase(suite, life);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(daemon_suite());
}
