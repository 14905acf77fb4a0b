/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call into the kernel that can fail does so once, at each place where the daemon makes it:
 * the first such call, the second, and so on until a whole life is over without one.
 *
 * A run is a process of its own (fault_run.h), and several run at a time, since most of them only
 * wait. What is to be true of each of them is there.
 */
#include "shm/base.h"
#include "tests/integration/fault_run.h"
#include "tests/integration/harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* More, and a loaded machine's kernel has reaping wait for reaping, up to tens of seconds. */
#define AT_A_TIME 16u

static const struct kvpool_fault_plan plans[] = {
	{KVPOOL_FAULT_MEMFD_CREATE, ENOMEM, "auto", .old = false},
	{KVPOOL_FAULT_MEMFD_CREATE, EMFILE, "auto", .old = false},
	{KVPOOL_FAULT_FTRUNCATE, ENOMEM, "auto", .old = false},
	{KVPOOL_FAULT_ADD_SEALS, EPERM, "auto", .old = false},
	{KVPOOL_FAULT_MMAP, ENOMEM, "auto", .old = false},
	{KVPOOL_FAULT_MADVISE, ENOMEM, "auto", .old = false},
	{KVPOOL_FAULT_POPULATE, EFAULT, "auto", .old = false},
	{KVPOOL_FAULT_FALLOCATE, ENOSPC, "auto", .old = true},
	{KVPOOL_FAULT_EVENTFD, EMFILE, "auto", .old = false},
	{KVPOOL_FAULT_EPOLL_ADD, ENOSPC, "epoll", .old = false},
	{KVPOOL_FAULT_SOCKET, EMFILE, "auto", .old = false},
	{KVPOOL_FAULT_ACCEPT, EMFILE, "auto", .old = false},
	{KVPOOL_FAULT_ACCEPT, ENOMEM, "epoll", .old = false},
	{KVPOOL_FAULT_PEER_PIDFD, EMFILE, "auto", .old = false},
	{KVPOOL_FAULT_PIDFD_OPEN, EMFILE, "auto", .old = true},
	{KVPOOL_FAULT_SENDMSG, EAGAIN, "auto", .old = false},
	{KVPOOL_FAULT_SENDMSG, EPIPE, "auto", .old = false},
	{KVPOOL_FAULT_SENDMSG, ENOBUFS, "auto", .old = false},
	{KVPOOL_FAULT_RECVMSG, ENOMEM, "auto", .old = false},
};

#define WALKS KVPOOL_ARRAY_SIZE(plans)

/* What a run tells whoever walks, beside its exit code. */
struct told {
	uint64_t seen;
};

struct walk {
	struct kvpool_fault_plan plan;
	uint64_t next;     /* the call that fails in the run that begins next; 0: none does */
	uint64_t expected; /* calls that the run without a fault made */
	unsigned int running;
	unsigned int outcomes[KVPOOL_FAULT_SERVED + 1]; /* 0: the run failed */
	bool over; /* a run came to its end without a fault, or failed */
};

struct job {
	struct walk *walk; /* NULL: none */
	pid_t pid;
	uint64_t at;
};

static struct walk walks[2 * WALKS];
static struct job jobs[AT_A_TIME];
static struct told *told; /* of jobs, shared with their processes */

/*
 * How often a call is made differs by a few from run to run. So the run without a fault says how
 * many places there are about, and from there on it is one by one.
 */
static bool may_begin(const struct walk *walk)
{
	return !walk->over &&
	       (walk->running == 0 || (walk->next > 0 && walk->next <= walk->expected));
}

static void job_begin(struct walk *walk)
{
	struct job *job = jobs;

	while (job->walk)
		job++;
	job->walk = walk;
	job->at = walk->plan.at = walk->next++;
	walk->running++;
	(void)fflush(NULL);
	job->pid = fork();
	ck_assert_int_ge(job->pid, 0);
	if (job->pid == 0) {
		int outcome = (int)kvpool_fault_run(&walk->plan, &told[job - jobs].seen);

		(void)fflush(NULL);
		_exit(outcome);
	}
}

static void job_failed(const struct job *job, int status)
{
	const struct kvpool_fault_plan *plan = &job->walk->plan;

	printf("%s, call %u, %s%s: failed with wait status %d\n", kvpool_fault_name(plan->call),
	       (unsigned int)job->at, strerror(plan->error), plan->supervised ? ", supervised" : "",
	       status);
	job->walk->outcomes[0]++;
	job->walk->over = true;
}

static void job_end(void)
{
	struct job *job = jobs;
	int status, code;
	pid_t pid = waitpid(-1, &status, 0);

	ck_assert_int_gt(pid, 0);
	while (job->pid != pid)
		job++;
	code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	job->walk->running--;
	if (code < KVPOOL_FAULT_NOT_HIT || code > KVPOOL_FAULT_SERVED)
		job_failed(job, status);
	else if (job->at == 0)
		job->walk->expected = told[job - jobs].seen;
	else
		job->walk->outcomes[code]++;
	job->walk->over |= code == KVPOOL_FAULT_NOT_HIT && job->at > 0;
	*job = (struct job){.walk = NULL};
}

static bool step(unsigned int *running)
{
	for (size_t i = 0; *running < AT_A_TIME && i < KVPOOL_ARRAY_SIZE(walks); i++) {
		if (!may_begin(&walks[i]))
			continue;
		job_begin(&walks[i]);
		++*running;
		return true;
	}
	if (*running == 0)
		return false;
	job_end();
	--*running;
	return true;
}

static void say(const struct walk *walk)
{
	const unsigned int *n = walk->outcomes;
	unsigned int all =
		n[KVPOOL_FAULT_ENDED] + n[KVPOOL_FAULT_RESTARTED] + n[KVPOOL_FAULT_SERVED];

	printf("%s%s, %s: %u calls walked: %u ended at the start, %u began anew, %u served\n",
	       kvpool_fault_name(walk->plan.call), walk->plan.supervised ? ", supervised" : "",
	       strerror(walk->plan.error), all, n[KVPOOL_FAULT_ENDED], n[KVPOOL_FAULT_RESTARTED],
	       n[KVPOOL_FAULT_SERVED]);
	(void)fflush(stdout);
	if (n[0] == 0)
		ck_assert_msg(all > 0, "%s is never called", kvpool_fault_name(walk->plan.call));
}

START_TEST(should_end_with_a_word_or_serve_whatever_call_fails)
{
	unsigned int running = 0, failed = 0;

	told = mmap(NULL, AT_A_TIME * sizeof(*told), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(told, MAP_FAILED);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(walks); i++) {
		walks[i].plan = plans[i / 2];
		walks[i].plan.supervised = i % 2;
	}
	while (step(&running))
		;
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(walks); i++) {
		say(&walks[i]);
		failed += walks[i].outcomes[0];
	}
	/* The message of a run that failed is Check's already. */
	if (failed > 0)
		_exit(1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("faults");
	TCase *tc = tcase_create("faults");

	/* Meson's limit is the one that counts. */
	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, should_end_with_a_word_or_serve_whatever_call_fails);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
