/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring and its doorbell between two threads (the build with ThreadSanitizer watches them) and
 * between two processes that a third one stops and continues at arbitrary instructions.
 *
 * Each end is owned by its thread or process; they share the mapping and two eventfds. A wake-up
 * that was lost shows as a poll(2) that ends at its deadline.
 */
#include "shm/ring.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE        16u
#define MESSAGES    20000u
#define DEADLINE_MS 30000

/* What both ends share. Direction 0 carries requests, direction 1 replies. */
struct link {
	struct kvpool_entry entries[2][SIZE];
	struct kvpool_ring_consumer consumers[2];
};

struct end {
	struct kvpool_producer out;
	struct kvpool_consumer in;
	int bell; /* borrowed: rung when something is in `in` */
	int peer; /* borrowed: the other end's bell */
	uint64_t random;
	uint64_t sleeps;
};

static struct link *shared_link; /* owned: mapped by setup() */
static int bells[2] = {-1, -1};  /* owned */

static void setup(void)
{
	shared_link = mmap(NULL, sizeof(*shared_link), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared_link, MAP_FAILED);
	for (int i = 0; i < 2; i++) {
		bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		ck_assert_int_ge(bells[i], 0);
	}
}

static void teardown(void)
{
	munmap(shared_link, sizeof(*shared_link));
	close(bells[0]);
	close(bells[1]);
}

/* `side` 0 sends requests and takes replies; side 1 the other way round. */
static void end_init(struct end *e, uint32_t side, uint64_t seed)
{
	memset(e, 0, sizeof(*e));
	kvpool_producer_init(&e->out, shared_link->entries[side], &shared_link->consumers[side],
			     SIZE, 0);
	kvpool_consumer_init(&e->in, shared_link->entries[1 - side],
			     &shared_link->consumers[1 - side], SIZE, 0);
	e->bell = bells[side];
	e->peer = bells[1 - side];
	e->random = seed;
}

/* xorshift64: enough to vary the interleaving, and the same on every run of one end. */
static uint64_t end_random(struct end *e, uint64_t below)
{
	e->random ^= e->random << 13;
	e->random ^= e->random >> 7;
	e->random ^= e->random << 17;
	return e->random % below;
}

static void end_pause(struct end *e)
{
	uint64_t kind = end_random(e, 64);

	if (kind == 0)
		sched_yield();
	else if (kind < 8)
		for (uint64_t i = end_random(e, 2000); i > 0; i--)
			kvpool_cpu_relax();
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void fill_payload(uint64_t words[7], uint64_t n)
{
	for (uint64_t i = 0; i < 7; i++)
		words[i] = (n + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

/* NULL, or what went wrong. */
static const char *end_send(struct end *e, uint64_t n)
{
	uint64_t words[7], one = 1, deadline = now_ms() + DEADLINE_MS;
	int room;

	while ((room = kvpool_producer_room(&e->out, 1)) == KVPOOL_RING_E_FULL) {
		if (now_ms() > deadline)
			return "the ring stayed full";
		sched_yield();
	}
	if (room != 0)
		return "an honest head was called a lie";
	fill_payload(words, n);
	kvpool_producer_push(&e->out, words);
	end_pause(e);
	if (kvpool_producer_must_ring(&e->out) && write(e->peer, &one, sizeof(one)) < 0 &&
	    errno != EAGAIN)
		return "the doorbell could not be rung";
	return NULL;
}

/* Sleeps until the bell rings. NULL, or what went wrong. */
static const char *end_sleep(struct end *e)
{
	struct pollfd p = {.fd = e->bell, .events = POLLIN};
	uint64_t count;
	int r;

	e->sleeps++;
	do
		r = poll(&p, 1, DEADLINE_MS);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return kvpool_consumer_ready(&e->in) ? "a wake-up was lost" : "the peer is gone";
	if (r < 0 || (read(e->bell, &count, sizeof(count)) < 0 && errno != EAGAIN))
		return "the doorbell could not be read";
	return NULL;
}

static const char *end_receive(struct end *e, uint64_t n)
{
	uint64_t expected[7], words[7];
	uint64_t spins = end_random(e, 3) == 0 ? 0 : end_random(e, 3000);

	while (!kvpool_consumer_pop(&e->in, words)) {
		const char *error = NULL;

		if (spins > 0) {
			spins--;
			kvpool_cpu_relax();
			continue;
		}
		end_pause(e);
		if (!kvpool_consumer_arm(&e->in))
			continue;
		error = end_sleep(e);
		kvpool_consumer_disarm(&e->in);
		if (error)
			return error;
	}
	if (end_random(e, 4) == 0 || n % (SIZE / 2) == 0)
		kvpool_consumer_publish_head(&e->in);
	fill_payload(expected, n);
	return memcmp(words, expected, sizeof(words)) == 0 ? NULL : "a message came out changed";
}

/* Has up to a random number of requests out and checks that each comes back. */
static const char *run_asker(struct end *e)
{
	const char *error = NULL;
	uint64_t sent = 0, back = 0;

	while (!error && back < MESSAGES) {
		uint64_t most = 1 + end_random(e, SIZE / 2);

		while (!error && sent < MESSAGES && sent - back < most)
			error = end_send(e, sent++);
		while (!error && back < sent)
			error = end_receive(e, back++);
	}
	return error;
}

static const char *run_answerer(struct end *e)
{
	const char *error = NULL;

	for (uint64_t n = 0; !error && n < MESSAGES; n++) {
		error = end_receive(e, n);
		if (!error)
			error = end_send(e, n);
	}
	return error;
}

static const char *run_writer(struct end *e)
{
	const char *error = NULL;

	for (uint64_t n = 0; !error && n < MESSAGES; n++)
		error = end_send(e, n);
	return error;
}

static const char *run_reader(struct end *e)
{
	const char *error = NULL;

	for (uint64_t n = 0; !error && n < MESSAGES; n++)
		error = end_receive(e, n);
	return error;
}

typedef const char *(*role_fn)(struct end *);

static const struct {
	const char *name;
	role_fn first, second;
} roles[] = {
	{"ask and answer", run_asker, run_answerer},
	{"one way", run_writer, run_reader},
};

struct job {
	struct end end;
	role_fn role;
	const char *error; /* borrowed: a literal */
};

static void *run_job(void *cookie)
{
	struct job *job = cookie;

	job->error = job->role(&job->end);
	return NULL;
}

START_TEST(should_carry_every_message_between_two_threads)
{
	struct job first = {.role = roles[_i].first}, second = {.role = roles[_i].second};
	pthread_t thread;

	end_init(&first.end, 0, 0x1234567);
	end_init(&second.end, 1, 0x89abcde);
	ck_assert_int_eq(pthread_create(&thread, NULL, run_job, &second), 0);
	run_job(&first);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_msg(!first.error, "%s, first end: %s", roles[_i].name, first.error);
	ck_assert_msg(!second.error, "%s, second end: %s", roles[_i].name, second.error);
	/* Otherwise the doorbell was not tested. */
	ck_assert_uint_gt(first.end.sleeps + second.end.sleeps, 0);
}
END_TEST

static pid_t start_process(uint32_t side, role_fn role)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct end e;
		const char *error;

		end_init(&e, side, 0x5eed + side);
		error = role(&e);
		if (error)
			fprintf(stderr, "end %u: %s\n", side, error);
		_exit(error ? 1 : 0);
	}
	return pid;
}

/* Stops a process where it stands and lets it go on. Returns 1 when it has ended instead. */
static int stop_and_continue(pid_t pid, int *status)
{
	if (kill(pid, SIGSTOP) != 0 || waitpid(pid, status, WUNTRACED) != pid)
		return 1;
	if (!WIFSTOPPED(*status))
		return 1;
	/* The other end runs on against the stopped one for a while. */
	sched_yield();
	kill(pid, SIGCONT);
	return 0;
}

START_TEST(should_carry_every_message_between_two_processes_that_are_stopped_at_random)
{
	pid_t pids[2] = {start_process(0, roles[_i].first), start_process(1, roles[_i].second)};
	int status[2] = {0}, ended[2] = {0};
	struct end dice = {.random = 0xd1ce};
	uint64_t stops = 0;

	ck_assert_int_gt(pids[0], 0);
	ck_assert_int_gt(pids[1], 0);
	while (!ended[0] || !ended[1]) {
		uint64_t i = end_random(&dice, 2);

		if (ended[i])
			i = 1 - i;
		ended[i] = stop_and_continue(pids[i], &status[i]);
		stops++;
		for (uint64_t k = end_random(&dice, 20000); k > 0; k--)
			kvpool_cpu_relax();
	}
	for (int i = 0; i < 2; i++)
		ck_assert_msg(WIFEXITED(status[i]) && WEXITSTATUS(status[i]) == 0,
			      "%s: end %d left with status %#x", roles[_i].name, i, status[i]);
	ck_assert_uint_gt(stops, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring_peers");
	TCase *tcase = tcase_create("peers");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, should_carry_every_message_between_two_threads, 0,
			    (int)KVPOOL_ARRAY_SIZE(roles));
	tcase_add_loop_test(
		tcase, should_carry_every_message_between_two_processes_that_are_stopped_at_random,
		0, (int)KVPOOL_ARRAY_SIZE(roles));
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
