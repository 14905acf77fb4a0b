/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client processes as their parent sees them: see fleet.h.
 */
#include "tools/torture/fleet.h"

#include "tools/bench/keys.h"
#include "tools/bench/ticks.h"
#include "tools/interrupt.h"
#include "tools/torture/client.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REST_NS UINT64_C(3000000000)
#define END_NS  UINT64_C(20000000000)
#define POLL_MS 1

/* Forks a client; 0 where that fails. */
static pid_t start(struct kvpool_fleet *fleet, uint32_t number,
		   int (*run)(const struct kvpool_torture_client *))
{
	const struct kvpool_torture_client spec = {
		.books = fleet->books,
		.socket = fleet->socket,
		.number = number,
		.seed = kvpool_random(fleet->random),
	};
	struct kvpool_books_client *slot = &fleet->books->clients[number];
	pid_t parent = getpid();
	pid_t pid;

	atomic_store(&slot->order, KVPOOL_ORDER_NONE);
	atomic_store(&slot->resting, 0);
	atomic_store(&slot->held, 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* A terminal's interrupt is for the parent. */
		setpgid(0, 0);
		kvpool_interrupt_forget();
		_exit(getppid() == parent ? run(&spec) : 1);
	}
	fleet->started += pid > 0;
	return pid > 0 ? pid : 0;
}

static void ended(struct kvpool_fleet *fleet, pid_t pid, int status)
{
	bool stopping = atomic_load(&fleet->books->stop) != 0;

	for (uint32_t i = 0; i < fleet->n; i++) {
		struct kvpool_fleet_client *client = &fleet->clients[i];

		if (client->pid != pid)
			continue;
		fleet->deaths += !stopping;
		if (!client->doomed && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
			fleet->failures++;
			kvpool_books_fault(fleet->books, "client %u ended with status %x", i,
					   (unsigned int)status);
		}
		*client = (struct kvpool_fleet_client){0};
	}
}

/* Children of clients that are gone come to this process as well (PR_SET_CHILD_SUBREAPER). */
static void reap(struct kvpool_fleet *fleet)
{
	siginfo_t info;
	int status;

	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
			return;
		/* Whoever asks whether it lives must find out. */
		if (info.si_pid == fleet->supervisor->pid)
			return;
		if (waitpid(info.si_pid, &status, 0) == info.si_pid)
			ended(fleet, info.si_pid, status);
	}
}

void kvpool_fleet_tend(struct kvpool_fleet *fleet)
{
	uint64_t now = kvpool_monotonic_ns();

	reap(fleet);
	for (uint32_t i = 0; i < fleet->n; i++) {
		struct kvpool_fleet_client *client = &fleet->clients[i];

		if (client->pid == 0 && !atomic_load(&fleet->books->stop))
			client->pid = start(fleet, i, kvpool_torture_client_run);
		if (client->continue_ns != 0 && client->continue_ns <= now) {
			kill(client->pid, SIGCONT);
			client->continue_ns = 0;
		}
	}
}

void kvpool_fleet_kill(struct kvpool_fleet *fleet, uint32_t number)
{
	struct kvpool_fleet_client *client = &fleet->clients[number];

	if (client->pid == 0)
		return;
	client->doomed = true;
	kill(client->pid, SIGKILL);
}

void kvpool_fleet_pause(struct kvpool_fleet *fleet, uint32_t number, uint64_t ns)
{
	struct kvpool_fleet_client *client = &fleet->clients[number];

	if (client->pid == 0)
		return;
	kill(client->pid, SIGSTOP);
	client->continue_ns = kvpool_monotonic_ns() + ns;
}

void kvpool_fleet_order(struct kvpool_fleet *fleet, uint32_t number, enum kvpool_order order)
{
	atomic_store(&fleet->books->clients[number].order, order);
}

static bool all_rest(const struct kvpool_fleet *fleet)
{
	for (uint32_t i = 0; i < fleet->n; i++) {
		const struct kvpool_fleet_client *client = &fleet->clients[i];

		if (client->pid != 0 && client->continue_ns == 0 &&
		    !atomic_load(&fleet->books->clients[i].resting))
			return false;
	}
	return true;
}

bool kvpool_fleet_rest(struct kvpool_fleet *fleet)
{
	uint64_t until = kvpool_monotonic_ns() + REST_NS;

	atomic_store(&fleet->books->rest, 1);
	while (!all_rest(fleet)) {
		if (kvpool_monotonic_ns() > until)
			return false;
		reap(fleet);
		kvpool_interrupt_pause(POLL_MS);
	}
	return true;
}

bool kvpool_fleet_any_paused(const struct kvpool_fleet *fleet)
{
	for (uint32_t i = 0; i < fleet->n; i++) {
		if (fleet->clients[i].pid != 0 && fleet->clients[i].continue_ns != 0)
			return true;
	}
	return false;
}

void kvpool_fleet_resume(struct kvpool_fleet *fleet)
{
	atomic_store(&fleet->books->rest, 0);
}

static bool all_gone(struct kvpool_fleet *fleet)
{
	reap(fleet);
	for (uint32_t i = 0; i < fleet->n; i++) {
		if (fleet->clients[i].pid != 0)
			return false;
	}
	return true;
}

void kvpool_fleet_end(struct kvpool_fleet *fleet)
{
	uint64_t until = kvpool_monotonic_ns() + END_NS;

	atomic_store(&fleet->books->stop, 1);
	for (uint32_t i = 0; i < fleet->n; i++) {
		if (fleet->clients[i].pid != 0)
			kill(fleet->clients[i].pid, SIGCONT);
	}
	while (!all_gone(fleet) && kvpool_monotonic_ns() < until)
		kvpool_interrupt_pause(POLL_MS);
	for (uint32_t i = 0; i < fleet->n; i++) {
		if (fleet->clients[i].pid == 0)
			continue;
		kvpool_books_fault(fleet->books, "client %u does not leave", i);
		fleet->failures++;
		kill(fleet->clients[i].pid, SIGKILL);
		(void)waitpid(fleet->clients[i].pid, NULL, 0);
		fleet->clients[i].pid = 0;
	}
}

bool kvpool_fleet_fill(struct kvpool_fleet *fleet)
{
	pid_t pid = start(fleet, 0, kvpool_torture_client_fill);
	int status = 0;

	if (pid == 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
