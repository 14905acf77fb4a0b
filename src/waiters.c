/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for a block that is being written: listed by its reservation and by their holder.
 *
 * A waiter ends with its reservation (wake), with its deadline (cancel) or with its holder (drop);
 * only the first calls back. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

static void waiter_end(struct kvpool_cache *cache, struct kvpool_waiter *w)
{
	struct kvpool_reservation *r = kvpool_reservation_at(cache, w->reservation);
	struct kvpool_holder *holder = w->holder;

	if (w->prev)
		kvpool_waiter_at(cache, w->prev)->next = w->next;
	else
		r->waiters = w->next;
	if (w->next)
		kvpool_waiter_at(cache, w->next)->prev = w->prev;
	if (w->holder_prev)
		kvpool_waiter_at(cache, w->holder_prev)->holder_next = w->holder_next;
	else
		holder->first_wait = w->holder_next;
	if (w->holder_next)
		kvpool_waiter_at(cache, w->holder_next)->holder_prev = w->holder_prev;
	holder->waits--;
	kvpool_slab_give(&cache->waiter_slab, w->self);
}

static struct kvpool_waiter *waiter_new(struct kvpool_cache *cache, struct kvpool_holder *holder,
					uint32_t reservation, void *cookie)
{
	struct kvpool_reservation *r = kvpool_reservation_at(cache, reservation);
	uint32_t index = kvpool_slab_take(&cache->waiter_slab);
	struct kvpool_waiter *w;

	if (!index)
		return NULL;
	w = kvpool_waiter_at(cache, index);
	*w = (struct kvpool_waiter){
		.next = r->waiters,
		.holder_next = holder->first_wait,
		.reservation = reservation,
		.self = index,
		.holder = holder,
		.cookie = cookie,
	};
	if (w->next)
		kvpool_waiter_at(cache, w->next)->prev = index;
	if (w->holder_next)
		kvpool_waiter_at(cache, w->holder_next)->holder_prev = index;
	r->waiters = index;
	holder->first_wait = index;
	holder->waits++;
	return w;
}

void kvpool_waiter_wake_all(struct kvpool_cache *cache, struct kvpool_reservation *reservation,
			    enum kvpool_status status)
{
	while (reservation->waiters) {
		struct kvpool_waiter *w = kvpool_waiter_at(cache, reservation->waiters);
		void *cookie = w->cookie;

		waiter_end(cache, w);
		if (cache->calls.wake)
			cache->calls.wake(cookie, status);
	}
}

void kvpool_waiter_drop_all(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	while (holder->first_wait)
		waiter_end(cache, kvpool_waiter_at(cache, holder->first_wait));
}

int kvpool_cache_wait(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
		      uint32_t group, const uint8_t *key, void *cookie, struct kvpool_waiter **out)
{
	const struct kvpool_layout *l = kvpool_layout_of(cache, holder, layout);
	struct kvpool_waiter *w;
	uint32_t block;

	kvpool_cache_settle(cache);
	if (!l)
		return KVPOOL_STATUS_NO_LAYOUT;
	if (group >= l->n_groups)
		return KVPOOL_STATUS_INVALID;
	block = kvpool_index_find(&cache->index,
				  kvpool_index_hash(&cache->index, key, layout, (uint8_t)group),
				  key, layout, (uint8_t)group);
	if (!block)
		return KVPOOL_STATUS_NOT_FOUND;
	if (cache->records[block].state == KVPOOL_BLOCK_READY)
		return KVPOOL_STATUS_OK;
	if (holder->waits == KVPOOL_WAITS_MAX)
		return KVPOOL_STATUS_LIMIT;
	w = waiter_new(cache, holder, cache->blocks[block].reservation, cookie);
	if (!w)
		return KVPOOL_STATUS_LIMIT;
	*out = w;
	return KVPOOL_STATUS_BUSY;
}

void kvpool_cache_wait_cancel(struct kvpool_cache *cache, struct kvpool_waiter *waiter)
{
	kvpool_cache_settle(cache);
	waiter_end(cache, waiter);
}
