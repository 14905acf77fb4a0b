/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong last, in a sentence; and what a reply's status means as an errno.
 *
 * A failure text belongs to a channel (its thread) or to a handle (under its lock). The public
 * functions hand the pointer out, so a handle's text alternates between buffers: one that was
 * returned stays whole while the next failure is written.
 */
#ifndef KVPOOL_CLIENT_ERROR_H
#define KVPOOL_CLIENT_ERROR_H

#include "shm/base.h"
#include "shm/wire.h"

#include <stdatomic.h>

#define KVPOOL_FAILURE_BUFFERS 4u
#define KVPOOL_FAILURE_BYTES   320u

struct kvpool_failure {
	/* W: under the owner's rule, release E1. R: any thread, acquire E2. E1 -> E2: the text. */
	_Atomic(const char *) text;
	uint32_t next;
	char buffers[KVPOOL_FAILURE_BUFFERS][KVPOOL_FAILURE_BYTES];
};

void kvpool_failure_init(struct kvpool_failure *f);

/* Never NULL. */
const char *kvpool_failure_text(const struct kvpool_failure *f);

/* Both return `error`, so that a caller can fail in one line. `text` must be a literal. */
int kvpool_failure_literal(struct kvpool_failure *f, int error, const char *text);
int kvpool_failure_set(struct kvpool_failure *f, int error, const char *format, ...)
	KVPOOL_PRINTF(3, 4);

/* The negative errno of an enum kvpool_status (0 for OK), and a sentence about it. */
int kvpool_failure_status(struct kvpool_failure *f, uint16_t status, const char *operation);

/* Who holds the space, from a RESERVE's reply. `self`: this client's id. */
void kvpool_failure_no_space(struct kvpool_failure *f, uint16_t detail, uint32_t holder,
			     uint32_t self);

#endif
