/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `kvpoold --supervise` holds for its child: descriptors by name, put and removed by messages
 * as systemd's descriptor store takes them. It looks at names only, never at what a descriptor is.
 *
 * Owned by the supervisor, its one thread. Nothing is allocated after kvpool_keeper_open().
 */
#ifndef KVPOOL_DAEMON_KEEPER_H
#define KVPOOL_DAEMON_KEEPER_H

#include "daemon/log.h"
#include "daemon/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KVPOOL_KEEPER_TEXT_MAX 4096u /* bytes of a message; systemd takes as many */
#define KVPOOL_KEEPER_GIVEN    8u    /* sockets that the supervisor may be given, over and above */

enum {
	KVPOOL_KEEPER_E_EMPTY = 1, /* no message waits */
	KVPOOL_KEEPER_E_FULL = 2,
	KVPOOL_KEEPER_E_MESSAGE = 3, /* a message that breaks the rules; it was said and dropped */
};

struct kvpool_keeper {
	int fd;                            /* owned: where messages come in */
	char address[32];                  /* the child's $NOTIFY_SOCKET */
	struct kvpool_store_kept_fd *kept; /* owned, with its descriptors */
	uint32_t n;
	uint32_t room;
	struct kvpool_log_limit quiet; /* of complaints */
};

/* What a message said beyond the store. */
struct kvpool_keeper_note {
	bool stopping;
	char said[KVPOOL_KEEPER_TEXT_MAX + 1]; /* lines for the supervisor's own manager; or "" */
};

/* Makes the socket and a table of at most `room` entries. Negative errno. */
int kvpool_keeper_open(uint32_t room, struct kvpool_keeper *out);

/* Closes all that is held. One that was not opened is left alone where its fd is -1. */
void kvpool_keeper_close(struct kvpool_keeper *k);

/*
 * Takes what this process itself was given by socket activation, to pass it to every child. A
 * socket's name is none that a child could remove or replace. KVPOOL_KEEPER_E_FULL: the rest is
 * closed. Negative errno.
 */
int kvpool_keeper_take_given(struct kvpool_keeper *k);

/* Takes `fd` on success; what had this name is closed. KVPOOL_KEEPER_E_FULL. */
int kvpool_keeper_put(struct kvpool_keeper *k, const char *name, int fd);

/* Closes what has this name; nothing happens where nothing has. */
void kvpool_keeper_remove(struct kvpool_keeper *k, const char *name);

/*
 * Handles one message. Those of others than process `child` are dropped before their descriptors
 * become ours. KVPOOL_KEEPER_E_EMPTY, KVPOOL_KEEPER_E_MESSAGE, negative errno.
 */
int kvpool_keeper_receive(struct kvpool_keeper *k, pid_t child, struct kvpool_keeper_note *out);

#endif
