/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often each value was seen, in buckets 1/64 of the value wide: percentiles within 1.6 %.
 *
 * A plain struct without pointers, so that it can lie in memory that processes share; written by
 * one thread, read by others only after that one has ended.
 */
#ifndef KVPOOL_TOOLS_REPLAY_HISTOGRAM_H
#define KVPOOL_TOOLS_REPLAY_HISTOGRAM_H

#include <stdint.h>

/* Values up to 2^40, 18 minutes in nanoseconds; what is beyond counts as that. */
#define KVPOOL_HISTOGRAM_BUCKETS ((40 - 6 + 1) * 64)

struct kvpool_histogram {
	uint64_t total;
	uint64_t buckets[KVPOOL_HISTOGRAM_BUCKETS];
};

void kvpool_histogram_add(struct kvpool_histogram *histogram, uint64_t value, uint64_t times);
void kvpool_histogram_merge(struct kvpool_histogram *into, const struct kvpool_histogram *from);

/* The value that `share` (0..1) of all are not above, 0 where there are none. */
uint64_t kvpool_histogram_percentile(const struct kvpool_histogram *histogram, double share);

#endif
