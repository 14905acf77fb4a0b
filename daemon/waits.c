/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WAIT requests that are not answered yet: see waits.h. A binary heap by deadline.
 */
#include "daemon/waits.h"

#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* An engine that waits longer than this had better compute. */
#define TIMEOUT_MAX_NS (3600 * KVPOOL_NS_PER_S)

static void place(struct kvpool_waits *waits, struct kvpool_wait *wait, uint32_t at)
{
	waits->heap[at] = wait;
	wait->heap = at;
}

static void sift_up(struct kvpool_waits *waits, struct kvpool_wait *wait, uint32_t at)
{
	while (at > 0) {
		uint32_t parent = (at - 1) / 2;

		if (waits->heap[parent]->deadline_ns <= wait->deadline_ns)
			break;
		place(waits, waits->heap[parent], at);
		at = parent;
	}
	place(waits, wait, at);
}

static void sift_down(struct kvpool_waits *waits, struct kvpool_wait *wait, uint32_t at)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= waits->n)
			break;
		if (child + 1 < waits->n &&
		    waits->heap[child + 1]->deadline_ns < waits->heap[child]->deadline_ns)
			child++;
		if (wait->deadline_ns <= waits->heap[child]->deadline_ns)
			break;
		place(waits, waits->heap[child], at);
		at = child;
	}
	place(waits, wait, at);
}

static void rearm(struct kvpool_waits *waits)
{
	kvpool_source_set_timer(waits->timer, waits->n ? waits->heap[0]->deadline_ns : 0);
}

/* Out of the heap and of its channel; the caller frees it. */
static void unlink_wait(struct kvpool_waits *waits, struct kvpool_wait *wait)
{
	uint32_t at = wait->heap;
	struct kvpool_wait *last = waits->heap[--waits->n];

	if (at != waits->n) {
		if (at > 0 && waits->heap[(at - 1) / 2]->deadline_ns > last->deadline_ns)
			sift_up(waits, last, at);
		else
			sift_down(waits, last, at);
	}
	kvpool_list_remove(&wait->link);
	wait->channel->n_waits--;
}

static void answer(struct kvpool_wait *wait, enum kvpool_status status)
{
	struct kvpool_reply reply = {
		.id = wait->id,
		.status = (uint16_t)status,
		.epoch = wait->channel->server->epoch,
	};

	kvpool_channel_reply(wait->channel, &reply);
}

static void timer_due(void *cookie, uint32_t events)
{
	struct kvpool_waits *waits = cookie;

	(void)events;
	kvpool_waits_expire(waits, kvpool_clock_ns());
}

int kvpool_waits_init(struct kvpool_waits *waits, struct kvpool_loop *loop)
{
	*waits = (struct kvpool_waits){0};
	return kvpool_loop_add_timer(loop, timer_due, waits, &waits->timer);
}

void kvpool_waits_fini(struct kvpool_waits *waits)
{
	assert(waits->n == 0);
	kvpool_source_remove(waits->timer);
	free(waits->heap);
	*waits = (struct kvpool_waits){0};
}

static int grow(struct kvpool_waits *waits)
{
	uint32_t capacity = waits->capacity ? 2 * waits->capacity : 64;
	struct kvpool_wait **heap;

	if (waits->n < waits->capacity)
		return 0;
	heap = reallocarray(waits->heap, capacity, sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	waits->heap = heap;
	waits->capacity = capacity;
	return 0;
}

int kvpool_waits_add(struct kvpool_waits *waits, struct kvpool_channel *channel,
		     const struct kvpool_request *request, uint64_t now_ns)
{
	uint64_t timeout_ns = KVPOOL_MIN(kvpool_request_timeout_ns(request), TIMEOUT_MAX_NS);
	struct kvpool_wait *wait;
	int r;

	/* Every pending WAIT needs an entry of the reply ring in the end. */
	if (channel->n_waits >= channel->geometry.entries)
		return KVPOOL_STATUS_LIMIT;
	r = grow(waits);
	if (r != 0)
		return r;
	wait = calloc(1, sizeof(*wait));
	if (!wait)
		return -ENOMEM;
	r = kvpool_cache_wait(channel->cache, channel->client->holder, request->layout,
			      request->group, request->key, wait, &wait->waiter);
	if (r != KVPOOL_STATUS_BUSY) {
		free(wait);
		return r;
	}
	if (timeout_ns == 0) {
		kvpool_cache_wait_cancel(channel->cache, wait->waiter);
		free(wait);
		return KVPOOL_STATUS_TIMEOUT;
	}
	wait->channel = channel;
	wait->id = request->id;
	wait->deadline_ns = now_ns + timeout_ns;
	kvpool_list_append(&channel->waits, &wait->link);
	channel->n_waits++;
	waits->n++;
	sift_up(waits, wait, waits->n - 1);
	rearm(waits);
	return KVPOOL_STATUS_BUSY;
}

void kvpool_waits_wake(void *cookie, enum kvpool_status status)
{
	struct kvpool_wait *wait = cookie;
	struct kvpool_waits *waits = &wait->channel->server->waits;

	answer(wait, status);
	unlink_wait(waits, wait);
	free(wait);
	rearm(waits);
}

void kvpool_waits_drop(struct kvpool_waits *waits, struct kvpool_channel *channel)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &channel->waits)
	{
		struct kvpool_wait *wait = kvpool_list_entry(node, struct kvpool_wait, link);

		kvpool_cache_wait_cancel(channel->cache, wait->waiter);
		unlink_wait(waits, wait);
		free(wait);
	}
	rearm(waits);
}

void kvpool_waits_expire(struct kvpool_waits *waits, uint64_t now_ns)
{
	while (waits->n > 0 && waits->heap[0]->deadline_ns <= now_ns) {
		struct kvpool_wait *wait = waits->heap[0];

		assert(wait->heap == 0);
		kvpool_cache_wait_cancel(wait->channel->cache, wait->waiter);
		answer(wait, KVPOOL_STATUS_TIMEOUT);
		unlink_wait(waits, wait);
		free(wait);
	}
	rearm(waits);
}
