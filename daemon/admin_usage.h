/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounting and counters of the caches as JSON, for one domain and summed over all.
 *
 * Part of the admin pages; service thread only. All return new references, NULL where memory is
 * out.
 */
#ifndef KVPOOL_DAEMON_ADMIN_USAGE_H
#define KVPOOL_DAEMON_ADMIN_USAGE_H

#include "src/cache.h"

#include <jansson.h>

struct kvpool_server;

/* Adds schema_version, turns the page into text, and takes it. NULL: out of memory. */
char *kvpool_admin_json_text(json_t *page);

/* Of all domains together. */
void kvpool_admin_usage_sum(const struct kvpool_server *server, struct kvpool_cache_usage *out);

/* Bytes and blocks: what the cache was given and where it is. */
json_t *kvpool_admin_usage_accounting(const struct kvpool_cache_usage *usage);

/* What happened since the start, with hit rates. */
json_t *kvpool_admin_usage_counters(const struct kvpool_cache_usage *usage);

/* Clients that hold reservations: id, name, reserved_blocks. */
json_t *kvpool_admin_usage_writers(const struct kvpool_server *server);

/* One object a domain. */
json_t *kvpool_admin_usage_domains(const struct kvpool_server *server);

#endif
