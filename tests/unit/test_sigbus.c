/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard against SIGBUS, on memfds that shrink under their mappings.
 *
 * Each test is a process of its own (Check forks): some of them are meant to be killed.
 */
#include "daemon/sigbus.h"
#include "shm/base.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE  4096u
#define PAGES 8u
#define BYTES (PAGES * PAGE)

struct mapping {
	int fd;
	volatile unsigned char *at;
	struct kvpool_sigbus_range *range;
};

static void setup(void)
{
	const struct rlimit none = {0, 0};

	/* A test that dies as it should need leave no core file. */
	ck_assert_int_eq(setrlimit(RLIMIT_CORE, &none), 0);
	ck_assert_int_eq(kvpool_sigbus_install(), 0);
}

static struct mapping mapping_new(void)
{
	struct mapping m = {.fd = memfd_create("test", MFD_CLOEXEC)};

	ck_assert_int_ge(m.fd, 0);
	ck_assert_int_eq(ftruncate(m.fd, BYTES), 0);
	m.at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
	ck_assert_ptr_ne((const void *)m.at, MAP_FAILED);
	for (unsigned int i = 0; i < BYTES; i++)
		m.at[i] = 0xa5;
	return m;
}

static struct mapping mapping_guarded(void)
{
	struct mapping m = mapping_new();

	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &m.range), 0);
	ck_assert(!kvpool_sigbus_poisoned(m.range));
	return m;
}

static void shrink(const struct mapping *m)
{
	ck_assert_int_eq(ftruncate(m->fd, 0), 0);
}

START_TEST(should_read_zeros_where_guarded_memory_is_gone)
{
	struct mapping m = mapping_guarded();

	ck_assert_uint_eq(m.at[0], 0xa5);
	shrink(&m);
	ck_assert_uint_eq(m.at[3 * PAGE + 7], 0);
	ck_assert(kvpool_sigbus_poisoned(m.range));
	ck_assert_uint_eq(kvpool_sigbus_count(), 1);
	for (unsigned int i = 0; i < BYTES; i++)
		ck_assert_uint_eq(m.at[i], 0);
	ck_assert_uint_eq(kvpool_sigbus_count(), 1);
}
END_TEST

START_TEST(should_let_a_write_go_nowhere_where_guarded_memory_is_gone)
{
	struct mapping m = mapping_guarded();
	unsigned char byte;

	shrink(&m);
	m.at[PAGE] = 7;
	ck_assert_uint_eq(m.at[PAGE], 7);
	ck_assert(kvpool_sigbus_poisoned(m.range));
	ck_assert_int_eq(ftruncate(m.fd, BYTES), 0);
	ck_assert_int_eq(pread(m.fd, &byte, 1, PAGE), 1);
	ck_assert_uint_eq(byte, 0);
}
END_TEST

START_TEST(should_poison_only_the_range_that_faulted)
{
	struct mapping a = mapping_guarded(), b = mapping_guarded(), c = mapping_guarded();

	shrink(&b);
	ck_assert_uint_eq(b.at[0], 0);
	ck_assert(!kvpool_sigbus_poisoned(a.range));
	ck_assert(kvpool_sigbus_poisoned(b.range));
	ck_assert(!kvpool_sigbus_poisoned(c.range));
	ck_assert_uint_eq(a.at[BYTES - 1], 0xa5);
	ck_assert_uint_eq(c.at[0], 0xa5);
	shrink(&c);
	ck_assert_uint_eq(c.at[BYTES - 1], 0);
	ck_assert_uint_eq(kvpool_sigbus_count(), 2);
}
END_TEST

START_TEST(should_use_a_released_entry_again_unpoisoned)
{
	struct mapping a = mapping_guarded(), b;

	shrink(&a);
	ck_assert_uint_eq(a.at[0], 0);
	kvpool_sigbus_release(a.range);
	ck_assert_int_eq(munmap((void *)a.at, BYTES), 0);
	b = mapping_guarded();
	ck_assert_ptr_eq(a.range, b.range);
	shrink(&b);
	ck_assert_uint_eq(b.at[0], 0);
	ck_assert(kvpool_sigbus_poisoned(b.range));
	ck_assert_uint_eq(kvpool_sigbus_count(), 2);
	kvpool_sigbus_release(NULL);
}
END_TEST

START_TEST(should_refuse_more_ranges_than_it_holds_until_one_is_released)
{
	struct kvpool_sigbus_range *first = NULL, *range = NULL, *extra = NULL;
	struct mapping m = mapping_new();

	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &first), 0);
	for (unsigned int i = 1; i < KVPOOL_SIGBUS_RANGES_MAX; i++)
		ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &range), 0);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &extra), -ENOSPC);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &extra), -ENOSPC);
	ck_assert_ptr_null(extra);
	kvpool_sigbus_release(range);
	kvpool_sigbus_release(first);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &extra), 0);
	ck_assert_ptr_eq(extra, first);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, BYTES, &extra), 0);
	ck_assert_ptr_eq(extra, range);
}
END_TEST

START_TEST(should_refuse_a_range_that_is_not_made_of_pages)
{
	struct kvpool_sigbus_range *range = NULL;
	struct mapping m = mapping_new();

	ck_assert_int_eq(kvpool_sigbus_guard(NULL, BYTES, &range), -EINVAL);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, 0, &range), -EINVAL);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, PAGE + 1, &range), -EINVAL);
	ck_assert_int_eq(kvpool_sigbus_guard((void *)(m.at + 8), PAGE, &range), -EINVAL);
	ck_assert_ptr_null(range);
}
END_TEST

struct reader {
	const struct mapping *m;
	atomic_bool go;
};

static void *read_all(void *argument)
{
	struct reader *reader = argument;
	uintptr_t sum = 0;

	while (!atomic_load(&reader->go))
		;
	for (unsigned int i = 0; i < BYTES; i++)
		sum += reader->m->at[i];
	return (void *)sum;
}

START_TEST(should_survive_faults_of_several_threads_at_once)
{
	struct mapping m = mapping_guarded();
	struct reader reader = {.m = &m};
	pthread_t threads[4];
	void *sum;

	for (unsigned int i = 0; i < KVPOOL_ARRAY_SIZE(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &reader), 0);
	shrink(&m);
	atomic_store(&reader.go, true);
	for (unsigned int i = 0; i < KVPOOL_ARRAY_SIZE(threads); i++) {
		ck_assert_int_eq(pthread_join(threads[i], &sum), 0);
		ck_assert_ptr_null(sum);
	}
	ck_assert_uint_eq(kvpool_sigbus_count(), 1);
}
END_TEST

/* The tests from here on end with SIGBUS, which is what is checked. */

START_TEST(should_die_of_a_fault_outside_every_range)
{
	struct mapping guarded = mapping_guarded(), bare = mapping_new();

	shrink(&bare);
	ck_assert_uint_eq(guarded.at[0], 0xa5);
	ck_assert_uint_eq(bare.at[0], 0xa5);
}
END_TEST

START_TEST(should_die_of_a_fault_right_behind_a_range)
{
	struct mapping m = mapping_new();

	ck_assert_int_eq(kvpool_sigbus_guard((void *)m.at, PAGE, &m.range), 0);
	shrink(&m);
	ck_assert_uint_eq(m.at[PAGE], 0xa5);
}
END_TEST

START_TEST(should_die_of_a_fault_in_a_range_that_was_released)
{
	struct mapping m = mapping_guarded();

	kvpool_sigbus_release(m.range);
	shrink(&m);
	ck_assert_uint_eq(m.at[0], 0xa5);
}
END_TEST

START_TEST(should_die_of_a_signal_that_a_process_sent)
{
	struct mapping m = mapping_guarded();

	ck_assert_uint_eq(m.at[0], 0xa5);
	ck_assert_int_eq(kill(getpid(), SIGBUS), 0);
	ck_abort_msg("alive");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sigbus");
	TCase *lives = tcase_create("survives"), *dies = tcase_create("does not");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, lives);
	suite_add_tcase(suite, dies);
	tcase_add_checked_fixture(lives, setup, NULL);
	tcase_add_checked_fixture(dies, setup, NULL);
	tcase_add_test(lives, should_read_zeros_where_guarded_memory_is_gone);
	tcase_add_test(lives, should_let_a_write_go_nowhere_where_guarded_memory_is_gone);
	tcase_add_test(lives, should_poison_only_the_range_that_faulted);
	tcase_add_test(lives, should_use_a_released_entry_again_unpoisoned);
	tcase_add_test(lives, should_refuse_more_ranges_than_it_holds_until_one_is_released);
	tcase_add_test(lives, should_refuse_a_range_that_is_not_made_of_pages);
	tcase_add_test(lives, should_survive_faults_of_several_threads_at_once);
	tcase_add_test_raise_signal(dies, should_die_of_a_fault_outside_every_range, SIGBUS);
	tcase_add_test_raise_signal(dies, should_die_of_a_fault_right_behind_a_range, SIGBUS);
	tcase_add_test_raise_signal(dies, should_die_of_a_fault_in_a_range_that_was_released,
				    SIGBUS);
	tcase_add_test_raise_signal(dies, should_die_of_a_signal_that_a_process_sent, SIGBUS);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
