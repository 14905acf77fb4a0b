/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge pages that are there when the daemon starts and are gone, or cannot be had, while its pool
 * grows: it goes on with other pages or says so, and nobody dies of SIGBUS.
 *
 * Needs root, and a machine on which nobody else has reserved huge pages; what it changes there it
 * puts back. Clients are this process.
 */
#include "tests/integration/client_rig.h"
#include "tests/integration/fault_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define NR_HUGEPAGES "/proc/sys/vm/nr_hugepages"
#define SKIPPED      77
#define PAGES        8 /* of 2 MiB: the whole pool */
#define POOL_BYTES   (INT64_C(16) << 20)
#define BLOCKS       24u /* of 512 KiB: more than half of it */
#define BLOCK_BYTES  (UINT64_C(512) << 10)
#define MS           60000u

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;
static struct kvpool_layout *layout;

static int pages_set(int n)
{
	int fd = open(NR_HUGEPAGES, O_WRONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : dprintf(fd, "%d\n", n);

	if (fd >= 0)
		(void)close(fd);
	return r < 0 ? r : 0;
}

static int pages_get(void)
{
	FILE *file = fopen(NR_HUGEPAGES, "re");
	int n = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%d", &n) != 1)
		n = -1;
	(void)fclose(file);
	return n;
}

static void start(const char *pages)
{
	const char *const args[] = {"--size",  "16M",           "--segment-size",
				    "4M",      "--extent-size", "1M",
				    "--pages", pages,           NULL};

	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
}

static int64_t number(const char *path)
{
	return kvpool_raw_status(kvpool_harness_admin_socket(daemon_), path);
}

static void attach(void)
{
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, &rig);
	layout = kvpool_rig_layout(rig.pool, 1, BLOCK_BYTES);
	kvpool_rig_until_attached(&rig);
}

/* One block as large as a fourth of a huge page, written whole and read back. */
static bool stored(uint64_t chain)
{
	uint32_t n = BLOCK_BYTES / 8;
	uint64_t *words = malloc(BLOCK_BYTES);
	struct kvpool_piece piece = {words, BLOCK_BYTES};
	struct kvpool_match match;
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE];

	ck_assert_ptr_nonnull(words);
	kvpool_rig_keys(chain, 0, 1, key);
	if (kvpool_reserve(rig.channel, layout, 0, NULL, key, 1, KVPOOL_RIG_LONG, &block) != 1) {
		free(words);
		return false;
	}
	kvpool_rig_stamp(chain, 0, words, n);
	ck_assert_int_eq(kvpool_store(rig.channel, layout, 0, &block, 0, &piece, 1), 0);
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			 1);
	memset(words, 0, BLOCK_BYTES);
	ck_assert_int_eq(
		kvpool_match(rig.channel, layout, key, 1, 0, 0, KVPOOL_RIG_LONG, &block, 1, &match),
		1);
	ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &block, 0, &piece, 1), 0);
	ck_assert_uint_eq(kvpool_rig_wrong(chain, 0, words, n), 0);
	kvpool_release(rig.channel, &match, 0);
	free(words);
	return true;
}

static void use(void)
{
	for (uint64_t chain = 1; chain <= BLOCKS; chain++)
		ck_assert_msg(stored(chain), "block %u: %s", (unsigned int)chain,
			      kvpool_channel_error(rig.channel));
}

static void forget(void)
{
	uint8_t key[KVPOOL_KEY_SIZE];

	for (uint64_t chain = 1; chain <= BLOCKS; chain++) {
		kvpool_rig_keys(chain, 0, 1, key);
		(void)kvpool_forget(rig.channel, layout, 0, key, 1, KVPOOL_RIG_LONG);
	}
}

START_TEST(should_go_on_with_other_pages_when_the_huge_ones_are_gone)
{
	start("auto");
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", POOL_BYTES);
	ck_assert_int_eq(number("pool.pages.2M"), POOL_BYTES);
	attach();
	use();
	/* Those in use stay; none takes their place when they come back. */
	ck_assert_int_eq(pages_set(0), 0);
	for (uint64_t chain = 1; chain <= BLOCKS; chain++)
		ck_assert(kvpool_rig_get(&rig, UINT64_MAX - chain, 1) == 0);
	forget();
	kvpool_rig_close(&rig);
	kvpool_rig_until_number(daemon_, "clients.domains", 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", POOL_BYTES);
	ck_assert_int_lt(number("pool.pages.2M"), POOL_BYTES);
	attach();
	use();
	kvpool_rig_end(daemon_, &rig);
}
END_TEST

/* The kernel, or a control group, has none when one is touched: EFAULT, where a touch by the daemon
 * would be SIGBUS. */
static struct kvpool_fault *no_page(const char *folder, bool lasts)
{
	char path[64];
	struct kvpool_fault *fault;

	(void)snprintf(path, sizeof(path), "%s/fault", folder);
	fault = kvpool_fault_load(path);
	fault->call = KVPOOL_FAULT_POPULATE;
	fault->error = EFAULT;
	fault->at = 3;
	fault->lasts = lasts;
	atomic_store(&fault->armed, 1);
	return fault;
}

static void no_page_end(const char *folder)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/fault", folder);
	(void)unlink(path);
	(void)rmdir(folder);
}

START_TEST(should_go_on_with_other_pages_when_one_cannot_be_had_in_the_middle)
{
	char folder[] = "/tmp/kvpool-huge-XXXXXX";
	const struct kvpool_fault *fault;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	fault = no_page(folder, false);
	start("auto");
	kvpool_fault_unload();
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", POOL_BYTES);
	ck_assert_uint_eq(atomic_load(&fault->hits), 1);
	ck_assert_int_lt(number("pool.pages.2M"), POOL_BYTES);
	ck_assert_int_gt(number("pool.pages.2M"), 0);
	attach();
	use();
	kvpool_rig_end(daemon_, &rig);
	no_page_end(folder);
}
END_TEST

static bool says_why(void *cookie)
{
	json_t *page = kvpool_raw_get(kvpool_harness_admin_socket(daemon_), "/v1/status");
	const char *text =
		json_string_value(json_object_get(json_object_get(page, "pool"), "error"));
	bool says = text && strstr(text, "pages 2M") && strstr(text, strerror(ENOMEM));

	(void)cookie;
	json_decref(page);
	return says;
}

START_TEST(should_say_so_where_no_other_pages_will_do_and_serve_with_what_there_is)
{
	char folder[] = "/tmp/kvpool-huge-XXXXXX";
	struct kvpool_fault *fault;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	fault = no_page(folder, true);
	start("2M");
	kvpool_fault_unload();
	ck_assert(kvpool_harness_until(says_why, NULL, MS));
	ck_assert_int_gt(number("pool.ready_bytes"), 0);
	attach();
	ck_assert(stored(BLOCKS + 1));
	/* And the rest once it can be had. */
	atomic_store(&fault->armed, 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", POOL_BYTES);
	use();
	kvpool_rig_end(daemon_, &rig);
	no_page_end(folder);
}
END_TEST

static void give_pages(void)
{
	ck_assert_int_eq(pages_set(PAGES), 0);
	ck_assert_int_eq(pages_get(), PAGES);
}

int main(void)
{
	Suite *suite = suite_create("huge");
	TCase *tc = tcase_create("huge");
	int lock = open(NR_HUGEPAGES, O_RDONLY | O_CLOEXEC), r;

	/* One test of this kind at a time, whoever runs it. */
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0 || pages_get() != 0 ||
	    pages_set(PAGES) != 0 || pages_get() != PAGES) {
		printf("skipped: cannot reserve %d huge pages of 2 MiB, or they are in use\n",
		       PAGES);
		return SKIPPED;
	}
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, give_pages, NULL);
	tcase_add_test(tc, should_go_on_with_other_pages_when_the_huge_ones_are_gone);
	tcase_add_test(tc, should_go_on_with_other_pages_when_one_cannot_be_had_in_the_middle);
	tcase_add_test(tc, should_say_so_where_no_other_pages_will_do_and_serve_with_what_there_is);
	suite_add_tcase(suite, tc);
	r = kvpool_harness_run(suite);
	(void)pages_set(0);
	return r;
}
