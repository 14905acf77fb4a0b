/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents alone: adding and removing segments, frames of several sizes, slack, draining.
 *
 * Owned by the test's only thread.
 */
#include "src/extents.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define EXTENT   UINT64_C(4096)
#define SEGMENT  UINT64_C(16384)
#define EXTENTS  32u
#define UNITS(x) ((uint32_t)((x) >> KVPOOL_UNIT_SHIFT))

static struct kvpool_catalog catalog;
static struct kvpool_extents extents;
static void *memory;

static void setup(void)
{
	const struct kvpool_cache_config config = {
		.bytes_max = EXTENTS * EXTENT, .extent_bytes = EXTENT, .segment_bytes = SEGMENT};

	ck_assert_int_eq(kvpool_catalog_plan(&config, &catalog), 0);
	memory = mmap(NULL, catalog.bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	kvpool_catalog_place(&catalog, memory);
	ck_assert_int_eq(kvpool_extents_init(&extents, &catalog, &config), 0);
}

static void teardown(void)
{
	kvpool_extents_fini(&extents);
	munmap(memory, catalog.bytes);
}

static uint16_t class_of(uint32_t frame_units)
{
	uint16_t c = 0;

	ck_assert_int_eq(kvpool_extents_class_get(&extents, frame_units, &c), 0);
	return c;
}

static struct kvpool_place take(uint16_t size_class, uint32_t block)
{
	struct kvpool_place place = {0};

	ck_assert_int_eq(kvpool_extents_take(&extents, size_class, block, &place), 0);
	return place;
}

static uint64_t total(void)
{
	return extents.n_extents * EXTENT;
}

START_TEST(should_refuse_memory_that_is_not_whole_extents_of_a_segment)
{
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, 0, 0), -EINVAL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, 1, EXTENT), -EINVAL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, 0, EXTENT + 1), -EINVAL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, SEGMENT, EXTENT), -EINVAL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, SEGMENT - EXTENT, 2 * EXTENT), -EINVAL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1, EXTENT, UINT64_MAX - EXTENT + 1), -EINVAL);
	ck_assert_uint_eq(extents.n_extents, 0);
	ck_assert_uint_eq(kvpool_extents_segment(&extents, 1), UINT32_MAX);
}
END_TEST

START_TEST(should_refuse_memory_that_is_there_already)
{
	ck_assert_int_eq(kvpool_extents_add(&extents, 8, EXTENT, EXTENT), 0);
	ck_assert_int_eq(kvpool_extents_add(&extents, 8, 0, 2 * EXTENT), -EINVAL);
	ck_assert_uint_eq(extents.n_extents, 1);
	ck_assert_int_eq(kvpool_extents_add(&extents, 8, 0, EXTENT), 0);
	ck_assert_uint_eq(extents.n_extents, 2);
}
END_TEST

START_TEST(should_refuse_more_memory_than_the_domain_may_have)
{
	for (uint32_t s = 0; s < EXTENTS / 4; s++)
		ck_assert_int_eq(kvpool_extents_add(&extents, s, 0, SEGMENT), 0);
	ck_assert_int_eq(kvpool_extents_add(&extents, 1000, 0, EXTENT), -ENOSPC);
	ck_assert_uint_eq(total(), EXTENTS * EXTENT);
}
END_TEST

START_TEST(should_fill_the_first_extent_of_a_segment_first)
{
	uint16_t c = class_of(UNITS(1024));

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, SEGMENT), 0);
	for (uint32_t i = 0; i < 16; i++) {
		struct kvpool_place place = take(c, i + 1);

		ck_assert_uint_eq(place.segment, 5);
		ck_assert_uint_eq(place.offset, i * UNITS(1024));
		ck_assert_uint_eq(kvpool_extents_find(&extents, place), i / 4);
		ck_assert_uint_eq(kvpool_extents_block(&extents, i / 4, i % 4), i + 1);
	}
	ck_assert_uint_eq(extents.free_bytes, 0);
}
END_TEST

START_TEST(should_say_when_neither_frame_nor_extent_is_free)
{
	uint16_t c = class_of(UNITS(EXTENT));
	struct kvpool_place place = {77, 77};

	ck_assert_int_eq(kvpool_extents_take(&extents, c, 1, &place), KVPOOL_EXTENTS_E_FULL);
	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, EXTENT), 0);
	take(c, 1);
	ck_assert_int_eq(kvpool_extents_take(&extents, c, 2, &place), KVPOOL_EXTENTS_E_FULL);
	ck_assert_uint_eq(place.segment, 77);
}
END_TEST

START_TEST(should_count_what_no_frame_fits_in_as_slack)
{
	uint16_t c = class_of(UNITS(1280)); /* 3 frames, 256 bytes over */
	struct kvpool_place place;

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, EXTENT), 0);
	place = take(c, 1);
	ck_assert_uint_eq(extents.slack_bytes, 256);
	ck_assert_uint_eq(extents.free_bytes, 2 * 1280);
	kvpool_extents_give(&extents, place);
	ck_assert_uint_eq(extents.slack_bytes, 0);
	ck_assert_uint_eq(extents.free_bytes, EXTENT);
}
END_TEST

START_TEST(should_give_an_empty_extent_to_another_size)
{
	uint16_t small = class_of(1), large = class_of(UNITS(EXTENT));
	struct kvpool_place places[16];

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, EXTENT), 0);
	for (uint32_t i = 0; i < 16; i++)
		places[i] = take(small, i + 1);
	for (uint32_t i = 0; i < 16; i++) {
		ck_assert_int_eq(
			kvpool_extents_take(&extents, large, 99, &(struct kvpool_place){0}),
			KVPOOL_EXTENTS_E_FULL);
		kvpool_extents_give(&extents, places[i]);
	}
	ck_assert_uint_eq(take(large, 99).offset, 0);
	ck_assert_uint_eq(extents.classes[small].extents, 0);
	ck_assert_uint_eq(catalog.extents[0].frame_units, UNITS(EXTENT));
}
END_TEST

START_TEST(should_reuse_the_frame_that_was_freed_last)
{
	uint16_t c = class_of(UNITS(1024));
	struct kvpool_place a, b;

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, EXTENT), 0);
	a = take(c, 1);
	b = take(c, 2);
	take(c, 3);
	kvpool_extents_give(&extents, a);
	kvpool_extents_give(&extents, b);
	ck_assert_uint_eq(take(c, 4).offset, b.offset);
	ck_assert_uint_eq(take(c, 5).offset, a.offset);
}
END_TEST

START_TEST(should_share_a_class_between_equal_sizes_and_end_it_with_the_last)
{
	uint16_t a = class_of(7), b = class_of(7), c = class_of(8);

	ck_assert_uint_eq(a, b);
	ck_assert_uint_ne(a, c);
	ck_assert(!kvpool_extents_class_put(&extents, a));
	ck_assert(kvpool_extents_class_put(&extents, b));
	ck_assert_uint_eq(extents.classes[a].frame_units, 0);
}
END_TEST

START_TEST(should_refuse_a_size_too_many)
{
	uint16_t c = 7;

	for (uint32_t units = 1; units <= KVPOOL_CLASSES_MAX; units++)
		class_of(units);
	ck_assert_int_eq(kvpool_extents_class_get(&extents, KVPOOL_CLASSES_MAX + 1, &c),
			 KVPOOL_EXTENTS_E_CLASS);
	ck_assert_uint_eq(c, 7);
	ck_assert_int_eq(kvpool_extents_class_get(&extents, 1, &c), 0);
}
END_TEST

START_TEST(should_put_nothing_new_in_an_extent_that_drains)
{
	uint16_t c = class_of(UNITS(1024));
	struct kvpool_place first;

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, 2 * EXTENT), 0);
	first = take(c, 1);
	kvpool_extents_drain(&extents, 0);
	ck_assert_uint_eq(kvpool_extents_find(&extents, take(c, 2)), 1);
	kvpool_extents_give(&extents, first);
	ck_assert_uint_eq(extents.table[0].state, KVPOOL_EXTENT_FREE);
	ck_assert_uint_eq(extents.n_free, 1);
}
END_TEST

START_TEST(should_take_new_blocks_again_when_draining_stops)
{
	uint16_t c = class_of(UNITS(1024));
	struct kvpool_place place = {0};

	ck_assert_int_eq(kvpool_extents_add(&extents, 5, 0, EXTENT), 0);
	for (uint32_t i = 1; i <= 4; i++)
		place = take(c, i);
	kvpool_extents_drain(&extents, 0);
	kvpool_extents_undrain(&extents, 0);
	ck_assert_uint_eq(extents.table[0].state, KVPOOL_EXTENT_FULL);
	kvpool_extents_drain(&extents, 0);
	kvpool_extents_give(&extents, place);
	kvpool_extents_undrain(&extents, 0);
	ck_assert_uint_eq(extents.table[0].state, KVPOOL_EXTENT_OPEN);
	ck_assert_uint_eq(take(c, 9).offset, place.offset);
}
END_TEST

/* Ids are never reused by the pool, so many come and go in one life. */
START_TEST(should_find_segments_by_id_while_they_come_and_go)
{
	for (uint32_t id = 1; id < 5000; id++) {
		uint32_t old =
			id < 4 ? UINT32_MAX : kvpool_extents_segment(&extents, id * 64 - 192);

		ck_assert_int_eq(kvpool_extents_add(&extents, id * 64, 0, EXTENT), 0);
		ck_assert_uint_ne(kvpool_extents_segment(&extents, id * 64), UINT32_MAX);
		if (id < 4)
			continue;
		ck_assert_uint_ne(old, UINT32_MAX);
		kvpool_extents_remove(&extents, old);
		ck_assert_uint_eq(kvpool_extents_segment(&extents, id * 64 - 192), UINT32_MAX);
		for (uint32_t k = 0; k < 3; k++)
			ck_assert_uint_ne(kvpool_extents_segment(&extents, (id - k) * 64),
					  UINT32_MAX);
	}
	ck_assert_uint_eq(extents.n_extents, 3);
	ck_assert_uint_eq(extents.free_bytes, 3 * EXTENT);
	ck_assert_uint_le(extents.segments_fresh, 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extents");
	TCase *tcase = tcase_create("extents");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_refuse_memory_that_is_not_whole_extents_of_a_segment);
	tcase_add_test(tcase, should_refuse_memory_that_is_there_already);
	tcase_add_test(tcase, should_refuse_more_memory_than_the_domain_may_have);
	tcase_add_test(tcase, should_fill_the_first_extent_of_a_segment_first);
	tcase_add_test(tcase, should_say_when_neither_frame_nor_extent_is_free);
	tcase_add_test(tcase, should_count_what_no_frame_fits_in_as_slack);
	tcase_add_test(tcase, should_give_an_empty_extent_to_another_size);
	tcase_add_test(tcase, should_reuse_the_frame_that_was_freed_last);
	tcase_add_test(tcase, should_share_a_class_between_equal_sizes_and_end_it_with_the_last);
	tcase_add_test(tcase, should_refuse_a_size_too_many);
	tcase_add_test(tcase, should_put_nothing_new_in_an_extent_that_drains);
	tcase_add_test(tcase, should_take_new_blocks_again_when_draining_stops);
	tcase_add_test(tcase, should_find_segments_by_id_while_they_come_and_go);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
