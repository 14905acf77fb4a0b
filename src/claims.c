/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims: which of the leases and reservations of an earlier life its client knows of.
 *
 * That life may have died with an answer that was never read. What it granted there would be held,
 * and waited for by others, as long as the client lives; so each process says what it has, and the
 * rest ends. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

/* The holder's lease of that number; NULL: it has none. */
static struct kvpool_lease *find_lease(const struct kvpool_cache *cache,
				       const struct kvpool_holder *holder, uint64_t number)
{
	uint32_t index = (uint32_t)number;
	struct kvpool_lease *lease;

	if (index == 0 || index > cache->lease_slab.fresh)
		return NULL;
	lease = kvpool_lease_at(cache, index);
	return lease->holder == holder && lease->generation == number >> 32 ? lease : NULL;
}

/* Whether the block was committed before the client heard of it. */
static bool committed(const struct kvpool_cache *cache, uint32_t block, uint32_t generation)
{
	const struct kvpool_record *record;

	if (block == 0 || block > cache->block_slab.fresh)
		return false;
	record = &cache->records[block];
	return record->generation == generation && record->state == KVPOOL_BLOCK_READY;
}

/*
 * Whether the block may be being written and be in quarantine as nobody's. What is claimed and not
 * there, and is not that, had ended before its client heard of it.
 */
static bool may_be_written(const struct kvpool_cache *cache, uint32_t block)
{
	const struct kvpool_holder *past = cache->past.holder;

	if (!past || block == 0 || block > cache->block_slab.fresh)
		return false;
	return cache->past.doubt ||
	       (cache->records[block].state == KVPOOL_BLOCK_QUARANTINED &&
		kvpool_reservation_at(cache, cache->blocks[block].reservation)->holder == past);
}

static bool claim_block(struct kvpool_cache *cache, struct kvpool_holder *holder,
			const struct kvpool_wire_claim *claim, bool *sound)
{
	struct kvpool_reservation *r =
		kvpool_reservation_find(cache, holder, claim->block, claim->generation);

	if (!r && committed(cache, claim->block, claim->generation))
		return true;
	if (!r)
		*sound &= !may_be_written(cache, claim->block);
	else if (r->kept)
		r->kept = KVPOOL_KEPT_CLAIMED;
	return r != NULL;
}

int kvpool_cache_claim(struct kvpool_cache *cache, struct kvpool_holder *holder, bool writes,
		       uint32_t n, const struct kvpool_wire_claim *claims, uint32_t *known,
		       bool *sound)
{
	bool all = true;
	uint32_t found = 0;

	kvpool_cache_settle(cache);
	if (n > KVPOOL_KEYS_MAX)
		return KVPOOL_STATUS_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		struct kvpool_wire_claim claim;
		struct kvpool_lease *lease;

		memcpy(&claim, &claims[i], sizeof(claim));
		KVPOOL_COPIED(claim);
		lease = claim.lease ? find_lease(cache, holder, claim.lease) : NULL;
		if (lease && lease->kept)
			lease->kept = KVPOOL_KEPT_CLAIMED;
		if (lease || (!claim.lease && writes && claim_block(cache, holder, &claim, &all)))
			found++;
		/* It may be one that could not be known, and all are held for its sake. */
		else if (claim.lease)
			all &= cache->past.leaves == NULL;
	}
	*known = found;
	*sound = all;
	return 0;
}

static void end_reservations(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	uint32_t at = holder->first_reservation;

	while (at) {
		const struct kvpool_reservation *r = kvpool_reservation_at(cache, at);

		if (r->kept != KVPOOL_KEPT_UNCLAIMED) {
			at = r->next;
			continue;
		}
		at = r->next;
		kvpool_reservation_drop(cache, r->block);
	}
}

void kvpool_cache_claims_end(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	uint32_t at = holder->first_lease;

	kvpool_cache_settle(cache);
	while (at) {
		uint32_t next = kvpool_lease_at(cache, at)->next;

		if (kvpool_lease_at(cache, at)->kept == KVPOOL_KEPT_UNCLAIMED)
			kvpool_lease_end(cache, at);
		at = next;
	}
	end_reservations(cache, holder);
}
