/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor's child before it is a daemon: see supervise_child.h.
 */
#include "daemon/supervise_child.h"

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define FIRST        SD_LISTEN_FDS_START
#define PASSED_MAX   (KVPOOL_STORE_MAX + KVPOOL_KEEPER_GIVEN)
#define EXIT_NO_EXEC 127

/* Moves what is held to 3, 4, ...; what lies there now is in the way and goes higher first. */
static int descriptors_pass(const struct kvpool_keeper *k)
{
	static int from[PASSED_MAX];
	int end = FIRST + (int)k->n;

	for (uint32_t i = 0; i < k->n; i++) {
		from[i] = k->kept[i].fd;
		if (from[i] < end)
			from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, end);
		if (from[i] < 0)
			return -errno;
	}
	for (uint32_t i = 0; i < k->n; i++) {
		if (dup2(from[i], FIRST + (int)i) < 0)
			return -errno;
	}
	return 0;
}

static int number_set(const char *name, unsigned long long value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", value);
	return setenv(name, text, 1) == 0 ? 0 : -errno;
}

static int names_set(const struct kvpool_keeper *k)
{
	static char names[PASSED_MAX * KVPOOL_STORE_NAME_BYTES];
	size_t used = 0;

	for (uint32_t i = 0; i < k->n; i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 i == 0 ? "" : ":", k->kept[i].name);
	return setenv("LISTEN_FDNAMES", names, 1) == 0 ? 0 : -errno;
}

static int environment_set(const struct kvpool_keeper *k, pid_t parent)
{
	const char *watched = getenv("WATCHDOG_PID");
	int r;

	r = setenv("NOTIFY_SOCKET", k->address, 1) == 0 ? 0 : -errno;
	if (r == 0)
		r = number_set("FDSTORE", k->room);
	/* A watchdog that watches the supervisor watches what the supervisor passes on. */
	if (r == 0 && watched && strtoull(watched, NULL, 10) == (unsigned long long)parent)
		r = number_set("WATCHDOG_PID", (unsigned long long)getpid());
	if (r != 0 || k->n == 0)
		return r;
	r = number_set("LISTEN_FDS", k->n);
	if (r == 0)
		r = number_set("LISTEN_PID", (unsigned long long)getpid());
	return r == 0 ? names_set(k) : r;
}

void kvpool_supervise_become(const struct kvpool_keeper *k, char *const argv[], pid_t parent,
			     const sigset_t *mask)
{
	int r;

	/* A terminal's Ctrl-C is for the supervisor, which passes it on once. */
	(void)setpgid(0, 0);
	(void)signal(SIGPIPE, SIG_DFL);
	r = prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 ? -errno : 0;
	if (getppid() != parent)
		_exit(EXIT_NO_EXEC);
	if (r == 0)
		r = environment_set(k, parent);
	if (r == 0)
		r = descriptors_pass(k);
	if (r == 0)
		r = sigprocmask(SIG_SETMASK, mask, NULL) < 0 ? -errno : 0;
	if (r == 0) {
		(void)execv(argv[0], argv);
		r = -errno;
	}
	kvpool_log(KVPOOL_LOG_ERROR, "cannot execute %s: %s", argv[0], strerror(-r));
	_exit(EXIT_NO_EXEC);
}
