/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache under the unit tests: see cache_fixture.h.
 *
 * Owned by the test's only thread.
 */
#include "tests/unit/cache_fixture.h"

#include "src/cache_internal.h"

#include <string.h>
#include <sys/mman.h>

struct fx fx;

static struct fx_match last_match;
static uint8_t last_keys[FX_KEYS_MAX * KVPOOL_KEY_BYTES];
static struct kvpool_wire_handle last_handles[FX_KEYS_MAX];

void fx_default(void)
{
	fx = (struct fx){
		.config = {.bytes_max = 64 * FX_EXTENT,
			   .extent_bytes = FX_EXTENT,
			   .segment_bytes = FX_SEGMENT,
			   .epoch = 5,

			   .secret = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0,
				      0x082efa98ec4e6c89}},
	};
}

static void wake(void *cookie, enum kvpool_status status)
{
	fx.wakes++;
	fx.woken = cookie;
	fx.wake_status = status;
}

/* The end of segment 99 first. */
static bool more(void *cookie)
{
	ck_assert_ptr_eq(cookie, &fx);
	fx.more_asked++;
	if (fx.more_extents == 0)
		return false;
	fx.more_extents--;
	return kvpool_cache_memory_add(fx.cache, 99, fx.more_extents * FX_EXTENT, FX_EXTENT) == 0;
}

static const struct kvpool_cache_calls calls = {wake, more, &fx};

void fx_open(uint32_t extents)
{
	uint32_t per_segment = (uint32_t)(FX_SEGMENT / FX_EXTENT);

	fx.extents = extents;
	fx.catalog_bytes = kvpool_cache_catalog_bytes(&fx.config);
	ck_assert_uint_gt(fx.catalog_bytes, 0);
	fx.catalog = mmap(NULL, fx.catalog_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(fx.catalog, MAP_FAILED);
	fx.notes = mmap(NULL, kvpool_cache_notes_bytes(), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(fx.notes, MAP_FAILED);
	fx.config.notes = fx.notes;
	ck_assert_int_eq(kvpool_cache_new(&fx.config, fx.catalog, &calls, &fx.cache), 0);
	/* Backwards, so that segment 1 is used first. */
	for (uint32_t x = extents; x-- > 0;)
		ck_assert_int_eq(kvpool_cache_memory_add(fx.cache, 1 + x / per_segment,
							 x % per_segment * FX_EXTENT, FX_EXTENT),
				 0);
}

void fx_crash(void)
{
	kvpool_cache_abandon(fx.cache);
	fx.cache = NULL;
	memset(fx.holders, 0, sizeof(fx.holders));
}

static int adopt(uint32_t n_clients, bool others, struct kvpool_cache_adopted *result)
{
	struct kvpool_cache_range ranges[64];
	uint32_t clients[FX_HOLDERS];
	struct kvpool_cache_left was = {
		.ranges = ranges, .clients = clients, .n_clients = n_clients, .others = others};
	uint32_t n = 0;

	for (uint32_t i = 0; i < FX_HOLDERS; i++)
		clients[i] = 100 + i;
	for (uint64_t left = fx.extents * FX_EXTENT; left > 0; n++) {
		ck_assert_uint_lt(n, KVPOOL_ARRAY_SIZE(ranges));
		ranges[n] = (struct kvpool_cache_range){1 + n, 0, KVPOOL_MIN(left, FX_SEGMENT)};
		left -= ranges[n].bytes;
	}
	was.n_ranges = n;
	return kvpool_cache_adopt(&fx.config, fx.catalog, &calls, &was, result, &fx.cache);
}

int fx_adopt(struct kvpool_cache_adopted *result)
{
	return adopt(0, true, result);
}

int fx_adopt_with(int n, struct kvpool_cache_adopted *result)
{
	int r = adopt((uint32_t)n, false, result);

	for (int i = 0; r == 0 && i < n; i++) {
		fx.holders[i] = kvpool_cache_holder_find(fx.cache, 100 + (uint32_t)i);
		ck_assert_ptr_nonnull(fx.holders[i]);
	}
	return r;
}

struct kvpool_cache_adopted fx_restart_with(int n)
{
	struct kvpool_cache_adopted result;

	fx_crash();
	ck_assert_int_eq(fx_adopt_with(n, &result), 0);
	ck_assert_ptr_null(result.fault);
	return result;
}

struct kvpool_cache_adopted fx_restart(void)
{
	struct kvpool_cache_adopted result;

	fx_crash();
	ck_assert_int_eq(fx_adopt(&result), 0);
	ck_assert_ptr_null(result.fault);
	return result;
}

struct kvpool_cache_usage fx_usage(void)
{
	struct kvpool_cache_usage usage;

	kvpool_cache_usage(fx.cache, &usage);
	return usage;
}

struct kvpool_holder_usage fx_holder_usage(int holder)
{
	struct kvpool_holder_usage usage;

	kvpool_cache_holder_usage(fx_holder(holder), &usage);
	return usage;
}

void fx_check(void)
{
	struct kvpool_cache_usage u = fx_usage();
	uint64_t leases = 0, reserved = 0, quarantined = 0;
	char text[256] = "";

	ck_assert_msg(kvpool_cache_check(fx.cache, text, sizeof(text)) == 0, "%s", text);
	ck_assert_uint_eq(u.total_bytes, u.free_bytes + u.ready_bytes + u.reserved_bytes +
						 u.leased_only_bytes + u.quarantined_bytes +
						 u.slack_bytes);
	for (int i = 0; i < FX_HOLDERS; i++) {
		struct kvpool_holder_usage h;

		if (!fx.holders[i])
			continue;
		h = fx_holder_usage(i);
		leases += h.leases;
		reserved += h.reserved_blocks;
		quarantined += h.quarantined_blocks;
	}
	ck_assert_uint_eq(u.leases, leases);
	ck_assert_uint_eq(u.reserved_blocks, reserved);
	if (!kvpool_cache_has_past(fx.cache))
		ck_assert_uint_eq(u.quarantined_blocks, quarantined);
}

void fx_close(void)
{
	struct kvpool_cache_usage u;

	fx_check();
	for (int i = 0; i < FX_HOLDERS; i++)
		fx_holder_gone(i);
	kvpool_cache_end_past(fx.cache);
	kvpool_cache_flush(fx.cache);
	fx_check();
	u = fx_usage();
	ck_assert_uint_eq(u.free_bytes, u.total_bytes);
	ck_assert_uint_eq(u.extents_free, u.extents);
	ck_assert_uint_eq(u.leases + u.holders, 0);
	kvpool_cache_free(fx.cache);
	munmap(fx.catalog, fx.catalog_bytes);
	munmap(fx.notes, kvpool_cache_notes_bytes());
}

struct kvpool_holder *fx_holder(int number)
{
	if (!fx.holders[number])
		ck_assert_int_eq(kvpool_cache_holder_new(fx.cache, 100 + (uint32_t)number,
							 &fx.holders[number]),
				 0);
	return fx.holders[number];
}

void fx_holder_gone(int number)
{
	kvpool_cache_holder_free(fx.cache, fx.holders[number]);
	fx.holders[number] = NULL;
}

struct kvpool_wire_layout fx_wire(int name, uint16_t n_shards, uint16_t n_groups,
				  const struct kvpool_wire_group *groups)
{
	struct kvpool_wire_layout wire = {
		.block_tokens = 16, .n_groups = n_groups, .n_shards = n_shards, .label = "test"};

	memcpy(wire.fingerprint, &name, sizeof(name));
	memcpy(wire.groups, groups, n_groups * sizeof(*groups));
	return wire;
}

uint16_t fx_register(int holder, const struct kvpool_wire_layout *wire)
{
	struct kvpool_wire_layout_result result;
	uint16_t layout;

	ck_assert_int_eq(kvpool_cache_layout(fx.cache, fx_holder(holder), wire, &layout, &result),
			 0);
	return layout;
}

uint16_t fx_plain(int holder, int name, uint64_t frame_bytes)
{
	const struct kvpool_wire_group group = {KVPOOL_GROUP_FULL, 0, frame_bytes};
	struct kvpool_wire_layout wire = fx_wire(name, 1, 1, &group);

	return fx_register(holder, &wire);
}

static void key_make(int chain, uint32_t i, uint8_t *out)
{
	memset(out, 0, KVPOOL_KEY_BYTES);
	memcpy(out, &chain, sizeof(chain));
	memcpy(out + 16, &i, sizeof(i));
}

const uint8_t *fx_keys(int chain, uint32_t from, uint32_t n)
{
	ck_assert_uint_le(n, FX_KEYS_MAX);
	for (uint32_t i = 0; i < n; i++)
		key_make(chain, from + i, last_keys + (size_t)i * KVPOOL_KEY_BYTES);
	return last_keys;
}

struct kvpool_reserve_result fx_reserve(int holder, struct fx_range range,
					struct kvpool_wire_block *blocks)
{
	struct kvpool_reserve_result result = {0};
	uint8_t parent[KVPOOL_KEY_BYTES];
	struct kvpool_reserve_args args = {
		.layout = range.layout,
		.group = range.group,
		.n = range.n,
		.keys = fx_keys(range.chain, range.from, range.n),
		.blocks = blocks,
	};

	if (range.from > 0) {
		key_make(range.chain, range.from - 1, parent);
		args.parent = parent;
	}
	ck_assert_int_eq(kvpool_cache_reserve(fx.cache, fx_holder(holder), &args, &result), 0);
	return result;
}

static const struct kvpool_wire_handle *handles_of(const struct kvpool_wire_block *blocks,
						   uint32_t n)
{
	ck_assert_uint_le(n, FX_KEYS_MAX);
	for (uint32_t i = 0; i < n; i++)
		last_handles[i] = (struct kvpool_wire_handle){.block = blocks[i].block,
							      .generation = blocks[i].generation};
	return last_handles;
}

uint32_t fx_commit(int holder, uint32_t shard, const struct kvpool_wire_block *blocks, uint32_t n)
{
	uint32_t done = 0;
	int r = kvpool_cache_commit(fx.cache, fx_holder(holder), shard, false, n,
				    handles_of(blocks, n), &done);

	ck_assert(r == 0 || r == KVPOOL_STATUS_STALE);
	return done;
}

uint32_t fx_abort(int holder, const struct kvpool_wire_block *blocks, uint32_t n)
{
	uint32_t done = 0;
	int r = kvpool_cache_abort(fx.cache, fx_holder(holder), n, handles_of(blocks, n), &done);

	ck_assert(r == 0 || r == KVPOOL_STATUS_STALE);
	return done;
}

void fx_store(int holder, struct fx_range range)
{
	static struct kvpool_wire_block blocks[FX_KEYS_MAX];

	ck_assert_uint_eq(fx_reserve(holder, range, blocks).granted, range.n);
	ck_assert_uint_eq(fx_commit(holder, UINT32_MAX, blocks, range.n), range.n);
}

const struct fx_match *fx_match(int holder, uint16_t layout, int chain, uint32_t n, uint32_t skip,
				uint8_t flags)
{
	const struct kvpool_match_args args = {
		.layout = layout,
		.flags = flags,
		.n = n,
		.skip = skip,
		.keys = fx_keys(chain, 0, n),
		.ranges = last_match.ranges,
		.blocks = last_match.blocks,
		.capacity = FX_KEYS_MAX,
	};

	last_match.status =
		kvpool_cache_match(fx.cache, fx_holder(holder), &args, &last_match.result);
	return &last_match;
}

uint32_t fx_hit(int holder, uint16_t layout, int chain, uint32_t n)
{
	const struct fx_match *m = fx_match(holder, layout, chain, n, 0, KVPOOL_REQUEST_NO_LEASE);

	ck_assert_int_eq(m->status, 0);
	ck_assert_uint_eq(m->result.lease, 0);
	return m->result.blocks;
}

int fx_release(int holder, uint64_t lease, uint32_t keep)
{
	return kvpool_cache_release(fx.cache, fx_holder(holder), lease, keep);
}

uint32_t fx_forget(int holder, struct fx_range range)
{
	uint32_t done = 0;

	ck_assert_int_eq(kvpool_cache_forget(fx.cache, fx_holder(holder), range.layout, range.group,
					     range.n, fx_keys(range.chain, range.from, range.n),
					     &done),
			 0);
	return done;
}

int fx_state(int holder, struct fx_range key)
{
	struct kvpool_waiter *waiter = NULL;
	int r = kvpool_cache_wait(fx.cache, fx_holder(holder), key.layout, key.group,
				  fx_keys(key.chain, key.from, 1), NULL, &waiter);

	if (r == KVPOOL_STATUS_BUSY)
		kvpool_cache_wait_cancel(fx.cache, waiter);
	return r;
}
