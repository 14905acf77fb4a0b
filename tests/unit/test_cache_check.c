/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool_cache_check() itself: one thing made wrong inside the cache at a time must be found.
 *
 * Owned by the test's only thread.
 */
#include "src/cache_internal.h"
#include "tests/unit/cache_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME UINT64_C(1024)

static uint16_t layout;
static struct kvpool_wire_block reserved[2];

/* A chain of eight READY blocks, the first five leased, and two more that are being written. */
static void setup(void)
{
	fx_default();
	fx_open(8);
	layout = fx_plain(0, 1, FRAME);
	fx_store(0, (struct fx_range){layout, 0, 1, 0, 8});
	fx_match(0, layout, 1, 5, 0, 0);
	fx_reserve(0, (struct fx_range){layout, 0, 1, 8, 2}, reserved);
	fx_check();
}

/* The fault is found, and gone again when the bytes are as they were. */
static void must_find(const char *what, void *at, size_t bytes, uint64_t wrong)
{
	uint64_t right = 0;
	char text[200] = "";

	ck_assert_uint_le(bytes, sizeof(right));
	memcpy(&right, at, bytes);
	ck_assert_int_ne(memcmp(&right, &wrong, bytes), 0);
	memcpy(at, &wrong, bytes);
	ck_assert_msg(kvpool_cache_check(fx.cache, text, sizeof(text)) == -EUCLEAN, "%s: not found",
		      what);
	ck_assert_uint_gt(strlen(text), 0);
	memcpy(at, &right, bytes);
	fx_check();
}

#define MUST_FIND(field, wrong) must_find(#field, &(field), sizeof(field), (uint64_t)(wrong))

static struct kvpool_record *record(uint32_t block)
{
	return &fx.cache->records[block];
}

static struct kvpool_block *block_of(uint32_t block)
{
	return &fx.cache->blocks[block];
}

static struct kvpool_extent *extent_of(uint32_t block)
{
	struct kvpool_extents *e = &fx.cache->extents;

	return &e->table[kvpool_extents_find(e, kvpool_block_place(record(block)))];
}

START_TEST(should_find_a_wrong_record)
{
	MUST_FIND(record(3)->state, KVPOOL_BLOCK_DEAD);
	MUST_FIND(record(3)->state, KVPOOL_BLOCK_RESERVED);
	MUST_FIND(record(3)->state, KVPOOL_BLOCK_STATES);
	MUST_FIND(record(3)->generation, 0);
	MUST_FIND(record(3)->key[5], record(3)->key[5] ^ 1);
	MUST_FIND(record(3)->layout, 0);
	MUST_FIND(record(3)->group, 1);
	MUST_FIND(record(3)->segment, 9);
	MUST_FIND(record(3)->offset, record(3)->offset + 4);
}
END_TEST

START_TEST(should_find_a_wrong_link_in_the_tree)
{
	MUST_FIND(record(3)->parent, 1);
	MUST_FIND(record(3)->parent, 0);
	MUST_FIND(record(3)->parent, 60);
	MUST_FIND(block_of(2)->first_child, 0);
	MUST_FIND(block_of(2)->first_child, 4);
	MUST_FIND(block_of(3)->next_sibling, 5);
	MUST_FIND(block_of(3)->prev_sibling, 5);
	MUST_FIND(fx.cache->layouts[layout].roots, 0);
	MUST_FIND(fx.cache->layouts[layout].roots, 2);
}
END_TEST

START_TEST(should_find_a_wrong_count_of_leases)
{
	struct kvpool_lease *lease = kvpool_lease_at(fx.cache, 1);
	struct kvpool_holder *holder = fx_holder(0);

	MUST_FIND(block_of(5)->leases, 2);
	MUST_FIND(block_of(4)->leases, 1);
	MUST_FIND(lease->one.block, 4);
	MUST_FIND(lease->one.block, 60);
	MUST_FIND(lease->bytes, 1);
	MUST_FIND(holder->leases, 2);
	MUST_FIND(holder->holds, 2);
	MUST_FIND(holder->first_lease, 0);
}
END_TEST

START_TEST(should_find_a_wrong_reservation)
{
	struct kvpool_holder *holder = fx_holder(0);

	MUST_FIND(block_of(9)->reservation, 0);
	MUST_FIND(block_of(9)->reservation, block_of(10)->reservation);
	MUST_FIND(kvpool_reservation_at(fx.cache, block_of(9)->reservation)->block, 3);
	MUST_FIND(holder->reserved, 1);
	MUST_FIND(holder->reserved_bytes, FRAME);
	MUST_FIND(holder->first_reservation, 0);
	MUST_FIND(record(9)->state, KVPOOL_BLOCK_QUARANTINED);
}
END_TEST

START_TEST(should_find_a_wrong_sum)
{
	for (int state = KVPOOL_BLOCK_RESERVED; state < KVPOOL_BLOCK_STATES; state++) {
		MUST_FIND(fx.cache->bytes[state], 77);
		MUST_FIND(fx.cache->count[state], 77);
	}
	MUST_FIND(fx.cache->extents.free_bytes, 77);
	MUST_FIND(fx.cache->extents.slack_bytes, 77);
	MUST_FIND(fx.cache->extents.n_extents, 7);
	MUST_FIND(fx.cache->block_slab.used, 9);
	MUST_FIND(fx.cache->layouts[layout].blocks, 9);
	MUST_FIND(fx.cache->layouts[layout].holders, 2);
	MUST_FIND(fx.cache->n_layouts, 2);
}
END_TEST

START_TEST(should_find_a_wrong_extent)
{
	struct kvpool_extent *full = extent_of(1);
	struct kvpool_extent *open = extent_of(10);

	ck_assert_uint_eq(full->state, KVPOOL_EXTENT_FULL);
	ck_assert_uint_eq(open->state, KVPOOL_EXTENT_OPEN);
	MUST_FIND(full->state, KVPOOL_EXTENT_OPEN);
	MUST_FIND(full->used, 3);
	MUST_FIND(full->slots[1], full->slots[2]);
	MUST_FIND(full->slots[1], 40);
	MUST_FIND(open->state, KVPOOL_EXTENT_FULL);
	MUST_FIND(open->used, 1);
	MUST_FIND(fx.cache->extents.classes[open->size_class].open, KVPOOL_EXTENT_NONE);
}
END_TEST

START_TEST(should_find_a_wrong_index)
{
	struct kvpool_index *index = &fx.cache->index;
	const struct kvpool_record *r = record(3);
	struct kvpool_bucket *home = &index->buckets[kvpool_index_bucket(
		index, kvpool_index_hash(index, r->key, r->layout, r->group))];

	MUST_FIND(home->tag[0], (uint8_t)(home->tag[0] ^ 3));
	MUST_FIND(home->tag[10], 4);
	MUST_FIND(home->id[0], 0);
	MUST_FIND(home->id[10], 3);
	MUST_FIND(index->n_items, 9);
	MUST_FIND(index->secret[0], 9);
}
END_TEST

START_TEST(should_find_an_evictable_block_that_is_in_no_order)
{
	fx_store(0, (struct fx_range){layout, 0, 2, 0, 1});
	ck_assert_uint_ne(block_of(11)->order_next, 0);
	MUST_FIND(block_of(11)->order_next, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_check");
	TCase *tcase = tcase_create("cache_check");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_find_a_wrong_record);
	tcase_add_test(tcase, should_find_a_wrong_link_in_the_tree);
	tcase_add_test(tcase, should_find_a_wrong_count_of_leases);
	tcase_add_test(tcase, should_find_a_wrong_reservation);
	tcase_add_test(tcase, should_find_a_wrong_sum);
	tcase_add_test(tcase, should_find_a_wrong_extent);
	tcase_add_test(tcase, should_find_a_wrong_index);
	tcase_add_test(tcase, should_find_an_evictable_block_that_is_in_no_order);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
