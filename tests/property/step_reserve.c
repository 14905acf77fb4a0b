/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random RESERVE: every key's answer must be one that the text allows, evicted blocks must have
 * been evictable, and a refusal must have had no way out.
 *
 * Owned by the test's only thread.
 */
#include "tests/property/world.h"

#include <string.h>

struct reserve {
	int holder, layout, group;
	uint32_t n;
	int nodes[LIST_MAX];
	int parent;          /* node before the first key; -1: none */
	bool pinned[BLOCKS]; /* before the call */
	uint32_t granted;
	uint32_t replaced; /* keys that were READY, were evicted, and got a place again */
	uint32_t reserved; /* blocks that the holder has reserved by now */
	uint32_t dead;     /* and such as nobody finds any more; they may count as well */
	enum kvpool_no_space detail;
	uint32_t refusals;
	int refused, refused_parent; /* the first block without space, none granted after it */
	bool gone[BLOCKS]; /* must be absent after the call: what was answered supposes it */
};

static uint32_t count_reserved(const struct world *w, int holder)
{
	uint32_t n = 0;

	for (int i = 0; i < BLOCKS; i++)
		n += w->blocks[i].state == BLOCK_RESERVED && w->blocks[i].holder == holder;
	return n;
}

static uint32_t count_dead(const struct world *w, int holder)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_limbos; i++)
		n += w->limbos[i].holder == holder;
	return n;
}

/* Records in use: blocks, and what is forgotten but not free yet. */
static uint32_t count_records(const struct world *w)
{
	uint32_t n = w->n_limbos;

	for (int i = 0; i < BLOCKS; i++)
		n += w->blocks[i].state != BLOCK_ABSENT;
	return n + (uint32_t)w->usage.leased_only_blocks;
}

static void pick(struct world *w, struct reserve *q)
{
	int path[LIST_MAX];
	uint32_t n = world_path(w, path), from = 0;

	/* From the start of the chain, or from its first block that is missing, or from anywhere.
	 */
	if (world_chance(w, 70))
		while (from + 1 < n &&
		       w->blocks[block_index(q->layout, q->group, path[from])].state !=
			       BLOCK_ABSENT)
			from++;
	else if (world_chance(w, 50))
		from = (uint32_t)world_random(w, n);
	q->n = 1 + (uint32_t)world_random(w, n - from);
	memcpy(q->nodes, path + from, q->n * sizeof(path[0]));
	q->parent = from > 0 ? path[from - 1] : -1;
	if (world_chance(w, 3))
		q->parent = (int)world_random(w, NODES + 1) - 1;
}

/* The block that key `i` hangs on; -1: none. */
static int parent_of(const struct world *w, const struct reserve *q, uint32_t i)
{
	const struct layout *l = &w->layouts[q->layout];

	if (l->wire.groups[q->group].kind != KVPOOL_GROUP_FULL)
		return l->first_full < 0 ? -1 : block_index(q->layout, l->first_full, q->nodes[i]);
	if (i > 0)
		return block_index(q->layout, q->group, q->nodes[i - 1]);
	return q->parent < 0 ? -1 : block_index(q->layout, q->group, q->parent);
}

static void check_granted(struct world *w, struct reserve *q, int block, int parent,
			  const struct kvpool_wire_block *place)
{
	struct block *b = &w->blocks[block];

	WORLD_CHECK(w, parent < 0 || w->blocks[parent].state != BLOCK_ABSENT,
		    "block %d was granted without block %d", block, parent);
	WORLD_CHECK(w, b->state != BLOCK_RESERVED, "block %d was granted twice", block);
	if (b->state == BLOCK_READY) {
		WORLD_CHECK(w, !q->pinned[block], "block %d was held and granted again", block);
		q->replaced++;
	}
	WORLD_CHECK(w, w->config.reservations_max == 0 || q->reserved < w->config.reservations_max,
		    "more than %u reservations", w->config.reservations_max);
	*b = (struct block){
		.state = BLOCK_RESERVED,
		.holder = q->holder,
		.parent = parent,
		.place = *place,
		.stamp = ++w->stamps,
	};
	q->gone[block] = false;
	q->reserved++;
	q->granted++;
	q->refused = -1;
	stamp_write(w, block, place, b->stamp);
	w->seen->granted++;
}

static bool anybody_holds(const struct world *w)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->blocks[i].state == BLOCK_RESERVED)
			return true;
	for (int i = 0; i < LEASES; i++)
		if (w->leases[i].id != 0 && !w->leases[i].faint)
			return true;
	return false;
}

static void check_no_space(struct world *w, struct reserve *q, int block, int parent, uint32_t why)
{
	const struct kvpool_cache_config *c = &w->config;
	bool own_limit = false;

	switch (why) {
	case KVPOOL_NO_SPACE_GROWING:
		WORLD_CHECK(w, w->growing, "GROWING, though nothing more will come");
		break;
	case KVPOOL_NO_SPACE_QUOTA:
		/* The client's limit; or the domain has too little memory, though nobody holds it.
		 */
		own_limit =
			c->reservations_max != 0 && q->reserved + q->dead >= c->reservations_max;
		WORLD_CHECK(w, own_limit || !anybody_holds(w), "QUOTA at %u reservations",
			    q->reserved);
		w->seen->quota++;
		break;
	case KVPOOL_NO_SPACE_TABLE:
		WORLD_CHECK(w, c->blocks_max != 0 && count_records(w) + 2 >= c->blocks_max,
			    "TABLE at %u records", count_records(w));
		w->seen->table++;
		break;
	case KVPOOL_NO_SPACE_LEASED:
	case KVPOOL_NO_SPACE_RESERVED:
		break;
	default:
		world_fail(w, "NO_SPACE for reason %u", why);
	}
	if (q->detail == KVPOOL_NO_SPACE_NONE)
		q->detail = why;
	/* Later keys of one request may be refused because the first one was. */
	if (!own_limit && why != KVPOOL_NO_SPACE_TABLE && q->refusals++ == 0) {
		q->refused = block;
		q->refused_parent = parent;
	}
	w->seen->no_space++;
}

static void check_key(struct world *w, struct reserve *q, uint32_t i,
		      const struct kvpool_wire_block *answer)
{
	int block = block_index(q->layout, q->group, q->nodes[i]);
	int parent = parent_of(w, q, i);

	if (answer->block != 0) {
		check_granted(w, q, block, parent, answer);
		return;
	}
	switch (answer->generation) {
	case KVPOOL_STATUS_EXISTS:
		WORLD_CHECK(w, w->blocks[block].state == BLOCK_READY, "EXISTS: block %d", block);
		w->seen->exists++;
		break;
	case KVPOOL_STATUS_BUSY:
		WORLD_CHECK(w, w->blocks[block].state == BLOCK_RESERVED, "BUSY: block %d", block);
		w->seen->busy++;
		break;
	case KVPOOL_STATUS_NO_PARENT:
		WORLD_CHECK(w, parent >= 0 && w->blocks[parent].state != BLOCK_RESERVED,
			    "NO_PARENT: block %d, which hangs on %d", block, parent);
		/* It was there before, so it went in this call, to make room for another key. */
		if (w->blocks[parent].state == BLOCK_READY)
			q->gone[parent] = true;
		w->seen->no_parent++;
		break;
	case KVPOOL_STATUS_NO_SPACE:
		WORLD_CHECK(w, w->blocks[block].state != BLOCK_RESERVED, "NO_SPACE: block %d",
			    block);
		if (w->blocks[block].state == BLOCK_READY)
			q->gone[block] = true;
		check_no_space(w, q, block, parent, answer->segment);
		break;
	default:
		world_fail(w, "key %u is answered with %u", i, answer->generation);
	}
}

static void check_holder(struct world *w, const struct reserve *q, uint32_t id)
{
	bool known = id == 0 && q->detail != KVPOOL_NO_SPACE_LEASED &&
		     q->detail != KVPOOL_NO_SPACE_RESERVED;

	for (int i = 0; i < HOLDERS; i++)
		known = known || (w->holders[i].state != HOLDER_NONE && w->holders[i].id == id);
	WORLD_CHECK(w, q->detail == KVPOOL_NO_SPACE_NONE || known,
		    "the space is said to be held by client %u (reason %u)", id, q->detail);
}

/* What only shows after the blocks that went are known. */
static void check_after(struct world *w, const struct reserve *q, uint64_t evicted_before,
			uint64_t free_before)
{
	uint32_t gone = world_observe(w, true) + q->replaced;
	const char *way_out;

	WORLD_CHECK(w, w->usage.evicted - evicted_before == gone,
		    "%u blocks went, %llu are counted", gone,
		    (unsigned long long)(w->usage.evicted - evicted_before));
	WORLD_CHECK(w, gone == 0 || free_before < q->granted || w->config.blocks_max != 0,
		    "%u blocks went though %llu extents were free", gone,
		    (unsigned long long)free_before);
	for (int i = 0; i < BLOCKS; i++)
		WORLD_CHECK(w, !q->gone[i] || w->blocks[i].state == BLOCK_ABSENT,
			    "block %d is there, against what was answered", i);
	for (uint32_t i = 0; i < q->n; i++) {
		int block = block_index(q->layout, q->group, q->nodes[i]);

		if (w->blocks[block].state == BLOCK_RESERVED &&
		    w->blocks[block].holder == q->holder)
			place_check(w, block);
	}
	way_out = q->refused < 0 ? NULL : world_could_fit(w, q->refused, q->refused_parent);
	WORLD_CHECK(w, !way_out, "no space for block %d, though %s", q->refused, way_out);
	w->seen->evicted += gone;
}

static int call(struct world *w, const struct reserve *q, struct kvpool_wire_block *blocks,
		struct kvpool_reserve_result *result)
{
	uint8_t keys[LIST_MAX][KVPOOL_KEY_BYTES];
	const struct kvpool_reserve_args args = {
		.layout = w->holders[q->holder].ids[q->layout],
		.group = (uint32_t)q->group,
		.n = q->n,
		.keys = keys[0],
		.parent = q->parent < 0 ? NULL : w->keys[q->parent],
		.blocks = blocks,
	};

	for (uint32_t i = 0; i < q->n; i++)
		memcpy(keys[i], w->keys[q->nodes[i]], KVPOOL_KEY_BYTES);
	return kvpool_cache_reserve(w->cache, w->holders[q->holder].cache, &args, result);
}

void step_reserve(struct world *w)
{
	struct kvpool_wire_block blocks[LIST_MAX] = {{0}};
	struct kvpool_reserve_result result;
	struct reserve q = {.refused = -1, .refused_parent = -1};
	uint64_t evicted = w->usage.evicted, free_extents = w->usage.extents_free;
	int r;

	q.holder = world_pick_holder(w, &q.layout);
	if (q.holder < 0)
		return;
	q.group = (int)world_random(w, w->layouts[q.layout].wire.n_groups);
	pick(w, &q);
	q.reserved = count_reserved(w, q.holder);
	q.dead = count_dead(w, q.holder);
	world_pinned(w, q.pinned);
	w->more_allowed = world_chance(w, 30);
	world_log(w, "reserve holder %d layout %d group %d parent %d keys %u from %d", q.holder,
		  q.layout, q.group, q.parent, q.n, q.nodes[0]);
	r = call(w, &q, blocks, &result);
	if (r == KVPOOL_STATUS_LIMIT && w->config.reservations_max != 0) {
		WORLD_CHECK(w, q.reserved + q.dead + q.n > w->config.reservations_max,
			    "LIMIT at %u", q.reserved);
		world_observe(w, false);
		return;
	}
	WORLD_CHECK(w, r == 0, "answers %d", r);
	for (uint32_t i = 0; i < q.n; i++)
		check_key(w, &q, i, &blocks[i]);
	WORLD_CHECK(w, result.granted == q.granted, "%u granted, %u said", q.granted,
		    result.granted);
	WORLD_CHECK(w, result.detail == q.detail, "detail %u, expected %u", result.detail,
		    q.detail);
	WORLD_CHECK(w, q.n != 1 || place_equal(&result.first, &blocks[0]), "first");
	check_holder(w, &q, result.holder);
	check_after(w, &q, evicted, free_extents);
}
