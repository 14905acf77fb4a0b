/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much longer a prefix would be, were all that is being written READY: what waiting for the
 * writers is worth.
 *
 * The rule is that of match_find.c with another idea of presence. It is asked for misses, where
 * there is time, so keys are looked up one by one. Owned by a cache; its one thread uses it.
 */
#include "src/match.h"

/* Is the group's block of this key READY or being written? */
static bool taken(const struct kvpool_match *m, uint32_t group, uint32_t key)
{
	const struct kvpool_index *index = &m->cache->index;
	uint8_t copy[KVPOOL_KEY_BYTES];
	uint64_t hash;

	memcpy(copy, m->args->keys + (size_t)key * KVPOOL_KEY_BYTES, sizeof(copy));
	KVPOOL_COPIED(copy);
	hash = kvpool_index_hash(index, copy, m->args->layout, (uint8_t)group);
	return kvpool_index_find(index, hash, copy, m->args->layout, (uint8_t)group) != 0;
}

/* How far every FULL group reaches. */
static uint32_t full_end(const struct kvpool_match *m)
{
	uint32_t end = m->args->n;

	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		uint32_t at = m->hit;

		if (m->layout->groups[g].kind != KVPOOL_GROUP_FULL)
			continue;
		while (at < end && taken(m, g, at))
			at++;
		end = at;
	}
	return end;
}

/* The longest prefix up to `end` whose window is there. `from`: keys from here to `end` are. */
static uint32_t fit_window(const struct kvpool_match *m, uint32_t group, uint32_t *from,
			   uint32_t end)
{
	uint32_t at = KVPOOL_MIN(*from, end);

	while (end > m->hit) {
		if (at <= kvpool_match_window_start(m, group, end))
			break;
		at--;
		if (!taken(m, group, at))
			end = at;
	}
	*from = at;
	return KVPOOL_MAX(end, m->hit);
}

static uint32_t fit_state(const struct kvpool_match *m, uint32_t group, uint32_t end)
{
	uint32_t least = KVPOOL_MAX(m->hit, m->args->skip); /* needs nothing */

	while (end > least && !taken(m, group, end - 1))
		end--;
	return end;
}

uint32_t kvpool_match_pending(const struct kvpool_match *m)
{
	uint32_t from[KVPOOL_GROUPS_MAX];
	uint32_t end = full_end(m);
	uint32_t before;

	for (uint16_t g = 0; g < m->layout->n_groups; g++)
		from[g] = end;
	do {
		before = end;
		for (uint16_t g = 0; g < m->layout->n_groups; g++) {
			if (m->layout->groups[g].kind == KVPOOL_GROUP_WINDOW)
				end = fit_window(m, g, &from[g], end);
			else if (m->layout->groups[g].kind == KVPOOL_GROUP_STATE)
				end = fit_state(m, g, end);
		}
	} while (end != before && end > m->hit);
	return end - m->hit;
}
