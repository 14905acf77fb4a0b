/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification: every stored block that has a checksum is read and compared with it, and dropped
 * where it differs, with all that hangs on it.
 *
 * Asked for over the admin socket, one run at a time. The service thread walks over the records in
 * short steps and judges; a thread that lives as long as the run reads the bytes (verify_read.c),
 * so nobody waits for it. A block that ends or is written anew meanwhile has another generation and
 * is not judged. Owned by the server; service thread only.
 */
#ifndef KVPOOL_DAEMON_VERIFY_H
#define KVPOOL_DAEMON_VERIFY_H

#include "shm/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct kvpool_domain;
struct kvpool_server;
struct kvpool_verify;

enum {
	KVPOOL_VERIFY_E_RUNNING = 1, /* one run at a time */
	KVPOOL_VERIFY_E_DOMAIN = 2,  /* no domain of that name */
};

/* Of the run under way, or the last one. */
struct kvpool_verify_progress {
	uint64_t runs; /* ever begun; 0: the rest is 0 too */
	bool running;
	char domain[KVPOOL_NAME_BYTES]; /* "": all of them */
	uint64_t checked;               /* blocks read and compared */
	uint64_t corrupt;               /* of these, that were not what their checksum says */
	uint64_t dropped;               /* with what hung on them */
	uint64_t without_checksum;
	uint64_t skipped; /* ended meanwhile, or could not be read now */
	uint64_t bytes;   /* read */
	uint64_t elapsed_ns;
	uint32_t structures; /* caches whose tables were checked against each other */
	uint32_t too_large;  /* caches for which that would have held up the others for too long */
	char fault[256];     /* the first that was found; "": none */
};

/*
 * Begins a run. `domain`: its name; NULL: all. `structure`: check the tables of large caches too,
 * which holds up everybody for about a second per million blocks. A KVPOOL_VERIFY_E_ or a negative
 * errno.
 */
int kvpool_verify_start(struct kvpool_server *server, const char *domain, bool structure);

void kvpool_verify_progress(const struct kvpool_server *server, struct kvpool_verify_progress *out);

/* The domain is about to end. */
void kvpool_verify_domain_gone(struct kvpool_domain *domain);

/* The segment is about to leave its domain. */
void kvpool_verify_segment_gone(struct kvpool_server *server, uint32_t segment);

/* Ends a run that is under way. Takes NULL. */
void kvpool_verify_free(struct kvpool_verify *verify);

#endif
