/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CLOCK: a queue of evictable blocks, oldest first, and a counter in each block's record.
 *
 * A hit sets the counter (kvpool_block_touch()); the hand at the head of the queue takes one off
 * and sends the block to the tail, or names it when nothing is left. Blocks that stopped being
 * evictable are dropped when the hand meets them. The links lie in struct kvpool_block; END marks
 * the last, so that 0 means "in no order". Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <stdlib.h>

#define END       UINT32_MAX
#define STEPS_MAX 256u /* after so many the hand takes what it points at */

struct clock_order {
	struct kvpool_cache *cache; /* borrowed: owns this */
	uint32_t head, tail;        /* END: empty */
};

static void *clock_create(struct kvpool_cache *cache, uint16_t size_class)
{
	struct clock_order *order = malloc(sizeof(*order));

	(void)size_class;
	if (order)
		*order = (struct clock_order){.cache = cache, .head = END, .tail = END};
	return order;
}

static void clock_destroy(void *order)
{
	free(order);
}

static void push_tail(struct clock_order *order, uint32_t block)
{
	struct kvpool_block *blocks = order->cache->blocks;

	blocks[block].order_next = END;
	blocks[block].order_prev = order->tail;
	if (order->tail == END)
		order->head = block;
	else
		blocks[order->tail].order_next = block;
	order->tail = block;
}

static void push_head(struct clock_order *order, uint32_t block)
{
	struct kvpool_block *blocks = order->cache->blocks;

	blocks[block].order_prev = END;
	blocks[block].order_next = order->head;
	if (order->head == END)
		order->tail = block;
	else
		blocks[order->head].order_prev = block;
	order->head = block;
}

/*
 * A parent that was hit together with the child that went has had its time too: with a counter left
 * it would outlive newer blocks, and a long chain that nobody asks for any more would take a round
 * of the hand for each of its blocks (measured: 6 points of hit rate).
 */
static void clock_insert(void *cookie, uint32_t block, bool old)
{
	struct clock_order *order = cookie;

	if (old) {
		order->cache->records[block].clock = 0;
		push_head(order, block);
	} else {
		push_tail(order, block);
	}
}

static void clock_remove(void *cookie, uint32_t block)
{
	struct clock_order *order = cookie;
	struct kvpool_block *blocks = order->cache->blocks;
	struct kvpool_block *b = &blocks[block];

	if (b->order_next == END)
		order->tail = b->order_prev;
	else
		blocks[b->order_next].order_prev = b->order_prev;
	if (b->order_prev == END)
		order->head = b->order_next;
	else
		blocks[b->order_prev].order_next = b->order_next;
	b->order_next = 0;
	b->order_prev = 0;
}

static uint32_t clock_victim(void *cookie)
{
	struct clock_order *order = cookie;
	struct kvpool_cache *cache = order->cache;

	for (uint32_t step = 0; order->head != END;) {
		uint32_t block = order->head;
		struct kvpool_record *r = &cache->records[block];

		if (!kvpool_block_evictable(cache, block)) {
			clock_remove(order, block);
			continue;
		}
		if (r->clock == 0 || step == STEPS_MAX)
			return block;
		r->clock--;
		step++;
		clock_remove(order, block);
		push_tail(order, block);
	}
	return 0;
}

const struct kvpool_policy kvpool_policy_clock = {
	.name = "clock",
	.create = clock_create,
	.destroy = clock_destroy,
	.insert = clock_insert,
	.remove = clock_remove,
	.victim = clock_victim,
};
