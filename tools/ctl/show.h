/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvpoolctl prints for people, made of the documents of the admin socket.
 *
 * Documents are borrowed. A field that an older daemon does not send counts as 0 or "-". Main
 * thread.
 */
#ifndef KVPOOL_TOOLS_CTL_SHOW_H
#define KVPOOL_TOOLS_CTL_SHOW_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define KVPOOL_SHOW_TEXT_BYTES 80

/* GET /v1/status */
void kvpool_show_status(const json_t *document);

/* GET /v1/clients */
void kvpool_show_clients(const json_t *document);

/* Whether the daemon serves, but not as it should; `why` then says how. */
int kvpool_show_degraded(const json_t *status, char *why, size_t why_bytes);

/* GET /v1/verify */
void kvpool_show_verify(const json_t *document);

/* Whether that run found anything wrong. */
int kvpool_show_unsound(const json_t *document);

/*
 * Has the daemon verify a domain (NULL: all) and waits for the end; `structure`: tables of large
 * caches too. As kvpool_admin_client_get(), with the page of the run.
 */
int kvpool_verify_run(const char *socket, const char *domain, int structure, char *why,
		      size_t why_bytes, json_t **out);

/* ---- for those above ---- */

/* A member at a path of names, "pool/bytes". NULL where there is none. */
const json_t *kvpool_show_field(const json_t *document, const char *path);
uint64_t kvpool_show_integer(const json_t *document, const char *path);

/*
 * A string as it may go to a terminal: what another process chose is cut, and everything but
 * printable ASCII becomes '?'. "-" where there is none.
 */
char *kvpool_show_text(const json_t *document, const char *path, char out[KVPOOL_SHOW_TEXT_BYTES]);

#endif
