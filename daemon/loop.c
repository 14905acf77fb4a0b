/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both backends of the loop share: slots, timers, and the choice between the two.
 *
 * Owned by the service thread; see loop.h and loop_backend.h.
 */
#include "daemon/loop.h"

#include "daemon/clock.h"
#include "daemon/loop_backend.h"
#include "shm/base.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Generations start here, so that no token is 0 or one that liburing keeps for itself. */
#define FIRST_GENERATION 1u

/* ---- timers: a binary heap, the earliest first ---- */

static void heap_put(struct kvpool_loop *loop, size_t at, struct kvpool_source *timer)
{
	loop->heap[at] = timer;
	timer->heap = at;
}

static void heap_up(struct kvpool_loop *loop, size_t at, struct kvpool_source *timer)
{
	while (at > 0 && loop->heap[(at - 1) / 2]->at_ns > timer->at_ns) {
		heap_put(loop, at, loop->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_put(loop, at, timer);
}

static void heap_down(struct kvpool_loop *loop, size_t at, struct kvpool_source *timer)
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= loop->heap_used)
			break;
		if (child + 1 < loop->heap_used &&
		    loop->heap[child + 1]->at_ns < loop->heap[child]->at_ns)
			child++;
		if (loop->heap[child]->at_ns >= timer->at_ns)
			break;
		heap_put(loop, at, loop->heap[child]);
		at = child;
	}
	heap_put(loop, at, timer);
}

static void heap_remove(struct kvpool_loop *loop, struct kvpool_source *timer)
{
	size_t at = timer->heap;
	struct kvpool_source *last;

	if (at == SIZE_MAX)
		return;
	timer->heap = SIZE_MAX;
	last = loop->heap[--loop->heap_used];
	if (last == timer)
		return;
	if (at > 0 && loop->heap[(at - 1) / 2]->at_ns > last->at_ns)
		heap_up(loop, at, last);
	else
		heap_down(loop, at, last);
}

void kvpool_source_set_timer(struct kvpool_source *source, uint64_t at_ns)
{
	struct kvpool_loop *loop = source->loop;

	assert(source->fd == -1);
	heap_remove(loop, source);
	source->at_ns = at_ns;
	if (at_ns != 0)
		heap_up(loop, loop->heap_used++, source);
}

/*
 * Runs the timers that are due. A callback may set its timer again for a time that is due as well:
 * such a timer waits for the next call, so that one turn always ends.
 */
static int timers_run(struct kvpool_loop *loop, uint64_t now_ns)
{
	size_t most = loop->heap_used;
	int ran = 0;

	while (most-- > 0 && loop->heap_used > 0 && loop->heap[0]->at_ns <= now_ns) {
		struct kvpool_source *timer = loop->heap[0];

		heap_remove(loop, timer);
		timer->fn(timer->cookie, 0);
		ran++;
	}
	return ran;
}

/* ---- slots ---- */

static int slot_take(struct kvpool_loop *loop, uint32_t *out)
{
	uint32_t size = loop->slots_size;
	struct kvpool_slot *slots;

	if (loop->free_slots != KVPOOL_LOOP_NO_SLOT) {
		*out = loop->free_slots;
		loop->free_slots = loop->slots[*out].next;
		return 0;
	}
	if (loop->n_slots == size) {
		size = size == 0 ? 64 : size * 2;
		slots = reallocarray(loop->slots, size, sizeof(*slots));
		if (slots == NULL)
			return -ENOMEM;
		loop->slots = slots;
		loop->slots_size = size;
	}
	loop->slots[loop->n_slots] = (struct kvpool_slot){.generation = FIRST_GENERATION};
	*out = loop->n_slots++;
	return 0;
}

void kvpool_loop_slot_free(struct kvpool_loop *loop, uint32_t index)
{
	loop->slots[index].next = loop->free_slots;
	loop->free_slots = index;
}

/* ---- sources ---- */

static struct kvpool_source *source_new(struct kvpool_loop *loop, int fd, kvpool_source_fn fn,
					void *cookie)
{
	struct kvpool_source *source = calloc(1, sizeof(*source));

	if (source == NULL)
		return NULL;
	source->loop = loop;
	source->fd = fd;
	source->fn = fn;
	source->cookie = cookie;
	source->slot = KVPOOL_LOOP_NO_SLOT;
	source->heap = SIZE_MAX;
	return source;
}

int kvpool_loop_add_fd(struct kvpool_loop *loop, int fd, uint32_t events, kvpool_source_fn fn,
		       void *cookie, struct kvpool_source **out)
{
	struct kvpool_source *source;
	int r;

	if (fd < 0)
		return -EBADF;
	source = source_new(loop, fd, fn, cookie);
	if (source == NULL)
		return -ENOMEM;
	source->events = events;
	r = slot_take(loop, &source->slot);
	if (r < 0) {
		free(source);
		return r;
	}
	loop->slots[source->slot].source = source;
	r = loop->ops->watch(loop, source);
	if (r < 0) {
		loop->slots[source->slot].source = NULL;
		kvpool_loop_slot_free(loop, source->slot);
		free(source);
		return r;
	}
	*out = source;
	return 0;
}

int kvpool_loop_add_timer(struct kvpool_loop *loop, kvpool_source_fn fn, void *cookie,
			  struct kvpool_source **out)
{
	struct kvpool_source *source;

	if (loop->timers == loop->heap_size) {
		size_t size = loop->heap_size == 0 ? 16 : loop->heap_size * 2;
		struct kvpool_source **heap =
			reallocarray(loop->heap, size, sizeof(struct kvpool_source *));

		if (heap == NULL)
			return -ENOMEM;
		loop->heap = heap;
		loop->heap_size = size;
	}
	source = source_new(loop, -1, fn, cookie);
	if (source == NULL)
		return -ENOMEM;
	loop->timers++;
	*out = source;
	return 0;
}

void kvpool_source_remove(struct kvpool_source *source)
{
	struct kvpool_loop *loop;

	if (source == NULL)
		return;
	loop = source->loop;
	if (source->fd == -1) {
		heap_remove(loop, source);
		loop->timers--;
	} else {
		struct kvpool_slot *slot = &loop->slots[source->slot];

		loop->ops->unwatch(loop, source);
		slot->source = NULL;
		slot->generation++;
	}
	free(source);
}

/* ---- the loop ---- */

static int loop_open(const struct kvpool_loop_ops *ops, struct kvpool_loop **out)
{
	struct kvpool_loop *loop = calloc(1, sizeof(*loop));
	int r;

	if (loop == NULL)
		return -ENOMEM;
	loop->ops = ops;
	loop->free_slots = KVPOOL_LOOP_NO_SLOT;
	r = ops->open(loop);
	if (r < 0) {
		free(loop);
		return r;
	}
	*out = loop;
	return 0;
}

int kvpool_loop_new(enum kvpool_loop_kind kind, struct kvpool_loop **out)
{
	int refusal = 0;
	int r;

	if (kind != KVPOOL_LOOP_EPOLL) {
		r = loop_open(&kvpool_loop_uring, out);
		if (kind == KVPOOL_LOOP_URING || (r != -EPERM && r != -ENOSYS && r != -ENOMEM))
			return r;
		refusal = -r;
	}
	r = loop_open(&kvpool_loop_epoll, out);
	if (r == 0)
		(*out)->refusal = refusal;
	return r;
}

void kvpool_loop_free(struct kvpool_loop *loop)
{
	if (loop == NULL)
		return;
	assert(loop->timers == 0);
	for (uint32_t i = 0; i < loop->n_slots; i++)
		assert(loop->slots[i].source == NULL);
	loop->ops->close(loop);
	free(loop->slots);
	free(loop->heap);
	free(loop);
}

enum kvpool_loop_kind kvpool_loop_kind(const struct kvpool_loop *loop)
{
	return loop->ops->kind;
}

int kvpool_loop_refusal(const struct kvpool_loop *loop)
{
	return loop->refusal;
}

uint64_t kvpool_loop_wakeups(const struct kvpool_loop *loop)
{
	return loop->wakeups;
}

int kvpool_loop_poll(struct kvpool_loop *loop, uint64_t now_ns)
{
	int ran = loop->ops->poll(loop);

	if (ran < 0)
		return ran;
	if (KVPOOL_LIKELY(loop->heap_used == 0 || loop->heap[0]->at_ns > now_ns))
		return ran;
	return ran + timers_run(loop, now_ns);
}

int kvpool_loop_wait(struct kvpool_loop *loop)
{
	int ran;

	do {
		uint64_t now_ns = kvpool_clock_ns();
		uint64_t timeout_ns = KVPOOL_LOOP_FOREVER;

		if (loop->heap_used > 0) {
			if (loop->heap[0]->at_ns <= now_ns)
				return kvpool_loop_poll(loop, now_ns);
			timeout_ns = loop->heap[0]->at_ns - now_ns;
		}
		ran = loop->ops->wait(loop, timeout_ns);
		if (ran == -EINTR)
			return 0;
	} while (ran == 0 || ran == -ETIME);
	if (ran < 0)
		return ran;
	return ran + timers_run(loop, kvpool_clock_ns());
}
