/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor store: descriptors that systemd (FDSTORE=1) or `kvpoold --supervise` hold for the
 * daemon, so that the memory behind them outlives it.
 *
 * A descriptor that was put comes back, by its name, to each later life of the daemon until it is
 * removed. Nobody else may have it. Who keeps decides when all of it ends: systemd drops it at
 * `systemctl stop` and keeps it at `restart` and after a crash; the supervisor likewise. The daemon
 * cannot tell, and leaves the store as it is when it is told to go.
 *
 * A name is given to one descriptor at a time. It begins with "kvpool-", holds a-z, 0-9 and '-'
 * only, and has at most 31 bytes: all names together travel in one variable of the environment,
 * which Linux cuts off at 128 KiB, and then the daemon could not be started any more. Process-wide;
 * put and remove: any thread; lists: one thread.
 */
#ifndef KVPOOL_DAEMON_STORE_H
#define KVPOOL_DAEMON_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVPOOL_STORE_PREFIX     "kvpool-"
#define KVPOOL_STORE_NAME_BYTES 32u   /* with the NUL */
#define KVPOOL_STORE_MAX        4000u /* descriptors; times 32 bytes they fit into 128 KiB */

enum {
	KVPOOL_STORE_E_NONE = 1, /* nobody keeps descriptors: there is no $NOTIFY_SOCKET */
	KVPOOL_STORE_E_FULL = 2, /* the store holds as many as it may */
};

struct kvpool_store_kept_fd {
	char name[KVPOOL_STORE_NAME_BYTES];
	int fd; /* owned by whoever has the list; -1: taken out of it */
};

/* What came back, in the order it came. */
struct kvpool_store_list {
	struct kvpool_store_kept_fd *fds; /* owned */
	size_t n;
	size_t room;
};

bool kvpool_store_name_valid(const char *name);

/*
 * Whether somebody keeps descriptors: $NOTIFY_SOCKET, and $FDSTORE, which the supervisor, systemd
 * from 254 on and kvpoold's own unit set. An older systemd with another unit does not say;
 * kvpool_store_put() tries all the same.
 */
bool kvpool_store_kept(void);

/*
 * Has `fd` (borrowed) kept under this name, which no descriptor in the store has. Waits a second at
 * most. 0: it is on its way, before anything that happens to this process later; systemd tells
 * nobody whether it took it. KVPOOL_STORE_E_, negative errno; but for E_NONE the log has it.
 */
int kvpool_store_put(const char *name, int fd);

/*
 * Whoever keeps it closes what has this name. KVPOOL_STORE_E_NONE; negative errno: it could not be
 * told now, and is told again with the next put or removal.
 */
int kvpool_store_remove(const char *name);

/*
 * Appends what came back. Takes `fd` on success. Where the name is in the list already, `fd` is
 * closed, and the store is told to hold the first one only. -ENOMEM.
 */
int kvpool_store_list_add(struct kvpool_store_list *list, const char *name, int fd);

/* Closes what was not taken out and frees the list; the store goes on holding it. */
void kvpool_store_list_free(struct kvpool_store_list *list);

/* The same, and removes what was not taken out from the store. */
void kvpool_store_list_drop(struct kvpool_store_list *list);

#endif
