/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MATCH: the longest usable prefix, where its blocks lie, and a lease on them.
 *
 * The reply's parts are written to peer memory here, from private copies. What the reply does not
 * depend on (counts of leases, use, counters) is left for kvpool_cache_settle(). Owned by a cache;
 * its one thread uses it.
 */
#include "src/match.h"

#include <errno.h>
#include <stdlib.h>

/* Which blocks the reply names. Returns how many. */
static uint64_t find_reported(struct kvpool_match *m)
{
	uint32_t skip = m->args->skip;
	uint64_t total = 0;

	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		m->first[g] = m->hit;
		m->reported[g] = 0;
		if (m->hit <= skip)
			continue;
		switch (m->layout->groups[g].kind) {
		case KVPOOL_GROUP_FULL:
			m->first[g] = skip;
			break;
		case KVPOOL_GROUP_WINDOW:
			m->first[g] = kvpool_match_window_start(m, g, m->hit);
			break;
		default:
			m->first[g] = m->hit - 1;
			break;
		}
		m->reported[g] = m->hit - m->first[g];
		total += m->reported[g];
	}
	return total;
}

static bool chained(const struct kvpool_match *m, uint32_t group)
{
	return m->layout->groups[group].kind == KVPOOL_GROUP_FULL && !m->broken[group];
}

/* A lease on all that is reported. 0, KVPOOL_STATUS_LIMIT or -ENOMEM. */
static int make_lease(struct kvpool_match *m, uint32_t *out)
{
	struct kvpool_lease *lease;
	struct kvpool_hold *hold;
	uint32_t n = 0, index;

	for (uint16_t g = 0; g < m->layout->n_groups; g++)
		n += chained(m, g) ? 1 : m->reported[g];
	if (!kvpool_lease_room(m->cache, m->holder, n))
		return KVPOOL_STATUS_LIMIT;
	index = kvpool_lease_new(m->cache, m->holder, m->args->layout, n);
	if (!index)
		return -ENOMEM;
	lease = kvpool_lease_at(m->cache, index);
	lease->keys = m->hit;
	hold = kvpool_lease_holds(lease);
	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		const struct kvpool_wire_block *found = kvpool_match_found(m, g);
		uint32_t from = chained(m, g) ? m->hit - 1 : m->first[g];

		for (uint32_t key = from; key < m->hit; key++)
			*hold++ = (struct kvpool_hold){found[key].block, key, g, chained(m, g)};
	}
	kvpool_lease_note(m->cache, index);
	*out = index;
	return 0;
}

static uint64_t lease_number(const struct kvpool_cache *cache, uint32_t index)
{
	return (uint64_t)kvpool_lease_at(cache, index)->generation << 32 | index;
}

/* Writes ranges and places to the peer and takes note of what is left to do. */
static void emit(struct kvpool_match *m, struct kvpool_match_result *result)
{
	struct kvpool_settlement *s = &m->cache->settlement;
	struct kvpool_wire_block *out = m->args->blocks;

	result->first = (struct kvpool_wire_block){0};
	s->n_ranges = 0;
	for (uint16_t g = 0; g < m->layout->n_groups; g++) {
		const struct kvpool_wire_block *found = kvpool_match_found(m, g);
		bool full = m->layout->groups[g].kind == KVPOOL_GROUP_FULL;

		m->args->ranges[g] = (struct kvpool_wire_range){m->first[g], m->reported[g]};
		if (m->reported[g]) {
			memcpy(out, found + m->first[g], m->reported[g] * sizeof(*out));
			if (out == m->args->blocks)
				result->first = found[m->first[g]];
			out += m->reported[g];
		}
		if (full && m->hit)
			s->ranges[s->n_ranges++] =
				(struct kvpool_settlement_range){found, m->hit, false};
		else if (m->reported[g])
			s->ranges[s->n_ranges++] = (struct kvpool_settlement_range){
				found + m->first[g], m->reported[g], true};
	}
}

static int scratch_room(struct kvpool_cache *cache, uint64_t blocks)
{
	struct kvpool_wire_block *scratch;

	if (blocks <= cache->scratch_blocks)
		return 0;
	blocks = KVPOOL_MAX(blocks, 1024);
	scratch = malloc(blocks * sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	free(cache->scratch);
	cache->scratch = scratch;
	cache->scratch_blocks = blocks;
	return 0;
}

static int match_many(struct kvpool_cache *cache, struct kvpool_holder *holder,
		      const struct kvpool_layout *layout, const struct kvpool_match_args *args,
		      struct kvpool_match_result *result)
{
	struct kvpool_match m = {.cache = cache, .holder = holder, .layout = layout, .args = args};
	struct kvpool_settlement *s = &cache->settlement;
	uint64_t reported;
	uint32_t lease = 0;
	int r;

	r = scratch_room(cache, (uint64_t)args->n * layout->n_groups);
	if (r)
		return r;
	m.found = cache->scratch;
	kvpool_match_find(&m);
	reported = find_reported(&m);
	if (reported > args->capacity)
		return KVPOOL_STATUS_INVALID;
	if (reported && !(args->flags & KVPOOL_REQUEST_NO_LEASE)) {
		r = make_lease(&m, &lease);
		if (r)
			return r;
	}
	emit(&m, result);
	result->blocks = m.hit;
	result->reported = (uint32_t)reported;
	result->lease = lease ? lease_number(cache, lease) : 0;
	result->pending = args->flags & KVPOOL_REQUEST_PENDING ? kvpool_match_pending(&m) : 0;
	s->lease = lease;
	s->hit = m.hit;
	return 0;
}

/* One key, one group: the shortest way from the entry to the reply. */
static int match_one(struct kvpool_cache *cache, struct kvpool_holder *holder,
		     const struct kvpool_match_args *args, struct kvpool_match_result *result)
{
	struct kvpool_settlement *s = &cache->settlement;
	struct kvpool_lease *lease;
	uint8_t key[KVPOOL_KEY_BYTES];
	uint32_t block, reported;
	uint64_t hash;

	memcpy(key, args->keys, sizeof(key));
	KVPOOL_COPIED(key);
	hash = kvpool_index_hash(&cache->index, key, args->layout, 0);
	block = kvpool_index_find(&cache->index, hash, key, args->layout, 0);
	if (block && cache->records[block].state != KVPOOL_BLOCK_READY)
		block = 0;
	reported = block && args->skip == 0;
	if (reported > args->capacity)
		return KVPOOL_STATUS_INVALID;
	s->lease = 0;
	if (reported && !(args->flags & KVPOOL_REQUEST_NO_LEASE)) {
		if (!kvpool_lease_room(cache, holder, 1))
			return KVPOOL_STATUS_LIMIT;
		s->lease = kvpool_lease_new(cache, holder, args->layout, 1);
		if (!s->lease)
			return -ENOMEM;
		lease = kvpool_lease_at(cache, s->lease);
		lease->keys = 1;
		lease->one = (struct kvpool_hold){.block = block, .chain = 1};
		kvpool_lease_note(cache, s->lease);
	}
	s->hit = block != 0;
	s->n_ranges = block != 0;
	s->one = (struct kvpool_wire_block){0};
	if (block)
		s->one = kvpool_match_place(&cache->records[block], block);
	s->ranges[0] = (struct kvpool_settlement_range){&s->one, 1, true};
	*args->ranges = (struct kvpool_wire_range){s->hit - reported, reported};
	if (reported)
		*args->blocks = s->one;
	*result = (struct kvpool_match_result){
		.blocks = s->hit,
		.reported = reported,
		.lease = s->lease ? lease_number(cache, s->lease) : 0,
	};
	if (reported)
		result->first = s->one;
	return 0;
}

int kvpool_cache_match(struct kvpool_cache *cache, struct kvpool_holder *holder,
		       const struct kvpool_match_args *args, struct kvpool_match_result *result)
{
	const struct kvpool_layout *layout = kvpool_layout_of(cache, holder, args->layout);
	struct kvpool_settlement *s = &cache->settlement;
	int r;

	kvpool_cache_settle(cache);
	if (!layout)
		return KVPOOL_STATUS_NO_LAYOUT;
	if (args->n == 0 || args->n > KVPOOL_KEYS_MAX || args->skip > args->n)
		return KVPOOL_STATUS_INVALID;
	if (args->n == 1 && layout->n_groups == 1 && layout->groups[0].kind == KVPOOL_GROUP_FULL &&
	    !(args->flags & KVPOOL_REQUEST_PENDING))
		r = match_one(cache, holder, args, result);
	else
		r = match_many(cache, holder, layout, args, result);
	if (r)
		return r;
	s->pending = true;
	s->n = args->n;
	s->layout = args->layout;
	return 0;
}

static void touch_range(struct kvpool_cache *cache, const struct kvpool_settlement_range *range)
{
	for (uint32_t i = 0; i < range->count; i++) {
		struct kvpool_place place = {range->found[i].segment, range->found[i].offset};

		if (range->records)
			kvpool_block_touch(cache, &cache->records[range->found[i].block]);
		kvpool_extents_touch(&cache->extents, place, cache->tick);
	}
}

void kvpool_cache_settle(struct kvpool_cache *cache)
{
	struct kvpool_settlement *s = &cache->settlement;
	struct kvpool_counters *c = &cache->counters;
	uint32_t block_tokens;

	if (!s->pending)
		return;
	s->pending = false;
	if (s->lease)
		kvpool_lease_settle(cache, s->lease);
	for (uint32_t i = 0; i < s->n_ranges; i++)
		touch_range(cache, &s->ranges[i]);
	block_tokens = cache->layouts[s->layout].block_tokens;
	c->matches++;
	c->match_keys += s->n;
	c->match_hit_keys += s->hit;
	c->match_tokens += (uint64_t)s->n * block_tokens;
	c->match_hit_tokens += (uint64_t)s->hit * block_tokens;
}
