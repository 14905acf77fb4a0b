/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys from tokens through the public function: known vectors, chaining, parents, salts. And the
 * fingerprint that goes into the first link. No daemon is needed.
 *
 * One thread.
 */
#include "client/kvpool.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N      5u
#define TOKENS (sizeof(tokens) / sizeof(tokens[0]))

/* Computed from PROTOCOL.md with another implementation of SHA-256. */
#define FINGERPRINT "e01b3ce560a0d8c4f779d95396375607b42cffc66559dba550db5a6026fcf2c7"
#define KEY_0       "2b4a620d34c685a52c42d54beba756a10914dcfe6d8bb0dd75cf82e0275365a1"
#define KEY_4       "592a4e20c47403898736f80590abf2baf231aa60db715732c4a9e7b793ac5da2"
#define SALTED      "5714aa10ce3123d6d6713dac1684509da964be77f1837e9146b8f643bfda18e3"

static struct kvpool *pool;
static struct kvpool_layout *layout;
static uint32_t tokens[16 * N];

static struct kvpool_layout *make(const char *model)
{
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = 4096};
	struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "engine",
		.hash_algorithm = "sha256",
		.model = model,
		.dtype = "bfloat16",
		.order = "LBHNC",
		.block_tokens = 16,
		.n_shards = 1,
		.n_groups = 1,
		.groups = &group,
	};
	struct kvpool_layout *out;

	ck_assert_int_eq(kvpool_layout(pool, &spec, &out), 0);
	return out;
}

static void setup(void)
{
	struct kvpool_options o = {.size = sizeof(o), .socket = "/nonexistent/kvpool.sock"};

	ck_assert_int_eq(kvpool_open(&o, &pool), 0);
	layout = make("model");
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * 7919u + (i << 20);
}

static void teardown(void)
{
	kvpool_close(pool);
}

static const char *hex(const uint8_t *key)
{
	static char text[65];

	for (size_t i = 0; i < 32; i++)
		snprintf(&text[2 * i], 3, "%02x", key[i]);
	return text;
}

START_TEST(should_give_the_known_keys)
{
	uint8_t keys[N][KVPOOL_KEY_SIZE];

	ck_assert_str_eq(hex(kvpool_layout_fingerprint(layout)), FINGERPRINT);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, TOKENS, keys[0]), N);
	ck_assert_str_eq(hex(keys[0]), KEY_0);
	ck_assert_str_eq(hex(keys[N - 1]), KEY_4);
	ck_assert_int_eq(kvpool_keys(layout, "salt", 4, NULL, tokens, 16, keys[0]), 1);
	ck_assert_str_eq(hex(keys[0]), SALTED);
}
END_TEST

START_TEST(should_go_on_after_a_parent)
{
	uint8_t whole[N][KVPOOL_KEY_SIZE], rest[N][KVPOOL_KEY_SIZE];

	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, TOKENS, whole[0]), N);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, whole[1], tokens + 32, TOKENS - 32, rest[0]),
			 N - 2);
	ck_assert_mem_eq(rest, whole[2], sizeof(rest) - sizeof(rest[0]) * 2);
}
END_TEST

START_TEST(should_change_every_key_after_a_changed_token)
{
	uint8_t before[N][KVPOOL_KEY_SIZE], after[N][KVPOOL_KEY_SIZE];

	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, TOKENS, before[0]), N);
	tokens[32] ^= 1;
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, TOKENS, after[0]), N);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(memcmp(before[i], after[i], KVPOOL_KEY_SIZE) == 0, i < 2);
}
END_TEST

START_TEST(should_tell_layouts_and_salts_apart)
{
	uint8_t keys[5][KVPOOL_KEY_SIZE];

	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, 16, keys[0]), 1);
	ck_assert_int_eq(kvpool_keys(make("another"), NULL, 0, NULL, tokens, 16, keys[1]), 1);
	ck_assert_int_eq(kvpool_keys(layout, "a", 1, NULL, tokens, 16, keys[2]), 1);
	ck_assert_int_eq(kvpool_keys(layout, "b", 1, NULL, tokens, 16, keys[3]), 1);
	ck_assert_int_eq(kvpool_keys(layout, "\0", 1, NULL, tokens, 16, keys[4]), 1);
	for (uint32_t i = 0; i < 5; i++)
		for (uint32_t k = 0; k < i; k++)
			ck_assert_mem_ne(keys[i], keys[k], KVPOOL_KEY_SIZE);
}
END_TEST

START_TEST(should_leave_a_part_of_a_block_out)
{
	uint8_t keys[2][KVPOOL_KEY_SIZE], none[KVPOOL_KEY_SIZE] = {0};

	memset(keys, 0, sizeof(keys));
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, 31, keys[0]), 1);
	ck_assert_mem_eq(keys[1], none, KVPOOL_KEY_SIZE);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, 15, keys[0]), 0);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, NULL, 0, NULL), 0);
}
END_TEST

START_TEST(should_refuse_what_is_not_there)
{
	uint8_t key[KVPOOL_KEY_SIZE];

	ck_assert_int_eq(kvpool_keys(layout, NULL, 4, NULL, tokens, 16, key), -EINVAL);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, NULL, 16, key), -EINVAL);
	ck_assert_int_eq(kvpool_keys(layout, NULL, 0, NULL, tokens, 16, NULL), -EINVAL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_keys");
	TCase *t = tcase_create("keys");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, should_give_the_known_keys);
	tcase_add_test(t, should_go_on_after_a_parent);
	tcase_add_test(t, should_change_every_key_after_a_changed_token);
	tcase_add_test(t, should_tell_layouts_and_salts_apart);
	tcase_add_test(t, should_leave_a_part_of_a_block_out);
	tcase_add_test(t, should_refuse_what_is_not_there);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
