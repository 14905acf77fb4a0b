/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool on huge pages of 2 MiB, where this machine lets the test reserve some (else it is
 * skipped). What it changes in the kernel's settings it puts back.
 *
 * Each test is a process of its own (Check forks); the settings are the parent's.
 */
#include "daemon/pool.h"

#include "daemon/host.h"
#include "shm/base.h"
#include "tests/unit/pool_probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NR_HUGEPAGES  "/proc/sys/vm/nr_hugepages"
#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Two segments of the pool below, and not a third. */
#define WANTED 23u

static int somebody;

static const struct kvpool_pool_config config = {
	.bytes = 64 * MIB,
	.segment_bytes = 16 * MIB,
	.step_bytes = 4 * MIB,
	.pages = KVPOOL_PAGES_AUTO,
	.populate = true,
};

static uint64_t free_2m(void)
{
	struct kvpool_host host;

	ck_assert_int_eq(kvpool_host_read("", &host), 0);
	return host.free_2m;
}

START_TEST(should_use_the_huge_pages_there_are_and_others_for_the_rest)
{
	uint64_t before = free_2m();
	struct kvpool_pool_status status;
	struct kvpool_segment *segment;
	struct kvpool_pool *pool;
	uint64_t huge = 0;

	ck_assert_int_eq(kvpool_pool_new(&config, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, 0);
	ck_assert_uint_eq(status.ready, config.bytes);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_2M], 2 * config.segment_bytes);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_THP] + status.by_pages[KVPOOL_PAGES_4K],
			  2 * config.segment_bytes);
	ck_assert_uint_eq(free_2m(), before - 2 * config.segment_bytes);
	while ((segment = kvpool_pool_acquire(pool, &somebody, 0)) != NULL) {
		ck_assert_uint_eq(pool_probe_resident(segment->fd), segment->bytes);
		huge += segment->pages == KVPOOL_PAGES_2M ? segment->bytes : 0;
	}
	ck_assert_uint_eq(huge, 2 * config.segment_bytes);
	kvpool_pool_free(pool);
	ck_assert_uint_eq(free_2m(), before);
}
END_TEST

START_TEST(should_stop_with_an_error_where_only_huge_pages_will_do)
{
	struct kvpool_pool_config only = config;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	only.pages = KVPOOL_PAGES_2M;
	ck_assert_int_eq(kvpool_pool_new(&only, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_int_eq(status.error, ENOMEM);
	ck_assert_ptr_nonnull(strstr(status.error_text, "segment 3 of 4"));
	ck_assert_ptr_nonnull(strstr(status.error_text, "pages 2M"));
	ck_assert_uint_eq(status.ready, 2 * config.segment_bytes);
	ck_assert_ptr_nonnull(kvpool_pool_acquire(pool, &somebody, 0));
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_reserve_huge_pages_that_are_not_populated)
{
	uint64_t before = free_2m();
	struct kvpool_pool_config untouched = config;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	untouched.bytes = config.segment_bytes;
	untouched.populate = false;
	ck_assert_int_eq(kvpool_pool_new(&untouched, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_2M], config.segment_bytes);
	ck_assert_uint_eq(free_2m(), before - config.segment_bytes);
	kvpool_pool_free(pool);
	ck_assert_uint_eq(free_2m(), before);
}
END_TEST

START_TEST(should_give_huge_pages_back_as_zeros)
{
	struct kvpool_pool_config one = config;
	struct kvpool_segment *segment;
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	/* Reading through the old mapping takes huge pages too. */
	one.bytes = config.segment_bytes;
	ck_assert_int_eq(kvpool_pool_new(&one, &pool), 0);
	(void)pool_probe_settle(pool, pool_probe_ignore, NULL);
	segment = kvpool_pool_acquire(pool, &somebody, 0);
	ck_assert_ptr_nonnull(segment);
	ck_assert_int_eq(segment->pages, KVPOOL_PAGES_2M);
	pool_probe_release_zeroes(pool, segment);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_2M], one.bytes);
	ck_assert_uint_eq(status.ready, one.bytes);
	kvpool_pool_free(pool);
}
END_TEST

START_TEST(should_seal_huge_pages_as_well)
{
	struct kvpool_pool *pool;
	struct kvpool_segment *segment;

	ck_assert_int_eq(kvpool_pool_new(&config, &pool), 0);
	segment = pool_probe_acquire(pool, &somebody, pool_probe_ignore, NULL);
	ck_assert_int_eq(segment->pages, KVPOOL_PAGES_2M);
	ck_assert_int_eq(fcntl(segment->fd, F_GET_SEALS) &
				 (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	ck_assert_int_eq(ftruncate(segment->fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	kvpool_pool_free(pool);
}
END_TEST

static uint64_t shmem_huge_kib(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t kib = 0;
	char line[128];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file) != NULL)
		(void)sscanf(line, "ShmemHugePages: %" SCNu64, &kib);
	(void)fclose(file);
	return kib;
}

START_TEST(should_get_transparent_huge_pages_where_they_are_allowed)
{
	struct kvpool_pool_config thp = config;
	uint64_t before = shmem_huge_kib();
	struct kvpool_pool_status status;
	struct kvpool_pool *pool;

	thp.pages = KVPOOL_PAGES_THP;
	ck_assert_int_eq(kvpool_pool_new(&thp, &pool), 0);
	status = pool_probe_settle(pool, pool_probe_ignore, NULL);
	ck_assert_uint_eq(status.by_pages[KVPOOL_PAGES_THP], thp.bytes);
	ck_assert_uint_eq(status.ready, thp.bytes);
	/* All, unless memory is fragmented. */
	ck_assert_uint_gt(shmem_huge_kib(), before);
	kvpool_pool_free(pool);
}
END_TEST

static int setting_write(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	int r;

	if (file == NULL)
		return -errno;
	r = fputs(text, file) < 0 ? -errno : 0;
	if (fclose(file) != 0 && r == 0)
		r = -errno;
	return r;
}

static uint64_t nr_hugepages(void)
{
	FILE *file = fopen(NR_HUGEPAGES, "re");
	uint64_t n = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%" SCNu64, &n) != 1)
		n = 0;
	(void)fclose(file);
	return n;
}

static int nr_hugepages_set(uint64_t n)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%" PRIu64 "\n", n);
	return setting_write(NR_HUGEPAGES, text);
}

/* The word in brackets; empty where there is none. */
static void shmem_enabled(char word[32])
{
	FILE *file = fopen(SHMEM_ENABLED, "re");

	word[0] = '\0';
	if (file == NULL)
		return;
	if (fscanf(file, "%*[^[][%31[^]]", word) != 1)
		word[0] = '\0';
	(void)fclose(file);
}

int main(void)
{
	Suite *suite = suite_create("pool_huge");
	TCase *huge = tcase_create("2 MiB pages"), *thp = tcase_create("transparent pages");
	SRunner *runner = srunner_create(suite);
	uint64_t pages_before = nr_hugepages();
	char word[32];
	int failed;

	/* Pages of somebody else's, free or not, would make the numbers come out otherwise. */
	if (pages_before != 0 || nr_hugepages_set(WANTED) < 0 || nr_hugepages() != WANTED) {
		(void)printf("skipped: cannot reserve %u huge pages (there were %" PRIu64 ")\n",
			     WANTED, pages_before);
		(void)nr_hugepages_set(pages_before);
		srunner_free(runner);
		return 77;
	}
	suite_add_tcase(suite, huge);
	tcase_set_timeout(huge, 60);
	tcase_add_test(huge, should_use_the_huge_pages_there_are_and_others_for_the_rest);
	tcase_add_test(huge, should_stop_with_an_error_where_only_huge_pages_will_do);
	tcase_add_test(huge, should_reserve_huge_pages_that_are_not_populated);
	tcase_add_test(huge, should_give_huge_pages_back_as_zeros);
	tcase_add_test(huge, should_seal_huge_pages_as_well);
	shmem_enabled(word);
	if (word[0] != '\0' && setting_write(SHMEM_ENABLED, "advise") == 0) {
		suite_add_tcase(suite, thp);
		tcase_add_test(thp, should_get_transparent_huge_pages_where_they_are_allowed);
	} else {
		(void)printf("without transparent huge pages: %s cannot be set\n", SHMEM_ENABLED);
	}
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	(void)nr_hugepages_set(pages_before);
	if (word[0] != '\0')
		(void)setting_write(SHMEM_ENABLED, word);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
