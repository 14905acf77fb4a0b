/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool_cache_check(): every structure of the cache against every other.
 *
 * Nothing is taken from the sums that the cache keeps; all is counted again from the records, the
 * slot tables, the lists and the index, and then compared. Owned by a cache; its one thread uses
 * it.
 */
#include "src/cache_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct check {
	const struct kvpool_cache *cache; /* borrowed */
	char *text;                       /* borrowed: the caller's */
	size_t text_bytes;
	uint32_t *holds; /* owned: by block, as the leases say */
	uint32_t kept;   /* of one holder, leases and reservations of an earlier life */
	uint64_t count[KVPOOL_BLOCK_STATES];
	uint64_t bytes[KVPOOL_BLOCK_STATES];
};

/* Always -EUCLEAN. */
KVPOOL_PRINTF(2, 3) static int fault(struct check *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->text, c->text_bytes, format, args);
	va_end(args);
	return -EUCLEAN;
}

static const struct kvpool_record *record_of(const struct check *c, uint32_t block)
{
	return &c->cache->records[block];
}

static bool block_known(const struct check *c, uint32_t block)
{
	return block > 0 && block <= c->cache->block_slab.fresh &&
	       record_of(c, block)->state != KVPOOL_BLOCK_FREE;
}

/* Index, layout, place and reservation of one block. */
static int check_record(struct check *c, uint32_t block)
{
	const struct kvpool_cache *cache = c->cache;
	const struct kvpool_record *r = record_of(c, block);
	bool reserved = r->state == KVPOOL_BLOCK_RESERVED || r->state == KVPOOL_BLOCK_VOID ||
			r->state == KVPOOL_BLOCK_QUARANTINED;
	uint32_t found;

	if (r->state >= KVPOOL_BLOCK_STATES)
		return fault(c, "block %u: state %u", block, r->state);
	if (r->check != kvpool_record_sum(r))
		return fault(c, "block %u: its check does not fit", block);
	if (r->generation == 0)
		return fault(c, "block %u: generation 0", block);
	if (r->layout == 0 || r->layout > cache->layouts_fresh ||
	    r->group >= cache->layouts[r->layout].n_groups)
		return fault(c, "block %u: layout %u group %u is not there", block, r->layout,
			     r->group);
	found = kvpool_index_find(&cache->index,
				  kvpool_index_hash(&cache->index, r->key, r->layout, r->group),
				  r->key, r->layout, r->group);
	if (kvpool_block_indexed(r) && found != block)
		return fault(c, "block %u: the index finds %u for its key", block, found);
	if (!kvpool_block_indexed(r) && found == block)
		return fault(c, "block %u: in the index in state %u", block, r->state);
	if (reserved != (cache->blocks[block].reservation != 0))
		return fault(c, "block %u: state %u, reservation %u", block, r->state,
			     cache->blocks[block].reservation);
	c->count[r->state]++;
	c->bytes[r->state] += kvpool_block_bytes(cache, block);
	return 0;
}

/* Parent and siblings of one block, and what its state allows there. */
static int check_links(struct check *c, uint32_t block)
{
	const struct kvpool_cache *cache = c->cache;
	const struct kvpool_record *r = record_of(c, block);
	const struct kvpool_block *b = &cache->blocks[block];
	uint32_t head =
		r->parent ? cache->blocks[r->parent].first_child : cache->layouts[r->layout].roots;

	if (r->parent && !block_known(c, r->parent))
		return fault(c, "block %u: hangs on %u, which is free", block, r->parent);
	if (r->parent && record_of(c, r->parent)->layout != r->layout)
		return fault(c, "block %u: hangs on a block of another layout", block);
	if (kvpool_block_indexed(r) && r->parent && !kvpool_block_indexed(record_of(c, r->parent)))
		return fault(c, "block %u: can be found, but not what it hangs on", block);
	if (b->prev_sibling == 0 ? head != block
				 : cache->blocks[b->prev_sibling].next_sibling != block)
		return fault(c, "block %u: is not in the list of its siblings", block);
	if (b->first_child && record_of(c, b->first_child)->parent != block)
		return fault(c, "block %u: lists a child that hangs on another", block);
	if (b->next_sibling && cache->blocks[b->next_sibling].prev_sibling != block)
		return fault(c, "block %u: its next sibling does not know it", block);
	if (b->next_sibling && record_of(c, b->next_sibling)->parent != r->parent)
		return fault(c, "block %u: its sibling hangs on another", block);
	if ((r->state == KVPOOL_BLOCK_VOID || r->state == KVPOOL_BLOCK_QUARANTINED) &&
	    (b->first_child || r->parent))
		return fault(c, "block %u: still in the tree in state %u", block, r->state);
	if (r->state == KVPOOL_BLOCK_DEAD && !b->first_child && !b->leases)
		return fault(c, "block %u: dead, and nobody holds it", block);
	if (kvpool_block_evictable(cache, block) && !b->order_next)
		return fault(c, "block %u: evictable, but in no order", block);
	if (r->state != KVPOOL_BLOCK_READY && b->order_next)
		return fault(c, "block %u: in an order in state %u", block, r->state);
	return 0;
}

/* Blocks under one root, itself too; more than there are in all where links lead in a loop. */
static uint64_t count_tree(const struct kvpool_cache *cache, uint32_t root)
{
	uint64_t n = 1;
	uint32_t at = root;

	while (n <= cache->block_slab.used) {
		if (cache->blocks[at].first_child) {
			at = cache->blocks[at].first_child;
			n++;
			continue;
		}
		while (at != root && !cache->blocks[at].next_sibling)
			at = cache->records[at].parent;
		if (at == root)
			break;
		at = cache->blocks[at].next_sibling;
		n++;
	}
	return n;
}

/*
 * Every block is under a root once. check_links() has seen that each is in its parent's list, so
 * one that is not under a root is in a loop.
 */
static int check_tree(struct check *c)
{
	const struct kvpool_cache *cache = c->cache;
	uint64_t n = 0;

	for (uint32_t i = 1; i <= cache->layouts_fresh; i++) {
		for (uint32_t root = cache->layouts[i].roots; root;
		     root = cache->blocks[root].next_sibling) {
			n += count_tree(cache, root);
			if (n > cache->block_slab.used)
				return fault(c, "layout %u: more blocks in the tree than in use",
					     i);
		}
	}
	if (n != cache->block_slab.used)
		return fault(c, "%lu blocks in the trees, %u are in use", n,
			     cache->block_slab.used);
	return 0;
}

static int check_extent(struct check *c, uint32_t x, uint64_t *free_bytes, uint64_t *slack_bytes)
{
	const struct kvpool_extents *e = &c->cache->extents;
	const struct kvpool_extent *extent = &e->table[x];
	const struct kvpool_class *class = &e->classes[extent->size_class];
	uint64_t frame;
	uint32_t used = 0;

	if (extent->state == KVPOOL_EXTENT_ABSENT)
		return 0;
	if (extent->state == KVPOOL_EXTENT_FREE) {
		*free_bytes += c->cache->config.extent_bytes;
		return extent->slots ? fault(c, "extent %u: free, with slots", x) : 0;
	}
	frame = (uint64_t) class->frame_units << KVPOOL_UNIT_SHIFT;
	for (uint32_t slot = 0; slot < class->n_slots; slot++) {
		uint32_t block = kvpool_extents_block(e, x, slot);

		if (!block)
			continue;
		used++;
		if (!block_known(c, block))
			return fault(c, "extent %u slot %u: block %u is free", x, slot, block);
		if (record_of(c, block)->segment != extent->segment ||
		    record_of(c, block)->offset != extent->offset + slot * class->frame_units ||
		    kvpool_block_bytes(c->cache, block) != frame)
			return fault(c, "extent %u slot %u: block %u lies elsewhere", x, slot,
				     block);
	}
	if (used != extent->used || used == 0)
		return fault(c, "extent %u: %u blocks, says %u", x, used, extent->used);
	if ((extent->state == KVPOOL_EXTENT_FULL && used != class->n_slots) ||
	    (extent->state == KVPOOL_EXTENT_OPEN && used == class->n_slots))
		return fault(c, "extent %u: state %u with %u of %u used", x, extent->state, used,
			     class->n_slots);
	*free_bytes += (class->n_slots - used) * frame;
	*slack_bytes += c->cache->config.extent_bytes - class->n_slots * frame;
	c->count[KVPOOL_BLOCK_FREE] += used;
	return 0;
}

static int check_extents(struct check *c)
{
	const struct kvpool_extents *e = &c->cache->extents;
	uint64_t free_bytes = 0, slack_bytes = 0, present = 0, open = 0, listed = 0;

	c->count[KVPOOL_BLOCK_FREE] = 0;
	for (uint32_t x = 0; x < kvpool_extents_end(e); x++) {
		int r = check_extent(c, x, &free_bytes, &slack_bytes);

		if (r)
			return r;
		present += e->table[x].state != KVPOOL_EXTENT_ABSENT;
		open += e->table[x].state == KVPOOL_EXTENT_OPEN;
	}
	for (uint32_t i = 0; i < KVPOOL_CLASSES_MAX; i++) {
		if (!e->classes[i].frame_units)
			continue;
		for (uint32_t x = e->classes[i].open; x != KVPOOL_EXTENT_NONE && listed <= open;
		     x = e->table[x].next)
			listed++;
	}
	if (open != listed)
		return fault(c, "%lu extents are open, %lu listed", open, listed);
	if (c->count[KVPOOL_BLOCK_FREE] != c->cache->block_slab.used)
		return fault(c, "%lu blocks lie in extents, %u are in use",
			     c->count[KVPOOL_BLOCK_FREE], c->cache->block_slab.used);
	if (present != e->n_extents || free_bytes != e->free_bytes || slack_bytes != e->slack_bytes)
		return fault(c, "extents: %lu, free %lu, slack %lu, says %u, %lu, %lu", present,
			     free_bytes, slack_bytes, e->n_extents, e->free_bytes, e->slack_bytes);
	return 0;
}

/* The note of a lease, as the next life would read it. */
static int check_note(struct check *c, uint32_t index)
{
	const struct kvpool_lease *lease = kvpool_lease_at(c->cache, index);
	struct kvpool_note_half note = {0};
	enum kvpool_note_state state;

	if (!c->cache->notes.notes)
		return 0;
	state = kvpool_note_read(&c->cache->notes, index, &note);
	if (!lease->holder)
		return state == KVPOOL_NOTE_EMPTY
			       ? 0
			       : fault(c, "lease %u: is free, its note says client %u", index,
				       note.client);
	if (state != KVPOOL_NOTE_SOUND || note.client != lease->holder->id ||
	    note.generation != lease->generation || note.keys != lease->keys)
		return fault(c, "lease %u: its note is another's, or not sound", index);
	return 0;
}

static int check_notes(struct check *c)
{
	for (uint32_t i = 1; i <= c->cache->lease_slab.fresh; i++) {
		int r = check_note(c, i);

		if (r)
			return r;
	}
	return 0;
}

static int check_leases(struct check *c, const struct kvpool_holder *h, uint64_t *leases)
{
	uint32_t n = 0, holds = 0, previous = 0;
	uint64_t bytes = 0;

	c->kept = 0;
	for (uint32_t i = h->first_lease; i; i = kvpool_lease_at(c->cache, i)->next) {
		struct kvpool_lease *lease = kvpool_lease_at(c->cache, i);

		if (lease->holder != h || lease->prev != previous || n > h->leases)
			return fault(c, "client %u: lease %u is not linked right", h->id, i);
		for (uint32_t k = 0; k < lease->n_holds; k++) {
			uint32_t block = kvpool_lease_holds(lease)[k].block;

			if (!block_known(c, block))
				return fault(c, "client %u: lease %u holds block %u, which is free",
					     h->id, i, block);
			c->holds[block]++;
		}
		c->kept += lease->kept != KVPOOL_KEPT_NO;
		n++;
		holds += lease->n_holds;
		bytes += lease->bytes;
		previous = i;
	}
	*leases += n;
	if (n != h->leases || holds != h->holds || bytes != h->leased_bytes)
		return fault(c, "client %u: %u leases, %u holds, says %u, %u", h->id, n, holds,
			     h->leases, h->holds);
	return 0;
}

static int check_reservations(struct check *c, const struct kvpool_holder *h, bool quarantined,
			      uint64_t *waits)
{
	const struct kvpool_cache *cache = c->cache;
	uint32_t first = quarantined ? h->first_quarantined : h->first_reservation;
	uint32_t said = quarantined ? h->quarantined : h->reserved;
	uint64_t bytes = 0, bytes_said = quarantined ? h->quarantined_bytes : h->reserved_bytes;
	uint32_t n = 0;

	for (uint32_t i = first; i; i = kvpool_reservation_at(cache, i)->next) {
		const struct kvpool_reservation *r = kvpool_reservation_at(cache, i);

		if (n > said || r->holder != h || !block_known(c, r->block) ||
		    cache->blocks[r->block].reservation != i ||
		    (record_of(c, r->block)->state == KVPOOL_BLOCK_QUARANTINED) != quarantined)
			return fault(c, "client %u: reservation %u is not its block's", h->id, i);
		for (uint32_t w = r->waiters; w; w = kvpool_waiter_at(cache, w)->next) {
			if (kvpool_waiter_at(cache, w)->reservation != i || quarantined)
				return fault(c, "waiter %u: waits for another block", w);
			++*waits;
		}
		bytes += kvpool_block_bytes(cache, r->block);
		c->kept += r->kept != KVPOOL_KEPT_NO;
		n++;
	}
	if (n != said || bytes != bytes_said)
		return fault(c, "client %u: %u reservations, says %u", h->id, n, said);
	return 0;
}

static int check_holders(struct check *c)
{
	const struct kvpool_cache *cache = c->cache;
	uint64_t leases = 0, waits = 0, waits_said = 0, reservations = 0, holders = 0;

	for (const struct kvpool_holder *h = cache->holders; h; h = h->next) {
		int r = check_leases(c, h, &leases);

		if (!r)
			r = check_reservations(c, h, false, &waits);
		if (!r)
			r = check_reservations(c, h, true, &waits);
		if (!r && c->kept != h->kept)
			r = fault(c, "client %u: %u kept, says %u", h->id, c->kept, h->kept);
		if (r)
			return r;
		waits_said += h->waits;
		reservations += h->reserved + h->quarantined;
		holders++;
	}
	if (leases != cache->lease_slab.used || waits != cache->waiter_slab.used ||
	    waits != waits_said || reservations != cache->reservation_slab.used ||
	    holders != cache->n_holders)
		return fault(c, "%lu leases, %lu waits, %lu reservations, says %u, %u, %u", leases,
			     waits, reservations, cache->lease_slab.used, cache->waiter_slab.used,
			     cache->reservation_slab.used);
	if (check_notes(c) != 0)
		return -EUCLEAN;
	for (uint32_t i = 0; i < cache->past.n_leaves; i++)
		c->holds[cache->past.leaves[i]]++;
	for (uint32_t block = 1; block <= cache->block_slab.fresh; block++) {
		if (block_known(c, block) && c->holds[block] != cache->blocks[block].leases)
			return fault(c, "block %u: %u holds, says %u", block, c->holds[block],
				     cache->blocks[block].leases);
	}
	return 0;
}

static int check_blocks(struct check *c)
{
	const struct kvpool_cache *cache = c->cache;
	uint64_t known = 0, indexed = 0;

	for (uint32_t block = 1; block <= cache->block_slab.fresh; block++) {
		int r;

		if (!block_known(c, block))
			continue;
		r = check_record(c, block);
		if (!r)
			r = check_links(c, block);
		if (r)
			return r;
		known++;
		indexed += kvpool_block_indexed(record_of(c, block));
	}
	if (known != cache->block_slab.used || indexed != cache->index.n_items)
		return fault(c, "%lu blocks, %lu in the index, says %u, %u", known, indexed,
			     cache->block_slab.used, cache->index.n_items);
	for (uint32_t s = KVPOOL_BLOCK_RESERVED; s < KVPOOL_BLOCK_STATES; s++) {
		if (c->count[s] != cache->count[s] || c->bytes[s] != cache->bytes[s])
			return fault(c, "state %u: %lu blocks of %lu bytes, says %lu of %lu", s,
				     c->count[s], c->bytes[s], cache->count[s], cache->bytes[s]);
	}
	return check_tree(c);
}

static int check_layouts(struct check *c)
{
	const struct kvpool_cache *cache = c->cache;
	uint64_t blocks = 0, layouts = 0;

	for (uint32_t i = 1; i <= cache->layouts_fresh; i++) {
		uint32_t holders = 0;

		for (const struct kvpool_holder *h = cache->holders; h; h = h->next)
			holders += kvpool_layout_of(cache, h, (uint16_t)i) != NULL;
		if (holders != cache->layouts[i].holders)
			return fault(c, "layout %u: %u clients, says %u", i, holders,
				     cache->layouts[i].holders);
		blocks += cache->layouts[i].blocks;
		layouts += cache->layouts[i].n_groups != 0;
	}
	if (blocks != cache->block_slab.used || layouts != cache->n_layouts)
		return fault(c, "%lu layouts with %lu blocks, says %u with %u", layouts, blocks,
			     cache->n_layouts, cache->block_slab.used);
	return 0;
}

static int check_identity(struct check *c)
{
	struct kvpool_cache_usage u;
	uint64_t sum;

	kvpool_cache_usage(c->cache, &u);
	sum = u.free_bytes + u.ready_bytes + u.reserved_bytes + u.leased_only_bytes +
	      u.quarantined_bytes + u.slack_bytes;
	if (u.total_bytes != sum)
		return fault(c, "%lu bytes in all, the parts are %lu", u.total_bytes, sum);
	return 0;
}

static int check_all(struct check *c)
{
	const char *index = kvpool_index_check(&c->cache->index);
	int r;

	if (index)
		return fault(c, "%s", index);
	r = check_blocks(c);
	if (!r)
		r = check_extents(c);
	if (!r)
		r = check_holders(c);
	if (!r)
		r = check_layouts(c);
	if (!r)
		r = check_identity(c);
	return r;
}

int kvpool_cache_check(const struct kvpool_cache *cache, char *text, size_t text_bytes)
{
	size_t n = (size_t)cache->block_slab.fresh + 1;
	struct check c = {.cache = cache};
	int r = -ENOMEM;

	c.text = text;
	c.text_bytes = text_bytes;
	/* What the last MATCH left to do; the cache is const for the caller only. */
	kvpool_cache_settle((struct kvpool_cache *)cache);
	c.holds = calloc(n, sizeof(*c.holds));
	if (c.holds)
		r = check_all(&c);
	free(c.holds);
	return r;
}
