/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fingerprints of layouts and keys of token blocks, against digests that were computed without
 * this code (Python's hashlib over the framing that fingerprint.h states), and the promise that no
 * two layouts share a print because a byte moved from one field to the next.
 *
 * One thread, pure functions.
 */
#include "shm/fingerprint.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 8u

static void hex(const uint8_t *bytes, char out[65])
{
	for (size_t i = 0; i < 32; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void assert_digest(const uint8_t *bytes, const char *expected)
{
	char text[65];

	hex(bytes, text);
	ck_assert_str_eq(text, expected);
}

/* The identity's strings as an array, in the order in which they are hashed. */
static struct kvpool_identity identity_of(const char *const f[FIELDS])
{
	return (struct kvpool_identity){
		.engine = f[0],
		.hash_algorithm = f[1],
		.hash_seed = f[2],
		.model = f[3],
		.revision = f[4],
		.adapter = f[5],
		.dtype = f[6],
		.order = f[7],
	};
}

static struct kvpool_wire_layout one_group(void)
{
	return (struct kvpool_wire_layout){
		.block_tokens = 16,
		.n_groups = 1,
		.n_shards = 1,
		.groups = {{.kind = KVPOOL_GROUP_FULL, .slot_bytes = 2u << 20}},
	};
}

static void print_of(const char *const f[FIELDS], uint8_t out[32])
{
	struct kvpool_identity identity = identity_of(f);
	struct kvpool_wire_layout geometry = one_group();

	ck_assert_int_eq(kvpool_fingerprint_layout(&identity, &geometry, out), 0);
}

static const char *const llama[FIELDS] = {
	"vllm", "sha256_cbor", "0", "llama-3.1-8b:5f2c", "main", "", "bfloat16", "LBHNC",
};

START_TEST(should_print_known_layouts_as_the_text_says)
{
	static const char *const gemma[FIELDS] = {
		"engine", "sha256", "seed", "gemma-3-12b", "r1", "lora-7", "fp8_e4m3", "NHD",
	};
	struct kvpool_wire_layout geometry = {
		.block_tokens = 32,
		.n_groups = 3,
		.n_shards = 4,
		.groups = {{KVPOOL_GROUP_FULL, 0, 1u << 20},
			   {KVPOOL_GROUP_WINDOW, 1024, 5u << 20},
			   {KVPOOL_GROUP_STATE, 0, (UINT64_C(1) << 33) + 256}},
	};
	struct kvpool_identity identity = identity_of(gemma);
	uint8_t digest[32];

	print_of(llama, digest);
	assert_digest(digest, "2f67e7bd69555bc37fac57df2269890435668f8fa3128ce67b32809dd8765a36");
	ck_assert_int_eq(kvpool_fingerprint_layout(&identity, &geometry, digest), 0);
	assert_digest(digest, "a9c50eace7657899bbcc4ee49c4285c1a45b9c42ef9f2c68f742d4c507da99d3");
}
END_TEST

START_TEST(should_take_a_missing_string_as_an_empty_one)
{
	static const char *const none[FIELDS] = {NULL};
	static const char *const empty[FIELDS] = {"", "", "", "", "", "", "", ""};
	static const char expected[] =
		"9588896fd15b955f9063d92a06b3af9ea2ccf9d461ced7380b22b50fb79688b0";
	uint8_t digest[32];

	print_of(none, digest);
	assert_digest(digest, expected);
	print_of(empty, digest);
	assert_digest(digest, expected);
}
END_TEST

START_TEST(should_not_depend_on_the_label_or_on_groups_beyond_the_count)
{
	struct kvpool_identity identity = identity_of(llama);
	struct kvpool_wire_layout geometry = one_group();
	uint8_t plain[32], other[32];

	ck_assert_int_eq(kvpool_fingerprint_layout(&identity, &geometry, plain), 0);
	memset(geometry.label, 'x', sizeof(geometry.label));
	memset(geometry.fingerprint, 0xff, sizeof(geometry.fingerprint));
	geometry.groups[1] = (struct kvpool_wire_group){KVPOOL_GROUP_STATE, 0, 77};
	ck_assert_int_eq(kvpool_fingerprint_layout(&identity, &geometry, other), 0);
	ck_assert_mem_eq(plain, other, 32);
}
END_TEST

/* Between any two neighbouring fields: the last byte of one becomes the first of the next. */
START_TEST(should_change_when_a_byte_moves_to_the_next_field)
{
	const char *before[FIELDS] = {"ab", "ab", "ab", "ab", "ab", "ab", "ab", "ab"};
	const char *after[FIELDS];
	uint8_t a[32], b[32];

	print_of(before, a);
	memcpy(after, before, sizeof(after));
	after[_i] = "a";
	after[_i + 1] = "bab";
	print_of(after, b);
	ck_assert_mem_ne(a, b, 32);
}
END_TEST

START_TEST(should_change_when_two_fields_swap)
{
	const char *fields[FIELDS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	uint8_t a[32], b[32];

	print_of(fields, a);
	for (size_t i = 0; i + 1 < FIELDS; i++) {
		const char *first = fields[i];

		fields[i] = fields[i + 1];
		fields[i + 1] = first;
		print_of(fields, b);
		ck_assert_mem_ne(a, b, 32);
		fields[i + 1] = fields[i];
		fields[i] = first;
	}
}
END_TEST

/* Every number of the geometry counts, on its own and at its own place. */
static const struct {
	uint32_t block_tokens;
	uint16_t n_groups;
	uint16_t n_shards;
	struct kvpool_wire_group groups[2];
} geometries[] = {
	{16, 1, 1, {{1, 0, 4096}}},
	{17, 1, 1, {{1, 0, 4096}}},
	{16, 1, 2, {{1, 0, 4096}}},
	{1, 1, 16, {{1, 0, 4096}}},
	{16, 1, 1, {{2, 0, 4096}}},
	{16, 1, 1, {{1, 2, 4096}}},
	{16, 1, 1, {{2, 1, 4096}}},
	{16, 1, 1, {{1, 0, 4097}}},
	{16, 1, 1, {{1, 4096, 0}}},
	{16, 1, 1, {{1, 0, UINT64_C(4096) << 32}}},
	{16, 2, 1, {{1, 0, 4096}}},
	{16, 2, 1, {{1, 0, 4096}, {2, 16, 512}}},
	{16, 2, 1, {{2, 16, 512}, {1, 0, 4096}}},
	{16, 2, 1, {{1, 0, 512}, {2, 16, 4096}}},
};

START_TEST(should_change_with_every_number_of_the_geometry)
{
	uint8_t prints[KVPOOL_ARRAY_SIZE(geometries)][32];
	struct kvpool_identity identity = identity_of(llama);

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(geometries); i++) {
		struct kvpool_wire_layout g = {
			.block_tokens = geometries[i].block_tokens,
			.n_groups = geometries[i].n_groups,
			.n_shards = geometries[i].n_shards,
			.groups = {geometries[i].groups[0], geometries[i].groups[1]},
		};

		ck_assert_int_eq(kvpool_fingerprint_layout(&identity, &g, prints[i]), 0);
		for (size_t k = 0; k < i; k++)
			ck_assert_msg(memcmp(prints[i], prints[k], 32) != 0, "%zu and %zu", k, i);
	}
}
END_TEST

static const uint8_t *counting(uint8_t out[32])
{
	for (size_t i = 0; i < 32; i++)
		out[i] = (uint8_t)i;
	return out;
}

static const uint32_t *some_tokens(uint32_t out[600])
{
	for (uint32_t i = 0; i < 600; i++)
		out[i] = i * UINT32_C(2654435761);
	return out;
}

START_TEST(should_chain_known_keys_as_the_text_says)
{
	uint8_t fp[32], parent[32], keys[2 * 32];
	uint32_t tokens[600];

	counting(fp);
	some_tokens(tokens);
	for (size_t i = 0; i < 32; i++)
		parent[i] = (uint8_t)(0xff - i);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, NULL, 0, NULL, tokens, 40, 16, keys), 0);
	assert_digest(keys, "9ee49b7466dd58a017b18aea884ee644f7a8ec448b5f59b925b6343751b9dd6e");
	assert_digest(keys + 32,
		      "361e12722ff4ff84f19d3b665d3044075a6c0f6469705316249cf10a06eebf7a");
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, "tenant-7", 8, NULL, tokens, 32, 16, keys), 0);
	assert_digest(keys, "94d4809b159d124b77a2c4b9ab314b27028067da7ff516e551bec4da5df1db7b");
	assert_digest(keys + 32,
		      "0b76c0af788eb54607aa7e24347101bab9e097e6d1c5e597f32ffaf403990a15");
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, "ignored", 7, parent, tokens, 32, 16, keys),
			 0);
	assert_digest(keys, "0b357da910b682ac5d5406ff025282acdaa842c38addf83bab7f20f61e12c9e5");
	assert_digest(keys + 32,
		      "8b34b0c51f0477744aca0d697ed813e55e007524b3924875af6b1bec1cf503df");
}
END_TEST

START_TEST(should_chain_known_keys_of_blocks_longer_than_its_buffer)
{
	uint8_t fp[32], keys[2 * 32];
	uint32_t tokens[600];

	ck_assert_int_eq(kvpool_fingerprint_keys(counting(fp), NULL, 0, NULL, some_tokens(tokens),
						 600, 300, keys),
			 0);
	assert_digest(keys, "eabefeb9db19dc70295ef71bce27d256283d4229ed70b08399c8047bd3efd811");
	assert_digest(keys + 32,
		      "1375a0010891553bb7b986335391a62280fc9f7081059fb216efabb405507d82");
}
END_TEST

START_TEST(should_write_keys_of_whole_blocks_only)
{
	uint8_t fp[32], keys[3 * 32];
	uint32_t tokens[600];

	counting(fp);
	some_tokens(tokens);
	for (uint64_t n = 0; n <= 33; n++) {
		memset(keys, 0xee, sizeof(keys));
		ck_assert_int_eq(kvpool_fingerprint_keys(fp, NULL, 0, NULL, tokens, n, 16, keys),
				 0);
		for (uint64_t at = n / 16 * 32; at < sizeof(keys); at++)
			ck_assert_uint_eq(keys[at], 0xee);
	}
}
END_TEST

START_TEST(should_go_on_after_a_parent_as_if_the_chain_were_whole)
{
	uint8_t fp[32], whole[4 * 32], rest[2 * 32];
	uint32_t tokens[600];

	counting(fp);
	some_tokens(tokens);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, "s", 1, NULL, tokens, 64, 16, whole), 0);
	ck_assert_int_eq(
		kvpool_fingerprint_keys(fp, NULL, 0, whole + 32, tokens + 32, 32, 16, rest), 0);
	ck_assert_mem_eq(whole + 64, rest, 64);
}
END_TEST

START_TEST(should_change_every_later_key_with_one_token)
{
	uint8_t fp[32], a[4 * 32], b[4 * 32];
	uint32_t tokens[600];

	counting(fp);
	some_tokens(tokens);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, NULL, 0, NULL, tokens, 64, 16, a), 0);
	tokens[16] ^= UINT32_C(1) << 31;
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, NULL, 0, NULL, tokens, 64, 16, b), 0);
	ck_assert_mem_eq(a, b, 32);
	for (size_t i = 1; i < 4; i++)
		ck_assert_mem_ne(a + 32 * i, b + 32 * i, 32);
}
END_TEST

/* The salt's length is part of the link: its bytes can't pass for a token, nor a token for it. */
START_TEST(should_keep_salt_and_tokens_apart)
{
	static const uint32_t two[2] = {0x64636261, 7}; /* "abcd" as a token */
	uint8_t fp[32], a[32], b[32], c[32];

	counting(fp);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, "abcd", 4, NULL, two + 1, 1, 1, a), 0);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, NULL, 0, NULL, two, 2, 2, b), 0);
	ck_assert_int_eq(kvpool_fingerprint_keys(fp, "abc", 3, NULL, two + 1, 1, 1, c), 0);
	ck_assert_mem_ne(a, b, 32);
	ck_assert_mem_ne(a, c, 32);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fingerprint");
	TCase *layouts = tcase_create("layouts"), *keys = tcase_create("keys");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, layouts);
	tcase_add_test(layouts, should_print_known_layouts_as_the_text_says);
	tcase_add_test(layouts, should_take_a_missing_string_as_an_empty_one);
	tcase_add_test(layouts, should_not_depend_on_the_label_or_on_groups_beyond_the_count);
	tcase_add_loop_test(layouts, should_change_when_a_byte_moves_to_the_next_field, 0,
			    (int)FIELDS - 1);
	tcase_add_test(layouts, should_change_when_two_fields_swap);
	tcase_add_test(layouts, should_change_with_every_number_of_the_geometry);
	suite_add_tcase(suite, keys);
	tcase_add_test(keys, should_chain_known_keys_as_the_text_says);
	tcase_add_test(keys, should_chain_known_keys_of_blocks_longer_than_its_buffer);
	tcase_add_test(keys, should_write_keys_of_whole_blocks_only);
	tcase_add_test(keys, should_go_on_after_a_parent_as_if_the_chain_were_whole);
	tcase_add_test(keys, should_change_every_later_key_with_one_token);
	tcase_add_test(keys, should_keep_salt_and_tokens_apart);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
