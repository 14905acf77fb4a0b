/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop over epoll: for hosts and containers that refuse io_uring.
 *
 * Owned by the service thread. Level-triggered, as epoll is by itself.
 */
#include "daemon/clock.h"
#include "daemon/loop_backend.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BATCH 64

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR &&
		       EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP,
	       "the loop's events are those of poll(2)");

struct epoll_backend {
	int fd; /* owned */
};

static int epoll_backend_open(struct kvpool_loop *loop)
{
	struct epoll_backend *b = malloc(sizeof(*b));
	int r;

	if (b == NULL)
		return -ENOMEM;
	b->fd = epoll_create1(EPOLL_CLOEXEC);
	if (b->fd < 0) {
		r = -errno;
		free(b);
		return r;
	}
	loop->backend = b;
	return 0;
}

static void epoll_backend_close(struct kvpool_loop *loop)
{
	struct epoll_backend *b = loop->backend;

	(void)close(b->fd);
	free(b);
}

static int epoll_backend_watch(struct kvpool_loop *loop, struct kvpool_source *source)
{
	struct epoll_backend *b = loop->backend;
	struct epoll_event event = {
		.events = source->events,
		.data.u64 = kvpool_loop_token(source->slot, loop->slots[source->slot].generation),
	};

	if (epoll_ctl(b->fd, EPOLL_CTL_ADD, source->fd, &event) < 0)
		return -errno;
	return 0;
}

static void epoll_backend_unwatch(struct kvpool_loop *loop, struct kvpool_source *source)
{
	struct epoll_backend *b = loop->backend;

	/* Fails only where the descriptor was closed before, which unwatches it as well. */
	(void)epoll_ctl(b->fd, EPOLL_CTL_DEL, source->fd, NULL);
	kvpool_loop_slot_free(loop, source->slot);
}

static int dispatch(struct kvpool_loop *loop, const struct epoll_event *events, int n)
{
	int ran = 0;

	for (int i = 0; i < n; i++) {
		/* A callback before this one may have removed the source. */
		struct kvpool_slot *slot = kvpool_loop_slot(loop, events[i].data.u64);

		if (slot == NULL)
			continue;
		slot->source->fn(slot->source->cookie, events[i].events);
		ran++;
	}
	return ran;
}

static int epoll_backend_poll(struct kvpool_loop *loop)
{
	struct epoll_backend *b = loop->backend;
	struct epoll_event events[BATCH];
	int n = epoll_wait(b->fd, events, BATCH, 0);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return dispatch(loop, events, n);
}

static int epoll_backend_wait(struct kvpool_loop *loop, uint64_t timeout_ns)
{
	struct epoll_backend *b = loop->backend;
	struct epoll_event events[BATCH];
	int timeout_ms = -1;
	int n;

	/* Rounded up: waking before a timer is due would only make for another turn. */
	if (timeout_ns != KVPOOL_LOOP_FOREVER) {
		uint64_t ms = timeout_ns / KVPOOL_NS_PER_MS + 1;

		timeout_ms = ms > INT_MAX ? INT_MAX : (int)ms;
	}
	n = epoll_wait(b->fd, events, BATCH, timeout_ms);
	if (n < 0)
		return -errno;
	loop->wakeups++;
	if (n == 0)
		return -ETIME;
	return dispatch(loop, events, n);
}

const struct kvpool_loop_ops kvpool_loop_epoll = {
	.kind = KVPOOL_LOOP_EPOLL,
	.open = epoll_backend_open,
	.close = epoll_backend_close,
	.watch = epoll_backend_watch,
	.unwatch = epoll_backend_unwatch,
	.poll = epoll_backend_poll,
	.wait = epoll_backend_wait,
};
