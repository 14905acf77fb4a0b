/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop over both of its backends: every test but the last ones runs once a backend.
 *
 * Each test is a process of its own (Check forks), so that system calls can be taken from it.
 */
#include "daemon/clock.h"
#include "daemon/loop.h"
#include "shm/base.h"
#include "tests/unit/refuse.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MANY     5000u
#define PATIENCE (UINT64_C(10) * KVPOOL_NS_PER_S)

static enum kvpool_loop_kind kinds[2];
static int n_kinds;

static struct kvpool_loop *loop;

struct probe {
	struct kvpool_source *source;
	struct kvpool_source *victim; /* removed by the callback */
	uint64_t again_ns;            /* a timer's callback sets itself to this; 0: does not */
	unsigned int calls;
	uint32_t events;
	unsigned int order; /* which call of all it was, counted from 1 */
	int fd;
};

static unsigned int all_calls;

static void on_call(void *cookie, uint32_t events)
{
	struct probe *probe = cookie;

	probe->calls++;
	probe->events = events;
	probe->order = ++all_calls;
	if (probe->again_ns != 0)
		kvpool_source_set_timer(probe->source, probe->again_ns);
	if (probe->victim != NULL)
		kvpool_source_remove(probe->victim);
}

static void ring(int fd)
{
	const uint64_t one = 1;

	ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

static void unring(int fd)
{
	uint64_t value;

	ck_assert_int_eq(read(fd, &value, sizeof(value)), sizeof(value));
}

static void probe_add(struct probe *probe)
{
	memset(probe, 0, sizeof(*probe));
	probe->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_ge(probe->fd, 0);
	ck_assert_int_eq(
		kvpool_loop_add_fd(loop, probe->fd, POLLIN, on_call, probe, &probe->source), 0);
}

static void probe_remove(struct probe *probe)
{
	kvpool_source_remove(probe->source);
	ck_assert_int_eq(close(probe->fd), 0);
}

static void timer_add(struct probe *probe, uint64_t at_ns)
{
	memset(probe, 0, sizeof(*probe));
	ck_assert_int_eq(kvpool_loop_add_timer(loop, on_call, probe, &probe->source), 0);
	kvpool_source_set_timer(probe->source, at_ns);
}

/* Polls until `calls` callbacks ran since the test began. */
static void poll_until(unsigned int calls)
{
	uint64_t end_ns = kvpool_clock_ns() + PATIENCE;

	while (all_calls < calls) {
		ck_assert_int_ge(kvpool_loop_poll(loop, 0), 0);
		ck_assert_msg(kvpool_clock_ns() < end_ns, "%u callbacks instead of %u", all_calls,
			      calls);
	}
}

/* Polls often enough that anything that is wrongly pending would run. */
static void poll_in_vain(void)
{
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(kvpool_loop_poll(loop, 0), 0);
}

static void open_loop(int i)
{
	all_calls = 0;
	ck_assert_int_eq(kvpool_loop_new(kinds[i], &loop), 0);
	ck_assert_int_eq(kvpool_loop_kind(loop), kinds[i]);
	ck_assert_int_eq(kvpool_loop_refusal(loop), 0);
}

START_TEST(should_call_again_while_a_descriptor_stays_ready)
{
	struct probe probe;

	open_loop(_i);
	probe_add(&probe);
	poll_in_vain();
	ring(probe.fd);
	poll_until(3);
	ck_assert_uint_eq(probe.events, POLLIN);
	unring(probe.fd);
	/* One more may have been on its way when it was read. */
	(void)kvpool_loop_poll(loop, 0);
	poll_in_vain();
	ring(probe.fd);
	poll_until(probe.calls + 1);
	probe_remove(&probe);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_not_call_a_source_that_another_callback_removed)
{
	struct probe a, b;

	open_loop(_i);
	probe_add(&a);
	probe_add(&b);
	ring(a.fd);
	ring(b.fd);
	a.victim = b.source;
	b.victim = a.source;
	poll_until(1);
	ck_assert_uint_eq(a.calls + b.calls, 1);
	/* Whoever was first removed the other. */
	a.victim = b.victim = NULL;
	poll_until(3);
	ck_assert_uint_eq(KVPOOL_MIN(a.calls, b.calls), 0);
	kvpool_source_remove(a.calls > 0 ? a.source : b.source);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_let_a_callback_remove_its_own_source)
{
	struct probe probe;

	open_loop(_i);
	probe_add(&probe);
	probe.victim = probe.source;
	ring(probe.fd);
	poll_until(1);
	poll_in_vain();
	ck_assert_uint_eq(probe.calls, 1);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_not_take_a_new_source_for_an_old_one_with_its_descriptor)
{
	struct probe old, new;
	int fd;

	open_loop(_i);
	for (int i = 0; i < 50; i++) {
		probe_add(&old);
		poll_in_vain();
		fd = old.fd;
		ring(fd);
		probe_remove(&old);
		probe_add(&new);
		ck_assert_int_eq(new.fd, fd);
		poll_in_vain();
		ring(new.fd);
		poll_until(all_calls + 1);
		ck_assert_uint_eq(old.calls, 0);
		ck_assert_uint_eq(new.calls, 1);
		probe_remove(&new);
	}
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_let_go_of_a_socket_that_was_removed_and_closed)
{
	struct probe probe = {.calls = 0};
	int pair[2];
	char byte;

	open_loop(_i);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	ck_assert_int_eq(kvpool_loop_add_fd(loop, pair[0], POLLIN, on_call, &probe, &probe.source),
			 0);
	poll_in_vain();
	kvpool_source_remove(probe.source);
	ck_assert_int_eq(close(pair[0]), 0);
	poll_in_vain();
	/* The peer sees the end: no request holds the file any more. */
	ck_assert_int_eq(recv(pair[1], &byte, 1, 0), 0);
	ck_assert_int_eq(close(pair[1]), 0);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_tell_that_the_peer_hung_up)
{
	struct probe probe = {.calls = 0};
	int pair[2];

	open_loop(_i);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	ck_assert_int_eq(kvpool_loop_add_fd(loop, pair[0], POLLIN | POLLRDHUP, on_call, &probe,
					    &probe.source),
			 0);
	ck_assert_int_eq(close(pair[1]), 0);
	poll_until(1);
	ck_assert_uint_ne(probe.events & POLLHUP, 0);
	ck_assert_uint_ne(probe.events & POLLRDHUP, 0);
	kvpool_source_remove(probe.source);
	ck_assert_int_eq(close(pair[0]), 0);
	kvpool_loop_free(loop);
}
END_TEST

/* More than fit into the rings of io_uring at a time, all ready at once. */
START_TEST(should_serve_more_sources_than_its_queues_hold)
{
	struct probe *probes = calloc(MANY, sizeof(*probes));
	unsigned int n = MANY, called = 0;
	struct rlimit limit;

	ck_assert_ptr_nonnull(probes);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < MANY + 64)
		n = (unsigned int)limit.rlim_cur - 64;
	open_loop(_i);
	for (unsigned int i = 0; i < n; i++) {
		probe_add(&probes[i]);
		ring(probes[i].fd);
	}
	while (called < n) {
		ck_assert_int_gt(kvpool_loop_wait(loop), 0);
		called = 0;
		for (unsigned int i = 0; i < n; i++)
			called += probes[i].calls > 0;
	}
	for (unsigned int i = 0; i < n; i++)
		unring(probes[i].fd);
	while (kvpool_loop_poll(loop, 0) > 0)
		;
	/* None was lost on the way: each is still watched. */
	for (unsigned int i = 0; i < n; i++) {
		probes[i].calls = 0;
		ring(probes[i].fd);
		poll_until(all_calls + 1);
		ck_assert_uint_ge(probes[i].calls, 1);
		unring(probes[i].fd);
		while (kvpool_loop_poll(loop, 0) > 0)
			;
	}
	for (unsigned int i = 0; i < n; i++)
		probe_remove(&probes[i]);
	kvpool_loop_free(loop);
	free(probes);
}
END_TEST

START_TEST(should_run_timers_in_order_and_not_before_they_are_due)
{
	enum {
		N = 200
	};
	struct probe timers[N];
	uint64_t state = 88172645463325252u;

	open_loop(_i);
	for (int i = 0; i < N; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		timer_add(&timers[i], 1000 + state % 500);
	}
	/* Some change their mind: sooner, later, off. */
	for (int i = 0; i < N; i += 5)
		kvpool_source_set_timer(timers[i].source, i % 2 == 0 ? 10 + (uint64_t)i : 0);
	for (int i = 1; i < N; i += 7) {
		kvpool_source_remove(timers[i].source);
		timers[i].source = NULL;
	}
	ck_assert_int_eq(kvpool_loop_poll(loop, 9), 0);
	for (uint64_t now = 10; now < 1600; now++) {
		unsigned int before = all_calls;
		int ran = kvpool_loop_poll(loop, now);

		ck_assert_int_eq(ran, (int)(all_calls - before));
		for (int i = 0; i < N; i++) {
			if (timers[i].order > before)
				timers[i].events = (uint32_t)now;
		}
	}
	for (int i = 0; i < N; i++) {
		bool off = timers[i].source == NULL || (i % 5 == 0 && i % 2 != 0);

		ck_assert_uint_eq(timers[i].calls, off ? 0 : 1);
		if (!off && i % 5 == 0)
			ck_assert_uint_eq(timers[i].events, 10 + (unsigned int)i);
		else if (!off)
			ck_assert_uint_ge(timers[i].events, 1000);
		kvpool_source_remove(timers[i].source);
	}
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_end_a_turn_though_a_timer_is_always_due)
{
	struct probe timer;

	open_loop(_i);
	timer_add(&timer, 5);
	timer.again_ns = 1;
	ck_assert_int_eq(kvpool_loop_poll(loop, 5), 1);
	ck_assert_int_eq(kvpool_loop_poll(loop, 5), 1);
	timer.again_ns = 0;
	ck_assert_int_eq(kvpool_loop_poll(loop, 5), 1);
	ck_assert_int_eq(kvpool_loop_poll(loop, 5), 0);
	kvpool_source_remove(timer.source);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_sleep_until_the_earliest_timer_and_no_longer_than_needed)
{
	uint64_t end_ns = kvpool_clock_ns() + PATIENCE, due_ns;
	struct probe soon, late, idle;

	open_loop(_i);
	probe_add(&idle);
	timer_add(&late, end_ns + 100 * KVPOOL_NS_PER_S);
	timer_add(&soon, 0);
	ck_assert_uint_eq(kvpool_loop_wakeups(loop), 0);
	/* A busy machine may find the timer due before it could sleep. */
	do {
		due_ns = kvpool_clock_ns() + 5 * KVPOOL_NS_PER_MS;
		ck_assert_uint_lt(due_ns, end_ns);
		soon.calls = 0;
		kvpool_source_set_timer(soon.source, due_ns);
		ck_assert_int_eq(kvpool_loop_wait(loop), 1);
		ck_assert_uint_ge(kvpool_clock_ns(), due_ns);
		ck_assert_uint_eq(soon.calls, 1);
	} while (kvpool_loop_wakeups(loop) == 0);
	ck_assert_uint_eq(late.calls, 0);
	kvpool_source_remove(soon.source);
	kvpool_source_remove(late.source);
	probe_remove(&idle);
	kvpool_loop_free(loop);
}
END_TEST

struct helper {
	int fd;
	pthread_t sleeper;
	atomic_bool done;
};

static void *rings_late(void *argument)
{
	struct helper *helper = argument;

	ring(helper->fd);
	return NULL;
}

START_TEST(should_wake_for_a_descriptor_that_another_thread_makes_ready)
{
	struct helper helper;
	struct probe probe;
	pthread_t thread;

	open_loop(_i);
	probe_add(&probe);
	helper.fd = probe.fd;
	ck_assert_int_eq(pthread_create(&thread, NULL, rings_late, &helper), 0);
	ck_assert_int_eq(kvpool_loop_wait(loop), 1);
	ck_assert_uint_eq(probe.calls, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	probe_remove(&probe);
	kvpool_loop_free(loop);
}
END_TEST

static void on_signal(int signo)
{
	(void)signo;
}

static void *signals(void *argument)
{
	struct helper *helper = argument;

	while (!atomic_load(&helper->done)) {
		(void)pthread_kill(helper->sleeper, SIGUSR1);
		(void)sched_yield();
	}
	return NULL;
}

START_TEST(should_come_back_with_nothing_when_a_signal_wakes_it)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct helper helper = {.sleeper = pthread_self()};
	struct probe idle;
	pthread_t thread;

	open_loop(_i);
	probe_add(&idle);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, signals, &helper), 0);
	ck_assert_int_eq(kvpool_loop_wait(loop), 0);
	atomic_store(&helper.done, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(idle.calls, 0);
	probe_remove(&idle);
	kvpool_loop_free(loop);
}
END_TEST

START_TEST(should_refuse_a_descriptor_that_is_none)
{
	struct kvpool_source *source = NULL;

	open_loop(_i);
	ck_assert_int_eq(kvpool_loop_add_fd(loop, -1, POLLIN, on_call, NULL, &source), -EBADF);
	ck_assert_ptr_null(source);
	kvpool_loop_free(loop);
}
END_TEST

/* With the system call taken away, a poll that made it would fail. */
START_TEST(should_poll_io_uring_without_a_system_call)
{
	struct probe probe;
	int r;

	ck_assert_int_eq(kvpool_loop_new(KVPOOL_LOOP_URING, &loop), 0);
	probe_add(&probe);
	poll_in_vain();
	r = refuse(SYS_io_uring_enter, EPERM);
	ck_assert_int_eq(r, 0);
	poll_in_vain();
	ring(probe.fd);
	ck_assert_int_eq(kvpool_loop_poll(loop, 0), -EPERM);
}
END_TEST

static const int refusals[] = {EPERM, ENOSYS, ENOMEM};

START_TEST(should_fall_back_to_epoll_where_io_uring_is_refused)
{
	struct probe probe;

	ck_assert_int_eq(refuse(SYS_io_uring_setup, refusals[_i]), 0);
	loop = NULL;
	ck_assert_int_eq(kvpool_loop_new(KVPOOL_LOOP_URING, &loop), -refusals[_i]);
	ck_assert_ptr_null(loop);
	ck_assert_int_eq(kvpool_loop_new(KVPOOL_LOOP_AUTO, &loop), 0);
	ck_assert_int_eq(kvpool_loop_kind(loop), KVPOOL_LOOP_EPOLL);
	ck_assert_int_eq(kvpool_loop_refusal(loop), refusals[_i]);
	probe_add(&probe);
	ring(probe.fd);
	ck_assert_int_eq(kvpool_loop_wait(loop), 1);
	probe_remove(&probe);
	kvpool_loop_free(loop);
}
END_TEST

static void add_both(TCase *tcase)
{
	const TTest *const on_both[] = {
		should_call_again_while_a_descriptor_stays_ready,
		should_not_call_a_source_that_another_callback_removed,
		should_let_a_callback_remove_its_own_source,
		should_not_take_a_new_source_for_an_old_one_with_its_descriptor,
		should_let_go_of_a_socket_that_was_removed_and_closed,
		should_tell_that_the_peer_hung_up,
		should_serve_more_sources_than_its_queues_hold,
		should_run_timers_in_order_and_not_before_they_are_due,
		should_end_a_turn_though_a_timer_is_always_due,
		should_sleep_until_the_earliest_timer_and_no_longer_than_needed,
		should_wake_for_a_descriptor_that_another_thread_makes_ready,
		should_come_back_with_nothing_when_a_signal_wakes_it,
		should_refuse_a_descriptor_that_is_none,
	};

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(on_both); i++)
		tcase_add_loop_test(tcase, on_both[i], 0, n_kinds);
}

int main(void)
{
	Suite *suite = suite_create("loop");
	TCase *both = tcase_create("both backends"), *single = tcase_create("one backend");
	SRunner *runner = srunner_create(suite);
	int failed, r;

	kinds[n_kinds++] = KVPOOL_LOOP_EPOLL;
	r = kvpool_loop_new(KVPOOL_LOOP_URING, &loop);
	if (r == 0) {
		kvpool_loop_free(loop);
		kinds[n_kinds++] = KVPOOL_LOOP_URING;
		tcase_add_test(single, should_poll_io_uring_without_a_system_call);
	}
	add_both(both);
	tcase_add_loop_test(single, should_fall_back_to_epoll_where_io_uring_is_refused, 0,
			    (int)KVPOOL_ARRAY_SIZE(refusals));
	tcase_set_timeout(both, 60);
	suite_add_tcase(suite, both);
	suite_add_tcase(suite, single);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (failed == 0 && r < 0) {
		(void)printf("skipped on io_uring: %s\n", strerror(-r));
		return 77;
	}
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
