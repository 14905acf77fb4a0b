/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: see supervise.h. It sleeps in poll(2) until a signal or a message comes, or until
 * the next start is due.
 */
#include "daemon/supervise.h"

#include "daemon/clock.h"
#include "daemon/keeper.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/supervise_child.h"
#include "shm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_FIRST_NS (100 * KVPOOL_NS_PER_MS)
#define PAUSE_MAX_NS   (5 * KVPOOL_NS_PER_S)
#define LONG_LIFE_NS   (10 * KVPOOL_NS_PER_S)

/* Messages between two looks at the signals, and at most those of a dead child. */
#define MESSAGES_A_TURN 64u
#define MESSAGES_LAST   (2 * KVPOOL_STORE_MAX)

enum {
	EXIT_USAGE = 2,
};

struct supervisor {
	const struct kvpool_supervise_config *config; /* borrowed */
	struct kvpool_keeper keeper;
	struct kvpool_supervise_pause pause;
	sigset_t mask; /* as it was before, for the child */
	int signal_fd; /* owned */
	pid_t child;   /* 0: none runs */
	uint64_t started_ns;
	uint64_t start_ns; /* while none runs: when the next one starts */
	bool stopping;     /* told to leave */
	bool restarting;   /* told to start the child anew */
	bool over;
	int code; /* when it is over */
};

uint64_t kvpool_supervise_pause_after(struct kvpool_supervise_pause *pause, uint64_t lived_ns)
{
	uint64_t now_ns;

	if (lived_ns >= pause->long_ns)
		pause->next_ns = 0;
	now_ns = pause->next_ns;
	pause->next_ns = KVPOOL_MIN(now_ns == 0 ? PAUSE_FIRST_NS : 2 * now_ns, pause->max_ns);
	return now_ns;
}

static void hear(struct supervisor *s, unsigned int most)
{
	struct kvpool_keeper_note note;

	while (most-- > 0) {
		int r = kvpool_keeper_receive(&s->keeper, s->child, &note);

		if (r == KVPOOL_KEEPER_E_MESSAGE)
			continue;
		if (r != 0)
			return;
		if (note.said[0] != '\0')
			(void)kvpool_manager_send(note.said, -1);
		/* To our manager a child that stops is no service that stops, unless we do. */
		if (note.stopping && s->stopping)
			(void)kvpool_manager_send("STOPPING=1", -1);
	}
}

static void start(struct supervisor *s)
{
	pid_t parent = getpid(), pid;

	s->started_ns = kvpool_clock_ns();
	pid = fork();
	if (pid == 0)
		kvpool_supervise_become(&s->keeper, s->config->argv, parent, &s->mask);
	if (pid > 0) {
		s->child = pid;
		return;
	}
	kvpool_log(KVPOOL_LOG_ERROR, "cannot start the daemon: %s", strerror(errno));
	s->start_ns = s->started_ns + kvpool_supervise_pause_after(&s->pause, 0);
}

static void finish(struct supervisor *s, int code)
{
	s->over = true;
	s->code = code;
}

/* The child is gone, and all that it said was heard. */
static void ended(struct supervisor *s, int status)
{
	uint64_t now = kvpool_clock_ns(), pause_ns = 0;
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;

	s->child = 0;
	/* It had not come far enough to leave in order. */
	if (s->stopping && WIFSIGNALED(status) &&
	    (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT))
		code = EXIT_SUCCESS;
	else if (WIFSIGNALED(status))
		kvpool_log(KVPOOL_LOG_WARNING, "the daemon was killed by signal %d (%s)",
			   WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (code != 0)
		kvpool_log(KVPOOL_LOG_WARNING, "the daemon ended with code %d", code);
	if (s->stopping || code == EXIT_USAGE || (code == 0 && !s->restarting)) {
		finish(s, code);
		return;
	}
	if (!s->restarting)
		pause_ns = kvpool_supervise_pause_after(&s->pause, now - s->started_ns);
	s->restarting = false;
	s->start_ns = now + pause_ns;
	kvpool_log(KVPOOL_LOG_NOTICE,
		   "%" PRIu32 " descriptors are kept; starting the daemon again in %" PRIu64 " ms",
		   s->keeper.n, pause_ns / KVPOOL_NS_PER_MS);
}

/* As process 1 of a container it reaps strangers too. */
static void reap(struct supervisor *s)
{
	siginfo_t info;
	int status;

	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
			return;
		/* Until it is reaped its number is its own: what it sent last is known as its. */
		if (info.si_pid == s->child)
			hear(s, MESSAGES_LAST);
		if (waitpid(info.si_pid, &status, 0) == s->child)
			ended(s, status);
	}
}

static void stop(struct supervisor *s, int signo)
{
	s->stopping = true;
	if (s->child == 0)
		finish(s, EXIT_SUCCESS);
	else
		(void)kill(s->child, signo);
}

static void restart(struct supervisor *s)
{
	if (s->stopping)
		return;
	if (s->child == 0) {
		s->start_ns = 0;
		return;
	}
	kvpool_log(KVPOOL_LOG_NOTICE, "told to start the daemon anew with what it kept");
	s->restarting = true;
	(void)kill(s->child, SIGTERM);
}

static void signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (!s->over && read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTERM:
		case SIGINT:
			stop(s, (int)info.ssi_signo);
			break;
		case SIGUSR2:
			restart(s);
			break;
		case SIGHUP:
			if (s->child != 0)
				(void)kill(s->child, SIGHUP);
			break;
		default:
			reap(s);
		}
	}
}

static int catch_signals(struct supervisor *s)
{
	static const int caught[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD};
	sigset_t set;

	(void)signal(SIGPIPE, SIG_IGN);
	/* Where the parent ignored them, the kernel would reap children unseen. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigemptyset(&set);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(caught); i++)
		(void)sigaddset(&set, caught[i]);
	if (sigprocmask(SIG_BLOCK, &set, &s->mask) < 0)
		return -errno;
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

static void turn(struct supervisor *s)
{
	struct pollfd fds[] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = s->keeper.fd, .events = POLLIN},
	};
	uint64_t now = kvpool_clock_ns();
	int timeout = -1;

	if (s->child == 0 && now >= s->start_ns)
		start(s);
	if (s->child == 0)
		timeout =
			s->start_ns <= now ? 0 : (int)((s->start_ns - now) / KVPOOL_NS_PER_MS) + 1;
	(void)poll(fds, KVPOOL_ARRAY_SIZE(fds), timeout);
	signals(s);
	hear(s, MESSAGES_A_TURN);
}

/* 0 to 2 must be something: what is held there would be written to as stderr. */
static int standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -errno;
	(void)close(fd);
	return 0;
}

int kvpool_supervise_run(const struct kvpool_supervise_config *config, int *code)
{
	struct supervisor s = {
		.config = config,
		.keeper = {.fd = -1},
		.pause = {.max_ns = config->pause_max_ns ? config->pause_max_ns : PAUSE_MAX_NS,
			  .long_ns = config->long_life_ns ? config->long_life_ns : LONG_LIFE_NS},
		.signal_fd = -1,
	};
	int r;

	r = standard_fds();
	if (r == 0)
		r = kvpool_keeper_open(config->kept_max ? config->kept_max : KVPOOL_STORE_MAX,
				       &s.keeper);
	if (r == 0)
		r = kvpool_keeper_take_given(&s.keeper);
	if (r == KVPOOL_KEEPER_E_FULL) {
		kvpool_log(KVPOOL_LOG_WARNING,
			   "more was passed to the supervisor than it can hold");
		r = 0;
	}
	if (r == 0)
		r = catch_signals(&s);
	while (r == 0 && !s.over)
		turn(&s);
	kvpool_keeper_close(&s.keeper);
	if (s.signal_fd >= 0)
		(void)close(s.signal_fd);
	if (r == 0)
		*code = s.code;
	return r;
}
