/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long random sequences of operations of several clients on one cache, every answer compared with
 * a simple model, every byte and every figure checked after every step.
 *
 * KVPOOL_PROPERTY_STEPS (of each sequence) and KVPOOL_PROPERTY_SEED (one sequence instead of the
 * usual ones) in the environment. A failure prints both, and the last operations.
 */
#include "tests/property/world.h"

#include <stdio.h>
#include <stdlib.h>

#define SEEDS         40u
#define STEPS_DEFAULT 4000u

static const struct {
	void (*run)(struct world *);
	uint32_t weight;
} steps[] = {
	{step_reserve, 30}, {step_commit, 30}, {step_match, 24},      {step_release, 16},
	{step_holder, 6},   {step_layout, 5},  {step_abort, 4},       {step_wait, 6},
	{step_memory, 4},   {step_forget, 3},  {step_wait_cancel, 2}, {step_time, 3},
	{step_flush, 1},
};

static void run_step(struct world *w)
{
	uint32_t total = 0;
	uint64_t ticket;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(steps); i++)
		total += steps[i].weight;
	ticket = world_random(w, total);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(steps); i++) {
		if (ticket < steps[i].weight) {
			steps[i].run(w);
			return;
		}
		ticket -= steps[i].weight;
	}
}

static void run_world(uint64_t seed, uint64_t n_steps, struct seen *seen)
{
	struct world *w = world_new(seed, seen);

	for (w->step = 0; w->step < n_steps; w->step++)
		run_step(w);
	world_free(w);
}

/* A test that met no eviction, say, would pass for the wrong reason. */
static int report(const struct seen *seen)
{
	const struct {
		const char *name;
		uint64_t count;
	} rows[] = {
		{"granted", seen->granted},
		{"exists", seen->exists},
		{"busy", seen->busy},
		{"no parent", seen->no_parent},
		{"no space", seen->no_space},
		{"table full", seen->table},
		{"quota", seen->quota},
		{"too large", seen->too_large},
		{"evicted", seen->evicted},
		{"expired", seen->expired},
		{"flushed", seen->flushed},
		{"extents moved", seen->moved},
		{"segments taken", seen->taken},
		{"segments busy", seen->take_busy},
		{"leases", seen->leased},
		{"hits", seen->hits},
		{"pending", seen->pending},
		{"holders quarantined", seen->quarantined},
		{"forgotten while leased", seen->forgotten_leased},
		{"commits of dead blocks", seen->dead_commits},
		{"aborted", seen->aborted},
		{"woken by a commit", seen->woken_ok},
		{"woken by an end", seen->woken_abandoned},
		{"memory on demand", seen->more},
		{"single shards", seen->partial},
	};
	int missing = 0;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(rows); i++) {
		printf("%-24s %llu\n", rows[i].name, (unsigned long long)rows[i].count);
		if (rows[i].count == 0)
			missing++;
	}
	return missing;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	char *end;
	unsigned long long value;

	if (!text)
		return otherwise;
	value = strtoull(text, &end, 10);
	if (end == text || *end != '\0') {
		fprintf(stderr, "%s is no number: %s\n", name, text);
		exit(EXIT_FAILURE);
	}
	return value;
}

int main(void)
{
	uint64_t n_steps = number_from("KVPOOL_PROPERTY_STEPS", STEPS_DEFAULT);
	uint64_t seed = number_from("KVPOOL_PROPERTY_SEED", 0);
	struct seen seen = {0};

	if (seed != 0) {
		run_world(seed, n_steps, &seen);
		report(&seen);
		return EXIT_SUCCESS;
	}
	for (seed = 1; seed <= SEEDS; seed++)
		run_world(seed, n_steps, &seen);
	if (report(&seen) > 0 && n_steps >= STEPS_DEFAULT) {
		fprintf(stderr, "something that must happen did not\n");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
