/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: HTTP and JSON over a Unix socket, for kvpoolctl and for curl --unix-socket.
 *
 * libmicrohttpd runs inside the service thread's loop, without a thread of its own. Owned by
 * main(); ends before the server. Reading is GET, changing is POST.
 */
#ifndef KVPOOL_DAEMON_ADMIN_H
#define KVPOOL_DAEMON_ADMIN_H

#include "daemon/listener.h"
#include "daemon/server.h"

struct kvpool_admin;

/* Serves on this listener from now on; takes it on success. -ENOMEM, -ENOSPC, -EIO. */
int kvpool_admin_new(struct kvpool_server *server, struct kvpool_listener *listener,
		     struct kvpool_admin **out);

/* Closes the socket and every connection. Takes NULL. */
void kvpool_admin_free(struct kvpool_admin *admin);

#endif
