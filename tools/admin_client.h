/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking to a daemon's admin socket: one GET or POST, one JSON document.
 *
 * Main thread of a tool: libcurl is initialised on first use.
 */
#ifndef KVPOOL_TOOLS_ADMIN_CLIENT_H
#define KVPOOL_TOOLS_ADMIN_CLIENT_H

#include <jansson.h>
#include <stddef.h>

/* The `schema_version` that these tools read. */
#define KVPOOL_ADMIN_SCHEMA 1

/* What fits in a socket's address, with the NUL. */
#define KVPOOL_ADMIN_SOCKET_BYTES 108
#define KVPOOL_ADMIN_WHY_BYTES    512

enum {
	KVPOOL_ADMIN_E_UNREACHABLE = 1, /* nobody answers at that path */
	KVPOOL_ADMIN_E_REFUSED = 2,     /* no permission, or a change that cannot be made */
	KVPOOL_ADMIN_E_ANSWER = 3,      /* an HTTP error, or no JSON */
	KVPOOL_ADMIN_E_VERSION = 4,     /* another schema_version */
	KVPOOL_ADMIN_E_PATH = 5,        /* the path is too long for a socket, or there is none */
};

/*
 * Where the admin socket is: `given`; $KVPOOL_ADMIN_SOCKET; beside $KVPOOL_SOCKET;
 * /run/kvpool/admin.sock where it is there; $XDG_RUNTIME_DIR/admin.sock. 0 or KVPOOL_ADMIN_E_PATH
 * with the reason in `why`.
 */
int kvpool_admin_client_find(const char *given, char *why, size_t why_bytes,
			     char path[KVPOOL_ADMIN_SOCKET_BYTES]);

/* The admin socket that belongs to a data socket. 0 or KVPOOL_ADMIN_E_PATH. */
int kvpool_admin_client_beside(const char *data, char path[KVPOOL_ADMIN_SOCKET_BYTES]);

/*
 * GETs `resource` ("/v1/status"). 0, a KVPOOL_ADMIN_E_ with a sentence in `why`, or -ENOMEM. The
 * caller owns `out`: an object of a schema_version that was checked.
 */
int kvpool_admin_client_get(const char *socket, const char *resource, char *why, size_t why_bytes,
			    json_t **out);

/* POSTs to `resource` ("/v1/evict?client=3"), without a body; otherwise the same. */
int kvpool_admin_client_post(const char *socket, const char *resource, char *why, size_t why_bytes,
			     json_t **out);

#endif
