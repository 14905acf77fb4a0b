/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the service thread goes on looking for requests before it sleeps.
 *
 * Keeps an average of the gaps between requests. Where they are mostly shorter than the longest
 * spin that is allowed, the next request will likely come within it, and the thread spins that
 * long; otherwise only a short time. Pure: the time is handed in. Owned by the service thread.
 */
#ifndef KVPOOL_DAEMON_SPIN_H
#define KVPOOL_DAEMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_SPIN_SHORT_NS UINT64_C(50000)

struct kvpool_spin {
	uint64_t max_ns;     /* longest spin; 0: sleep at once */
	uint64_t average_ns; /* of the gaps, each counted as at most 2 * max_ns */
	uint64_t last_ns;    /* when the last request was seen; 0: none yet */
};

void kvpool_spin_init(struct kvpool_spin *spin, uint64_t max_ns);

/* Requests were found at now_ns. Makes no system call; a few instructions. */
void kvpool_spin_note(struct kvpool_spin *spin, uint64_t now_ns);

/* How long after the last request the thread stays awake. */
uint64_t kvpool_spin_window(const struct kvpool_spin *spin);

/* Whether to look again at now_ns rather than to sleep. */
bool kvpool_spin_awake(const struct kvpool_spin *spin, uint64_t now_ns);

#endif
