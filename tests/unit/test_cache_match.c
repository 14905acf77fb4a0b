/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MATCH in layouts of one FULL group: prefixes, skip, pending, bounds, keys that are no chain.
 *
 * Owned by the test's only thread.
 */
#include "shm/header.h"
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>
#include <string.h>

static uint16_t layout;

static void setup(void)
{
	fx_default();
	fx.config.bytes_max = 512 * FX_EXTENT;
	fx_open(256);
	layout = fx_plain(0, 1, 1024);
}

static struct fx_range range(int chain, uint32_t from, uint32_t n)
{
	return (struct fx_range){layout, 0, chain, from, n};
}

START_TEST(should_miss_what_nobody_stored)
{
	const struct fx_match *m = fx_match(0, layout, 1, 5, 0, 0);

	ck_assert_int_eq(m->status, 0);
	ck_assert_uint_eq(m->result.blocks, 0);
	ck_assert_uint_eq(m->result.reported, 0);
	ck_assert_uint_eq(m->result.lease, 0);
	ck_assert_uint_eq(m->ranges[0].count, 0);
}
END_TEST

/* Around the sizes of the batches in which keys are looked up. */
START_TEST(should_find_prefixes_of_every_length)
{
	const uint32_t lengths[] = {1, 2, 15, 16, 17, 80, 255, 256, 257, 271, 272, 273, 528, 600};
	uint32_t stored = 0;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(lengths); i++) {
		fx_store(0, range(1, stored, lengths[i] - stored));
		stored = lengths[i];
		ck_assert_uint_eq(fx_hit(0, layout, 1, stored + 7), stored);
		ck_assert_uint_eq(fx_hit(0, layout, 1, stored), stored);
		ck_assert_uint_eq(fx_hit(0, layout, 1, 1), 1);
	}
}
END_TEST

START_TEST(should_report_where_each_block_was_stored)
{
	struct kvpool_wire_block stored[40];
	const struct fx_match *m;

	ck_assert_uint_eq(fx_reserve(0, range(1, 0, 40), stored).granted, 40);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, stored, 40), 40);
	m = fx_match(0, layout, 1, 40, 0, 0);
	ck_assert_uint_eq(m->result.reported, 40);
	ck_assert_uint_eq(m->ranges[0].first, 0);
	ck_assert_uint_eq(m->ranges[0].count, 40);
	ck_assert_mem_eq(m->blocks, stored, sizeof(stored));
	ck_assert_mem_eq(&m->result.first, stored, sizeof(stored[0]));
	m = fx_match(0, layout, 1, 1, 0, 0);
	ck_assert_mem_eq(&m->result.first, stored, sizeof(stored[0]));
	ck_assert_mem_eq(m->blocks, stored, sizeof(stored[0]));
}
END_TEST

START_TEST(should_check_what_the_client_has_without_reporting_it)
{
	struct kvpool_wire_block stored[20];
	const struct fx_match *m;

	fx_reserve(0, range(1, 0, 20), stored);
	fx_commit(0, UINT32_MAX, stored, 20);
	m = fx_match(0, layout, 1, 30, 12, 0);
	ck_assert_uint_eq(m->result.blocks, 20);
	ck_assert_uint_eq(m->result.reported, 8);
	ck_assert_uint_eq(m->ranges[0].first, 12);
	ck_assert_mem_eq(m->blocks, stored + 12, 8 * sizeof(stored[0]));
	m = fx_match(0, layout, 1, 30, 20, 0);
	ck_assert_uint_eq(m->result.blocks, 20);
	ck_assert_uint_eq(m->result.reported, 0);
	ck_assert_uint_eq(m->result.lease, 0);
	m = fx_match(0, layout, 1, 30, 25, 0);
	ck_assert_uint_eq(m->result.blocks, 20);
	m = fx_match(0, layout, 1, 1, 1, 0);
	ck_assert_uint_eq(m->result.blocks, 1);
	ck_assert_uint_eq(m->result.reported, 0);
	m = fx_match(0, layout, 2, 1, 1, 0);
	ck_assert_uint_eq(m->result.blocks, 0);
}
END_TEST

START_TEST(should_not_find_what_is_still_being_written)
{
	struct kvpool_wire_block blocks[6];

	fx_store(0, range(1, 0, 4));
	fx_reserve(0, range(1, 4, 6), blocks);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 10), 4);
	/* A child may be READY before its parent, and is of no use until then. */
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks + 1, 5), 5);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 10), 4);
	ck_assert_uint_eq(fx_commit(0, UINT32_MAX, blocks, 1), 1);
	ck_assert_uint_eq(fx_hit(0, layout, 1, 10), 10);
}
END_TEST

START_TEST(should_count_what_others_are_writing_after_the_hit)
{
	struct kvpool_wire_block blocks[40];

	fx_plain(1, 1, 1024);
	fx_store(0, range(1, 0, 4));
	ck_assert_uint_eq(fx_reserve(1, range(1, 4, 40), blocks).granted, 40);
	ck_assert_uint_eq(fx_match(0, layout, 1, 60, 0, KVPOOL_REQUEST_PENDING)->result.pending,
			  40);
	ck_assert_uint_eq(fx_match(0, layout, 1, 20, 0, KVPOOL_REQUEST_PENDING)->result.pending,
			  16);
	ck_assert_uint_eq(fx_match(0, layout, 1, 60, 0, 0)->result.pending, 0);
	ck_assert_uint_eq(fx_match(0, layout, 2, 1, 0, KVPOOL_REQUEST_PENDING)->result.pending, 0);
	fx_commit(1, UINT32_MAX, blocks + 10, 1);
	ck_assert_uint_eq(fx_match(0, layout, 1, 60, 0, KVPOOL_REQUEST_PENDING)->result.pending,
			  40);
}
END_TEST

START_TEST(should_refuse_counts_out_of_their_bounds)
{
	struct kvpool_wire_block block = {7, 7, 7, 7};
	struct kvpool_wire_range ranges[1];
	struct kvpool_match_result result = {.blocks = 99};
	struct kvpool_match_args args = {.layout = layout,
					 .keys = fx_keys(1, 0, 4),
					 .ranges = ranges,
					 .blocks = &block,
					 .capacity = 1};
	const struct {
		uint32_t n, skip;
	} rows[] = {{0, 0}, {1, 2}, {KVPOOL_KEYS_MAX + 1, 0}, {UINT32_MAX, 0}, {4, UINT32_MAX}};

	fx_store(0, range(1, 0, 4));
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(rows); i++) {
		args.n = rows[i].n;
		args.skip = rows[i].skip;
		ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result),
				 KVPOOL_STATUS_INVALID);
	}
	ck_assert_uint_eq(result.blocks, 99);
}
END_TEST

START_TEST(should_lease_nothing_where_the_result_has_no_room)
{
	struct kvpool_wire_block blocks[3] = {{7, 7, 7, 7}, {7, 7, 7, 7}, {7, 7, 7, 7}};
	struct kvpool_wire_range ranges[1];
	struct kvpool_match_result result = {.blocks = 99};
	struct kvpool_match_args args = {
		.layout = layout, .n = 4, .ranges = ranges, .blocks = blocks, .capacity = 3};

	fx_store(0, range(1, 0, 4));
	args.keys = fx_keys(1, 0, 4);
	ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result),
			 KVPOOL_STATUS_INVALID);
	args.n = 1;
	args.capacity = 0;
	ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result),
			 KVPOOL_STATUS_INVALID);
	ck_assert_uint_eq(blocks[0].block, 7);
	ck_assert_uint_eq(result.blocks, 99);
	ck_assert_uint_eq(fx_usage().leases, 0);
	args.n = 4;
	args.skip = 1;
	args.capacity = 3;
	ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result), 0);
	ck_assert_uint_eq(result.reported, 3);
}
END_TEST

/* Each key was stored as a chain of its own, but they are asked for as one. */
START_TEST(should_hold_every_block_where_keys_are_no_chain)
{
	uint8_t keys[6 * KVPOOL_KEY_BYTES];
	struct kvpool_wire_block blocks[6];
	struct kvpool_wire_range ranges[1];
	struct kvpool_match_result result;
	struct kvpool_match_args args = {.layout = layout,
					 .n = 6,
					 .keys = keys,
					 .ranges = ranges,
					 .blocks = blocks,
					 .capacity = 6};

	for (int chain = 0; chain < 6; chain++) {
		fx_store(0, range(chain, 0, 1));
		memcpy(keys + (size_t)chain * KVPOOL_KEY_BYTES, fx_keys(chain, 0, 1),
		       KVPOOL_KEY_BYTES);
	}
	ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result), 0);
	ck_assert_uint_eq(result.blocks, 6);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 6);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 0);
	ck_assert_int_eq(fx_release(0, result.lease, 2), 0);
	ck_assert_uint_eq(fx_holder_usage(0).leased_blocks, 2);
	ck_assert_uint_eq(kvpool_cache_flush(fx.cache), 4);
}
END_TEST

START_TEST(should_end_at_the_first_hole_where_keys_are_no_chain)
{
	uint8_t keys[100 * KVPOOL_KEY_BYTES];
	struct kvpool_wire_block blocks[100];
	struct kvpool_wire_range ranges[1];
	struct kvpool_match_result result;
	struct kvpool_match_args args = {.layout = layout,
					 .n = 100,
					 .keys = keys,
					 .ranges = ranges,
					 .blocks = blocks,
					 .capacity = 100};

	for (int chain = 0; chain < 100; chain++) {
		if (chain != 70)
			fx_store(0, range(chain, 0, 1));
		memcpy(keys + (size_t)chain * KVPOOL_KEY_BYTES, fx_keys(chain, 0, 1),
		       KVPOOL_KEY_BYTES);
	}
	ck_assert_int_eq(kvpool_cache_match(fx.cache, fx_holder(0), &args, &result), 0);
	ck_assert_uint_eq(result.blocks, 70);
	ck_assert_uint_eq(result.reported, 70);
}
END_TEST

START_TEST(should_count_keys_and_tokens)
{
	struct kvpool_cache_usage u;

	fx_store(0, range(1, 0, 10));
	fx_match(0, layout, 1, 30, 0, 0);
	fx_match(0, layout, 1, 1, 0, 0);
	fx_match(0, layout, 2, 1, 0, 0);
	u = fx_usage();
	ck_assert_uint_eq(u.matches, 3);
	ck_assert_uint_eq(u.match_keys, 32);
	ck_assert_uint_eq(u.match_hit_keys, 11);
	ck_assert_uint_eq(u.match_tokens, 32 * 16);
	ck_assert_uint_eq(u.match_hit_tokens, 11 * 16);
	ck_assert_uint_eq(u.leases, 2);
}
END_TEST

START_TEST(should_write_a_header_that_describes_the_catalog)
{
	const struct kvpool_header *h = fx.catalog;

	ck_assert_mem_eq(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic));
	ck_assert_uint_eq(h->kind, KVPOOL_HEADER_CATALOG);
	ck_assert_uint_eq(h->epoch, 5);
	ck_assert_uint_eq(h->total_bytes, fx.catalog_bytes);
	ck_assert_uint_eq(h->state, KVPOOL_HEADER_READY);
	ck_assert_uint_eq(h->n_regions, 4);
	for (uint32_t i = 0; i < h->n_regions; i++) {
		ck_assert_uint_eq(h->regions[i].kind, KVPOOL_REGION_CONTROL + i);
		ck_assert_uint_eq(h->regions[i].bytes % h->regions[i].stride, 0);
		ck_assert_uint_le(h->regions[i].offset + h->regions[i].bytes, h->total_bytes);
		if (i > 0)
			ck_assert_uint_ge(h->regions[i].offset,
					  h->regions[i - 1].offset + h->regions[i - 1].bytes);
	}
}
END_TEST

START_TEST(should_refuse_configurations_out_of_their_bounds)
{
	struct kvpool_cache_config config = fx.config;

	config.extent_bytes = 3000;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
	config = fx.config;
	config.extent_bytes = 128;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
	config = fx.config;
	config.segment_bytes = FX_EXTENT / 2;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
	config = fx.config;
	config.segment_bytes = KVPOOL_SEGMENT_MAX * 2;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
	config = fx.config;
	config.bytes_max = FX_EXTENT - 1;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
	config = fx.config;
	config.blocks_max = UINT32_MAX;
	ck_assert_uint_eq(kvpool_cache_catalog_bytes(&config), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_match");
	TCase *tcase = tcase_create("cache_match");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_miss_what_nobody_stored);
	tcase_add_test(tcase, should_find_prefixes_of_every_length);
	tcase_add_test(tcase, should_report_where_each_block_was_stored);
	tcase_add_test(tcase, should_check_what_the_client_has_without_reporting_it);
	tcase_add_test(tcase, should_not_find_what_is_still_being_written);
	tcase_add_test(tcase, should_count_what_others_are_writing_after_the_hit);
	tcase_add_test(tcase, should_refuse_counts_out_of_their_bounds);
	tcase_add_test(tcase, should_lease_nothing_where_the_result_has_no_room);
	tcase_add_test(tcase, should_hold_every_block_where_keys_are_no_chain);
	tcase_add_test(tcase, should_end_at_the_first_hole_where_keys_are_no_chain);
	tcase_add_test(tcase, should_count_keys_and_tokens);
	tcase_add_test(tcase, should_write_a_header_that_describes_the_catalog);
	tcase_add_test(tcase, should_refuse_configurations_out_of_their_bounds);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
