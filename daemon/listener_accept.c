/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting on a listening socket, also when the process has no descriptor left.
 *
 * Out of descriptors, an accept fails but the connection stays in the queue, so that a
 * level-triggered loop would spin. The spare descriptor is given up, the connection accepted,
 * refused and closed, the spare taken back. Where even that fails, accepting rests for a while.
 */
#include "daemon/clock.h"
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 16
#define PAUSE_NS       (100 * KVPOOL_NS_PER_MS)

static void readable(void *cookie, uint32_t events);

static void pause_over(void *cookie, uint32_t events)
{
	struct kvpool_listener *l = cookie;

	(void)events;
	if (l->spare < 0)
		l->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!l->source && kvpool_loop_add_fd(l->loop, l->fd, POLLIN, readable, l, &l->source) != 0)
		kvpool_source_set_timer(l->retry, kvpool_clock_ns() + PAUSE_NS);
}

static void pause_accepting(struct kvpool_listener *l)
{
	kvpool_source_remove(l->source);
	l->source = NULL;
	kvpool_source_set_timer(l->retry, kvpool_clock_ns() + PAUSE_NS);
}

/* One connection only: an accept without a free descriptor fails even where the queue is empty. */
static void accept_starved(struct kvpool_listener *l)
{
	int fd, r;

	if (l->spare >= 0)
		(void)close(l->spare);
	l->spare = -1;
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	r = fd < 0 ? errno : 0;
	if (fd >= 0) {
		l->starved++;
		l->fn(l->cookie, fd, true);
	}
	l->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (l->spare < 0 || (r != 0 && r != EAGAIN))
		pause_accepting(l);
}

static void readable(void *cookie, uint32_t events)
{
	struct kvpool_listener *l = cookie;
	int i, fd;

	(void)events;
	for (i = 0; i < ACCEPTS_A_TURN && l->fd >= 0 && l->source; i++) {
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			l->fn(l->cookie, fd, false);
			continue;
		}
		switch (errno) {
		case EINTR:
		case ECONNABORTED:
			continue;
		case EAGAIN:
			return;
		case EMFILE:
		case ENFILE:
			accept_starved(l);
			return;
		default:
			pause_accepting(l);
			return;
		}
	}
}

int kvpool_listener_start(struct kvpool_listener *l, struct kvpool_loop *loop,
			  kvpool_listener_fn fn, void *cookie)
{
	int r;

	l->loop = loop;
	l->fn = fn;
	l->cookie = cookie;
	r = kvpool_loop_add_timer(loop, pause_over, l, &l->retry);
	if (r != 0)
		return r;
	r = kvpool_loop_add_fd(loop, l->fd, POLLIN, readable, l, &l->source);
	if (r != 0) {
		kvpool_source_remove(l->retry);
		l->retry = NULL;
	}
	return r;
}
