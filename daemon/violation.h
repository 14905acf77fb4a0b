/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers did that the protocol forbids: counted by kind, logged without flooding the journal.
 *
 * A peer that breaks the protocol is dropped alone; this object only takes note. Owned by the
 * server; service thread only.
 */
#ifndef KVPOOL_DAEMON_VIOLATION_H
#define KVPOOL_DAEMON_VIOLATION_H

#include "daemon/log.h"
#include "shm/base.h"

#include <stdint.h>

enum kvpool_violation {
	KVPOOL_VIOLATION_SIZE = 0,    /* a message of another size than its type has */
	KVPOOL_VIOLATION_TYPE,        /* a message type that clients do not send */
	KVPOOL_VIOLATION_STATE,       /* a message that may not come now */
	KVPOOL_VIOLATION_FIELD,       /* a field out of its bounds */
	KVPOOL_VIOLATION_VERSION,     /* a version outside the range that HELLO offered */
	KVPOOL_VIOLATION_TOKEN,       /* a token that nobody of the domain has */
	KVPOOL_VIOLATION_DESCRIPTORS, /* descriptors came with a message */
	KVPOOL_VIOLATION_SOCKET_FULL, /* asked and did not read the answers */
	KVPOOL_VIOLATION_DEADLINE,    /* did not attach in time */
	KVPOOL_VIOLATION_LIMIT,       /* more connections, members or channels than allowed */
	KVPOOL_VIOLATION_MEMORY,      /* channel memory that faults under the daemon */
	KVPOOL_VIOLATION_REQUEST,     /* a request that was answered with INVALID; not dropped */
	KVPOOL_VIOLATION_COUNT,
};

struct kvpool_violations {
	uint64_t counts[KVPOOL_VIOLATION_COUNT];
	struct kvpool_log_limit limits[KVPOOL_VIOLATION_COUNT];
};

void kvpool_violations_init(struct kvpool_violations *v);

/* Name of a kind in JSON and in the log; never NULL. */
const char *kvpool_violation_name(enum kvpool_violation kind);

/* Counts, and logs the text at most once in ten seconds a kind. */
void kvpool_violation_note(struct kvpool_violations *v, enum kvpool_violation kind, uint64_t now_ns,
			   const char *fmt, ...) KVPOOL_PRINTF(4, 5);

#endif
