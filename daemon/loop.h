/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's one wait point: descriptors and timers, over io_uring or, where that is refused,
 * epoll.
 *
 * Level-triggered on both: a callback whose descriptor is still ready is called again. A loop and
 * its sources belong to the service thread. A source may be removed from inside any callback; its
 * callback is not called after that.
 */
#ifndef KVPOOL_DAEMON_LOOP_H
#define KVPOOL_DAEMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct kvpool_loop;
struct kvpool_source;

enum kvpool_loop_kind {
	KVPOOL_LOOP_AUTO = 0, /* io_uring, else epoll */
	KVPOOL_LOOP_URING = 1,
	KVPOOL_LOOP_EPOLL = 2,
};

/* `events`: POLLIN, POLLOUT, POLLHUP, POLLERR, POLLRDHUP as poll(2) has them; 0 from a timer. */
typedef void (*kvpool_source_fn)(void *cookie, uint32_t events);

/*
 * AUTO falls back to epoll where io_uring is refused (EPERM, ENOSYS, ENOMEM) and keeps the refusal
 * for kvpool_loop_refusal(). Negative errno.
 */
int kvpool_loop_new(enum kvpool_loop_kind kind, struct kvpool_loop **out);
void kvpool_loop_free(struct kvpool_loop *loop); /* takes NULL; sources must be removed before */

enum kvpool_loop_kind kvpool_loop_kind(const struct kvpool_loop *loop);
int kvpool_loop_refusal(const struct kvpool_loop *loop); /* errno that refused io_uring, or 0 */

/* `fd` is borrowed until the source is removed. -ENOMEM, -ENOSPC. */
int kvpool_loop_add_fd(struct kvpool_loop *loop, int fd, uint32_t events, kvpool_source_fn fn,
		       void *cookie, struct kvpool_source **out);
int kvpool_loop_add_timer(struct kvpool_loop *loop, kvpool_source_fn fn, void *cookie,
			  struct kvpool_source **out);

/* CLOCK_MONOTONIC nanoseconds; 0 turns it off. One shot. Makes no system call. */
void kvpool_source_set_timer(struct kvpool_source *source, uint64_t at_ns);

/*
 * Takes NULL. The descriptor may be closed at once; the kernel lets go of the file itself with the
 * next kvpool_loop_poll() or kvpool_loop_wait().
 */
void kvpool_source_remove(struct kvpool_source *source);

/*
 * Runs the callbacks of what is ready and of timers that are due at now_ns; never sleeps. With
 * io_uring it makes no system call while nothing is ready and the set of sources is as it was; with
 * epoll it is one, so the caller spaces these. Returns how many ran, or a negative errno.
 */
int kvpool_loop_poll(struct kvpool_loop *loop, uint64_t now_ns);

/*
 * Sleeps until something is ready or the next timer is due, then as kvpool_loop_poll(). Returns 0
 * where a signal woke it.
 */
int kvpool_loop_wait(struct kvpool_loop *loop);

/* How often kvpool_loop_wait() really slept and woke. */
uint64_t kvpool_loop_wakeups(const struct kvpool_loop *loop);

#endif
