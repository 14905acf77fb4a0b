/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvpoold says about itself when it starts: one line with what it chose and what would make it
 * faster, and the same for --check.
 *
 * Stateless; main thread, before and after the server exists.
 */
#ifndef KVPOOL_DAEMON_START_H
#define KVPOOL_DAEMON_START_H

#include "daemon/host.h"
#include "daemon/pool.h"
#include "daemon/server.h"
#include "daemon/sizing.h"

#include <stddef.h>

/* "10.0 GiB: 640 x 16 MiB, extents 4 MiB" */
void kvpool_start_describe(const struct kvpool_sizing *sizing, char *text, size_t text_bytes);

/* Logs the line. The pool has made its first segment, or failed to. */
void kvpool_start_say(const struct kvpool_server *server, const struct kvpool_sizing *sizing,
		      const struct kvpool_host *host, const char *socket);

#endif
