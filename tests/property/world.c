/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and ending a world: its tree of keys, its layouts, its cache; the log and the dice.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_LINES 120
#define LOG_WIDTH 256

/* The last operations of the world that runs; there is one at a time. */
static char log_lines[LOG_LINES][LOG_WIDTH];
static uint64_t log_count;
static const struct world *log_world; /* borrowed */

void world_log(struct world *w, const char *format, ...)
{
	char *line = log_lines[log_count++ % LOG_LINES];
	int n = snprintf(line, LOG_WIDTH, "%6llu  ", (unsigned long long)w->step);
	va_list args;

	va_start(args, format);
	vsnprintf(line + n, LOG_WIDTH - (size_t)n, format, args);
	va_end(args);
}

static void print_log(const struct world *w)
{
	uint64_t first = log_count > LOG_LINES ? log_count - LOG_LINES : 0;

	for (uint64_t i = first; i < log_count; i++)
		fprintf(stderr, "%s\n", log_lines[i % LOG_LINES]);
	fprintf(stderr, "repeat with KVPOOL_PROPERTY_SEED=%llu KVPOOL_PROPERTY_STEPS=%llu\n",
		(unsigned long long)w->seed, (unsigned long long)w->step + 1);
}

void world_fail(const struct world *w, const char *format, ...)
{
	va_list args;

	print_log(w);
	fprintf(stderr, "failed in step %llu: ", (unsigned long long)w->step);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

/* An assertion of the cache failed: say what led to it. It came from this thread's own code. */
static void print_log_of_abort(int signal)
{
	(void)signal;
	print_log(log_world);
}

/* splitmix64 */
uint64_t world_random(struct world *w, uint64_t below)
{
	uint64_t x = (w->random += UINT64_C(0x9e3779b97f4a7c15));

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

bool world_chance(struct world *w, uint64_t percent)
{
	return world_random(w, 100) < percent;
}

uint64_t block_frame(const struct world *w, int block)
{
	return w->layouts[block_layout(block)].frame[block_group(block)];
}

bool place_equal(const struct kvpool_wire_block *a, const struct kvpool_wire_block *b)
{
	return a->block == b->block && a->generation == b->generation && a->segment == b->segment &&
	       a->offset == b->offset;
}

int world_pick_holder(struct world *w, int *layout)
{
	int first = (int)world_random(w, HOLDERS), first_layout = (int)world_random(w, LAYOUTS);

	for (int i = 0; i < HOLDERS; i++) {
		int h = (first + i) % HOLDERS;

		if (w->holders[h].state != HOLDER_LIVE)
			continue;
		if (!layout)
			return h;
		for (int k = 0; k < LAYOUTS; k++)
			if (w->holders[h].has[(first_layout + k) % LAYOUTS]) {
				*layout = (first_layout + k) % LAYOUTS;
				return h;
			}
	}
	return -1;
}

uint32_t world_path(struct world *w, int nodes[LIST_MAX])
{
	int path[NODES], n = 0, node = (int)world_random(w, NODES);
	uint32_t count;

	do {
		path[n++] = node;
		node = w->parents[node];
	} while (node >= 0);
	count = (uint32_t)KVPOOL_MIN(n, (int)LIST_MAX);
	for (uint32_t i = 0; i < count; i++)
		nodes[i] = path[n - 1 - (int)i];
	if (world_chance(w, 5))
		nodes[world_random(w, count)] = (int)world_random(w, NODES);
	return count;
}

static void make_keys(struct world *w)
{
	for (int i = 0; i < NODES; i++) {
		/* Long chains with a fork now and then, and a few roots. */
		if (i == 0 || world_chance(w, 8))
			w->parents[i] = -1;
		else if (world_chance(w, 75))
			w->parents[i] = i - 1;
		else
			w->parents[i] = (int)world_random(w, (uint64_t)i);
		for (size_t k = 0; k < KVPOOL_KEY_BYTES; k++)
			w->keys[i][k] = (uint8_t)world_random(w, 256);
	}
}

static void make_layout(struct world *w, int index)
{
	static const uint64_t slots[] = {16, 256, 300, 1000, 1024, 2500, 4096};
	struct layout *l = &w->layouts[index];
	struct kvpool_wire_layout *wire = &l->wire;

	wire->block_tokens = world_chance(w, 25) ? 1 : 1 + (uint32_t)world_random(w, 32);
	wire->n_groups = (uint16_t)(1 + world_random(w, GROUPS));
	wire->n_shards = (uint16_t)(1 + world_random(w, 4));
	memset(wire->fingerprint, 'a' + index, sizeof(wire->fingerprint));
	snprintf(wire->label, sizeof(wire->label), "layout %d", index);
	l->first_full = -1;
	for (int g = 0; g < wire->n_groups; g++) {
		struct kvpool_wire_group *group = &wire->groups[g];

		/* The first layout has a FULL group; elsewhere anything goes. */
		group->kind =
			index == 0 && g == 0 ? KVPOOL_GROUP_FULL : 1 + (uint32_t)world_random(w, 3);
		group->window = group->kind == KVPOOL_GROUP_WINDOW
					? 1 + (uint32_t)world_random(w, 5u * wire->block_tokens)
					: 0;
		group->slot_bytes = slots[world_random(w, KVPOOL_ARRAY_SIZE(slots))];
		l->stride[g] = KVPOOL_ROUND_UP(group->slot_bytes, (uint64_t)KVPOOL_UNIT_BYTES);
		l->frame[g] = l->stride[g] * wire->n_shards;
		if (l->first_full < 0 && group->kind == KVPOOL_GROUP_FULL)
			l->first_full = g;
	}
}

static bool more(void *cookie)
{
	struct world *w = cookie;

	w->more_asked++;
	if (!w->more_allowed || !world_add_memory(w))
		return false;
	w->seen->more++;
	return true;
}

static void make_config(struct world *w)
{
	w->calm = world_chance(w, 60);
	w->segments_max = 1 + (uint32_t)world_random(w, SEGMENTS);
	w->config = (struct kvpool_cache_config){
		.bytes_max = w->segments_max * SEGMENT_BYTES,
		.extent_bytes = EXTENT_BYTES,
		.segment_bytes = SEGMENT_BYTES,
		.blocks_max = world_chance(w, 20) ? 40 : 0,
		.epoch = w->seed,
		.secret = {w->seed, 1, 2, 3},
		.idle_limit = world_chance(w, 50) ? 60 : 0,
		.leases_max = world_chance(w, 30) ? 4 : 0,
		.reservations_max = world_chance(w, 30) ? 6 : 0,
	};
}

static void make_cache(struct world *w)
{
	const struct kvpool_cache_calls calls = {model_woken, more, w};

	w->catalog_bytes = kvpool_cache_catalog_bytes(&w->config);
	WORLD_CHECK(w, w->catalog_bytes > 0, "the configuration is within its bounds");
	w->catalog = mmap(NULL, w->catalog_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	WORLD_CHECK(w, w->catalog != MAP_FAILED, "no memory for the catalog");
	WORLD_CHECK(w, kvpool_cache_new(&w->config, w->catalog, &calls, &w->cache) == 0,
		    "a new cache");
	WORLD_CHECK(w, kvpool_cache_holder_new(w->cache, 1000, &w->observer) == 0, "the observer");
	for (int i = 0; i < LAYOUTS; i++) {
		struct kvpool_wire_layout_result result;

		WORLD_CHECK(w,
			    kvpool_cache_layout(w->cache, w->observer, &w->layouts[i].wire,
						&w->observer_ids[i], &result) == 0,
			    "the observer's layout %d", i);
	}
}

struct world *world_new(uint64_t seed, struct seen *seen)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w) {
		fprintf(stderr, "no memory for a world\n");
		exit(EXIT_FAILURE);
	}
	log_count = 0;
	log_world = w;
	signal(SIGABRT, print_log_of_abort);
	w->seed = seed;
	w->random = seed * UINT64_C(0x2545f4914f6cdd1d);
	w->seen = seen;
	w->next_holder = 1;
	w->next_segment = 1;
	for (int i = 0; i < BLOCKS; i++)
		w->blocks[i].parent = -1;
	make_keys(w);
	for (int i = 0; i < LAYOUTS; i++)
		make_layout(w, i);
	make_config(w);
	make_cache(w);
	kvpool_cache_usage(w->cache, &w->usage);
	return w;
}

void world_free(struct world *w)
{
	for (int i = 0; i < HOLDERS; i++)
		kvpool_cache_holder_free(w->cache, w->holders[i].cache);
	kvpool_cache_holder_free(w->cache, w->observer);
	kvpool_cache_free(w->cache);
	munmap(w->catalog, w->catalog_bytes);
	for (int i = 0; i < SEGMENTS; i++)
		free(w->segments[i].bytes);
	free(w);
}
