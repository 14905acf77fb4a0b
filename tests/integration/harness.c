/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private kvpoold for one test. See harness.h.
 *
 * Owned by the test that made it; one thread.
 */
#include "tests/integration/harness.h"

#include "shm/handshake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS  20000u
#define STOP_MS   20000u
#define EXIT_SKIP 77

struct kvpool_harness {
	char folder[PATH_MAX]; /* made by mkdtemp, removed at the end */
	char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char admin[sizeof(((struct sockaddr_un *)0)->sun_path) + 16];
	char log[PATH_MAX + 16];
	char **argv; /* owned, with its strings */
	char *text;  /* owned: what kvpool_harness_stderr() returned last */
	pid_t pid;
	int status; /* of the last one that ended before it answered */
};

struct child {
	pid_t pid;
	int status;
	int flags; /* WUNTRACED or 0 */
	bool reaped;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

bool kvpool_harness_until(bool (*condition)(void *), void *cookie, unsigned int ms)
{
	uint64_t end = now_ms() + ms;

	for (;;) {
		if (condition(cookie))
			return true;
		if (now_ms() >= end)
			return false;
		poll(NULL, 0, 1);
	}
}

static bool changed(void *cookie)
{
	struct child *child = cookie;

	child->reaped = waitpid(child->pid, &child->status, WNOHANG | child->flags) == child->pid;
	return child->reaped;
}

static int make_folder(struct kvpool_harness *h)
{
	const char *base = getenv("TMPDIR");

	/* A socket's path is short: a deep TMPDIR cannot hold one. */
	if (!base || strlen(base) > 60)
		base = "/tmp";
	snprintf(h->folder, sizeof(h->folder), "%s/kvpool-test-XXXXXX", base);
	if (!mkdtemp(h->folder))
		return -errno;
	snprintf(h->socket, sizeof(h->socket), "%.80s/kvpool.sock", h->folder);
	snprintf(h->admin, sizeof(h->admin), "%.80s/admin.sock", h->folder);
	snprintf(h->log, sizeof(h->log), "%s/stderr", h->folder);
	return 0;
}

static bool names_a_size(const char *const *args)
{
	for (; args && *args; args++)
		if (strcmp(*args, "--size") == 0 || strncmp(*args, "--size=", 7) == 0)
			return true;
	return false;
}

static int make_argv(struct kvpool_harness *h, const char *binary, const char *const *args)
{
	size_t n = 0, at = 0;

	while (args && args[n])
		n++;
	h->argv = calloc(n + 6, sizeof(*h->argv));
	if (!h->argv)
		return -ENOMEM;
	h->argv[at++] = strdup(binary);
	h->argv[at++] = strdup("--socket");
	h->argv[at++] = strdup(h->socket);
	if (!names_a_size(args)) {
		h->argv[at++] = strdup("--size");
		h->argv[at++] = strdup("64M");
	}
	for (size_t i = 0; i < n; i++)
		h->argv[at++] = strdup(args[i]);
	for (size_t i = 0; i < at; i++)
		if (!h->argv[i])
			return -ENOMEM;
	return 0;
}

/* In the child: becomes the daemon, or ends with 127. */
static void become_daemon(const struct kvpool_harness *h, pid_t parent)
{
	int log = open(h->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int in = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || log < 0 || in < 0)
		_exit(127);
	dup2(in, STDIN_FILENO);
	dup2(in, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	execv(h->argv[0], h->argv);
	dprintf(STDERR_FILENO, "%s: %s\n", h->argv[0], strerror(errno));
	_exit(127);
}

/* Does the daemon say HELLO to a new connection? */
static bool answers(void *cookie)
{
	const struct kvpool_harness *h = cookie;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct kvpool_message head = {0};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool yes = false;

	memcpy(at.sun_path, h->socket, sizeof(at.sun_path));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
	    poll(&p, 1, 1000) == 1)
		yes = recv(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
		      head.type == KVPOOL_MESSAGE_HELLO;
	if (fd >= 0)
		close(fd);
	return yes;
}

static bool answers_or_ended(void *cookie)
{
	struct kvpool_harness *h = cookie;
	struct child child = {.pid = h->pid};

	if (changed(&child)) {
		h->pid = 0;
		h->status = child.status;
		return true;
	}
	return answers(h);
}

/* -ECHILD: it ended first; -ETIMEDOUT: it does not answer. */
static int begin(struct kvpool_harness *h)
{
	pid_t parent = getpid();

	fflush(NULL);
	h->pid = fork();
	if (h->pid < 0) {
		h->pid = 0;
		return -errno;
	}
	if (h->pid == 0)
		become_daemon(h, parent);
	if (!kvpool_harness_until(answers_or_ended, h, START_MS))
		return -ETIMEDOUT;
	return h->pid == 0 ? -ECHILD : 0;
}

static int start(struct kvpool_harness *h)
{
	int r = begin(h);

	if (r == 0)
		return 0;
	fprintf(stderr, "kvpoold: %s; its stderr:\n%s\n", strerror(-r), kvpool_harness_stderr(h));
	kvpool_harness_kill(h);
	return r;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

static void destroy(struct kvpool_harness *h)
{
	if (h->folder[0])
		nftw(h->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	for (char **arg = h->argv; arg && *arg; arg++)
		free(*arg);
	free(h->argv);
	free(h->text);
	free(h);
}

/* Folder and arguments, no daemon yet. */
static int make(const char *const *args, struct kvpool_harness **out)
{
	const char *binary = getenv("KVPOOLD");
	struct kvpool_harness *h;
	int r;

	if (!binary || access(binary, X_OK) != 0)
		return -ENOENT;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	r = make_folder(h);
	if (r == 0)
		r = make_argv(h, binary, args);
	else
		h->folder[0] = '\0';
	if (r != 0) {
		destroy(h);
		return r;
	}
	*out = h;
	return 0;
}

int kvpool_harness_new(const char *const *args, struct kvpool_harness **out)
{
	struct kvpool_harness *h;
	int r;

	r = make(args, &h);
	if (r != 0)
		return r;
	r = start(h);
	if (r != 0) {
		destroy(h);
		return r;
	}
	*out = h;
	return 0;
}

int kvpool_harness_try(const char *const *args, struct kvpool_harness **out)
{
	struct kvpool_harness *h;
	int r;

	r = make(args, &h);
	if (r != 0)
		return r;
	r = begin(h);
	if (r != 0 && r != -ECHILD) {
		kvpool_harness_kill(h);
		destroy(h);
		return r;
	}
	*out = h;
	return 0;
}

int kvpool_harness_status(const struct kvpool_harness *h)
{
	return h->status;
}

void kvpool_harness_free(struct kvpool_harness *h)
{
	int status;

	if (!h)
		return;
	if (h->pid != 0) {
		status = kvpool_harness_stop(h);
		if (status != 0) {
			fprintf(stderr, "kvpoold ended with wait status %d; its stderr:\n%s\n",
				status, kvpool_harness_stderr(h));
			destroy(h);
			abort();
		}
	}
	destroy(h);
}

const char *kvpool_harness_folder(const struct kvpool_harness *h)
{
	return h->folder;
}

const char *kvpool_harness_socket(const struct kvpool_harness *h)
{
	return h->socket;
}

const char *kvpool_harness_admin_socket(const struct kvpool_harness *h)
{
	return h->admin;
}

pid_t kvpool_harness_pid(const struct kvpool_harness *h)
{
	return h->pid;
}

int kvpool_harness_stop(struct kvpool_harness *h)
{
	struct child child = {.pid = h->pid};

	kill(h->pid, SIGTERM);
	kill(h->pid, SIGCONT);
	if (!kvpool_harness_until(changed, &child, STOP_MS)) {
		kvpool_harness_kill(h);
		return -ETIMEDOUT;
	}
	h->pid = 0;
	return child.status;
}

void kvpool_harness_kill(struct kvpool_harness *h)
{
	if (h->pid == 0)
		return;
	kill(h->pid, SIGKILL);
	while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
		;
	h->pid = 0;
}

int kvpool_harness_restart(struct kvpool_harness *h)
{
	return h->pid == 0 ? start(h) : -EBUSY;
}

void kvpool_harness_pause(struct kvpool_harness *h)
{
	struct child child = {.pid = h->pid, .flags = WUNTRACED};

	kill(h->pid, SIGSTOP);
	if (!kvpool_harness_until(changed, &child, STOP_MS) || !WIFSTOPPED(child.status))
		fprintf(stderr, "kvpoold did not stop on SIGSTOP\n");
}

void kvpool_harness_resume(struct kvpool_harness *h)
{
	kill(h->pid, SIGCONT);
}

const char *kvpool_harness_stderr(struct kvpool_harness *h)
{
	int fd = open(h->log, O_RDONLY | O_CLOEXEC);
	size_t have = 0, room = 1u << 20;
	ssize_t n;

	free(h->text);
	h->text = calloc(1, room + 1);
	if (fd < 0 || !h->text) {
		if (fd >= 0)
			close(fd);
		return "";
	}
	while (have < room && (n = read(fd, h->text + have, room - have)) > 0)
		have += (size_t)n;
	close(fd);
	return h->text;
}

int kvpool_harness_descriptors(pid_t pid, const char *part)
{
	char path[64], link[64 + 256], target[256];
	const struct dirent *entry;
	int n = 0;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t bytes;

		(void)snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
		bytes = readlink(link, target, sizeof(target) - 1);
		target[bytes > 0 ? bytes : 0] = '\0';
		n += strstr(target, part) != NULL;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

int kvpool_harness_manage(void)
{
	const struct sockaddr_un nameless = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[sizeof(nameless.sun_path) + 1] = "";
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);

	ck_assert_int_ge(fd, 0);
	/* Bound to an abstract name that the kernel picks, which begins with a zero byte. */
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&nameless, sizeof(sa_family_t)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	memcpy(name, address.sun_path, bytes - offsetof(struct sockaddr_un, sun_path));
	name[0] = '@';
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

bool kvpool_harness_heard(int manager, char *text, size_t text_bytes, unsigned int ms)
{
	struct pollfd p = {.fd = manager, .events = POLLIN};
	ssize_t n;

	if (poll(&p, 1, (int)ms) != 1)
		return false;
	n = recv(manager, text, text_bytes - 1, 0);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

int kvpool_harness_run(Suite *suite)
{
	const char *binary = getenv("KVPOOLD");
	SRunner *runner;
	int failed;

	if (!binary || access(binary, X_OK) != 0) {
		printf("skipped: KVPOOLD names no kvpoold to test against\n");
		return EXIT_SKIP;
	}
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
