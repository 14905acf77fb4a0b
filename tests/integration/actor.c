/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that plays a client in a test. See actor.h.
 *
 * Owned by the test that made it.
 */
#include "tests/integration/actor.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 20000

void kvpool_actor_begin(kvpool_actor_fn *play, void *cookie, struct kvpool_actor *out)
{
	int in[2], says[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(says, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(in[1]);
		(void)close(says[0]);
		play(in[0], says[1], cookie);
		for (;;)
			(void)pause();
	}
	(void)close(in[0]);
	(void)close(says[1]);
	*out = (struct kvpool_actor){.pid = pid, .from = says[0], .to = in[1]};
}

void kvpool_actor_hear(const struct kvpool_actor *actor, void *bytes, size_t n)
{
	struct pollfd p = {.fd = actor->from, .events = POLLIN};

	ck_assert_msg(poll(&p, 1, PATIENCE_MS) == 1, "the actor says nothing");
	ck_assert_msg(read(actor->from, bytes, n) == (ssize_t)n, "the actor is gone");
}

void kvpool_actor_tell(const struct kvpool_actor *actor)
{
	ck_assert_int_eq(write(actor->to, "g", 1), 1);
}

void kvpool_actor_dismiss(struct kvpool_actor *actor)
{
	if (actor->to >= 0)
		(void)close(actor->to);
	actor->to = -1;
}

void kvpool_actor_stop(const struct kvpool_actor *actor)
{
	int status;

	ck_assert_int_eq(kill(actor->pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(actor->pid, &status, WUNTRACED), actor->pid);
	ck_assert(WIFSTOPPED(status));
}

void kvpool_actor_resume(const struct kvpool_actor *actor)
{
	ck_assert_int_eq(kill(actor->pid, SIGCONT), 0);
}

void kvpool_actor_kill(struct kvpool_actor *actor)
{
	int status;

	ck_assert_int_eq(kill(actor->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(actor->pid, &status, 0), actor->pid);
	(void)close(actor->from);
	actor->from = -1;
}

void kvpool_actor_say(int out, const void *bytes, size_t n)
{
	if (write(out, bytes, n) != (ssize_t)n)
		_exit(2);
}

bool kvpool_actor_wait(int in)
{
	ssize_t n;
	char byte;

	do
		n = read(in, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1;
}
