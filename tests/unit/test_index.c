/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index alone, over a catalog of its own: finding, growing, chains of buckets, removing.
 *
 * Owned by the test's only thread.
 */
#include "src/index.h"

#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BLOCKS 20000u

static const uint64_t secret[4] = {0x0123456789abcdef, 0xfedcba9876543210, 7, 0x5555aaaa5555aaaa};

static struct kvpool_catalog catalog;
static struct kvpool_index index_;
static void *memory;

static void setup(void)
{
	const struct kvpool_cache_config config = {.bytes_max = UINT64_C(1) << 30,
						   .extent_bytes = 1 << 20,
						   .segment_bytes = 1 << 20,
						   .blocks_max = BLOCKS};

	ck_assert_int_eq(kvpool_catalog_plan(&config, &catalog), 0);
	memory = mmap(NULL, catalog.bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	kvpool_catalog_place(&catalog, memory);
	ck_assert_int_eq(kvpool_index_init(&index_, &catalog, secret), 0);
}

static void teardown(void)
{
	ck_assert_ptr_eq(kvpool_index_check(&index_), NULL);
	kvpool_index_fini(&index_);
	munmap(memory, catalog.bytes);
}

static void record_fill(uint32_t block, uint16_t layout, uint8_t group)
{
	struct kvpool_record *r = &catalog.records[block];

	memset(r, 0, sizeof(*r));
	memcpy(r->key, &block, sizeof(block));
	r->layout = layout;
	r->group = group;
}

static void add(uint32_t block)
{
	record_fill(block, 1, 0);
	kvpool_index_insert(&index_, block);
}

static uint32_t find_as(const uint8_t *key, uint16_t layout, uint8_t group)
{
	return kvpool_index_find(&index_, kvpool_index_hash(&index_, key, layout, group), key,
				 layout, group);
}

static uint32_t find(uint32_t block)
{
	uint8_t key[KVPOOL_KEY_BYTES] = {0};

	memcpy(key, &block, sizeof(block));
	return find_as(key, 1, 0);
}

START_TEST(should_find_nothing_in_an_empty_index)
{
	ck_assert_uint_eq(find(1), 0);
	ck_assert_uint_eq(index_.n_items, 0);
}
END_TEST

START_TEST(should_find_every_block_while_it_grows)
{
	for (uint32_t b = 1; b <= BLOCKS; b++) {
		add(b);
		ck_assert_uint_eq(find(b), b);
		ck_assert_uint_eq(find(1 + b / 2), 1 + b / 2);
	}
	for (uint32_t b = 1; b <= BLOCKS; b++)
		ck_assert_uint_eq(find(b), b);
	ck_assert_uint_eq(find(BLOCKS + 1), 0);
	ck_assert_uint_gt(index_.n_buckets, BLOCKS / KVPOOL_BUCKET_SLOTS);
}
END_TEST

START_TEST(should_keep_few_blocks_out_of_their_first_bucket)
{
	uint32_t outside = 0;

	for (uint32_t b = 1; b <= BLOCKS; b++)
		add(b);
	for (uint32_t b = 1; b <= BLOCKS; b++) {
		uint64_t hash = kvpool_index_hash(&index_, catalog.records[b].key, 1, 0);
		const struct kvpool_bucket *bucket =
			&index_.buckets[kvpool_index_bucket(&index_, hash)];
		bool inside = false;

		for (uint32_t i = 0; i < KVPOOL_BUCKET_SLOTS; i++)
			inside |= bucket->id[i] == b;
		outside += !inside;
	}
	ck_assert_uint_lt(outside, BLOCKS / 20);
}
END_TEST

START_TEST(should_not_find_what_was_removed)
{
	for (uint32_t b = 1; b <= BLOCKS; b++)
		add(b);
	for (uint32_t b = 1; b <= BLOCKS; b += 2)
		kvpool_index_remove(&index_, b);
	for (uint32_t b = 1; b <= BLOCKS; b++)
		ck_assert_uint_eq(find(b), b % 2 ? 0 : b);
	ck_assert_ptr_eq(kvpool_index_check(&index_), NULL);
	for (uint32_t b = 2; b <= BLOCKS; b += 2)
		kvpool_index_remove(&index_, b);
	ck_assert_uint_eq(index_.n_items, 0);
}
END_TEST

START_TEST(should_tell_layouts_and_groups_apart)
{
	const uint8_t key[KVPOOL_KEY_BYTES] = {9};

	for (uint32_t b = 1; b <= 6; b++) {
		record_fill(b, (uint16_t)(1 + b % 3), (uint8_t)(b / 4));
		memcpy(catalog.records[b].key, key, sizeof(key));
		kvpool_index_insert(&index_, b);
	}
	for (uint32_t b = 1; b <= 6; b++)
		ck_assert_uint_eq(find_as(key, (uint16_t)(1 + b % 3), (uint8_t)(b / 4)), b);
	ck_assert_uint_eq(find_as(key, 4, 0), 0);
	ck_assert_uint_eq(find_as(key, 1, 2), 0);
}
END_TEST

START_TEST(should_compare_the_whole_key)
{
	for (int byte = 0; byte < (int)KVPOOL_KEY_BYTES; byte++) {
		uint8_t key[KVPOOL_KEY_BYTES];

		add(77);
		memcpy(key, catalog.records[77].key, sizeof(key));
		key[byte] ^= 0x80;
		/* With the right hash, so that only the comparison can refuse it. */
		ck_assert_uint_eq(
			kvpool_index_find(&index_,
					  kvpool_index_hash(&index_, catalog.records[77].key, 1, 0),
					  key, 1, 0),
			0);
		kvpool_index_remove(&index_, 77);
	}
}
END_TEST

/* Every block in one bucket: what a client that knew the secret could do. */
START_TEST(should_survive_a_chain_of_all_blocks)
{
	uint32_t n = 0, mine[300];
	uint64_t mask = 16 * 64 - 1;

	for (uint32_t b = 1; b <= BLOCKS && n < 18; b++) {
		record_fill(b, 1, 0);
		if ((kvpool_index_hash(&index_, catalog.records[b].key, 1, 0) & mask) == 3)
			mine[n++] = b;
	}
	ck_assert_uint_gt(n, KVPOOL_BUCKET_SLOTS);
	for (uint32_t i = 0; i < n; i++)
		kvpool_index_insert(&index_, mine[i]);
	ck_assert_uint_gt(index_.overflow_fresh, 0);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(find(mine[i]), mine[i]);
	/* The first slots first, so that later items have to move forward. */
	for (uint32_t i = 0; i < n; i++) {
		kvpool_index_remove(&index_, mine[i]);
		ck_assert_ptr_eq(kvpool_index_check(&index_), NULL);
		for (uint32_t k = i + 1; k < n; k++)
			ck_assert_uint_eq(find(mine[k]), mine[k]);
	}
}
END_TEST

START_TEST(should_depend_on_every_bit_of_key_and_secret)
{
	uint8_t key[KVPOOL_KEY_BYTES] = {1, 2, 3};
	uint64_t before = kvpool_index_hash(&index_, key, 1, 0);

	for (int bit = 0; bit < 256; bit++) {
		key[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_uint_ne(kvpool_index_hash(&index_, key, 1, 0), before);
		key[bit / 8] ^= (uint8_t)(1 << bit % 8);
		index_.secret[bit / 64] ^= UINT64_C(1) << bit % 64;
		ck_assert_uint_ne(kvpool_index_hash(&index_, key, 1, 0), before);
		index_.secret[bit / 64] ^= UINT64_C(1) << bit % 64;
	}
	ck_assert_uint_ne(kvpool_index_hash(&index_, key, 2, 0), before);
	ck_assert_uint_ne(kvpool_index_hash(&index_, key, 1, 1), before);
}
END_TEST

START_TEST(should_mark_exactly_the_bytes_that_equal_the_tag)
{
	for (uint32_t tag = 1; tag < 256; tag++) {
		for (uint32_t other = 0; other < 256; other++) {
			/* The byte before an equal one is where inexact tricks go wrong. */
			uint64_t tags = (uint64_t)tag << 8 | (uint64_t)other << 16 |
					(uint64_t)(tag ^ 1) << 24;
			uint64_t expected = UINT64_C(1) << 15;

			if (other == tag)
				expected |= UINT64_C(1) << 23;
			ck_assert_uint_eq(kvpool_index_equal(tags, (uint8_t)tag), expected);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("index");
	TCase *tcase = tcase_create("index");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_find_nothing_in_an_empty_index);
	tcase_add_test(tcase, should_find_every_block_while_it_grows);
	tcase_add_test(tcase, should_keep_few_blocks_out_of_their_first_bucket);
	tcase_add_test(tcase, should_not_find_what_was_removed);
	tcase_add_test(tcase, should_tell_layouts_and_groups_apart);
	tcase_add_test(tcase, should_compare_the_whole_key);
	tcase_add_test(tcase, should_survive_a_chain_of_all_blocks);
	tcase_add_test(tcase, should_depend_on_every_bit_of_key_and_secret);
	tcase_add_test(tcase, should_mark_exactly_the_bytes_that_equal_the_tag);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
