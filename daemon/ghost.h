/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of an earlier life of the daemon that may still read or write blocks: it held some when
 * that life ended, and its processes were alive.
 *
 * Each of its processes is watched by its pidfd, which the store kept. A process is done when it is
 * gone, or says that it has let go (RETIRE). With the last process of the last ghost of a domain
 * the domain's past ends: what was being written is free, what was kept may be evicted. Owned by
 * its domain; service thread only.
 */
#ifndef KVPOOL_DAEMON_GHOST_H
#define KVPOOL_DAEMON_GHOST_H

#include "daemon/list.h"
#include "shm/limits.h"

#include <stdint.h>
#include <sys/types.h>

struct kvpool_domain;
struct kvpool_ghost;
struct kvpool_state_client;

/* Takes over the client's entry in the state; it has a process at least. -ENOMEM. */
int kvpool_ghost_new(struct kvpool_domain *domain, struct kvpool_state_client *entry,
		     struct kvpool_ghost **out);

/* A process of it; `name` is its pidfd's in the store. Takes `pidfd` on success. Negative errno. */
int kvpool_ghost_watch(struct kvpool_ghost *ghost, pid_t pid, int pidfd, const char *name);

/* The process of this client of the domain has let go. Nothing where there is no such ghost. */
void kvpool_ghost_retire(struct kvpool_domain *domain, const uint8_t token[KVPOOL_TOKEN_BYTES],
			 pid_t pid);

/* The domain ends: frees all its ghosts; the past is the caller's matter. */
void kvpool_ghost_free_all(struct kvpool_domain *domain);

#endif
