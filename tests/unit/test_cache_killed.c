/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon dies at any instruction of a change: what the next life makes of it.
 *
 * A child makes the change, one instruction at a time (ptrace), on the catalog that it shares with
 * this process. Whenever the catalog is another than before, a copy of it is adopted and looked at:
 * every death in this change leaves one of these.
 *
 * - The adopted cache is sound.
 * - What was READY before the change and is after it, is there. Nothing is that was neither.
 * - A frame that somebody writes or reads before and after is nobody else's, whether its client
 *   goes on or is only known to be there.
 * - A client that goes on and claims nothing has nothing, then.
 *
 * Owned by the test's only thread.
 */
#include "src/cache_internal.h"
#include "tests/unit/cache_fixture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME   UINT64_C(1024)
#define EXTENTS 6u
#define CHAINS  10
#define KEYS    24u
#define RECORDS 64u
#define LAYOUTS 4u
#define NOTES   16u
#define CLIENT  100u
#define SKIPPED 77

/* gcc's way of saying so, and clang's. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNDER_SANITIZER true
#else
#define UNDER_SANITIZER false
#endif

/* What of the catalog these tests ever touch. */
struct image {
	struct kvpool_catalog_control control;
	struct kvpool_record records[RECORDS];
	struct kvpool_layout_record layouts[LAYOUTS];
	struct kvpool_extent_record extents[16];
	struct kvpool_notes_control notes_control;
	struct kvpool_note notes[NOTES];
};

/* READY blocks by chain and key; frames that are in use, by extent and kilobyte. */
struct view {
	bool ready[CHAINS][KEYS];
	bool held[16][4];
};

static uint16_t layout, other;
static struct kvpool_wire_block writing[4];
static uint64_t lease;

static void image_take(const struct kvpool_cache *cache, struct image *to)
{
	const struct kvpool_catalog *from = &cache->catalog;

	to->control = *from->control;
	memcpy(to->records, from->records, sizeof(to->records));
	memcpy(to->layouts, from->layouts, sizeof(to->layouts));
	memcpy(to->extents, from->extents, sizeof(to->extents));
	to->notes_control = *cache->notes.control;
	memcpy(to->notes, cache->notes.notes, sizeof(to->notes));
}

static bool image_same(const struct kvpool_cache *cache, const struct image *i)
{
	const struct kvpool_catalog *c = &cache->catalog;

	return memcmp(cache->notes.control, &i->notes_control, sizeof(i->notes_control)) == 0 &&
	       memcmp(cache->notes.notes, i->notes, sizeof(i->notes)) == 0 &&
	       memcmp(c->control, &i->control, sizeof(i->control)) == 0 &&
	       memcmp(c->records, i->records, sizeof(i->records)) == 0 &&
	       memcmp(c->layouts, i->layouts, sizeof(i->layouts)) == 0 &&
	       memcmp(c->extents, i->extents, sizeof(i->extents)) == 0;
}

/* What a cache says that is READY, whoever asks; and what its records say that is held. */
static void view_take(struct kvpool_cache *cache, struct view *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t b = 1; b < RECORDS; b++) {
		const struct kvpool_record *r = &cache->records[b];
		uint32_t key;
		int chain;

		if (r->state == KVPOOL_BLOCK_FREE)
			continue;
		memcpy(&chain, r->key, sizeof(chain));
		memcpy(&key, r->key + 16, sizeof(key));
		if (r->state == KVPOOL_BLOCK_READY && r->layout == layout && chain < CHAINS &&
		    key < KEYS)
			out->ready[chain][key] = true;
		if (r->state != KVPOOL_BLOCK_READY || cache->blocks[b].leases > 0)
			out->held[r->segment % 4 * 4 + (r->offset >> 4) % 4][r->offset / 4 % 4] =
				true;
	}
}

/* Frames of an adopted cache that no new block may get. */
static bool taken(struct kvpool_cache *cache, uint32_t extent, uint32_t kilobyte)
{
	for (uint32_t b = 1; b < RECORDS; b++) {
		const struct kvpool_record *r = &cache->records[b];

		if (r->state != KVPOOL_BLOCK_FREE &&
		    r->segment % 4 * 4 + (r->offset >> 4) % 4 == extent &&
		    r->offset / 4 % 4 == kilobyte)
			return true;
	}
	return false;
}

static struct kvpool_cache *adopt(void *memory, void *notes, const struct image *image,
				  bool goes_on)
{
	const uint32_t client = CLIENT;
	struct kvpool_cache_range ranges[4];
	struct kvpool_cache_left left = {.ranges = ranges, .clients = &client, .others = !goes_on};
	struct kvpool_cache_config config = fx.config;
	struct kvpool_cache_adopted found;
	const struct kvpool_cache_calls none = {0};
	struct kvpool_notes to = {0};
	struct kvpool_catalog c;
	struct kvpool_cache *cache;
	uint32_t n = 0;

	config.notes = notes;
	kvpool_notes_place(&to, notes, KVPOOL_DOMAIN_LEASES_MAX);
	memcpy(to.header, fx.notes, sizeof(*to.header));
	*to.control = image->notes_control;
	memcpy(to.notes, image->notes, sizeof(image->notes));
	ck_assert_int_eq(kvpool_catalog_plan(&fx.config, &c), 0);
	kvpool_catalog_place(&c, memory);
	memcpy(c.header, fx.catalog, sizeof(*c.header));
	*c.control = image->control;
	memcpy(c.records, image->records, sizeof(image->records));
	memcpy(c.layouts, image->layouts, sizeof(image->layouts));
	for (uint64_t bytes = 8 * FX_EXTENT; bytes > 0; n++) {
		ranges[n] = (struct kvpool_cache_range){1 + n, 0, KVPOOL_MIN(bytes, FX_SEGMENT)};
		bytes -= ranges[n].bytes;
	}
	left.n_ranges = n;
	left.n_clients = goes_on;
	ck_assert_int_eq(kvpool_cache_adopt(&config, memory, &none, &left, &found, &cache), 0);
	ck_assert(!found.all_leases || goes_on);
	return cache;
}

static void check(struct kvpool_cache *cache)
{
	char text[200] = "";

	ck_assert_msg(kvpool_cache_check(cache, text, sizeof(text)) == 0, "%s", text);
}

/* The client never heard of anything: it has nothing, once it has said so. */
static void claim_nothing(struct kvpool_cache *cache)
{
	struct kvpool_holder *holder = kvpool_cache_holder_find(cache, CLIENT);

	ck_assert_ptr_nonnull(holder);
	kvpool_cache_claims_end(cache, holder);
	ck_assert(!kvpool_cache_holder_has_past(holder));
	ck_assert(!kvpool_cache_holder_holds(holder));
	check(cache);
}

static void *copy_of(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* One death: the image is adopted and held against what was before and what is after. */
static void look(const struct image *image, const struct view *before, const struct view *after,
		 bool goes_on)
{
	void *memory = copy_of(fx.catalog_bytes), *notes = copy_of(kvpool_cache_notes_bytes());
	struct kvpool_cache *cache = adopt(memory, notes, image, goes_on);
	struct view is;

	check(cache);
	view_take(cache, &is);
	for (int c = 0; c < CHAINS; c++) {
		for (uint32_t k = 0; k < KEYS; k++) {
			bool was = before->ready[c][k], will = after->ready[c][k];

			ck_assert_msg(!(was && will) || is.ready[c][k],
				      "key %u of chain %d is lost", k, c);
			ck_assert_msg(was || will || !is.ready[c][k],
				      "key %u of chain %d comes from nowhere", k, c);
		}
	}
	(void)kvpool_cache_flush(cache);
	for (uint32_t x = 0; x < 16; x++) {
		for (uint32_t k = 0; k < 4; k++)
			ck_assert_msg(!before->held[x][k] || !after->held[x][k] ||
					      taken(cache, x, k),
				      "frame %u of extent %u is free, and in use", k, x);
	}
	if (goes_on)
		claim_nothing(cache);
	kvpool_cache_abandon(cache);
	munmap(memory, fx.catalog_bytes);
	munmap(notes, kvpool_cache_notes_bytes());
}

/* Every image of a change, in the order in which they were. */
struct images {
	struct image *list; /* owned */
	uint32_t n, room;
};

static void images_add(struct images *images)
{
	if (images->n == images->room) {
		images->room = images->room ? 2 * images->room : 64;
		images->list = reallocarray(images->list, images->room, sizeof(*images->list));
		ck_assert_ptr_nonnull(images->list);
	}
	image_take(fx.cache, &images->list[images->n++]);
}

/* The child makes the change and reports what is READY and held afterwards. */
static void child_run(void (*change)(void), struct view *after)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(SKIPPED);
	(void)raise(SIGSTOP);
	change();
	(void)raise(SIGSTOP);
	view_take(fx.cache, after);
	_exit(0);
}

/* Steps the child through the change. Returns its exit status. */
static int step_through(pid_t child, struct images *images)
{
	int stops = 0, status;

	for (;;) {
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		if (!WIFSTOPPED(status))
			return WEXITSTATUS(status);
		if (WSTOPSIG(status) == SIGSTOP)
			stops++;
		if (!image_same(fx.cache, &images->list[images->n - 1]))
			images_add(images);
		ck_assert_int_eq(
			ptrace(stops < 2 ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL), 0);
	}
}

/* All deaths in one change that starts from the cache as it is. At least `least` images. */
static void die_everywhere(void (*change)(void), uint32_t least)
{
	struct view before, *after = mmap(NULL, sizeof(*after), PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct images images = {0};
	pid_t child;
	int status;

	ck_assert_ptr_ne(after, MAP_FAILED);
	view_take(fx.cache, &before);
	images_add(&images);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		child_run(change, after);
	status = step_through(child, &images);
	if (status == SKIPPED)
		exit(SKIPPED);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_gt(images.n, least);
	for (uint32_t i = 0; i < images.n; i++) {
		look(&images.list[i], &before, after, false);
		look(&images.list[i], &before, after, true);
	}
	free(images.list);
	munmap(after, sizeof(*after));
}

/*
 * Chains 1 and 2 are READY, of 1 a part is leased; chain 3 is being written; chain 4 is READY in
 * another layout with larger frames. Six extents of four frames.
 */
static void setup(void)
{
	fx_default();
	fx_open(EXTENTS);
	layout = fx_plain(0, 1, FRAME);
	other = fx_plain(0, 2, 2 * FRAME);
	fx_store(0, (struct fx_range){layout, 0, 1, 0, 6});
	fx_store(0, (struct fx_range){layout, 0, 2, 0, 4});
	fx_reserve(0, (struct fx_range){layout, 0, 3, 0, 2}, writing);
	fx_store(0, (struct fx_range){other, 0, 4, 0, 2});
	lease = fx_match(0, layout, 1, 3, 0, 0)->result.lease;
	kvpool_cache_settle(fx.cache);
}

static void reserve(void)
{
	struct kvpool_wire_block fresh[2];

	fx_reserve(0, (struct fx_range){layout, 0, 5, 0, 2}, fresh);
}

static void reserve_all(void)
{
	struct kvpool_wire_block fresh[20];

	fx_reserve(0, (struct fx_range){layout, 0, 5, 0, 20}, fresh);
}

static void reserve_other_size(void)
{
	struct kvpool_wire_block fresh[8];

	fx_reserve(0, (struct fx_range){other, 0, 6, 0, 8}, fresh);
}

static void commit(void)
{
	fx_commit(0, UINT32_MAX, writing, 2);
}

static void abort_(void)
{
	fx_abort(0, writing, 2);
}

static void match(void)
{
	fx_match(0, layout, 2, 4, 0, 0);
	kvpool_cache_settle(fx.cache);
}

static void release(void)
{
	fx_release(0, lease, 0);
}

static void release_part(void)
{
	fx_release(0, lease, 1);
}

static void adopt_with(void)
{
	(void)fx_restart_with(1);
}

static void forget(void)
{
	fx_forget(0, (struct fx_range){layout, 0, 1, 1, 1});
}

static void flush(void)
{
	(void)kvpool_cache_flush(fx.cache);
}

static void client_dies(void)
{
	kvpool_cache_holder_quarantine(fx.cache, fx_holder(0));
}

static void client_is_gone(void)
{
	fx_holder_gone(0);
}

static void new_layout(void)
{
	(void)fx_plain(0, 3, 4 * FRAME);
}

static void segment_comes(void)
{
	(void)kvpool_cache_memory_add(fx.cache, 2, 2 * FX_EXTENT, 2 * FX_EXTENT);
}

static void segment_goes(void)
{
	(void)kvpool_cache_release(fx.cache, fx_holder(0), lease, 0);
	fx_abort(0, writing, 2);
	(void)kvpool_cache_memory_take(fx.cache, 1);
}

static void adopt_(void)
{
	(void)fx_restart();
}

static const struct {
	const char *name;
	void (*change)(void);
	uint32_t least; /* images, for the test to be one */
} changes[] = {
	{"reserve", reserve, 4},
	{"reserve_all", reserve_all, 30},
	{"reserve_other_size", reserve_other_size, 10},
	{"commit", commit, 4},
	{"abort", abort_, 4},
	{"match", match, 4},
	{"release", release, 1},
	{"release_part", release_part, 4},
	{"forget", forget, 4},
	{"flush", flush, 10},
	{"client_dies", client_dies, 4},
	{"client_is_gone", client_is_gone, 4},
	{"new_layout", new_layout, 2},
	{"segment_comes", segment_comes, 1},
	{"segment_goes", segment_goes, 10},
	{"adopt", adopt_, 4},
	{"adopt_with", adopt_with, 4},
};

START_TEST(should_be_sound_whenever_the_daemon_dies_in_a_change)
{
	die_everywhere(changes[_i].change, changes[_i].least);
}
END_TEST

/* One after the other on one CPU: to wake another one takes longer than an instruction's test. */
static void stay_here(void)
{
	cpu_set_t here;
	int cpu = sched_getcpu();

	if (cpu < 0)
		return;
	CPU_ZERO(&here);
	CPU_SET((size_t)cpu, &here);
	(void)sched_setaffinity(0, sizeof(here), &here);
}

int main(void)
{
	SRunner *runner;
	Suite *suite;
	TCase *tc;
	int failed;

	if (UNDER_SANITIZER) {
		printf("skipped: under a sanitizer one instruction is hundreds\n");
		return SKIPPED;
	}
	stay_here();
	suite = suite_create("cache_killed");
	tc = tcase_create("killed");
	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, should_be_sound_whenever_the_daemon_dies_in_a_change, 0,
			    (int)KVPOOL_ARRAY_SIZE(changes));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
