/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket answers, as JSON text. No token, key or byte of a block is in it.
 *
 * Reads the server's objects; service thread only. Every answer has schema_version, which grows
 * when a field changes its meaning or goes; new fields may come without that.
 */
#ifndef KVPOOL_DAEMON_ADMIN_JSON_H
#define KVPOOL_DAEMON_ADMIN_JSON_H

struct kvpool_server;

#define KVPOOL_ADMIN_SCHEMA_VERSION 1

/* Text to be freed with free(); NULL: out of memory. `admin_socket`: path, for the answer. */
typedef char *kvpool_admin_json_fn(const struct kvpool_server *server, const char *admin_socket);

kvpool_admin_json_fn kvpool_admin_json_status;
kvpool_admin_json_fn kvpool_admin_json_clients;
kvpool_admin_json_fn kvpool_admin_json_domains;
kvpool_admin_json_fn kvpool_admin_json_layouts;
kvpool_admin_json_fn kvpool_admin_json_health;
kvpool_admin_json_fn kvpool_admin_json_verify;

char *kvpool_admin_json_error(const char *text);

#endif
