/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client process as the tests of libkvpool want it. See client_rig.h.
 *
 * Owned by the test that made it; one thread.
 */
#include "tests/integration/client_rig.h"

#include <check.h>
#include <string.h>

#define WORDS (KVPOOL_RIG_BYTES / 8)

void kvpool_rig_keys(uint64_t chain, uint32_t from, uint32_t n, uint8_t *keys)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *key = keys + (size_t)i * KVPOOL_KEY_SIZE;
		uint64_t place = (uint64_t)from + i;

		memset(key, 0x5a, KVPOOL_KEY_SIZE);
		memcpy(key, &chain, sizeof(chain));
		memcpy(key + 8, &place, sizeof(place));
	}
}

struct kvpool_layout *kvpool_rig_layout(struct kvpool *pool, uint32_t shards, uint64_t bytes)
{
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = bytes};
	struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "test",
		.model = "stamps",
		.label = "test",
		.block_tokens = KVPOOL_RIG_TOKENS,
		.n_shards = shards,
		.n_groups = 1,
		.groups = &group,
	};
	struct kvpool_layout *layout;

	ck_assert_int_eq(kvpool_layout(pool, &spec, &layout), 0);
	return layout;
}

void kvpool_rig_open(const char *socket, struct kvpool_options options, struct kvpool_rig *out)
{
	struct kvpool_rig rig;

	options.size = sizeof(options);
	options.socket = socket;
	/* The library's own default is for engines, not for sanitizers on a loaded machine. */
	if (options.deadline_ns == 0)
		options.deadline_ns = KVPOOL_RIG_PATIENCE;
	ck_assert_int_eq(kvpool_open(&options, &rig.pool), 0);
	ck_assert_int_eq(kvpool_channel_open(rig.pool, &rig.channel), 0);
	rig.layout = kvpool_rig_layout(rig.pool, 1, KVPOOL_RIG_BYTES);
	*out = rig;
}

void kvpool_rig_close(struct kvpool_rig *rig)
{
	kvpool_channel_close(rig->channel);
	kvpool_close(rig->pool);
}

static uint64_t word(uint64_t chain, uint32_t i, uint32_t w)
{
	uint64_t x = chain * UINT64_C(0x9e3779b97f4a7c15) + i;

	x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9) + w;
	return x ^ x >> 29;
}

void kvpool_rig_stamp(uint64_t chain, uint32_t i, uint64_t *words, uint32_t n)
{
	for (uint32_t w = 0; w < n; w++)
		words[w] = word(chain, i, w);
}

uint32_t kvpool_rig_wrong(uint64_t chain, uint32_t i, const uint64_t *words, uint32_t n)
{
	uint32_t wrong = 0;

	for (uint32_t w = 0; w < n; w++)
		wrong += words[w] != word(chain, i, w);
	return wrong;
}

uint32_t kvpool_rig_put(struct kvpool_rig *rig, uint64_t chain, uint32_t from, uint32_t n)
{
	uint8_t keys[(KVPOOL_RIG_KEYS + 1) * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[KVPOOL_RIG_KEYS];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	uint32_t parent = from > 0;
	int64_t granted;

	ck_assert_uint_le(n, KVPOOL_RIG_KEYS);
	kvpool_rig_keys(chain, from - parent, n + parent, keys);
	granted =
		kvpool_reserve(rig->channel, rig->layout, 0, parent ? keys : NULL,
			       keys + (size_t)parent * KVPOOL_KEY_SIZE, n, KVPOOL_RIG_LONG, blocks);
	ck_assert_msg(granted >= 0, "reserve: %s", kvpool_channel_error(rig->channel));
	for (uint32_t i = 0; i < n; i++) {
		if (blocks[i].block == 0)
			continue;
		kvpool_rig_stamp(chain, from + i, words, WORDS);
		ck_assert_int_eq(
			kvpool_store(rig->channel, rig->layout, 0, &blocks[i], 0, &piece, 1), 0);
	}
	if (granted > 0)
		ck_assert_int_ge(
			kvpool_commit(rig->channel, blocks, n, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			0);
	return (uint32_t)granted;
}

int64_t kvpool_rig_get(struct kvpool_rig *rig, uint64_t chain, uint32_t n)
{
	uint8_t keys[KVPOOL_RIG_KEYS * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[KVPOOL_RIG_KEYS];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_match match;
	int64_t hit;

	ck_assert_uint_le(n, KVPOOL_RIG_KEYS);
	kvpool_rig_keys(chain, 0, n, keys);
	hit = kvpool_match(rig->channel, rig->layout, keys, n, 0, 0, KVPOOL_RIG_LONG, blocks,
			   KVPOOL_RIG_KEYS, &match);
	if (hit < 0)
		return -1;
	ck_assert_uint_eq(match.reported, match.blocks);
	for (uint32_t i = 0; i < match.reported; i++) {
		ck_assert_int_eq(
			kvpool_load(rig->channel, rig->layout, 0, &blocks[i], 0, &piece, 1), 0);
		ck_assert_uint_eq(kvpool_rig_wrong(chain, i, words, WORDS), 0);
	}
	kvpool_release(rig->channel, &match, 0);
	return hit;
}

static bool attached(void *cookie)
{
	return kvpool_rig_get(cookie, UINT64_MAX, 1) >= 0;
}

void kvpool_rig_until_attached(struct kvpool_rig *rig)
{
	ck_assert_msg(kvpool_harness_until(attached, rig, KVPOOL_RIG_MS),
		      "not attached again: %s; before: %s", kvpool_channel_error(rig->channel),
		      kvpool_error(rig->pool));
}

void kvpool_rig_try_put(struct kvpool_rig *rig, uint64_t chain, uint32_t n)
{
	struct kvpool_block blocks[KVPOOL_RIG_KEYS];
	uint8_t keys[KVPOOL_RIG_KEYS * KVPOOL_KEY_SIZE];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	kvpool_rig_until_attached(rig);
	kvpool_rig_keys(chain, 0, n, keys);
	if (kvpool_reserve(rig->channel, rig->layout, 0, NULL, keys, n, KVPOOL_RIG_LONG, blocks) <=
	    0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		if (blocks[i].block == 0)
			continue;
		kvpool_rig_stamp(chain, i, words, WORDS);
		if (kvpool_store(rig->channel, rig->layout, 0, &blocks[i], 0, &piece, 1) == 0 &&
		    kvpool_commit(rig->channel, &blocks[i], 1, KVPOOL_ALL_SHARDS,
				  KVPOOL_RIG_LONG) == 1)
			blocks[i].block = 0;
	}
	(void)kvpool_abort(rig->channel, blocks, n, KVPOOL_RIG_LONG);
}

int64_t kvpool_rig_try_get(struct kvpool_rig *rig, uint64_t chain, uint32_t n, uint32_t *read)
{
	struct kvpool_block blocks[KVPOOL_RIG_KEYS];
	uint8_t keys[KVPOOL_RIG_KEYS * KVPOOL_KEY_SIZE];
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_match match;
	uint32_t good = 0;
	int64_t hit;

	kvpool_rig_until_attached(rig);
	kvpool_rig_keys(chain, 0, n, keys);
	hit = kvpool_match(rig->channel, rig->layout, keys, n, 0, 0, KVPOOL_RIG_LONG, blocks,
			   KVPOOL_RIG_KEYS, &match);
	for (uint32_t i = 0; hit > 0 && i < match.reported; i++) {
		if (kvpool_load(rig->channel, rig->layout, 0, &blocks[i], 0, &piece, 1) != 0)
			continue;
		ck_assert_uint_eq(kvpool_rig_wrong(chain, i, words, WORDS), 0);
		good++;
	}
	if (read)
		*read = good;
	if (hit >= 0)
		kvpool_release(rig->channel, &match, 0);
	return hit;
}

struct wanted {
	const char *socket;
	const char *path;
	int64_t value, is;
};

static bool is_there(void *cookie)
{
	struct wanted *w = cookie;
	json_t *page = kvpool_raw_get(w->socket, "/v1/status");

	w->is = kvpool_raw_number(page, w->path);
	json_decref(page);
	return w->is == w->value;
}

void kvpool_rig_until_number(const struct kvpool_harness *daemon, const char *path, int64_t value)
{
	struct wanted w = {kvpool_harness_admin_socket(daemon), path, value, 0};

	ck_assert_msg(kvpool_harness_until(is_there, &w, KVPOOL_RIG_MS), "%s is %lld, not %lld",
		      path, (long long)w.is, (long long)value);
}

const uint8_t *kvpool_rig_key(uint64_t chain, uint32_t i)
{
	static uint8_t keys[4][KVPOOL_KEY_SIZE];
	static uint32_t next;

	next = (next + 1) % 4;
	kvpool_rig_keys(chain, i, 1, keys[next]);
	return keys[next];
}

void kvpool_rig_begin(struct kvpool_harness **daemon, struct kvpool_rig *rig)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, daemon), 0);
	/* While the pool grows, there may be no space for a moment. */
	kvpool_rig_until_number(*daemon, "pool.ready_bytes", 64 << 20);
	kvpool_rig_open(kvpool_harness_socket(*daemon), (struct kvpool_options){0}, rig);
}

void kvpool_rig_end(struct kvpool_harness *daemon, struct kvpool_rig *rig)
{
	kvpool_rig_close(rig);
	kvpool_rig_until_number(daemon, "accounting.leases", 0);
	kvpool_rig_until_number(daemon, "accounting.blocks.reserved", 0);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon));
	kvpool_harness_free(daemon);
}
