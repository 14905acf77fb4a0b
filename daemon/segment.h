/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memfd of one segment: made, filled with pages step by step, wiped.
 *
 * No object: the descriptor is the caller's. Called by the populating thread. Nothing here touches
 * the memory, so that a missing page is an error code and never a SIGBUS.
 */
#ifndef KVPOOL_DAEMON_SEGMENT_H
#define KVPOOL_DAEMON_SEGMENT_H

#include "daemon/nodes.h"
#include "daemon/pool.h"

#include <stdint.h>

/*
 * A memfd on this kind of pages, of this size, sealed against another (SHRINK, GROW, SEAL). Huge
 * pages are reserved for all of it. Negative errno, and *step names the call that failed.
 */
int kvpool_segment_make(enum kvpool_pages pages, uint64_t bytes, const char **step, int *out_fd);

struct kvpool_segment_fill {
	int fd; /* borrowed */
	uint64_t offset;
	uint64_t bytes;
	enum kvpool_pages pages;
	uint32_t node; /* KVPOOL_NODE_NONE: wherever the kernel likes */
};

/*
 * Brings in the pages of a range, zeroed. Negative errno, and *step names the call that failed;
 * -ENOMEM where the pages are not to be had. A refused mbind(2) is no failure: *bind_error holds
 * its errno, and the pages come from anywhere.
 */
int kvpool_segment_fill(const struct kvpool_segment_fill *fill, const char **step, int *bind_error);

/* Gives all its pages back: who still maps it reads zeros. Then closes it. */
void kvpool_segment_wipe(int fd, uint64_t bytes);

#endif
