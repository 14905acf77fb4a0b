/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: what clients are writing, from RESERVE to COMMIT, ABORT or the client's end.
 *
 * One a block. A RESERVED block is in the index; a VOID one is not (it was forgotten, or what it
 * hung on went), and its frame stays the writer's until every shard was committed, or it is
 * aborted. A QUARANTINED one stays until its writer is proven gone. Owned by a cache; its one
 * thread uses it.
 */
#include "shm/crc32c.h"
#include "src/cache_internal.h"

#include <assert.h>

#define SHARD_ALL UINT32_MAX

static uint32_t *list_of(struct kvpool_holder *holder, bool quarantined)
{
	return quarantined ? &holder->first_quarantined : &holder->first_reservation;
}

static void list_push(struct kvpool_cache *cache, uint32_t *head, uint32_t index)
{
	struct kvpool_reservation *r = kvpool_reservation_at(cache, index);

	r->prev = 0;
	r->next = *head;
	if (r->next)
		kvpool_reservation_at(cache, r->next)->prev = index;
	*head = index;
}

static void list_drop(struct kvpool_cache *cache, uint32_t *head, uint32_t index)
{
	struct kvpool_reservation *r = kvpool_reservation_at(cache, index);

	if (r->prev)
		kvpool_reservation_at(cache, r->prev)->next = r->next;
	else
		*head = r->next;
	if (r->next)
		kvpool_reservation_at(cache, r->next)->prev = r->prev;
}

void kvpool_reservation_new(struct kvpool_cache *cache, struct kvpool_holder *holder,
			    uint32_t block)
{
	uint32_t index = kvpool_slab_take(&cache->reservation_slab);

	assert(index);
	*kvpool_reservation_at(cache, index) =
		(struct kvpool_reservation){.block = block, .holder = holder};
	list_push(cache, &holder->first_reservation, index);
	holder->reserved++;
	holder->reserved_bytes += kvpool_block_bytes(cache, block);
	cache->blocks[block].reservation = index;
}

void kvpool_reservation_adopt(struct kvpool_cache *cache, struct kvpool_holder *holder,
			      uint32_t block)
{
	uint32_t index = kvpool_slab_take(&cache->reservation_slab);

	assert(index);
	*kvpool_reservation_at(cache, index) =
		(struct kvpool_reservation){.block = block, .holder = holder};
	list_push(cache, &holder->first_quarantined, index);
	holder->quarantined++;
	holder->quarantined_bytes += kvpool_block_bytes(cache, block);
	cache->blocks[block].reservation = index;
}

void kvpool_reservation_keep(struct kvpool_cache *cache, struct kvpool_holder *holder,
			     uint32_t block)
{
	struct kvpool_reservation *r;

	kvpool_reservation_new(cache, holder, block);
	r = kvpool_reservation_at(cache, cache->blocks[block].reservation);
	r->committed = cache->records[block].committed;
	r->kept = KVPOOL_KEPT_UNCLAIMED;
	holder->kept++;
}

void kvpool_reservation_end(struct kvpool_cache *cache, uint32_t block)
{
	uint32_t index = cache->blocks[block].reservation;
	struct kvpool_reservation *r = kvpool_reservation_at(cache, index);
	bool quarantined = cache->records[block].state == KVPOOL_BLOCK_QUARANTINED;

	assert(index && !r->waiters);
	r->holder->kept -= r->kept != KVPOOL_KEPT_NO;
	list_drop(cache, list_of(r->holder, quarantined), index);
	if (quarantined) {
		r->holder->quarantined--;
		r->holder->quarantined_bytes -= kvpool_block_bytes(cache, block);
	} else {
		r->holder->reserved--;
		r->holder->reserved_bytes -= kvpool_block_bytes(cache, block);
	}
	cache->blocks[block].reservation = 0;
	kvpool_slab_give(&cache->reservation_slab, index);
}

struct kvpool_reservation *kvpool_reservation_find(const struct kvpool_cache *cache,
						   const struct kvpool_holder *holder,
						   uint32_t block, uint32_t generation)
{
	const struct kvpool_record *record;
	struct kvpool_reservation *r;

	if (block == 0 || block > cache->block_slab.fresh)
		return NULL;
	record = &cache->records[block];
	if (record->generation != generation ||
	    (record->state != KVPOOL_BLOCK_RESERVED && record->state != KVPOOL_BLOCK_VOID))
		return NULL;
	r = kvpool_reservation_at(cache, cache->blocks[block].reservation);
	return r->holder == holder ? r : NULL;
}

static uint64_t all_shards(uint16_t n_shards)
{
	return UINT64_MAX >> (64 - n_shards);
}

static void block_ready(struct kvpool_cache *cache, struct kvpool_reservation *r, uint16_t n_shards)
{
	uint32_t block = r->block;
	struct kvpool_record *record = &cache->records[block];

	record->crc32c = r->crc32c;
	record->flags = r->shards_with_crc == n_shards ? KVPOOL_RECORD_HAS_CRC : 0;
	record->last_use = cache->tick;
	kvpool_waiter_wake_all(cache, r, KVPOOL_STATUS_OK);
	kvpool_reservation_end(cache, block);
	kvpool_block_become(cache, block, KVPOOL_BLOCK_READY);
	kvpool_extents_touch(&cache->extents, kvpool_block_place(record), cache->tick);
	cache->counters.stored++;
	kvpool_block_relax(cache, block, false);
}

static void void_end(struct kvpool_cache *cache, uint32_t block)
{
	kvpool_reservation_end(cache, block);
	kvpool_block_end(cache, block);
}

/* One block of a COMMIT. 0, KVPOOL_STATUS_STALE or KVPOOL_STATUS_INVALID. */
static int commit_one(struct kvpool_cache *cache, struct kvpool_holder *holder, uint32_t shard,
		      bool has_crc, const struct kvpool_wire_handle *handle)
{
	struct kvpool_reservation *r =
		kvpool_reservation_find(cache, holder, handle->block, handle->generation);
	struct kvpool_record *record;
	uint16_t n_shards;
	uint64_t bits;

	if (!r)
		return KVPOOL_STATUS_STALE;
	record = &cache->records[r->block];
	n_shards = cache->layouts[record->layout].n_shards;
	if (shard != SHARD_ALL && shard >= n_shards)
		return KVPOOL_STATUS_INVALID;
	bits = shard == SHARD_ALL ? all_shards(n_shards) : UINT64_C(1) << shard;
	if (bits & r->committed)
		return KVPOOL_STATUS_STALE;
	if (has_crc) {
		/* Of all shards together the client has made the block's already. */
		r->crc32c ^= kvpool_crc32c_shard(handle->crc32c, shard == SHARD_ALL ? 0 : shard);
		r->shards_with_crc += (uint32_t)__builtin_popcountll(bits);
	}
	r->committed |= bits;
	/* With the last one the record says another state, and nothing of shards. */
	if (record->flags & KVPOOL_RECORD_OWNED && r->committed != all_shards(n_shards)) {
		record->committed = (uint32_t)r->committed;
		kvpool_record_seal(record);
	}
	if (record->state == KVPOOL_BLOCK_VOID) {
		if (r->committed == all_shards(n_shards))
			void_end(cache, r->block);
		return KVPOOL_STATUS_STALE;
	}
	if (r->committed == all_shards(n_shards))
		block_ready(cache, r, n_shards);
	return 0;
}

int kvpool_cache_commit(struct kvpool_cache *cache, struct kvpool_holder *holder, uint32_t shard,
			bool has_crc, uint32_t n, const struct kvpool_wire_handle *handles,
			uint32_t *done)
{
	int refused = KVPOOL_STATUS_STALE;
	uint32_t taken = 0;

	kvpool_cache_settle(cache);
	if (n == 0 || n > KVPOOL_KEYS_MAX || (shard != SHARD_ALL && shard >= KVPOOL_SHARDS_MAX))
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		struct kvpool_wire_handle handle;
		int r;

		memcpy(&handle, &handles[i], sizeof(handle));
		KVPOOL_COPIED(handle);
		r = commit_one(cache, holder, shard, has_crc, &handle);
		if (r == 0)
			taken++;
		else if (r == KVPOOL_STATUS_INVALID)
			refused = r;
	}
	if (taken == 0)
		return refused;
	*done = taken;
	return 0;
}

/*
 * The block will not be written, and so what hangs on it is of no use. Reservations of the giver
 * among these end; the others are VOID. Returns how many the giver had.
 */
static uint32_t abandon(struct kvpool_cache *cache, uint32_t block,
			const struct kvpool_holder *giver)
{
	struct kvpool_killed killed = {.giver = giver};

	kvpool_tree_kill(cache, block, &killed);
	cache->counters.abandoned += killed.reserved;
	cache->counters.forgotten += killed.ready;
	return killed.given;
}

void kvpool_reservation_drop(struct kvpool_cache *cache, uint32_t block)
{
	if (cache->records[block].state == KVPOOL_BLOCK_RESERVED)
		(void)abandon(cache, block, NULL);
	void_end(cache, block);
}

int kvpool_cache_abort(struct kvpool_cache *cache, struct kvpool_holder *holder, uint32_t n,
		       const struct kvpool_wire_handle *handles, uint32_t *done)
{
	uint32_t given = 0;

	kvpool_cache_settle(cache);
	if (n == 0 || n > KVPOOL_KEYS_MAX)
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		struct kvpool_wire_handle handle;
		struct kvpool_reservation *r;

		memcpy(&handle, &handles[i], sizeof(handle));
		KVPOOL_COPIED(handle);
		r = kvpool_reservation_find(cache, holder, handle.block, handle.generation);
		if (!r)
			continue;
		if (cache->records[r->block].state == KVPOOL_BLOCK_VOID) {
			void_end(cache, r->block);
			given++;
		} else {
			given += abandon(cache, r->block, holder);
		}
	}
	if (given == 0)
		return KVPOOL_STATUS_STALE;
	*done = given;
	return 0;
}

void kvpool_reservation_quarantine_all(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	while (holder->first_reservation) {
		uint32_t index = holder->first_reservation;
		uint32_t block = kvpool_reservation_at(cache, index)->block;
		uint64_t bytes = kvpool_block_bytes(cache, block);

		if (cache->records[block].state == KVPOOL_BLOCK_RESERVED)
			(void)abandon(cache, block, NULL);
		kvpool_block_become(cache, block, KVPOOL_BLOCK_QUARANTINED);
		list_drop(cache, &holder->first_reservation, index);
		list_push(cache, &holder->first_quarantined, index);
		holder->reserved--;
		holder->reserved_bytes -= bytes;
		holder->quarantined++;
		holder->quarantined_bytes += bytes;
	}
}

void kvpool_reservation_free_all(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	while (holder->first_quarantined) {
		uint32_t block = kvpool_reservation_at(cache, holder->first_quarantined)->block;

		kvpool_reservation_end(cache, block);
		kvpool_block_end(cache, block);
	}
}
