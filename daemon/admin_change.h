/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket changes: calls by POST, with arguments in the query.
 *
 * Changes the server's objects; service thread only, and never from below the service of a channel.
 */
#ifndef KVPOOL_DAEMON_ADMIN_CHANGE_H
#define KVPOOL_DAEMON_ADMIN_CHANGE_H

#include <microhttpd.h>

struct kvpool_server;

/*
 * `connection`: of the request, for its query. JSON text to be freed with free(), NULL: out of
 * memory; *code is the HTTP status.
 */
typedef char *kvpool_admin_change_fn(struct kvpool_server *server,
				     struct MHD_Connection *connection, unsigned int *code);

/*
 * POST /v1/evict?client=N: that client's handles die. 200 with what was ended: client, name,
 * members, leases, quarantined_blocks. 404 where no such client is attached.
 */
kvpool_admin_change_fn kvpool_admin_change_evict;

/* POST /v1/drain and /v1/resume: 200 with the state. Resume: 409 where the daemon leaves. */
kvpool_admin_change_fn kvpool_admin_change_drain;
kvpool_admin_change_fn kvpool_admin_change_resume;

/*
 * POST /v1/verify: begins a verification; ?domain=NAME for one domain, ?structure=1 for the tables
 * of large caches too. 200 with the page; 404: no such domain; 409: one is under way.
 */
kvpool_admin_change_fn kvpool_admin_change_verify;

#endif
