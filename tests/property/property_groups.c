/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching with groups against its definition: random layouts of FULL, WINDOW and STATE groups,
 * random blocks present, being written or missing, every length of the key list and every skip.
 *
 * KVPOOL_PROPERTY_STEPS (trials) and KVPOOL_PROPERTY_SEED in the environment. One thread.
 */
#include "src/cache.h"
#include "tests/property/section7.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KEYS_MAX       12u
#define GROUPS         5u
#define TRIALS_DEFAULT 1500u
#define SEGMENT_BYTES  (UINT64_C(1) << 20)

enum presence {
	MISSING = 0,
	WRITTEN = 1, /* reserved, not committed */
	PRESENT = 2,
};

struct trial {
	uint64_t seed, random;
	struct kvpool_cache *cache;   /* owned */
	struct kvpool_holder *holder; /* owned */
	void *catalog;                /* owned: mapped */
	uint64_t catalog_bytes;
	struct kvpool_wire_layout wire;
	uint16_t layout;
	uint32_t n_keys;
	uint8_t keys[KEYS_MAX][KVPOOL_KEY_BYTES];
	enum presence presence[GROUPS][KEYS_MAX];
	struct kvpool_wire_block places[GROUPS][KEYS_MAX];
};

static uint64_t longest_seen[KEYS_MAX + 1];

static uint64_t dice(struct trial *t, uint64_t below)
{
	uint64_t x = (t->random += UINT64_C(0x9e3779b97f4a7c15));

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

static void describe(const struct trial *t)
{
	static const char marks[] = {'.', 'w', 'P'};

	fprintf(stderr, "block_tokens %u\n", t->wire.block_tokens);
	for (uint32_t g = 0; g < t->wire.n_groups; g++) {
		fprintf(stderr, "kind %u window %-4u ", t->wire.groups[g].kind,
			t->wire.groups[g].window);
		for (uint32_t k = 0; k < t->n_keys; k++)
			fputc(marks[t->presence[g][k]], stderr);
		fputc('\n', stderr);
	}
	fprintf(stderr, "repeat with KVPOOL_PROPERTY_SEED=%llu\n", (unsigned long long)t->seed);
}

#define EXPECT(t, condition, ...)                                     \
	do {                                                          \
		if (!(condition)) {                                   \
			fprintf(stderr, #condition ": " __VA_ARGS__); \
			fputc('\n', stderr);                          \
			describe(t);                                  \
			exit(EXIT_FAILURE);                           \
		}                                                     \
	} while (0)

static void make_layout(struct trial *t)
{
	struct kvpool_wire_layout *wire = &t->wire;

	wire->block_tokens = dice(t, 4) == 0 ? 1 : 1 + (uint32_t)dice(t, 20);
	wire->n_groups = (uint16_t)(1 + dice(t, GROUPS));
	wire->n_shards = (uint16_t)(1 + dice(t, 3));
	memset(wire->fingerprint, 7, sizeof(wire->fingerprint));
	for (uint32_t g = 0; g < wire->n_groups; g++) {
		wire->groups[g].kind = 1 + (uint32_t)dice(t, 3);
		wire->groups[g].slot_bytes = 256 + dice(t, 1024);
		if (wire->groups[g].kind == KVPOOL_GROUP_WINDOW)
			wire->groups[g].window =
				1 + (uint32_t)dice(t, (KEYS_MAX + 1) * wire->block_tokens);
	}
}

static void make_cache(struct trial *t)
{
	static const struct kvpool_cache_calls no_calls;
	const struct kvpool_cache_config config = {
		.bytes_max = SEGMENT_BYTES,
		.extent_bytes = 16384,
		.segment_bytes = SEGMENT_BYTES,
		.epoch = 1,
		.secret = {t->seed, 1, 2, 3},
	};
	struct kvpool_wire_layout_result result;

	t->catalog_bytes = kvpool_cache_catalog_bytes(&config);
	t->catalog = mmap(NULL, t->catalog_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	EXPECT(t, t->catalog != MAP_FAILED, "no memory");
	EXPECT(t, kvpool_cache_new(&config, t->catalog, &no_calls, &t->cache) == 0, "new");
	EXPECT(t, kvpool_cache_memory_add(t->cache, 1, 0, SEGMENT_BYTES) == 0, "memory");
	EXPECT(t, kvpool_cache_holder_new(t->cache, 1, &t->holder) == 0, "holder");
	EXPECT(t, kvpool_cache_layout(t->cache, t->holder, &t->wire, &t->layout, &result) == 0,
	       "layout");
}

/* The FULL group that WINDOW and STATE blocks hang on; n_groups: none. */
static uint32_t first_full(const struct trial *t)
{
	uint32_t g = 0;

	while (g < t->wire.n_groups && t->wire.groups[g].kind != KVPOOL_GROUP_FULL)
		g++;
	return g;
}

static void reserve_and_commit(struct trial *t, uint32_t group, uint32_t key, bool commit)
{
	const struct kvpool_reserve_args args = {
		.layout = t->layout,
		.group = group,
		.n = 1,
		.keys = t->keys[key],
		.parent = key > 0 ? t->keys[key - 1] : NULL,
		.blocks = &t->places[group][key],
	};
	struct kvpool_reserve_result result;
	uint32_t done = 0;

	EXPECT(t, kvpool_cache_reserve(t->cache, t->holder, &args, &result) == 0, "reserve");
	EXPECT(t, result.granted == 1, "group %u, key %u: no place (status %u)", group, key,
	       t->places[group][key].generation);
	t->presence[group][key] = WRITTEN;
	if (!commit)
		return;
	EXPECT(t,
	       kvpool_cache_commit(
		       t->cache, t->holder, UINT32_MAX, false, 1,
		       &(struct kvpool_wire_handle){.block = t->places[group][key].block,
						    .generation = t->places[group][key].generation},
		       &done) == 0 &&
		       done == 1,
	       "commit");
	t->presence[group][key] = PRESENT;
}

/* FULL groups first, since the others hang on them; mostly present, so that prefixes are long. */
static void fill(struct trial *t)
{
	uint32_t base = first_full(t);

	for (uint32_t g = 0; g < t->wire.n_groups; g++) {
		uint32_t length = t->n_keys - (uint32_t)(dice(t, 3) == 0 ? dice(t, t->n_keys) : 0);

		if (t->wire.groups[g].kind != KVPOOL_GROUP_FULL)
			continue;
		for (uint32_t k = 0; k < length; k++)
			reserve_and_commit(t, g, k, dice(t, 20) != 0);
	}
	for (uint32_t g = 0; g < t->wire.n_groups; g++) {
		uint64_t percent = 30 + dice(t, 71);

		if (t->wire.groups[g].kind == KVPOOL_GROUP_FULL)
			continue;
		for (uint32_t k = 0; k < t->n_keys; k++)
			if (dice(t, 100) < percent &&
			    (base == t->wire.n_groups || t->presence[base][k] != MISSING))
				reserve_and_commit(t, g, k, dice(t, 20) != 0);
	}
}

static bool ready(const void *cookie, uint32_t group, uint32_t key)
{
	return ((const struct trial *)cookie)->presence[group][key] == PRESENT;
}

static bool taken(const void *cookie, uint32_t group, uint32_t key)
{
	return ((const struct trial *)cookie)->presence[group][key] != MISSING;
}

static void check_reported(struct trial *t, const struct section7 *rule, uint32_t length,
			   const struct kvpool_wire_range *ranges,
			   const struct kvpool_wire_block *blocks)
{
	for (uint32_t g = 0; g < t->wire.n_groups; g++) {
		struct kvpool_wire_range r = section7_range(rule, g, length);

		EXPECT(t,
		       ranges[g].count == r.count && (r.count == 0 || ranges[g].first == r.first),
		       "n %u skip %u group %u: keys %u+%u, expected %u+%u", rule->n, rule->skip, g,
		       ranges[g].first, ranges[g].count, r.first, r.count);
		for (uint32_t i = 0; i < r.count; i++, blocks++)
			EXPECT(t, memcmp(blocks, &t->places[g][r.first + i], sizeof(*blocks)) == 0,
			       "n %u skip %u group %u key %u: another block", rule->n, rule->skip,
			       g, r.first + i);
	}
}

static void check_match(struct trial *t, uint32_t n, uint32_t skip)
{
	struct kvpool_wire_range ranges[GROUPS];
	struct kvpool_wire_block blocks[GROUPS * KEYS_MAX];
	const struct kvpool_match_args args = {
		.layout = t->layout,
		.flags = KVPOOL_REQUEST_PENDING,
		.n = n,
		.skip = skip,
		.keys = t->keys[0],
		.ranges = ranges,
		.blocks = blocks,
		.capacity = GROUPS * KEYS_MAX,
	};
	const struct section7 rule = {&t->wire, n, skip, ready, taken, t};
	uint32_t length = section7_longest(&rule);
	struct kvpool_match_result result;

	EXPECT(t, kvpool_cache_match(t->cache, t->holder, &args, &result) == 0, "match");
	EXPECT(t, result.blocks == length, "n %u skip %u: %u keys, expected %u", n, skip,
	       result.blocks, length);
	EXPECT(t, result.pending == section7_pending(&rule, length),
	       "n %u skip %u: %u pending, expected %u", n, skip, result.pending,
	       section7_pending(&rule, length));
	EXPECT(t, (result.lease != 0) == (result.reported != 0), "%u reported, lease %llu",
	       result.reported, (unsigned long long)result.lease);
	check_reported(t, &rule, length, ranges, blocks);
	if (result.lease != 0)
		EXPECT(t, kvpool_cache_release(t->cache, t->holder, result.lease, 0) == 0,
		       "release");
	longest_seen[length]++;
}

static void run_trial(uint64_t seed)
{
	struct trial t = {.seed = seed, .random = seed * UINT64_C(0x2545f4914f6cdd1d)};
	char fault[256] = "";

	t.n_keys = 1 + (uint32_t)dice(&t, KEYS_MAX);
	for (uint32_t k = 0; k < t.n_keys; k++)
		for (uint32_t i = 0; i < KVPOOL_KEY_BYTES; i++)
			t.keys[k][i] = (uint8_t)dice(&t, 256);
	make_layout(&t);
	make_cache(&t);
	fill(&t);
	for (uint32_t n = 1; n <= t.n_keys; n++)
		for (uint32_t skip = 0; skip <= n; skip++)
			check_match(&t, n, skip);
	EXPECT(&t, kvpool_cache_check(t.cache, fault, sizeof(fault)) == 0, "%s", fault);
	kvpool_cache_holder_free(t.cache, t.holder);
	kvpool_cache_free(t.cache);
	munmap(t.catalog, t.catalog_bytes);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
	uint64_t seed = number_from("KVPOOL_PROPERTY_SEED", 0);
	uint64_t trials = number_from("KVPOOL_PROPERTY_STEPS", TRIALS_DEFAULT);

	if (seed != 0) {
		run_trial(seed);
		return EXIT_SUCCESS;
	}
	for (seed = 1; seed <= trials; seed++)
		run_trial(seed);
	for (uint32_t i = 0; i <= KEYS_MAX; i++) {
		printf("prefixes of %2u keys: %llu\n", i, (unsigned long long)longest_seen[i]);
		if (longest_seen[i] == 0 && trials >= TRIALS_DEFAULT) {
			fprintf(stderr, "no prefix of %u keys was seen\n", i);
			return EXIT_FAILURE;
		}
	}
	return EXIT_SUCCESS;
}
