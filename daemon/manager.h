/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to whoever started this process and listens on $NOTIFY_SOCKET: systemd, or
 * `kvpoold --supervise`.
 *
 * The socket is connected once and kept. An abstract name is anybody's to bind once its owner is
 * dead, and descriptors of the pool must not go there. Process-wide; any thread.
 */
#ifndef KVPOOL_DAEMON_MANAGER_H
#define KVPOOL_DAEMON_MANAGER_H

#include <stdbool.h>

enum {
	KVPOOL_MANAGER_E_NONE = 1, /* nobody listens: there is no $NOTIFY_SOCKET */
};

bool kvpool_manager_exists(void);

/*
 * Sends one message, lines of NAME=value, with descriptor `fd` (borrowed; -1: none). Waits a second
 * at most, and not at all within ten seconds after it waited in vain. 0, KVPOOL_MANAGER_E_NONE,
 * negative errno: -EAGAIN where the manager does not read, -ECONNREFUSED where it is gone,
 * -ETOOMANYREFS where too many descriptors are on their way.
 */
int kvpool_manager_send(const char *text, int fd);

#endif
