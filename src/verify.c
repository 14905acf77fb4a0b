/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums: telling them, walking over what is stored, and dropping what is not what it was.
 *
 * Nobody here looks at bytes: whoever did says which block and generation it was. Owned by a cache;
 * its one thread uses it.
 */
#include "src/cache_internal.h"

/*
 * The record that a handle names; NULL where that generation is over, or where it is of a layout
 * that is not the holder's: numbers can be guessed, fingerprints cannot.
 */
static const struct kvpool_record *find(const struct kvpool_cache *cache,
					const struct kvpool_holder *holder,
					const struct kvpool_wire_handle *handle)
{
	const struct kvpool_record *record;

	if (handle->block == 0 || handle->block > cache->block_slab.fresh)
		return NULL;
	record = &cache->records[handle->block];
	if (record->generation != handle->generation ||
	    (holder && !kvpool_layout_of(cache, holder, record->layout)))
		return NULL;
	return record;
}

static struct kvpool_wire_sum sum_of(const struct kvpool_record *record)
{
	/* One that was forgotten, but is leased, has its bytes still. */
	if (!record || (record->state != KVPOOL_BLOCK_READY && record->state != KVPOOL_BLOCK_DEAD))
		return (struct kvpool_wire_sum){0, KVPOOL_SUM_STALE};
	if (!(record->flags & KVPOOL_RECORD_HAS_CRC))
		return (struct kvpool_wire_sum){0, KVPOOL_SUM_NONE};
	return (struct kvpool_wire_sum){record->crc32c, KVPOOL_SUM_GIVEN};
}

int kvpool_cache_sums(struct kvpool_cache *cache, const struct kvpool_holder *holder, uint32_t n,
		      const struct kvpool_wire_handle *handles, struct kvpool_wire_sum *sums,
		      uint32_t *found)
{
	uint32_t given = 0;

	if (n == 0 || n > KVPOOL_KEYS_MAX)
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		struct kvpool_wire_handle handle;
		struct kvpool_wire_sum sum;

		memcpy(&handle, &handles[i], sizeof(handle));
		KVPOOL_COPIED(handle);
		sum = sum_of(find(cache, holder, &handle));
		given += sum.state == KVPOOL_SUM_GIVEN;
		memcpy(&sums[i], &sum, sizeof(sum));
	}
	*found = given;
	return 0;
}

int kvpool_cache_drop(struct kvpool_cache *cache, const struct kvpool_holder *holder, uint32_t n,
		      const struct kvpool_wire_handle *handles, uint32_t *done)
{
	uint32_t went = 0;

	kvpool_cache_settle(cache);
	if (n == 0 || n > KVPOOL_KEYS_MAX)
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		struct kvpool_killed killed = {0};
		struct kvpool_wire_handle handle;
		const struct kvpool_record *record;

		memcpy(&handle, &handles[i], sizeof(handle));
		KVPOOL_COPIED(handle);
		record = find(cache, holder, &handle);
		if (!record || record->state != KVPOOL_BLOCK_READY)
			continue;
		kvpool_tree_kill(cache, handle.block, &killed);
		cache->counters.corrupt++;
		cache->counters.forgotten += killed.ready + killed.reserved;
		went += killed.ready + killed.reserved;
	}
	if (went == 0)
		return KVPOOL_STATUS_STALE;
	*done = went;
	return 0;
}

uint32_t kvpool_cache_records(const struct kvpool_cache *cache)
{
	return cache->block_slab.fresh;
}

int kvpool_cache_stored_next(const struct kvpool_cache *cache, uint32_t *cursor, uint32_t *budget,
			     struct kvpool_cache_stored *out)
{
	while (*cursor < cache->block_slab.fresh) {
		const struct kvpool_layout_record *layout;
		const struct kvpool_record *r;

		if (*budget == 0)
			return KVPOOL_STATUS_BUSY;
		(*budget)--;
		r = &cache->records[++*cursor];
		if (r->state != KVPOOL_BLOCK_READY)
			continue;
		layout = &cache->catalog.layouts[r->layout];
		*out = (struct kvpool_cache_stored){
			.place = {*cursor, r->generation, r->segment, r->offset},
			.slot_bytes = layout->wire.groups[r->group].slot_bytes,
			.stride = kvpool_block_group(cache, r)->stride,
			.n_shards = layout->wire.n_shards,
			.crc32c = r->crc32c,
			.has_crc = (r->flags & KVPOOL_RECORD_HAS_CRC) != 0,
		};
		return 0;
	}
	return KVPOOL_STATUS_NOT_FOUND;
}
