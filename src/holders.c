/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders: one client each, and the one place where all that it holds is taken back.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int kvpool_cache_holder_new(struct kvpool_cache *cache, uint32_t id, struct kvpool_holder **out)
{
	struct kvpool_holder *holder = calloc(1, sizeof(*holder));

	if (!holder)
		return -ENOMEM;
	holder->cache = cache;
	holder->id = id;
	holder->next = cache->holders;
	if (holder->next)
		holder->next->prev = holder;
	cache->holders = holder;
	cache->n_holders++;
	*out = holder;
	return 0;
}

struct kvpool_holder *kvpool_cache_holder_find(const struct kvpool_cache *cache, uint32_t id)
{
	struct kvpool_holder *holder = cache->holders;

	while (holder && (holder->id != id || id == 0))
		holder = holder->next;
	return holder;
}

void kvpool_cache_holder_quarantine(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	kvpool_cache_settle(cache);
	kvpool_waiter_drop_all(cache, holder);
	kvpool_lease_end_all(cache, holder);
	kvpool_reservation_quarantine_all(cache, holder);
	kvpool_layouts_leave(cache, holder);
}

void kvpool_cache_holder_free(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	if (!holder)
		return;
	kvpool_cache_holder_quarantine(cache, holder);
	kvpool_reservation_free_all(cache, holder);
	assert(holder->leases == 0 && holder->holds == 0 && holder->leased_bytes == 0);
	assert(holder->reserved == 0 && holder->reserved_bytes == 0);
	assert(holder->quarantined == 0 && holder->quarantined_bytes == 0);
	assert(holder->waits == 0 && holder->layouts == 0 && holder->kept == 0);
	if (holder->prev)
		holder->prev->next = holder->next;
	else
		cache->holders = holder->next;
	if (holder->next)
		holder->next->prev = holder->prev;
	cache->n_holders--;
	free(holder);
}

bool kvpool_cache_holder_has_past(const struct kvpool_holder *holder)
{
	return holder->kept > 0;
}

bool kvpool_cache_holder_holds(const struct kvpool_holder *holder)
{
	kvpool_cache_settle(holder->cache);
	return holder->leases + holder->reserved + holder->quarantined > 0;
}

void kvpool_cache_holder_usage(const struct kvpool_holder *holder, struct kvpool_holder_usage *out)
{
	kvpool_cache_settle(holder->cache);
	*out = (struct kvpool_holder_usage){
		.id = holder->id,
		.leases = holder->leases,
		.leased_blocks = holder->holds,
		.reserved_blocks = holder->reserved,
		.quarantined_blocks = holder->quarantined,
		.layouts = holder->layouts,
		.waits = holder->waits,
		.leased_bytes = holder->leased_bytes,
		.reserved_bytes = holder->reserved_bytes,
	};
}
