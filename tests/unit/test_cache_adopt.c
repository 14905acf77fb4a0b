/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next life of a cache: what it keeps of the catalog, what it drops, what it holds back.
 *
 * Owned by the test's only thread.
 */
#include "src/cache_internal.h"
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>
#include <string.h>

#define FRAME   UINT64_C(1024)
#define EXTENTS 8u
#define FRAMES  (EXTENTS * (uint32_t)(FX_EXTENT / FRAME))

static uint16_t layout;

static void setup(void)
{
	fx_default();
	fx_open(EXTENTS);
	layout = fx_plain(0, 1, FRAME);
}

static void store(int chain, uint32_t from, uint32_t n)
{
	fx_store(0, (struct fx_range){layout, 0, chain, from, n});
}

/* The layout again, as a client of the new life registers it. */
static void come_back(void)
{
	ck_assert_uint_eq(fx_plain(0, 1, FRAME), layout);
}

static struct kvpool_record *record(uint32_t block)
{
	return &fx.cache->records[block];
}

/* The block of a key of chain 1. */
static uint32_t block_of(uint32_t key)
{
	const struct fx_match *match = fx_match(0, layout, 1, key + 1, 0, KVPOOL_REQUEST_NO_LEASE);

	ck_assert_uint_eq(match->result.blocks, key + 1);
	return match->blocks[key].block;
}

START_TEST(should_keep_blocks_and_layouts_under_their_numbers)
{
	struct kvpool_wire_block before[6];
	struct kvpool_cache_adopted found;

	store(1, 0, 6);
	store(2, 0, 3);
	memcpy(before, fx_match(0, layout, 1, 6, 0, KVPOOL_REQUEST_NO_LEASE)->blocks,
	       sizeof(before));
	found = fx_restart();
	ck_assert_uint_eq(found.blocks, 9);
	ck_assert_uint_eq(found.layouts, 1);
	ck_assert_uint_eq(found.torn + found.misplaced + found.orphaned + found.unfinished, 0);
	fx_check();
	come_back();
	ck_assert_uint_eq(fx_hit(0, layout, 1, 6), 6);
	ck_assert_uint_eq(fx_hit(0, layout, 2, 3), 3);
	ck_assert_mem_eq(fx_match(0, layout, 1, 6, 0, KVPOOL_REQUEST_NO_LEASE)->blocks, before,
			 sizeof(before));
	kvpool_cache_end_past(fx.cache);
	store(1, 6, 2);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 8), 8);
	fx_close();
}
END_TEST

START_TEST(should_keep_an_empty_catalog)
{
	struct kvpool_cache_adopted found = fx_restart();

	ck_assert_uint_eq(found.blocks, 0);
	come_back();
	store(1, 0, 4);
	fx_close();
}
END_TEST

START_TEST(should_keep_windows_states_and_shards)
{
	const struct kvpool_wire_group groups[] = {
		{KVPOOL_GROUP_FULL, 0, 256},
		{KVPOOL_GROUP_WINDOW, 32, 512},
		{KVPOOL_GROUP_STATE, 0, 768},
	};
	struct kvpool_wire_layout wire = fx_wire(7, 2, 3, groups);
	uint16_t three = fx_register(0, &wire);

	for (uint32_t g = 0; g < 3; g++)
		fx_store(0, (struct fx_range){three, g, 5, 0, 3});
	ck_assert_uint_eq(fx_hit(0, three, 5, 3), 3);
	ck_assert_uint_eq(fx_restart().blocks, 9);
	fx_check();
	ck_assert_uint_eq(fx_register(0, &wire), three);
	ck_assert_uint_eq(fx_hit(0, three, 5, 3), 3);
	fx_close();
}
END_TEST

START_TEST(should_not_find_what_was_being_written_nor_reuse_it_before_the_past_ends)
{
	struct kvpool_wire_block writing[2], fresh[FRAMES];
	struct kvpool_cache_adopted found;

	store(1, 0, 2);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 2, 2}, writing);
	found = fx_restart();
	ck_assert_uint_eq(found.blocks, 2);
	ck_assert_uint_eq(found.unfinished, 2);
	ck_assert_uint_eq(found.quarantined, 2);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 2);
	fx_check();
	come_back();
	ck_assert_uint_eq(fx_hit(0, layout, 1, 4), 2);
	ck_assert_uint_eq(fx_commit(0, 0, writing, 2), 0);
	/* All that is left is given out, and these two are not among it. */
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){layout, 0, 3, 0, FRAMES}, fresh).granted,
			  FRAMES - 4);
	for (uint32_t i = 0; i < FRAMES - 4; i++)
		ck_assert(fresh[i].segment != writing[0].segment ||
			  (fresh[i].offset != writing[0].offset &&
			   fresh[i].offset != writing[1].offset));
	kvpool_cache_end_past(fx.cache);
	ck_assert_uint_eq(fx_usage().quarantined_blocks, 0);
	fx_close();
}
END_TEST

START_TEST(should_not_evict_what_may_be_read_before_the_past_ends)
{
	struct kvpool_wire_block fresh[2];

	store(1, 0, FRAMES);
	ck_assert_uint_eq(fx_restart().blocks, FRAMES);
	come_back();
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){layout, 0, 2, 0, 1}, fresh).granted, 0);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 0);
	ck_assert_uint_eq(fx_hit(0, layout, 1, FRAMES), FRAMES);
	fx_check();
	kvpool_cache_end_past(fx.cache);
	ck_assert(!kvpool_cache_has_past(fx.cache));
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){layout, 0, 2, 0, 1}, fresh).granted, 1);
	kvpool_cache_end_past(fx.cache);
	fx_close();
}
END_TEST

START_TEST(should_not_reuse_what_is_forgotten_before_the_past_ends)
{
	struct kvpool_wire_block fresh[FRAMES];

	store(1, 0, 4);
	fx_restart();
	come_back();
	ck_assert_uint_eq(fx_forget(0, (struct fx_range){layout, 0, 1, 1, 1}), 3);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 4), 1);
	fx_check();
	ck_assert_uint_eq(fx_reserve(0, (struct fx_range){layout, 0, 3, 0, FRAMES}, fresh).granted,
			  FRAMES - 4);
	kvpool_cache_end_past(fx.cache);
	fx_check();
	fx_close();
}
END_TEST

START_TEST(should_never_serve_a_record_with_one_flipped_bit)
{
	store(1, 0, 3);
	for (uint32_t bit = 0; bit < 8 * offsetof(struct kvpool_record, clock); bit++) {
		struct kvpool_cache_adopted found;
		struct kvpool_record *r = record(block_of(1));
		struct kvpool_record saved[3];
		uint32_t ids[3] = {block_of(0), block_of(1), block_of(2)};

		for (uint32_t i = 0; i < 3; i++)
			saved[i] = *record(ids[i]);
		((uint8_t *)r)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		found = fx_restart();
		fx_check();
		come_back();
		/* The one before it stays, the one that hangs on it goes. */
		ck_assert_msg(found.blocks == 1 && fx_hit(0, layout, 1, 3) == 1,
			      "bit %u: %lu blocks kept", bit, found.blocks);
		kvpool_cache_end_past(fx.cache);
		ck_assert_uint_eq(fx_usage().quarantined_blocks, 0);
		fx_crash();
		for (uint32_t i = 0; i < 3; i++)
			((struct kvpool_catalog_control *)((char *)fx.catalog +
							   KVPOOL_HEADER_BYTES))
				->blocks_fresh = 3;
		for (uint32_t i = 0; i < 3; i++)
			memcpy((char *)fx.catalog + 8192 + ids[i] * sizeof(saved[i]), &saved[i],
			       sizeof(saved[i]));
		ck_assert_int_eq(fx_adopt(&found), 0);
		ck_assert_uint_eq(found.blocks, 3);
		come_back();
		kvpool_cache_end_past(fx.cache);
	}
	fx_close();
}
END_TEST

/* One record made wrong, with a check that fits all the same. */
static struct kvpool_cache_adopted restart_with(uint32_t block, const struct kvpool_record *wrong)
{
	*record(block) = *wrong;
	kvpool_record_seal(record(block));
	return fx_restart();
}

START_TEST(should_drop_what_hangs_on_itself)
{
	struct kvpool_record r;
	struct kvpool_cache_adopted found;
	uint32_t last;

	store(1, 0, 4);
	store(2, 0, 2);
	r = *record(block_of(1));
	last = block_of(3);
	r.parent = last;
	found = restart_with(block_of(1), &r);
	ck_assert_uint_eq(found.orphaned, 3);
	ck_assert_uint_eq(found.blocks, 3);
	fx_check();
	come_back();
	ck_assert_uint_eq(fx_hit(0, layout, 1, 4), 1);
	ck_assert_uint_eq(fx_hit(0, layout, 2, 2), 2);
	fx_close();
}
END_TEST

START_TEST(should_drop_the_second_of_one_key_or_of_one_place)
{
	struct kvpool_cache_adopted found;
	struct kvpool_record r;
	uint32_t first, second;

	store(1, 0, 2);
	store(2, 0, 1);
	first = block_of(0);
	second = fx_match(0, layout, 2, 1, 0, KVPOOL_REQUEST_NO_LEASE)->blocks[0].block;
	r = *record(second);
	memcpy(r.key, record(first)->key, sizeof(r.key));
	found = restart_with(second, &r);
	ck_assert_uint_eq(found.orphaned, 1);
	ck_assert_uint_eq(found.blocks, 2);
	fx_check();
	kvpool_cache_end_past(fx.cache);
	come_back();
	store(2, 0, 1);
	second = fx_match(0, layout, 2, 1, 0, KVPOOL_REQUEST_NO_LEASE)->blocks[0].block;
	r = *record(second);
	r.offset = record(block_of(0))->offset;
	found = restart_with(second, &r);
	ck_assert_uint_eq(found.misplaced, 1);
	ck_assert_uint_eq(found.blocks, 2);
	fx_check();
	fx_close();
}
END_TEST

START_TEST(should_drop_what_lies_nowhere_or_belongs_to_no_layout)
{
	struct kvpool_record good, r;

	store(1, 0, 1);
	good = *record(block_of(0));
	for (int wrong = 0; wrong < 7; wrong++) {
		struct kvpool_cache_adopted found;
		uint32_t block = block_of(0);

		r = good;
		switch (wrong) {
		case 0:
			r.segment = 77;
			break;
		case 1:
			r.offset = UINT32_MAX;
			break;
		case 2:
			r.offset += 1;
			break;
		case 3:
			r.layout = 0;
			break;
		case 4:
			r.layout = 2;
			break;
		case 5:
			r.group = 1;
			break;
		default:
			r.segment = 0;
			break;
		}
		found = restart_with(block, &r);
		ck_assert_msg(found.misplaced == 1 && found.blocks == 0, "case %d", wrong);
		fx_check();
		kvpool_cache_end_past(fx.cache);
		come_back();
		store(1, 0, 1);
		good = *record(block_of(0));
	}
	fx_close();
}
END_TEST

START_TEST(should_drop_a_layout_that_was_not_finished_with_its_blocks)
{
	struct kvpool_cache_adopted found;

	store(1, 0, 3);
	fx.cache->catalog.layouts[layout].wire.block_tokens ^= 1;
	found = fx_restart();
	ck_assert_uint_eq(found.layouts_dropped, 1);
	ck_assert_uint_eq(found.blocks, 0);
	ck_assert_uint_eq(found.misplaced, 3);
	fx_check();
	come_back();
	fx_close();
}
END_TEST

START_TEST(should_refuse_memory_that_is_not_this_catalog)
{
	struct kvpool_header good;

	store(1, 0, 3);
	memcpy(&good, fx.catalog, sizeof(good));
	fx_crash();
	for (size_t at = 0; at < sizeof(good); at++) {
		struct kvpool_cache_adopted found = {.blocks = 99};
		uint8_t *byte = (uint8_t *)fx.catalog + at;
		bool matters = at < offsetof(struct kvpool_header, may_features) ||
			       (at >= offsetof(struct kvpool_header, kind) &&
				at < offsetof(struct kvpool_header, epoch)) ||
			       (at >= offsetof(struct kvpool_header, regions) &&
				at < offsetof(struct kvpool_header, regions) +
						4 * sizeof(struct kvpool_region)) ||
			       (at >= offsetof(struct kvpool_header, state) &&
				at < offsetof(struct kvpool_header, reserved_tail));
		int r;

		/* A newer minor version is read. */
		if (at / 2 == offsetof(struct kvpool_header, format_minor) / 2)
			matters = false;
		*byte ^= 0x40;
		r = fx_adopt(&found);
		ck_assert_msg(r == (matters ? KVPOOL_CACHE_E_FOREIGN : 0), "byte %zu: %d", at, r);
		if (r == 0) {
			ck_assert_uint_eq(found.blocks, 3);
			fx_crash();
		} else {
			ck_assert_ptr_nonnull(found.fault);
		}
		memcpy(fx.catalog, &good, sizeof(good));
	}
	ck_assert_int_eq(fx_adopt(&(struct kvpool_cache_adopted){0}), 0);
	fx_close();
}
END_TEST

/* Random bytes over everything that is believed to be a record. */
START_TEST(should_stand_garbage)
{
	srandom((unsigned int)_i);
	store(1, 0, 12);
	store(2, 0, 7);
	for (int n = 0; n < 1 + _i % 40; n++) {
		uint32_t block = 1 + (uint32_t)random() % 19;
		size_t at = (size_t)random() % sizeof(struct kvpool_record);

		((uint8_t *)record(block))[at] = (uint8_t)random();
		if (random() % 2)
			kvpool_record_seal(record(block));
	}
	if (_i % 3 == 0)
		fx.cache->catalog.control->blocks_fresh = (uint32_t)random();
	fx_restart();
	fx_check();
	fx_restart();
	fx_check();
	come_back();
	kvpool_cache_end_past(fx.cache);
	fx_check();
	store(9, 0, 5);
	fx_close();
}
END_TEST

START_TEST(should_adopt_what_was_adopted_many_times)
{
	for (uint32_t life = 0; life < 50; life++) {
		struct kvpool_wire_block writing[1];

		come_back();
		if (life % 12 > 0)
			ck_assert_uint_eq(fx_hit(0, layout, 1, life % 12), life % 12);
		if (life % 12 == 11)
			ck_assert_uint_gt(kvpool_cache_flush(fx.cache), 0);
		else
			store(1, life % 12, 1);
		if (life % 12 == 11)
			continue;
		fx_reserve(0, (struct fx_range){layout, 0, 8, 0, 1}, writing);
		fx_restart();
		fx_check();
		/* Every other life ends before the past of the one before it did. */
		if (life % 2 || life % 12 >= 9)
			kvpool_cache_end_past(fx.cache);
	}
	come_back();
	fx_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_adopt");
	TCase *tc = tcase_create("adopt");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, should_keep_blocks_and_layouts_under_their_numbers);
	tcase_add_test(tc, should_keep_an_empty_catalog);
	tcase_add_test(tc, should_keep_windows_states_and_shards);
	tcase_add_test(tc,
		       should_not_find_what_was_being_written_nor_reuse_it_before_the_past_ends);
	tcase_add_test(tc, should_not_evict_what_may_be_read_before_the_past_ends);
	tcase_add_test(tc, should_not_reuse_what_is_forgotten_before_the_past_ends);
	tcase_add_test(tc, should_never_serve_a_record_with_one_flipped_bit);
	tcase_add_test(tc, should_drop_what_hangs_on_itself);
	tcase_add_test(tc, should_drop_the_second_of_one_key_or_of_one_place);
	tcase_add_test(tc, should_drop_what_lies_nowhere_or_belongs_to_no_layout);
	tcase_add_test(tc, should_drop_a_layout_that_was_not_finished_with_its_blocks);
	tcase_add_test(tc, should_refuse_memory_that_is_not_this_catalog);
	tcase_add_loop_test(tc, should_stand_garbage, 0, 120);
	tcase_add_test(tc, should_adopt_what_was_adopted_many_times);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
