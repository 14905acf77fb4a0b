/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C: the vectors of RFC 3720, a bit-by-bit model for every short length and alignment, and the
 * two ways of computing it against each other around every length where one of them changes step.
 *
 * One thread.
 */
#include "shm/base.h"
#include "shm/crc32c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SHORT   300u
#define LARGEST (200u << 10)

static uint8_t *bytes;

static void setup(void)
{
	uint32_t x = 1;

	bytes = malloc(LARGEST + 64);
	ck_assert_ptr_nonnull(bytes);
	for (uint32_t i = 0; i < LARGEST + 64; i++) {
		x = x * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(x >> 24);
	}
}

static void teardown(void)
{
	free(bytes);
}

/* The definition, a bit at a time. */
static uint32_t model(uint32_t crc, const uint8_t *at, size_t n)
{
	uint32_t reg = ~crc;

	for (size_t i = 0; i < n; i++) {
		reg ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			reg = reg & 1 ? reg >> 1 ^ 0x82f63b78u : reg >> 1;
	}
	return ~reg;
}

START_TEST(should_give_the_values_of_rfc_3720)
{
	static const uint8_t command[48] = {
		0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
		0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
		0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0,
	};
	kvpool_crc32c_fn fn = kvpool_crc32c_by((enum kvpool_crc32c_path)_i);
	uint8_t text[32];

	if (!fn)
		return;
	memset(text, 0, sizeof(text));
	ck_assert_uint_eq(fn(0, text, sizeof(text)), 0x8a9136aau);
	memset(text, 0xff, sizeof(text));
	ck_assert_uint_eq(fn(0, text, sizeof(text)), 0x62a8ab43u);
	for (uint8_t i = 0; i < 32; i++)
		text[i] = i;
	ck_assert_uint_eq(fn(0, text, sizeof(text)), 0x46dd794eu);
	for (uint8_t i = 0; i < 32; i++)
		text[i] = (uint8_t)(31 - i);
	ck_assert_uint_eq(fn(0, text, sizeof(text)), 0x113fdb5cu);
	ck_assert_uint_eq(fn(0, command, sizeof(command)), 0xd9963a56u);
	ck_assert_uint_eq(fn(0, "123456789", 9), 0xe3069283u);
}
END_TEST

START_TEST(should_agree_with_the_definition_at_every_length_and_alignment)
{
	kvpool_crc32c_fn fn = kvpool_crc32c_by((enum kvpool_crc32c_path)_i);

	for (size_t at = 0; fn && at < 16; at++)
		for (size_t n = 0; n <= SHORT; n++)
			ck_assert_uint_eq(fn(0, bytes + at, n), model(0, bytes + at, n));
}
END_TEST

START_TEST(should_go_on_from_wherever_it_was_cut)
{
	kvpool_crc32c_fn fn = kvpool_crc32c_by((enum kvpool_crc32c_path)_i);

	if (!fn)
		return;
	for (size_t n = 0; n <= SHORT; n++)
		ck_assert_uint_eq(fn(fn(0, bytes, n), bytes + n, SHORT - n), fn(0, bytes, SHORT));
	for (size_t n = 0; n <= LARGEST; n += 4099)
		ck_assert_uint_eq(fn(fn(0, bytes, n), bytes + n, LARGEST - n),
				  fn(0, bytes, LARGEST));
	ck_assert_uint_eq(fn(0x12345678, bytes, 0), 0x12345678);
}
END_TEST

START_TEST(should_give_the_same_by_the_instruction_as_by_tables)
{
	/* What three runs of either length take, once and several times over. */
	static const size_t around[] = {8, 3072, 6144, 24576, 27648, 49152, LARGEST - 64};
	kvpool_crc32c_fn table = kvpool_crc32c_by(KVPOOL_CRC32C_TABLE);
	kvpool_crc32c_fn hardware = kvpool_crc32c_by(KVPOOL_CRC32C_HARDWARE);

	if (!hardware)
		return;
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(around); i++)
		for (size_t n = around[i] - 8; n <= around[i] + 17; n++)
			for (size_t at = 0; at < 9; at += 4)
				ck_assert_uint_eq(hardware(7, bytes + at, n),
						  table(7, bytes + at, n));
}
END_TEST

START_TEST(should_find_a_flipped_bit)
{
	uint32_t sum = kvpool_crc32c_add(0, bytes, LARGEST);

	for (size_t i = 0; i < LARGEST; i += 9973) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		ck_assert_uint_ne(kvpool_crc32c_add(0, bytes, LARGEST), sum);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	ck_assert_uint_eq(kvpool_crc32c_add(0, bytes, LARGEST), sum);
}
END_TEST

START_TEST(should_tell_two_shards_that_changed_places)
{
	uint32_t a = kvpool_crc32c_add(0, bytes, 100), b = kvpool_crc32c_add(0, bytes + 100, 100);

	ck_assert_uint_eq(kvpool_crc32c_shard(a, 0), a);
	ck_assert_uint_eq(kvpool_crc32c_shard(0x80000001u, 1), 3);
	ck_assert_uint_eq(kvpool_crc32c_shard(a, 33), kvpool_crc32c_shard(a, 1));
	ck_assert_uint_ne(kvpool_crc32c_shard(a, 0) ^ kvpool_crc32c_shard(b, 1),
			  kvpool_crc32c_shard(b, 0) ^ kvpool_crc32c_shard(a, 1));
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("crc32c");
	TCase *tcase = tcase_create("crc32c");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, should_give_the_values_of_rfc_3720, 0, 2);
	tcase_add_loop_test(tcase, should_agree_with_the_definition_at_every_length_and_alignment,
			    0, 2);
	tcase_add_loop_test(tcase, should_go_on_from_wherever_it_was_cut, 0, 2);
	tcase_add_test(tcase, should_give_the_same_by_the_instruction_as_by_tables);
	tcase_add_test(tcase, should_find_a_flipped_bit);
	tcase_add_test(tcase, should_tell_two_shards_that_changed_places);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
