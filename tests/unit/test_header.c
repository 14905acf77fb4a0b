/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a channel, tampered with field by field and bit by bit: what a client must refuse
 * and what it must put up with from a newer daemon.
 *
 * One thread; the "shared" header is a local variable.
 */
#include "shm/channel.h"

#include <check.h>
#include <stdlib.h>

#define ENTRIES 64u
#define EPOCH   UINT64_C(0x1122334455667788)

#define FIELD(f) offsetof(struct kvpool_header, f), sizeof(((struct kvpool_header *)NULL)->f)
#define REGION(i, f)                                                                    \
	(offsetof(struct kvpool_header, regions) + (i) * sizeof(struct kvpool_region) + \
	 offsetof(struct kvpool_region, f)),                                            \
		sizeof(((struct kvpool_region *)NULL)->f)

/* Bytes whose value says nothing about this version: any of them may change. */
static const struct {
	size_t offset;
	size_t bytes;
} may_change[] = {
	{FIELD(format_minor)},
	{FIELD(may_features)},
	{FIELD(epoch)},
	{FIELD(created)},
	{FIELD(reserved)},
	{FIELD(padding)},
	{FIELD(reserved_tail)},
	{offsetof(struct kvpool_header, regions) +
		 KVPOOL_CHANNEL_REGIONS * sizeof(struct kvpool_region),
	 (KVPOOL_HEADER_REGIONS - KVPOOL_CHANNEL_REGIONS) * sizeof(struct kvpool_region)},
};

static struct kvpool_channel_geometry geometry;
static struct kvpool_header header;

static void setup(void)
{
	memset(&header, 0, sizeof(header));
	ck_assert_int_eq(kvpool_channel_geometry_make(ENTRIES, KVPOOL_ARENA_MIN, &geometry), 0);
	kvpool_channel_header_write(&header, &geometry, EPOCH, 1);
}

static int read_header(void)
{
	struct kvpool_channel_geometry g;

	return kvpool_channel_header_read(&header, geometry.total, &g);
}

static int may_change_at(size_t at)
{
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(may_change); i++)
		if (at >= may_change[i].offset && at - may_change[i].offset < may_change[i].bytes)
			return 1;
	return 0;
}

START_TEST(should_read_back_what_was_written)
{
	struct kvpool_channel_geometry g;

	for (uint32_t n = KVPOOL_RING_ENTRIES_MIN; n <= KVPOOL_RING_ENTRIES_MAX; n *= 2) {
		memset(&header, 0, sizeof(header));
		ck_assert_int_eq(kvpool_channel_geometry_make(n, KVPOOL_ARENA_MAX, &geometry), 0);
		kvpool_channel_header_write(&header, &geometry, EPOCH, 1);
		ck_assert_int_eq(kvpool_channel_header_read(&header, geometry.total, &g), 0);
		ck_assert_uint_eq(g.entries, n);
		ck_assert_uint_eq(g.arena_bytes, KVPOOL_ARENA_MAX);
		ck_assert_uint_eq(g.control, geometry.control);
		ck_assert_uint_eq(g.requests, geometry.requests);
		ck_assert_uint_eq(g.replies, geometry.replies);
		ck_assert_uint_eq(g.arena, geometry.arena);
		ck_assert_uint_eq(g.total, geometry.total);
	}
}
END_TEST

START_TEST(should_refuse_fresh_memory)
{
	memset(&header, 0, sizeof(header));
	ck_assert_int_eq(read_header(), KVPOOL_CHANNEL_E_HEADER);
}
END_TEST

START_TEST(should_refuse_a_header_that_is_not_marked_ready)
{
	static const uint32_t states[] = {KVPOOL_HEADER_EMPTY, 2, UINT32_MAX};

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(states); i++) {
		atomic_store(&header.state, states[i]);
		ck_assert_int_eq(read_header(), KVPOOL_CHANNEL_E_HEADER);
	}
}
END_TEST

START_TEST(should_refuse_a_mapping_of_another_size)
{
	struct kvpool_channel_geometry g;
	static const int64_t off_by[] = {-4096, -1, 1, 4096};

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(off_by); i++)
		ck_assert_int_eq(
			kvpool_channel_header_read(
				&header, (uint64_t)((int64_t)geometry.total + off_by[i]), &g),
			KVPOOL_CHANNEL_E_HEADER);
}
END_TEST

START_TEST(should_leave_the_result_untouched_when_it_refuses)
{
	struct kvpool_channel_geometry g, before;

	memset(&g, 0x5a, sizeof(g));
	before = g;
	header.must_features = 1;
	ck_assert_int_eq(kvpool_channel_header_read(&header, geometry.total, &g),
			 KVPOOL_CHANNEL_E_HEADER);
	ck_assert_mem_eq(&g, &before, sizeof(g));
}
END_TEST

/* Values that a single flipped bit does not reach. */
static const struct {
	size_t offset;
	size_t bytes;
	uint64_t value;
} lies[] = {
	{FIELD(magic), 0},
	{FIELD(format_major), 0},
	{FIELD(format_major), KVPOOL_FORMAT_MAJOR + 1},
	{FIELD(header_bytes), 0},
	{FIELD(header_bytes), 8192},
	{FIELD(total_bytes), 0},
	{FIELD(total_bytes), UINT64_MAX},
	{FIELD(must_features), UINT32_MAX},
	{FIELD(kind), KVPOOL_HEADER_CATALOG},
	{FIELD(n_regions), 0},
	{FIELD(n_regions), KVPOOL_CHANNEL_REGIONS - 1},
	{FIELD(n_regions), KVPOOL_HEADER_REGIONS + 1},
	{FIELD(n_regions), UINT32_MAX},
	{REGION(0, offset), 0},
	{REGION(0, bytes), UINT64_MAX},
	{REGION(1, offset), KVPOOL_HEADER_BYTES},
	{REGION(1, bytes), 0},
	{REGION(1, bytes), ENTRIES * 64 + 1},
	{REGION(1, bytes), ENTRIES * 64 * 2},
	{REGION(1, bytes), UINT64_MAX},
	{REGION(1, bytes), UINT64_C(64) << 32}, /* as many entries as 32 bits can't count */
	{REGION(1, bytes), (UINT64_C(64) << 32) + ENTRIES * 64},
	{REGION(1, stride), 0},
	{REGION(1, kind), KVPOOL_REGION_REPLIES},
	{REGION(2, offset), UINT64_MAX},
	{REGION(2, bytes), 0},
	{REGION(2, kind), KVPOOL_REGION_REQUESTS},
	{REGION(3, offset), 0},
	{REGION(3, bytes), 0},
	{REGION(3, bytes), KVPOOL_ARENA_MIN + 4096},
	{REGION(3, bytes), KVPOOL_ARENA_MAX + 4096},
	{REGION(3, bytes), UINT64_MAX},
	{REGION(3, kind), KVPOOL_REGION_NONE},
};

START_TEST(should_refuse_a_lie_in_any_field)
{
	memcpy((uint8_t *)&header + lies[_i].offset, &lies[_i].value, lies[_i].bytes);
	ck_assert_int_eq(read_header(), KVPOOL_CHANNEL_E_HEADER);
}
END_TEST

START_TEST(should_refuse_a_flipped_bit_wherever_it_says_something)
{
	size_t n_regions = offsetof(struct kvpool_header, n_regions);
	uint8_t *bytes = (uint8_t *)&header;

	for (size_t at = 0; at < sizeof(header); at++) {
		/* More regions than this version knows are no lie: tested below. */
		if (at >= n_regions && at < n_regions + sizeof(header.n_regions))
			continue;
		for (uint32_t bit = 0; bit < 8; bit++) {
			bytes[at] = (uint8_t)(bytes[at] ^ (1u << bit));
			ck_assert_msg(read_header() ==
					      (may_change_at(at) ? 0 : KVPOOL_CHANNEL_E_HEADER),
				      "byte %zu, bit %u", at, bit);
			bytes[at] = (uint8_t)(bytes[at] ^ (1u << bit));
		}
	}
	ck_assert_int_eq(read_header(), 0);
}
END_TEST

START_TEST(should_read_a_header_with_more_regions_from_a_newer_minor)
{
	header.format_minor = KVPOOL_FORMAT_MINOR + 1;
	for (uint32_t n = KVPOOL_CHANNEL_REGIONS; n <= KVPOOL_HEADER_REGIONS; n++) {
		header.n_regions = n;
		ck_assert_int_eq(read_header(), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("header");
	TCase *tcase = tcase_create("channel");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, should_read_back_what_was_written);
	tcase_add_test(tcase, should_refuse_fresh_memory);
	tcase_add_test(tcase, should_refuse_a_header_that_is_not_marked_ready);
	tcase_add_test(tcase, should_refuse_a_mapping_of_another_size);
	tcase_add_test(tcase, should_leave_the_result_untouched_when_it_refuses);
	tcase_add_loop_test(tcase, should_refuse_a_lie_in_any_field, 0,
			    (int)KVPOOL_ARRAY_SIZE(lies));
	tcase_add_test(tcase, should_refuse_a_flipped_bit_wherever_it_says_something);
	tcase_add_test(tcase, should_read_a_header_with_more_regions_from_a_newer_minor);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
