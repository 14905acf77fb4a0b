/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket changes: calls by POST, each with one argument in the query at most.
 *
 * Changes the server's objects; service thread only, and never from below the service of a channel.
 */
#ifndef KVPOOL_DAEMON_ADMIN_CHANGE_H
#define KVPOOL_DAEMON_ADMIN_CHANGE_H

struct kvpool_server;

/*
 * `argument`: the value in the query, NULL where there is none. JSON text to be freed with free(),
 * NULL: out of memory; *code is the HTTP status.
 */
typedef char *kvpool_admin_change_fn(struct kvpool_server *server, const char *argument,
				     unsigned int *code);

/*
 * POST /v1/evict?client=N: that client's handles die. 200 with what was ended: client, name,
 * members, leases, quarantined_blocks. 404 where no such client is attached.
 */
kvpool_admin_change_fn kvpool_admin_change_evict;

/* POST /v1/drain and /v1/resume: 200 with the state. Resume: 409 where the daemon leaves. */
kvpool_admin_change_fn kvpool_admin_change_drain;
kvpool_admin_change_fn kvpool_admin_change_resume;

#endif
