/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for kvpoold in the tests of the supervisor, in both of its parts:
 *
 *	stand_in supervise KEPT_MAX FILE ARGUMENT...    the supervisor of that child
 *	stand_in child REPORT STEP...                   the child; writes one line a life to REPORT
 *
 * Steps, one after the other; "N@STEP" is for the Nth life only:
 *	count           the number of this life, which lies in a kept descriptor and nowhere else
 *	report          the line
 *	say:TEXT        puts TEXT into it
 *	put:NAME        has a descriptor kept
 *	many:N          has N kept, whose names are as long as they may be
 *	remove:NAME     has it closed
 *	tell:TEXT       tells the manager
 *	exit:CODE       ends
 *	wait            until SIGTERM (ends with 0 after STOPPING=1), SIGINT (with 3); SIGHUP is
 *said
 */
#include "daemon/manager.h"
#include "daemon/store.h"
#include "daemon/supervise.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define COUNTER  "kvpool-counter"
#define PAUSE_NS 1000000u

static const char *report_path;
static const char *said = "-";
static char kept[KVPOOL_STORE_MAX * KVPOOL_STORE_NAME_BYTES + 64] = "";
static int counter = -1;
static int life;

static void fail(const char *what)
{
	perror(what);
	exit(99);
}

static void write_line(const char *line)
{
	int fd = open(report_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		fail(report_path);
	(void)close(fd);
}

static void take(void)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);
	size_t used = 0;

	if (n < 0)
		fail("sd_listen_fds_with_names");
	for (int i = 0; i < n; i++) {
		if (strcmp(names[i], COUNTER) == 0)
			counter = SD_LISTEN_FDS_START + i;
		if (fcntl(SD_LISTEN_FDS_START + i, F_GETFD) < 0)
			fail(names[i]);
		used += (size_t)snprintf(kept + used, sizeof(kept) - used, ",%s", names[i]);
		free(names[i]);
	}
	free(names);
}

static void put(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || kvpool_store_put(name, fd) < 0)
		fail(name);
	(void)close(fd);
}

static void count(void)
{
	if (counter < 0) {
		counter = memfd_create(COUNTER, MFD_CLOEXEC);
		if (counter < 0 || kvpool_store_put(COUNTER, counter) != 0)
			fail(COUNTER);
	} else if (pread(counter, &life, sizeof(life), 0) != sizeof(life)) {
		fail("pread");
	}
	life++;
	if (pwrite(counter, &life, sizeof(life), 0) != sizeof(life))
		fail("pwrite");
}

static void report(void)
{
	static char line[sizeof(kept) + 256];

	(void)snprintf(line, sizeof(line), "life %d pid %d say %s at %s kept %s,\n", life,
		       (int)getpid(), said, getenv("NOTIFY_SOCKET"), kept);
	write_line(line);
}

static void many(int n)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	for (int i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "kvpool-many-%019d", i);
		put(name);
	}
}

static void wait_for_signals(const sigset_t *set)
{
	int signo;

	for (;;) {
		if (sigwait(set, &signo) != 0)
			fail("sigwait");
		if (signo == SIGHUP) {
			write_line("hangup\n");
			continue;
		}
		if (signo == SIGTERM)
			(void)kvpool_manager_send("STOPPING=1", -1);
		exit(signo == SIGTERM ? 0 : 3);
	}
}

static bool is(const char *step, const char *what, const char **rest)
{
	if (strncmp(step, what, strlen(what)) != 0)
		return false;
	*rest = step + strlen(what);
	return true;
}

static void take_step(const char *step, const sigset_t *set)
{
	const char *rest;
	char *end;
	long only = strtol(step, &end, 10);

	if (*end == '@') {
		if (only != life)
			return;
		step = end + 1;
	}
	if (is(step, "count", &rest))
		count();
	else if (is(step, "report", &rest))
		report();
	else if (is(step, "say:", &rest))
		said = rest;
	else if (is(step, "put:", &rest))
		put(rest);
	else if (is(step, "many:", &rest))
		many(atoi(rest));
	else if (is(step, "remove:", &rest))
		(void)kvpool_store_remove(rest);
	else if (is(step, "tell:", &rest))
		(void)kvpool_manager_send(rest, -1);
	else if (is(step, "exit:", &rest))
		exit(atoi(rest));
	else if (is(step, "wait", &rest))
		wait_for_signals(set);
	else
		fail(step);
}

static int child(int argc, char *argv[])
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	report_path = argv[2];
	take();
	for (int i = 3; i < argc; i++)
		take_step(argv[i], &set);
	return 0;
}

static int supervise(char *argv[])
{
	const struct kvpool_supervise_config config = {
		.argv = argv + 3,
		.kept_max = (uint32_t)strtoul(argv[2], NULL, 10),
		.pause_max_ns = PAUSE_NS,
	};
	int code, r;

	r = kvpool_supervise_run(&config, &code);
	if (r == 0)
		return code;
	(void)fprintf(stderr, "cannot supervise: %s\n", strerror(-r));
	return 98;
}

int main(int argc, char *argv[])
{
	if (argc > 3 && strcmp(argv[1], "supervise") == 0)
		return supervise(argv);
	if (argc > 2 && strcmp(argv[1], "child") == 0)
		return child(argc, argv);
	return 97;
}
