/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts: what is refused, joining, geometry, limits, entries that are taken again.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include <stdlib.h>
#include <string.h>

static const struct kvpool_wire_group full = {KVPOOL_GROUP_FULL, 0, 1000};

static void setup(void)
{
	fx_default();
	fx_open(4);
}

static int try(int holder, const struct kvpool_wire_layout *wire, uint16_t *layout)
{
	struct kvpool_wire_layout_result result;

	return kvpool_cache_layout(fx.cache, fx_holder(holder), wire, layout, &result);
}

static int try_group(uint32_t kind, uint32_t window, uint64_t slot_bytes)
{
	const struct kvpool_wire_group group = {kind, window, slot_bytes};
	struct kvpool_wire_layout wire = fx_wire(1, 1, 1, &group);
	uint16_t layout = 9;
	int r = try(0, &wire, &layout);

	if (r)
		ck_assert_uint_eq(layout, 9);
	return r;
}

START_TEST(should_round_strides_up_to_units)
{
	const struct kvpool_wire_group groups[3] = {{KVPOOL_GROUP_FULL, 0, 1},
						    {KVPOOL_GROUP_WINDOW, 64, 256},
						    {KVPOOL_GROUP_STATE, 0, 257}};
	struct kvpool_wire_layout wire = fx_wire(1, 2, 3, groups);
	struct kvpool_wire_layout_result result;
	uint16_t layout;

	ck_assert_int_eq(kvpool_cache_layout(fx.cache, fx_holder(0), &wire, &layout, &result), 0);
	ck_assert_uint_eq(result.shard_stride[0], 256);
	ck_assert_uint_eq(result.shard_stride[1], 256);
	ck_assert_uint_eq(result.shard_stride[2], 512);
	ck_assert_uint_eq(result.shard_stride[3], 0);
}
END_TEST

START_TEST(should_refuse_groups_out_of_their_bounds)
{
	ck_assert_int_eq(try_group(0, 0, 256), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(4, 0, 256), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_FULL, 1, 256), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_STATE, 1, 256), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_WINDOW, 0, 256), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_WINDOW, KVPOOL_WINDOW_MAX + 1, 256),
			 KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_FULL, 0, 0), KVPOOL_STATUS_INVALID);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_FULL, 0, FX_EXTENT + 1), KVPOOL_STATUS_TOO_LARGE);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_FULL, 0, UINT64_MAX), KVPOOL_STATUS_TOO_LARGE);
	ck_assert_int_eq(try_group(KVPOOL_GROUP_FULL, 0, FX_EXTENT), 0);
}
END_TEST

START_TEST(should_refuse_counts_out_of_their_bounds)
{
	const struct {
		uint32_t block_tokens;
		uint16_t n_groups, n_shards;
		int expected;
	} rows[] = {
		{0, 1, 1, KVPOOL_STATUS_INVALID},
		{KVPOOL_BLOCK_TOKENS_MAX + 1, 1, 1, KVPOOL_STATUS_INVALID},
		{16, 0, 1, KVPOOL_STATUS_INVALID},
		{16, KVPOOL_GROUPS_MAX + 1, 1, KVPOOL_STATUS_INVALID},
		{16, UINT16_MAX, 1, KVPOOL_STATUS_INVALID},
		{16, 1, 0, KVPOOL_STATUS_INVALID},
		{16, 1, KVPOOL_SHARDS_MAX + 1, KVPOOL_STATUS_INVALID},
		{16, 1, 5, KVPOOL_STATUS_TOO_LARGE},
		{KVPOOL_BLOCK_TOKENS_MAX, 1, 4, 0},
	};

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(rows); i++) {
		struct kvpool_wire_layout wire = fx_wire((int)i, 1, 1, &full);
		uint16_t layout = 9;

		wire.block_tokens = rows[i].block_tokens;
		wire.n_groups = rows[i].n_groups;
		wire.n_shards = rows[i].n_shards;
		ck_assert_int_eq(try(0, &wire, &layout), rows[i].expected);
	}
	ck_assert_uint_eq(fx_usage().layouts, 1);
}
END_TEST

START_TEST(should_refuse_a_label_without_an_end_or_for_no_eye)
{
	struct kvpool_wire_layout wire = fx_wire(1, 1, 1, &full);
	uint16_t layout = 9;

	memset(wire.label, 'x', sizeof(wire.label));
	ck_assert_int_eq(try(0, &wire, &layout), KVPOOL_STATUS_INVALID);
	wire.label[KVPOOL_NAME_BYTES - 1] = '\0';
	ck_assert_int_eq(try(0, &wire, &layout), 0);
	wire.fingerprint[0]++;
	wire.label[3] = '\n';
	ck_assert_int_eq(try(0, &wire, &layout), KVPOOL_STATUS_INVALID);
	wire.label[3] = (char)0x80;
	ck_assert_int_eq(try(0, &wire, &layout), KVPOOL_STATUS_INVALID);
}
END_TEST

START_TEST(should_be_one_layout_for_all_who_register_it)
{
	struct kvpool_wire_layout wire = fx_wire(1, 2, 1, &full);
	uint16_t a = fx_register(0, &wire), b;

	strcpy(wire.label, "other words for people");
	b = fx_register(1, &wire);
	ck_assert_uint_eq(a, b);
	ck_assert_uint_eq(fx_register(0, &wire), a);
	ck_assert_uint_eq(fx_usage().layouts, 1);
	ck_assert_uint_eq(fx_holder_usage(0).layouts, 1);
}
END_TEST

START_TEST(should_refuse_another_geometry_under_one_fingerprint)
{
	const struct kvpool_wire_group two[2] = {full, full};
	struct kvpool_wire_layout wire = fx_wire(1, 2, 1, &full), other;
	uint16_t layout = 9;

	fx_register(0, &wire);
	other = wire;
	other.block_tokens++;
	ck_assert_int_eq(try(1, &other, &layout), KVPOOL_STATUS_GEOMETRY);
	other = wire;
	other.n_shards++;
	ck_assert_int_eq(try(1, &other, &layout), KVPOOL_STATUS_GEOMETRY);
	other = wire;
	other.groups[0].slot_bytes++;
	ck_assert_int_eq(try(1, &other, &layout), KVPOOL_STATUS_GEOMETRY);
	other = fx_wire(1, 2, 2, two);
	ck_assert_int_eq(try(1, &other, &layout), KVPOOL_STATUS_GEOMETRY);
	ck_assert_uint_eq(layout, 9);
	ck_assert_int_eq(try(1, &wire, &layout), 0);
}
END_TEST

START_TEST(should_serve_nobody_who_did_not_register_it)
{
	uint16_t layout = fx_plain(0, 1, 1024);
	struct kvpool_reserve_args reserve = {.layout = layout, .n = 1, .keys = fx_keys(1, 0, 1)};
	struct kvpool_reserve_result result;
	uint32_t done;

	fx_holder(1);
	ck_assert_int_eq(fx_match(1, layout, 1, 1, 0, 0)->status, KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(fx_match(1, 0, 1, 1, 0, 0)->status, KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(fx_match(1, UINT16_MAX, 1, 1, 0, 0)->status, KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(1), &reserve, &result),
			 KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(
		kvpool_cache_forget(fx.cache, fx_holder(1), layout, 0, 1, fx_keys(1, 0, 1), &done),
		KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(kvpool_cache_forget_layout(fx.cache, fx_holder(1), layout, &done),
			 KVPOOL_STATUS_NO_LAYOUT);
	ck_assert_int_eq(fx_state(1, (struct fx_range){layout, 0, 1, 0, 1}),
			 KVPOOL_STATUS_NO_LAYOUT);
}
END_TEST

START_TEST(should_bound_the_layouts_of_one_client)
{
	struct kvpool_wire_layout wire = fx_wire(0, 1, 1, &full);
	uint16_t layout = 9;

	for (int i = 0; i < (int)KVPOOL_CLIENT_LAYOUTS_MAX; i++)
		fx_plain(0, i, 512);
	wire = fx_wire(1000, 1, 1, &full);
	ck_assert_int_eq(try(0, &wire, &layout), KVPOOL_STATUS_LIMIT);
	ck_assert_int_eq(try(1, &wire, &layout), 0);
	ck_assert_uint_eq(fx_plain(0, 5, 512), 6); /* it has that one already */
}
END_TEST

START_TEST(should_keep_blocks_of_a_layout_whose_clients_are_gone)
{
	uint16_t layout = fx_plain(0, 1, 1024);

	fx_store(0, (struct fx_range){layout, 0, 1, 0, 3});
	fx_holder_gone(0);
	fx_check();
	ck_assert_uint_eq(fx_plain(1, 1, 1024), layout);
	ck_assert_uint_eq(fx_hit(1, layout, 1, 5), 3);
}
END_TEST

START_TEST(should_take_the_entries_of_layouts_that_nobody_uses)
{
	int name = 0;

	for (uint32_t i = 0; i < KVPOOL_DOMAIN_LAYOUTS_MAX; i += KVPOOL_CLIENT_LAYOUTS_MAX) {
		for (uint32_t k = 0; k < KVPOOL_CLIENT_LAYOUTS_MAX; k++)
			fx_plain(0, name++, 512);
		fx_holder_gone(0);
	}
	ck_assert_uint_eq(fx_usage().layouts, KVPOOL_DOMAIN_LAYOUTS_MAX);
	fx_plain(0, name++, 512);
	ck_assert_uint_eq(fx_usage().layouts, 1);
	fx_plain(0, 1, 768);
}
END_TEST

START_TEST(should_bound_the_layouts_of_a_domain)
{
	struct kvpool_holder *holders[KVPOOL_DOMAIN_LAYOUTS_MAX / KVPOOL_CLIENT_LAYOUTS_MAX];
	struct kvpool_wire_layout wire;
	struct kvpool_wire_layout_result result;
	uint16_t layout = 9;
	int name = 0;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(holders); i++) {
		ck_assert_int_eq(kvpool_cache_holder_new(fx.cache, 500 + (uint32_t)i, &holders[i]),
				 0);
		for (uint32_t k = 0; k < KVPOOL_CLIENT_LAYOUTS_MAX; k++) {
			wire = fx_wire(name++, 1, 1, &full);
			ck_assert_int_eq(
				kvpool_cache_layout(fx.cache, holders[i], &wire, &layout, &result),
				0);
		}
	}
	wire = fx_wire(name, 1, 1, &full);
	ck_assert_int_eq(try(0, &wire, &layout), KVPOOL_STATUS_LIMIT);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(holders); i++)
		kvpool_cache_holder_free(fx.cache, holders[i]);
	ck_assert_int_eq(try(0, &wire, &layout), 0);
}
END_TEST

START_TEST(should_take_the_sizes_of_layouts_that_nobody_uses)
{
	uint16_t layout;

	/* Extents of 16 units have 16 sizes at most, so a larger cache is needed. */
	fx_close();
	fx_default();
	fx.config.extent_bytes = 1 << 20;
	fx.config.segment_bytes = 1 << 20;
	fx.config.bytes_max = 4 << 20;
	fx_open(0);
	ck_assert_int_eq(kvpool_cache_memory_add(fx.cache, 1, 0, 1 << 20), 0);
	layout = fx_plain(1, 9999, 256);
	fx_store(1, (struct fx_range){layout, 0, 1, 0, 2});
	for (int i = 0; i < 600; i++) {
		fx_plain(0, i, 512 + (uint64_t)i * 256);
		fx_holder_gone(0);
	}
	fx_check();
	ck_assert_uint_eq(fx_hit(1, layout, 1, 2), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("layouts");
	TCase *tcase = tcase_create("layouts");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, fx_close);
	tcase_add_test(tcase, should_round_strides_up_to_units);
	tcase_add_test(tcase, should_refuse_groups_out_of_their_bounds);
	tcase_add_test(tcase, should_refuse_counts_out_of_their_bounds);
	tcase_add_test(tcase, should_refuse_a_label_without_an_end_or_for_no_eye);
	tcase_add_test(tcase, should_be_one_layout_for_all_who_register_it);
	tcase_add_test(tcase, should_refuse_another_geometry_under_one_fingerprint);
	tcase_add_test(tcase, should_serve_nobody_who_did_not_register_it);
	tcase_add_test(tcase, should_bound_the_layouts_of_one_client);
	tcase_add_test(tcase, should_keep_blocks_of_a_layout_whose_clients_are_gone);
	tcase_add_test(tcase, should_take_the_entries_of_layouts_that_nobody_uses);
	tcase_add_test(tcase, should_bound_the_layouts_of_a_domain);
	tcase_add_test(tcase, should_take_the_sizes_of_layouts_that_nobody_uses);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
