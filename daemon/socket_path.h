/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the sockets are: what was asked for, else /run/kvpool, else $XDG_RUNTIME_DIR.
 *
 * Pure apart from access(2) and the environment; usable from any thread.
 */
#ifndef KVPOOL_DAEMON_SOCKET_PATH_H
#define KVPOOL_DAEMON_SOCKET_PATH_H

#include <stddef.h>
#include <sys/stat.h>

#define KVPOOL_SOCKET_PATH_BYTES 4096
#define KVPOOL_SOCKET_FOLDER     "/run/kvpool"

/* The data socket. `wish` may be NULL. -ENOENT: there is no place; `out` then names all tried. */
int kvpool_socket_path_data(const char *wish, char out[KVPOOL_SOCKET_PATH_BYTES]);

/*
 * The admin socket beside a data socket: admin.sock beside kvpool.sock, X-admin.sock beside X.sock.
 * `wish` may be NULL.
 */
void kvpool_socket_path_admin(const char *wish, const char *data,
			      char out[KVPOOL_SOCKET_PATH_BYTES]);

/* The system's folder is for a group of users, any other place for its owner. */
mode_t kvpool_socket_path_mode(const char *path);

#endif
