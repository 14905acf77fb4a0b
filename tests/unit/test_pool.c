/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool and its populating thread on ordinary pages, and with every refusal of the kernel.
 *
 * Each test is a process of its own (Check forks), so that system calls can be taken from it.
 */
#include "daemon/pool.h"

#include "daemon/pool_state.h"
#include "shm/base.h"
#include "tests/unit/fixture_host.h"
#include "tests/unit/pool_probe.h"
#include "tests/unit/refuse.h"

#include <numaif.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB (30U << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int somebody, somebody_else;

static const struct kvpool_pool_config small = {
	.bytes = 64 * MIB,
	.segment_bytes = 16 * MIB,
	.step_bytes = 4 * MIB,
	.pages = KVPOOL_PAGES_4K,
	.populate = true,
};

/* Two nodes that are the same one: binding is done, whatever this machine has. */
static const struct kvpool_nodes twice = {.n = 2, .ids = {0, 0}};
static const struct kvpool_nodes once = {.n = 1, .ids = {0}};

static struct kvpool_pool *pool_of(const struct kvpool_pool_config *config)
{
	struct kvpool_pool *pool = NULL;

	ck_assert_int_eq(kvpool_pool_new(config, &pool), 0);
	return pool;
}

struct grown {
	uint64_t ready; /* of the segment, as told so far */
	unsigned int calls;
};

/* What is told of a segment follows on what was told before. */
static void on_grown(void *cookie, struct kvpool_segment *segment, uint64_t offset, uint64_t bytes)
{
	struct grown *grown = cookie;

	ck_assert_uint_gt(bytes, 0);
	ck_assert_uint_eq(offset, grown->ready);
	ck_assert_uint_eq(segment->ready, offset + bytes);
	ck_assert_uint_eq(segment->ready % small.step_bytes, 0);
	grown->ready += bytes;
	grown->calls++;
}

START_TEST(should_populate_all_of_it_and_tell_every_byte_once)
{
	struct kvpool_pool *pool = pool_of(&small);
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct grown grown = {0, 0};

	segment = pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	ck_assert_uint_ge(segment->ready, small.step_bytes);
	ck_assert_ptr_eq(segment->owner, &somebody);
	ck_assert_int_eq(segment->pages, KVPOOL_PAGES_4K);
	grown.ready = segment->ready;
	status = pool_probe_settle(pool, on_grown, &grown);
	ck_assert_uint_eq(grown.ready, small.segment_bytes);
	ck_assert_uint_eq(segment->ready, small.segment_bytes);
	ck_assert_uint_eq(pool_probe_resident(segment->fd), small.segment_bytes);
	ck_assert_uint_eq(status.bytes, small.bytes);
	ck_assert_uint_eq(status.ready, small.bytes);
	ck_assert_uint_eq(status.lent, small.segment_bytes);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_4K], small.bytes);
	ck_assert_uint_eq(status.nodes, 1);
	ck_assert_int_eq(status.error, 0);
	ck_assert_uint_gt(status.first_ns, 0);
	ck_assert_uint_ge(status.full_ns, status.first_ns);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_seal_its_segments_against_another_size_and_other_seals)
{
	struct kvpool_pool *pool = pool_of(&small);
	struct kvpool_segment *segment =
		pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	int seals = fcntl(segment->fd, F_GET_SEALS);
	struct stat st;

	ck_assert_int_eq(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	ck_assert_int_eq(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE), 0);
	ck_assert_int_eq(ftruncate(segment->fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(segment->fd, 2 * (off_t)segment->bytes), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(segment->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(segment->fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fstat(segment->fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, small.segment_bytes);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_have_a_free_segment_begun_before_it_fills_what_is_lent)
{
	struct kvpool_pool_config config = small;
	struct kvpool_segment *first, *second;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	config.bytes = 512 * MIB;
	config.segment_bytes = 128 * MIB;
	pool = pool_of(&config);
	first = pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	second = pool_probe_acquire(pool, &somebody_else, pool_probe_ignore, NULL);
	kvpool_pool_status(pool, &status);
	ck_assert(first->ready < first->bytes || status.ready == status.bytes ||
		  second->ready == second->bytes);
	ck_assert_ptr_ne(first, second);
	ck_assert_int_ne(first->fd, second->fd);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_lend_each_segment_once_and_find_those_that_are_lent)
{
	struct kvpool_pool *pool = pool_of(&small);
	struct kvpool_segment *segments[4];

	ck_assert_ptr_null(kvpool_pool_find(pool, 1));
	(void)pool_probe_settle(pool, pool_probe_ignore, NULL);
	for (unsigned int i = 0; i < 4; i++) {
		segments[i] = kvpool_pool_acquire(pool, &somebody, 0);
		ck_assert_ptr_nonnull(segments[i]);
		ck_assert_uint_ne(segments[i]->id, 0);
		ck_assert_ptr_eq(kvpool_pool_find(pool, segments[i]->id), segments[i]);
		for (unsigned int j = 0; j < i; j++) {
			ck_assert_ptr_ne(segments[j], segments[i]);
			ck_assert_uint_ne(segments[j]->id, segments[i]->id);
		}
	}
	ck_assert_ptr_null(kvpool_pool_acquire(pool, &somebody_else, 0));
	ck_assert_ptr_null(kvpool_pool_find(pool, 0));
	ck_assert_ptr_null(kvpool_pool_find(pool, 12345));
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_give_zeros_to_an_old_mapping_and_new_memory_to_the_next)
{
	struct kvpool_pool *pool = pool_of(&small);
	struct kvpool_segment *segments[4], *again;
	struct kvpool_pool_status status;
	uint32_t ids[4];
	unsigned char *at;

	(void)pool_probe_settle(pool, pool_probe_ignore, NULL);
	for (unsigned int i = 0; i < 4; i++) {
		segments[i] = kvpool_pool_acquire(pool, &somebody, 0);
		ck_assert_ptr_nonnull(segments[i]);
		ids[i] = segments[i]->id;
	}
	pool_probe_release_zeroes(pool, segments[2]);
	again = pool_probe_acquire(pool, &somebody_else, pool_probe_ignore, NULL);
	for (unsigned int i = 0; i < 4; i++)
		ck_assert_uint_ne(again->id, ids[i]);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.ready, small.bytes);
	ck_assert_uint_eq(status.lent, small.bytes);
	at = pool_probe_map(again->fd, again->bytes);
	for (uint64_t i = 0; i < again->bytes; i += 512)
		ck_assert_uint_eq(at[i], 0);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_take_back_a_segment_that_is_still_being_filled)
{
	struct kvpool_pool_config config = small;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	config.step_bytes = MIB / 16;
	pool = pool_of(&config);
	for (int i = 0; i < 20; i++) {
		struct kvpool_segment *segment =
			pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);

		kvpool_pool_release(pool, segment);
	}
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.ready, config.bytes);
	ck_assert_uint_eq(status.lent, 0);
	ck_assert_int_eq(status.error, 0);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_stop_at_once_in_the_middle_of_its_work)
{
	struct kvpool_pool_config config = small;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;
	int fd;

	config.bytes = 4096 * MIB;
	config.segment_bytes = 1024 * MIB;
	pool = pool_of(&config);
	segment = pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	fd = segment->fd;
	kvpool_pool_free(pool);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(errno, EBADF);
	kvpool_pool_free(NULL);
}
END_TEST

START_TEST(should_take_no_memory_where_it_is_not_to_populate)
{
	struct kvpool_pool_config config = small;
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;

	/* More than the machine has that runs this. */
	config.segment_bytes = 1024 * MIB;
	config.bytes = 512 * config.segment_bytes;
	config.populate = false;
	pool = pool_of(&config);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.ready, config.bytes);
	segment = kvpool_pool_acquire(pool, &somebody, 0);
	ck_assert_ptr_nonnull(segment);
	ck_assert_uint_eq(segment->ready, config.segment_bytes);
	ck_assert_uint_eq(pool_probe_resident(segment->fd), 0);
	kvpool_pool_free(pool);
}
END_TEST

/* Leaves room for the pool's eventfd, and for nothing else. */
START_TEST(should_say_that_it_is_out_of_descriptors)
{
	struct rlimit limit;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;
	int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)fd + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	pool = pool_of(&small);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, EMFILE);
	ck_assert_ptr_nonnull(strstr(status.error_text, "memfd_create: Too many open files"));
	ck_assert_ptr_nonnull(strstr(status.error_text, "segment 1 of 4"));
	ck_assert_uint_eq(status.ready, 0);
	ck_assert_uint_eq(status.full_ns, 0);
	ck_assert_ptr_null(kvpool_pool_acquire(pool, &somebody, 0));
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_say_that_memfds_are_refused)
{
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	ck_assert_int_eq(refuse(SYS_memfd_create, EPERM), 0);
	pool = pool_of(&small);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, EPERM);
	ck_assert_ptr_nonnull(strstr(status.error_text, "memfd_create"));
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_use_fallocate_where_the_kernel_cannot_populate)
{
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;

	ck_assert_int_eq(refuse_argument(SYS_madvise, 2, MADV_POPULATE_WRITE, EINVAL), 0);
	pool = pool_of(&small);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_uint_eq(status.ready, small.bytes);
	segment = kvpool_pool_acquire(pool, &somebody, 0);
	ck_assert_uint_eq(pool_probe_resident(segment->fd), small.segment_bytes);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_bind_a_segment_to_its_node)
{
	struct kvpool_pool_config config = small;
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;
	int mode = -1;
	void *at;

	config.numa = true;
	ck_assert_int_eq(kvpool_pool_start(&config, &twice, "", &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_uint_eq(status.ready, config.bytes);
	ck_assert_uint_eq(status.nodes, 2);
	segment = kvpool_pool_acquire(pool, &somebody, 0);
	if (status.mbind_error == 0) {
		ck_assert_uint_eq(segment->node, 0);
		/* The choice stays with the file: whoever maps it sees it. */
		at = pool_probe_map(segment->fd, segment->bytes);
		ck_assert_int_eq(get_mempolicy(&mode, NULL, 0, at, MPOL_F_ADDR), 0);
		ck_assert_int_eq(mode, MPOL_PREFERRED);
	} else {
		ck_assert_int_eq(status.mbind_error, ENOSYS);
	}
	kvpool_pool_free(pool);
}
END_TEST

static const int bind_refusals[] = {EPERM, ENOSYS};

START_TEST(should_go_on_unbound_where_mbind_is_refused)
{
	struct kvpool_pool_config config = small;
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;

	config.numa = true;
	ck_assert_int_eq(refuse(SYS_mbind, bind_refusals[_i]), 0);
	ck_assert_int_eq(kvpool_pool_start(&config, &twice, "", &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_int_eq(status.mbind_error, bind_refusals[_i]);
	ck_assert_uint_eq(status.ready, config.bytes);
	while ((segment = kvpool_pool_acquire(pool, &somebody, 0)) != NULL)
		ck_assert_uint_eq(segment->node, KVPOOL_NODE_NONE);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_stop_before_the_host_is_short_of_memory)
{
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	fixture_host_make();
	fixture_host_write("/proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 35000 kB\n");
	ck_assert_int_eq(kvpool_pool_start(&small, &once, fixture_host_root, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, ENOMEM);
	ck_assert_ptr_nonnull(strstr(status.error_text, "short of memory"));
	ck_assert_uint_eq(status.ready, 0);
	kvpool_pool_free(pool);
	fixture_host_remove();
}
END_TEST

START_TEST(should_go_on_when_memory_is_back_and_something_was_released)
{
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;

	fixture_host_make();
	fixture_host_write("/proc/meminfo", "MemAvailable: 4000000 kB\n");
	ck_assert_int_eq(kvpool_pool_start(&small, &once, fixture_host_root, &pool), 0);
	segment = pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	fixture_host_write("/proc/meminfo", "MemAvailable: 1000 kB\n");
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert(status.error == ENOMEM || status.ready == small.bytes);
	fixture_host_write("/proc/meminfo", "MemAvailable: 4000000 kB\n");
	kvpool_pool_release(pool, segment);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_str_eq(status.error_text, "");
	ck_assert_uint_eq(status.ready, small.bytes);
	kvpool_pool_free(pool);
	fixture_host_remove();
}
END_TEST

/* The host says that there are huge pages, and there are none: the next best must do. */
START_TEST(should_take_other_pages_where_huge_ones_are_gone_again)
{
	struct kvpool_pool_config config = small;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	ck_assert_int_eq(refuse_argument(SYS_memfd_create, 1,
					 MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL |
						 MFD_HUGETLB | MFD_HUGE_1GB,
					 ENODEV),
			 0);
	fixture_host_make();
	fixture_host_write("/proc/meminfo", "MemAvailable: 4000000 kB\n");
	fixture_host_write("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "9\n");
	config.pages = KVPOOL_PAGES_AUTO;
	config.segment_bytes = 1024 * MIB;
	config.bytes = config.segment_bytes;
	config.populate = false;
	ck_assert_int_eq(kvpool_pool_start(&config, &once, fixture_host_root, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_4K], config.bytes);
	kvpool_pool_free(pool);
	fixture_host_remove();
}
END_TEST

static const struct kvpool_pool_config invalid[] = {
	{.bytes = 0, .segment_bytes = 16 * MIB, .step_bytes = MIB},
	{.bytes = 24 * MIB, .segment_bytes = 16 * MIB, .step_bytes = MIB},
	{.bytes = 48 * MIB, .segment_bytes = 24 * MIB, .step_bytes = MIB},
	{.bytes = 2048 * MIB, .segment_bytes = 2048 * MIB, .step_bytes = MIB},
	{.bytes = 64 * MIB, .segment_bytes = 16 * MIB, .step_bytes = 0},
	{.bytes = 64 * MIB, .segment_bytes = 16 * MIB, .step_bytes = 2048},
	{.bytes = 64 * MIB, .segment_bytes = 16 * MIB, .step_bytes = 3 * MIB},
	{.bytes = 64 * MIB, .segment_bytes = 16 * MIB, .step_bytes = 32 * MIB},
	{.bytes = 64 * MIB, .segment_bytes = 16 * MIB, .step_bytes = MIB, .pages = 99},
	{.bytes = UINT64_C(1) << 40, .segment_bytes = MIB, .step_bytes = MIB},
};

START_TEST(should_refuse_sizes_that_do_not_fit_together)
{
	struct kvpool_pool *pool = NULL;

	ck_assert_int_eq(kvpool_pool_new(&invalid[_i], &pool), -EINVAL);
	ck_assert_ptr_null(pool);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *lends = tcase_create("lends"), *refused = tcase_create("refused");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, lends);
	suite_add_tcase(suite, refused);
	tcase_set_timeout(lends, 60);
	tcase_set_timeout(refused, 60);
	tcase_add_test(lends, should_populate_all_of_it_and_tell_every_byte_once);
	tcase_add_test(lends, should_seal_its_segments_against_another_size_and_other_seals);
	tcase_add_test(lends, should_have_a_free_segment_begun_before_it_fills_what_is_lent);
	tcase_add_test(lends, should_lend_each_segment_once_and_find_those_that_are_lent);
	tcase_add_test(lends, should_give_zeros_to_an_old_mapping_and_new_memory_to_the_next);
	tcase_add_test(lends, should_take_back_a_segment_that_is_still_being_filled);
	tcase_add_test(lends, should_stop_at_once_in_the_middle_of_its_work);
	tcase_add_test(lends, should_take_no_memory_where_it_is_not_to_populate);
	tcase_add_test(refused, should_say_that_it_is_out_of_descriptors);
	tcase_add_test(refused, should_say_that_memfds_are_refused);
	tcase_add_test(refused, should_use_fallocate_where_the_kernel_cannot_populate);
	tcase_add_test(refused, should_bind_a_segment_to_its_node);
	tcase_add_loop_test(refused, should_go_on_unbound_where_mbind_is_refused, 0,
			    (int)KVPOOL_ARRAY_SIZE(bind_refusals));
	tcase_add_test(refused, should_stop_before_the_host_is_short_of_memory);
	tcase_add_test(refused, should_go_on_when_memory_is_back_and_something_was_released);
	tcase_add_test(refused, should_take_other_pages_where_huge_ones_are_gone_again);
	tcase_add_loop_test(refused, should_refuse_sizes_that_do_not_fit_together, 0,
			    (int)KVPOOL_ARRAY_SIZE(invalid));
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
