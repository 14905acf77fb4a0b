/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command of kvpoolctl gets, and the commands that change something.
 *
 * A command prints its answer on stdout, what is wrong on stderr, and returns the exit code. Main
 * thread.
 */
#ifndef KVPOOL_TOOLS_CTL_COMMAND_H
#define KVPOOL_TOOLS_CTL_COMMAND_H

#include "tools/admin_client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct kvpool_ctl_request {
	const char *socket; /* borrowed; NULL: not given */
	bool json;
	bool structure;                       /* --structure */
	const char *domain;                   /* --domain, borrowed; NULL: not given */
	uint32_t client;                      /* --client; 0: not given */
	uint32_t timeout;                     /* --timeout, in seconds; 0: not given */
	char path[KVPOOL_ADMIN_SOCKET_BYTES]; /* of the admin socket */
};

/* Ends a client: its handles die, its mappings stay. */
int kvpool_ctl_evict(const struct kvpool_ctl_request *request);

/* No new blocks and clients; waits for the writers, then says what is left. */
int kvpool_ctl_drain(const struct kvpool_ctl_request *request);

/* Ends the draining. */
int kvpool_ctl_resume(const struct kvpool_ctl_request *request);

/* Has the daemon read what has a checksum; waits for the end and shows it. */
int kvpool_ctl_verify(const struct kvpool_ctl_request *request);

/* ---- for all commands ---- */

/* Says why the daemon could not be asked (`error` as admin_client.h has it); the exit code. */
int kvpool_ctl_complain(int error, const char *why);

void kvpool_ctl_print_json(const json_t *document);

#endif
