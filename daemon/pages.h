/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of pages that a segment can lie on, and which to try on this host.
 *
 * Pure functions; usable from any thread.
 */
#ifndef KVPOOL_DAEMON_PAGES_H
#define KVPOOL_DAEMON_PAGES_H

#include "daemon/host.h"
#include "daemon/pool.h"

#include <stddef.h>
#include <stdint.h>

/* "auto", "1G", "2M", "thp", "4k". */
const char *kvpool_pages_name(enum kvpool_pages pages);

/* What a page of this kind holds; memory is populated in multiples of it. */
uint64_t kvpool_pages_bytes(enum kvpool_pages pages);

/* Whether it comes from the reserve of huge pages, so that it can be refused, but not swapped. */
bool kvpool_pages_reserved(enum kvpool_pages pages);

/*
 * What to try for one segment, best first, none better than `from` (AUTO: any); returns how many.
 * Where `want` is not AUTO, that is the only one.
 */
size_t kvpool_pages_candidates(const struct kvpool_host *host, enum kvpool_pages want,
			       enum kvpool_pages from, uint64_t segment_bytes,
			       enum kvpool_pages out[KVPOOL_PAGES_COUNT]);

#endif
