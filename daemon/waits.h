/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WAIT requests that are not answered yet, ordered by their deadlines, on one timer.
 *
 * Owned by the server; a wait belongs to its channel as well and goes with it. Service thread only.
 */
#ifndef KVPOOL_DAEMON_WAITS_H
#define KVPOOL_DAEMON_WAITS_H

#include "daemon/list.h"
#include "daemon/loop.h"
#include "src/cache.h"

struct kvpool_channel;

struct kvpool_wait {
	struct kvpool_list link;        /* in channel->waits */
	struct kvpool_channel *channel; /* borrowed: outlives the wait */
	struct kvpool_waiter *waiter;   /* borrowed: the cache's, until it wakes or is cancelled */
	uint64_t deadline_ns;
	uint32_t id;   /* of the request */
	uint32_t heap; /* where it is in the heap */
};

struct kvpool_waits {
	struct kvpool_wait **heap; /* owned array of owned waits; the earliest deadline first */
	uint32_t n;
	uint32_t capacity;
	struct kvpool_source *timer; /* owned */
};

/* -ENOMEM, -ENOSPC. */
int kvpool_waits_init(struct kvpool_waits *waits, struct kvpool_loop *loop);

/* Every wait must be gone. Safe on zeroed memory. */
void kvpool_waits_fini(struct kvpool_waits *waits);

/*
 * Asks the cache. OK and whatever else needs no waiting is returned as a status; BUSY: the wait is
 * pending and its reply will come. -ENOMEM.
 */
int kvpool_waits_add(struct kvpool_waits *waits, struct kvpool_channel *channel,
		     const struct kvpool_request *request, uint64_t now_ns);

/* The cache ends a wait: kvpool_cache_wake_fn, with a struct kvpool_wait as cookie. */
void kvpool_waits_wake(void *cookie, enum kvpool_status status);

/* The channel goes: its waits end without a reply. */
void kvpool_waits_drop(struct kvpool_waits *waits, struct kvpool_channel *channel);

/* Answers those whose deadline has come with TIMEOUT. */
void kvpool_waits_expire(struct kvpool_waits *waits, uint64_t now_ns);

#endif
