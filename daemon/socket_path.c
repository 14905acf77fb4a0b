/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the sockets are: see socket_path.h.
 */
#include "daemon/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX ".sock"

int kvpool_socket_path_data(const char *wish, char out[KVPOOL_SOCKET_PATH_BYTES])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (wish) {
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%s", wish);
		return 0;
	}
	if (access(KVPOOL_SOCKET_FOLDER, W_OK | X_OK) == 0) {
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%s",
			       KVPOOL_SOCKET_FOLDER "/kvpool.sock");
		return 0;
	}
	if (runtime && runtime[0] == '/') {
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%s/kvpool.sock", runtime);
		return 0;
	}
	(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES,
		       "no place for the socket: no --socket, no socket from "
		       "systemd, " KVPOOL_SOCKET_FOLDER
		       " cannot be written (%s), XDG_RUNTIME_DIR is not set",
		       strerror(errno));
	return -ENOENT;
}

void kvpool_socket_path_admin(const char *wish, const char *data,
			      char out[KVPOOL_SOCKET_PATH_BYTES])
{
	const char *slash = strrchr(data, '/');
	const char *base = slash ? slash + 1 : data;
	size_t folder = (size_t)(base - data);
	size_t n = strlen(base);

	if (wish) {
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%s", wish);
		return;
	}
	if (n > strlen(SUFFIX) && strcmp(base + n - strlen(SUFFIX), SUFFIX) == 0)
		n -= strlen(SUFFIX);
	if (n == strlen("kvpool") && strncmp(base, "kvpool", n) == 0)
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%.*sadmin.sock", (int)folder, data);
	else
		(void)snprintf(out, KVPOOL_SOCKET_PATH_BYTES, "%.*s%.*s-admin.sock", (int)folder,
			       data, (int)n, base);
}

mode_t kvpool_socket_path_mode(const char *path)
{
	size_t n = strlen(KVPOOL_SOCKET_FOLDER);

	return strncmp(path, KVPOOL_SOCKET_FOLDER, n) == 0 && path[n] == '/' ? 0660 : 0600;
}
