/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one load costs that no cache and no prefetcher helps: the floor under every lookup in a
 * table of that size, whatever the code around it.
 *
 * A pure measurement on memory of its own; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_LATENCY_H
#define KVPOOL_TOOLS_BENCH_LATENCY_H

#include "tools/bench/ticks.h"

struct kvpool_latency {
	uint64_t bytes;       /* of the memory: a power of two, at most what was asked for */
	uint64_t small_pages; /* ns of a load on 4 KiB pages, median */
	uint64_t huge_pages;  /* on 2 MiB pages, if the host gives any to those who ask */
};

/* `bytes`: at least 1 MiB. -ENOMEM. */
int kvpool_latency_measure(uint64_t bytes, const struct kvpool_ticks *ticks,
			   struct kvpool_latency *out);

#endif
