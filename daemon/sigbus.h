/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Survives SIGBUS on memory that a client can write: a hole that it punches there and that the
 * kernel cannot fill again must cost the client its channel, not the daemon its life.
 *
 * The handler lays zero pages over the whole guarded range and marks it poisoned; the access that
 * faulted then reads zeros, and the service thread drops the client when it looks. A SIGBUS
 * anywhere else gets the default action. The table is process-wide, because a signal handler is;
 * the service thread fills it, the handler runs in whichever thread faulted.
 */
#ifndef KVPOOL_DAEMON_SIGBUS_H
#define KVPOOL_DAEMON_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVPOOL_SIGBUS_RANGES_MAX 32768u

struct kvpool_sigbus_range;

/* Installs the handler. Once, before the first guard. Negative errno. */
int kvpool_sigbus_install(void);

/*
 * Guards a mapping until kvpool_sigbus_release(); `start` and `bytes` are multiples of a page (of
 * the mapping's own, where that is huge). The mapping is borrowed. -EINVAL, -ENOSPC.
 */
int kvpool_sigbus_guard(void *start, size_t bytes, struct kvpool_sigbus_range **out);

/* Before the mapping is undone. Takes NULL. */
void kvpool_sigbus_release(struct kvpool_sigbus_range *range);

/* Whether an access to this range faulted: it holds zeros now and is not shared any more. */
bool kvpool_sigbus_poisoned(const struct kvpool_sigbus_range *range);

/* How many ranges were poisoned so far, so that a turn can tell cheaply that there is a new one. */
uint64_t kvpool_sigbus_count(void);

#endif
