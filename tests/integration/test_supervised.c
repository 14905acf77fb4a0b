/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor with processes: what it holds survives its child, and ends with itself.
 *
 * The child is stand_in.c, which writes a line each time it lives; then kvpoold itself. This
 * process reaps orphans, so that it sees the child of a dead supervisor end.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS   20000
#define WORDS_MAX 12

static char folder[64];
static char report[96];
static char err[96];
static pid_t supervisor;
static char text[1 << 20];

struct life {
	int n;
	int pid;
	char say[32];
	char at[64];
	char kept[1 << 18]; /* ",name,name," */
};

static struct life life;

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpool-supervised-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(report, sizeof(report), "%s/report", folder);
	(void)snprintf(err, sizeof(err), "%s/stderr", folder);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	supervisor = 0;
}

static void teardown(void)
{
	char script[96];

	if (supervisor > 0) {
		(void)kill(supervisor, SIGKILL);
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
	(void)snprintf(script, sizeof(script), "%s/child", folder);
	(void)unlink(script);
	(void)unlink(report);
	(void)unlink(err);
	(void)rmdir(folder);
}

/* In the child: `listening` is passed as the service manager passes a socket named "data". */
static void become(char *const argv[], int listening)
{
	int fd = open(err, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char pid_text[16];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)dup2(fd, STDERR_FILENO);
	if (listening >= 0) {
		(void)dup2(listening, 3);
		(void)snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
		(void)setenv("LISTEN_PID", pid_text, 1);
		(void)setenv("LISTEN_FDS", "1", 1);
		(void)setenv("LISTEN_FDNAMES", "data", 1);
	}
	(void)execv(argv[0], argv);
	_exit(127);
}

/* `steps` are words with a space between. The child is `file`; NULL: the stand-in itself. */
static void start_with(const char *kept_max, const char *file, int listening, const char *steps)
{
	char *stand_in = getenv("KVPOOL_STAND_IN");
	char words[512], *word, *save = NULL;
	char *argv[7 + WORDS_MAX] = {NULL};
	int n = 0;

	ck_assert_ptr_nonnull(stand_in);
	argv[n++] = stand_in;
	argv[n++] = (char *)"supervise";
	argv[n++] = (char *)(uintptr_t)kept_max;
	argv[n++] = file ? (char *)(uintptr_t)file : stand_in;
	argv[n++] = (char *)"child";
	argv[n++] = report;
	(void)snprintf(words, sizeof(words), "%s", steps);
	for (word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		ck_assert_int_lt(n, 6 + WORDS_MAX);
		argv[n++] = word;
	}
	supervisor = fork();
	ck_assert_int_ge(supervisor, 0);
	if (supervisor == 0)
		become(argv, listening);
}

static void start(const char *steps)
{
	start_with("0", NULL, -1, steps);
}

static const char *read_all(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	ck_assert_int_ge(n, 0);
	if (fd >= 0)
		(void)close(fd);
	text[n] = '\0';
	return text;
}

/* Is line number *cookie of the report there? If so it is in `life`. */
static bool lived(void *cookie)
{
	const char *line = read_all(report);

	for (int i = 1; i < *(int *)cookie && line; i++) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (!line || !strchr(line, '\n'))
		return false;
	return sscanf(line, "life %d pid %d say %31s at %63s kept %262143s", &life.n, &life.pid,
		      life.say, life.at, life.kept) == 5;
}

static void await_life(int n)
{
	ck_assert_msg(kvpool_harness_until(lived, &n, WAIT_MS), "life %d did not come: %s", n,
		      read_all(err));
}

static bool ended(void *cookie)
{
	return waitpid(supervisor, cookie, WNOHANG) == supervisor;
}

/* The supervisor's exit code. */
static int await_end(void)
{
	int status;

	ck_assert_msg(kvpool_harness_until(ended, &status, WAIT_MS), "it did not end: %s",
		      read_all(err));
	supervisor = 0;
	ck_assert_msg(WIFEXITED(status), "wait status %d: %s", status, read_all(err));
	/* And nothing is left of it: no orphan came to us. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	return WEXITSTATUS(status);
}

struct passage {
	const char *path;
	const char *text;
};

static bool is_there(void *cookie)
{
	const struct passage *passage = cookie;

	return strstr(read_all(passage->path), passage->text) != NULL;
}

static void await_text(const char *path, const char *what)
{
	struct passage passage = {path, what};

	ck_assert_msg(kvpool_harness_until(is_there, &passage, WAIT_MS), "\"%s\" does not come: %s",
		      what, read_all(err));
}

START_TEST(should_give_back_what_was_kept_after_each_of_ten_kills)
{
	int pid = 0;

	start("count report wait");
	for (int i = 1; i <= 10; i++) {
		await_life(i);
		ck_assert_int_eq(life.n, i);
		ck_assert_int_ne(life.pid, pid);
		ck_assert_str_eq(life.kept, i == 1 ? "," : ",kvpool-counter,");
		pid = life.pid;
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
	}
	await_life(11);
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	ck_assert_int_eq(await_end(), 0);
}
END_TEST

START_TEST(should_not_give_back_what_was_removed)
{
	start("count put:kvpool-a put:kvpool-b 2@remove:kvpool-a report wait");
	await_life(1);
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(2);
	ck_assert_str_eq(life.kept, ",kvpool-counter,kvpool-a,kvpool-b,");
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(3);
	ck_assert_str_eq(life.kept, ",kvpool-counter,kvpool-b,");
	ck_assert_int_eq(life.n, 3);
}
END_TEST

static int kept_count(void)
{
	int n = 0;

	for (const char *at = life.kept; (at = strstr(at, ",kvpool-")); at++)
		n++;
	return n;
}

START_TEST(should_give_back_as_many_as_there_may_be)
{
	struct rlimit files;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	start("count 1@many:3999 report wait");
	await_life(1);
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(2);
	/* Half of the limit, where that is less. */
	ck_assert_int_ge(kept_count(), files.rlim_max >= 8300 ? 4000 : 100);
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(3);
	ck_assert_int_eq(life.n, 3);
}
END_TEST

START_TEST(should_have_a_child_that_puts_no_more_than_it_may)
{
	start_with("4", NULL, -1, "count 1@many:5 report wait");
	await_life(1);
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(2);
	ck_assert_int_eq(kept_count(), 4);
}
END_TEST

static const struct {
	int signo;
	int code;
} stops[] = {{SIGTERM, 0}, {SIGINT, 3}};

START_TEST(should_pass_on_the_signal_to_leave_and_the_code_of_the_child)
{
	start("count report wait");
	await_life(1);
	ck_assert_int_eq(kill(supervisor, stops[_i].signo), 0);
	ck_assert_int_eq(await_end(), stops[_i].code);
}
END_TEST

START_TEST(should_pass_on_a_hangup)
{
	start("count report wait");
	await_life(1);
	ck_assert_int_eq(kill(supervisor, SIGHUP), 0);
	await_text(report, "hangup");
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	ck_assert_int_eq(await_end(), 0);
}
END_TEST

static const int codes[] = {0, 2};

START_TEST(should_end_with_a_child_that_left_by_itself_or_was_called_wrongly)
{
	char steps[32];

	(void)snprintf(steps, sizeof(steps), "count report exit:%d", codes[_i]);
	start(steps);
	ck_assert_int_eq(await_end(), codes[_i]);
	await_life(1);
	ck_assert_int_eq(life.n, 1);
}
END_TEST

START_TEST(should_start_a_child_again_that_fails)
{
	start("count report 1@exit:1 2@exit:7 wait");
	await_life(3);
	ck_assert_int_eq(life.n, 3);
	await_text(err, "the daemon ended with code 7");
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	ck_assert_int_eq(await_end(), 0);
}
END_TEST

START_TEST(should_leave_while_the_child_cannot_be_executed)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/missing", folder);
	start_with("0", path, -1, "report");
	await_text(err, "cannot execute");
	await_text(err, "ended with code 127");
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	(void)await_end();
}
END_TEST

static void script(const char *name, const char *say)
{
	char path[96], temporary[96];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	(void)snprintf(temporary, sizeof(temporary), "%s/%s.new", folder, name);
	file = fopen(temporary, "we");
	ck_assert_ptr_nonnull(file);
	(void)fprintf(file, "#!/bin/sh\nexec %s child %s count say:%s report wait\n",
		      getenv("KVPOOL_STAND_IN"), report, say);
	(void)fclose(file);
	ck_assert_int_eq(chmod(temporary, 0700), 0);
	ck_assert_int_eq(rename(temporary, path), 0);
}

START_TEST(should_start_another_build_on_demand_with_all_that_was_kept)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/child", folder);
	script("child", "old");
	start_with("0", path, -1, "");
	await_life(1);
	ck_assert_str_eq(life.say, "old");
	script("child", "new");
	ck_assert_int_eq(kill(supervisor, SIGUSR2), 0);
	await_life(2);
	ck_assert_str_eq(life.say, "new");
	ck_assert_int_eq(life.n, 2);
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	ck_assert_int_eq(await_end(), 0);
}
END_TEST

START_TEST(should_take_its_child_with_it_when_it_is_killed)
{
	int status;

	start("count report wait");
	await_life(1);
	ck_assert_int_eq(kill(supervisor, SIGKILL), 0);
	ck_assert_int_eq(waitpid(supervisor, &status, 0), supervisor);
	supervisor = 0;
	/* It came to us; it was told to leave, and did. */
	ck_assert_int_eq(waitpid(life.pid, &status, 0), life.pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Sends what a child would send; the reading end of a pipe whose other end went with it. */
static int intrude(const char *at, const char *message)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = strlen(message)};
	struct msghdr head = {
		.msg_name = &address,
		.msg_namelen = (socklen_t)(sizeof(sa_family_t) + strlen(at)),
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), ends[2];

	memcpy(address.sun_path, at, strlen(at));
	address.sun_path[0] = '\0';
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &ends[1], sizeof(int));
	ck_assert_int_eq(sendmsg(fd, &head, MSG_NOSIGNAL), (ssize_t)strlen(message));
	(void)close(ends[1]);
	(void)close(fd);
	return ends[0];
}

START_TEST(should_take_no_descriptor_and_no_order_of_a_stranger)
{
	struct pollfd end = {.events = POLLIN};

	start("count report wait");
	await_life(1);
	end.fd = intrude(life.at, "FDSTORE=1\nFDNAME=kvpool-trojan");
	/* Nobody has the other end any more. */
	ck_assert_int_eq(poll(&end, 1, WAIT_MS), 1);
	ck_assert_int_eq(end.revents, POLLHUP);
	(void)close(end.fd);
	(void)close(intrude(life.at, "FDSTOREREMOVE=1\nFDNAME=kvpool-counter"));
	await_text(err, "which is not the daemon");
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(2);
	ck_assert_str_eq(life.kept, ",kvpool-counter,");
	ck_assert_int_eq(life.n, 2);
}
END_TEST

START_TEST(should_pass_a_socket_that_it_was_given_to_every_life)
{
	const struct sockaddr_un nameless = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&nameless, sizeof(sa_family_t)), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	start_with("0", NULL, fd, "count report wait");
	(void)close(fd);
	await_life(1);
	ck_assert_str_eq(life.kept, ",data,");
	ck_assert_int_eq(kill(life.pid, SIGKILL), 0);
	await_life(2);
	ck_assert_str_eq(life.kept, ",data,kvpool-counter,");
}
END_TEST

static void heard(int manager, const char *expected)
{
	char line[256];

	ck_assert_msg(kvpool_harness_heard(manager, line, sizeof(line), WAIT_MS),
		      "\"%s\" was not heard", expected);
	ck_assert_str_eq(line, expected);
}

START_TEST(should_tell_its_own_manager_of_the_service_as_a_whole)
{
	int manager = kvpool_harness_manage();

	start("count tell:STATUS=up tell:READY=1 report wait");
	heard(manager, "STATUS=up");
	heard(manager, "READY=1");
	await_life(1);
	/* The first life says STOPPING=1, which the service is not. */
	ck_assert_int_eq(kill(supervisor, SIGUSR2), 0);
	heard(manager, "STATUS=up");
	heard(manager, "READY=1");
	await_life(2);
	ck_assert_int_eq(kill(supervisor, SIGTERM), 0);
	heard(manager, "STOPPING=1");
	ck_assert_int_eq(await_end(), 0);
	(void)close(manager);
}
END_TEST

/* ---- kvpoold itself ---- */

static struct kvpool_harness *daemon_;

static void supervise_kvpoold(void)
{
	static const char *const args[] = {"--supervise", NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
}

static void stop_kvpoold(void)
{
	kvpool_harness_free(daemon_);
}

/* The process that listens; 0: none. */
static pid_t listening_process(void)
{
	int fd = kvpool_raw_connect(kvpool_harness_socket(daemon_));
	struct ucred cred = {.pid = 0};
	socklen_t bytes = sizeof(cred);

	if (fd < 0)
		return 0;
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes), 0);
	(void)close(fd);
	return cred.pid;
}

static bool another_listens(void *cookie)
{
	pid_t pid = listening_process();

	return pid != 0 && pid != *(pid_t *)cookie && kill(pid, 0) == 0;
}

START_TEST(should_start_kvpoold_again_when_it_dies)
{
	pid_t first = listening_process();
	struct kvpool_raw raw;

	ck_assert_int_gt(first, 0);
	ck_assert_int_ne(first, kvpool_harness_pid(daemon_));
	ck_assert_int_eq(kill(first, SIGKILL), 0);
	ck_assert(kvpool_harness_until(another_listens, &first, WAIT_MS));
	kvpool_raw_attach(kvpool_harness_socket(daemon_), "after", 0, NULL, &raw);
	kvpool_raw_close(&raw);
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
}
END_TEST

START_TEST(should_start_kvpoold_anew_on_demand)
{
	pid_t first = listening_process();

	ck_assert_int_eq(kill(kvpool_harness_pid(daemon_), SIGUSR2), 0);
	ck_assert(kvpool_harness_until(another_listens, &first, WAIT_MS));
	ck_assert_int_eq(kvpool_harness_stop(daemon_), 0);
	ck_assert_int_eq(kill(first, 0), -1);
}
END_TEST

static Suite *supervised_suite(void)
{
	Suite *suite = suite_create("supervised");
	TCase *lives = tcase_create("lives");
	TCase *real = tcase_create("kvpoold");

	tcase_add_checked_fixture(lives, setup, teardown);
	tcase_set_timeout(lives, 60);
	tcase_add_test(lives, should_give_back_what_was_kept_after_each_of_ten_kills);
	tcase_add_test(lives, should_not_give_back_what_was_removed);
	tcase_add_test(lives, should_give_back_as_many_as_there_may_be);
	tcase_add_test(lives, should_have_a_child_that_puts_no_more_than_it_may);
	tcase_add_loop_test(lives, should_pass_on_the_signal_to_leave_and_the_code_of_the_child, 0,
			    2);
	tcase_add_test(lives, should_pass_on_a_hangup);
	tcase_add_loop_test(
		lives, should_end_with_a_child_that_left_by_itself_or_was_called_wrongly, 0, 2);
	tcase_add_test(lives, should_start_a_child_again_that_fails);
	tcase_add_test(lives, should_leave_while_the_child_cannot_be_executed);
	tcase_add_test(lives, should_start_another_build_on_demand_with_all_that_was_kept);
	tcase_add_test(lives, should_take_its_child_with_it_when_it_is_killed);
	tcase_add_test(lives, should_take_no_descriptor_and_no_order_of_a_stranger);
	tcase_add_test(lives, should_pass_a_socket_that_it_was_given_to_every_life);
	tcase_add_test(lives, should_tell_its_own_manager_of_the_service_as_a_whole);
	suite_add_tcase(suite, lives);
	tcase_add_checked_fixture(real, supervise_kvpoold, stop_kvpoold);
	tcase_set_timeout(real, 60);
	tcase_add_test(real, should_start_kvpoold_again_when_it_dies);
	tcase_add_test(real, should_start_kvpoold_anew_on_demand);
	suite_add_tcase(suite, real);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(supervised_suite());
}
