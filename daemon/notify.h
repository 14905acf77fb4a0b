/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager is told and what it hands over: sd_notify, socket activation, and what
 * the descriptor store held.
 *
 * Does nothing where no service manager asks for it. Service thread only.
 */
#ifndef KVPOOL_DAEMON_NOTIFY_H
#define KVPOOL_DAEMON_NOTIFY_H

#include "daemon/store.h"
#include "shm/base.h"

#include <stddef.h>
#include <stdint.h>

/* Listening sockets by name; -1 where none came. Owned by whoever took them. */
struct kvpool_notify_sockets {
	int data;  /* SOCK_SEQPACKET; name "data" or "kvpool.socket" */
	int admin; /* SOCK_STREAM; name "admin" or "kvpool-admin.socket" */
};

enum {
	KVPOOL_NOTIFY_E_SOCKET = 1, /* a descriptor of unknown name, wrong type, or twice */
};

/*
 * Takes what was passed to this process, once: the environment is cleared, the descriptors are
 * close-on-exec. Sockets are told apart by their names; what has a name of the descriptor store
 * goes into `kept`, which the caller owns then. A descriptor of any other name is closed with a
 * line in the log, unless it is a socket. Where a socket is not what it should be, all are closed
 * (the store goes on holding its own) and `error` says which. 0, KVPOOL_NOTIFY_E_SOCKET, negative
 * errno.
 */
int kvpool_notify_take_sockets(char *error, size_t error_bytes, struct kvpool_notify_sockets *out,
			       struct kvpool_store_list *kept);

void kvpool_notify_ready(void);
void kvpool_notify_stopping(void);
void kvpool_notify_status(const char *fmt, ...) KVPOOL_PRINTF(1, 2);

/* The sign of life that a watchdog waits for. */
void kvpool_notify_alive(void);

/* Asks for this much time from now before a start or stop counts as failed. */
void kvpool_notify_extend(uint64_t ns);

#endif
