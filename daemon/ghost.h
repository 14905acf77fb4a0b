/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that was a member of a client in an earlier life of the daemon and is not back.
 *
 * It may still read and write what the client was granted, so it is watched by its pidfd, which the
 * store kept. It goes when its process is gone, is back (RESUME), or says that it has let go
 * (RETIRE). Owned by its client's list; service thread only.
 */
#ifndef KVPOOL_DAEMON_GHOST_H
#define KVPOOL_DAEMON_GHOST_H

#include "daemon/list.h"
#include "daemon/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvpool_client;
struct kvpool_peer;

struct kvpool_ghost {
	struct kvpool_list link;      /* in client->ghosts */
	struct kvpool_client *client; /* borrowed */
	struct kvpool_source *source; /* owned: the pidfd */
	int pidfd;                    /* owned */
	pid_t pid;                    /* 0: gone, or not visible from here */
	uint32_t member;              /* number within the client */
	char name[KVPOOL_STORE_NAME_BYTES];
};

/* `name` is its pidfd's in the store. Takes `pidfd` on success. Negative errno. */
int kvpool_ghost_new(struct kvpool_client *client, pid_t pid, int pidfd, uint32_t member,
		     const char *name, struct kvpool_ghost **out);

/* Its pidfd leaves the store. */
void kvpool_ghost_free(struct kvpool_ghost *ghost);

/* The process is a member again under the number that it had: what the store keeps is the peer's.
 */
void kvpool_ghost_hand_over(struct kvpool_ghost *ghost, struct kvpool_peer *peer);

/*
 * Whether the peer is the process of this pidfd, which has that pid (0: not visible from here).
 * Where nobody can tell, it is not.
 */
bool kvpool_ghost_same(pid_t pid, int pidfd, const struct kvpool_peer *peer);

#endif
