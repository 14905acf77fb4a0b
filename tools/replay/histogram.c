/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often each value was seen: see histogram.h.
 *
 * Values below 64 have a bucket each; above, each power of two is cut in 64. One writer.
 */
#include "tools/replay/histogram.h"

#include "shm/base.h"

#include <math.h>

#define SUB_BITS 6
#define SUBS     (1u << SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
	uint32_t shift;

	if (value < SUBS)
		return (uint32_t)value;
	shift = 63 - SUB_BITS - (uint32_t)__builtin_clzll(value);
	/* (shift + 1) * SUBS + the bits after the highest one. */
	return KVPOOL_MIN((shift << SUB_BITS) + (uint32_t)(value >> shift),
			  KVPOOL_HISTOGRAM_BUCKETS - 1u);
}

/* The middle of a bucket. */
static uint64_t value_of(uint32_t bucket)
{
	uint32_t shift = bucket >> SUB_BITS;
	uint64_t sub = bucket & (SUBS - 1);

	if (shift == 0)
		return sub;
	shift--;
	return ((SUBS + sub) << shift) + ((UINT64_C(1) << shift) >> 1);
}

void kvpool_histogram_add(struct kvpool_histogram *histogram, uint64_t value, uint64_t times)
{
	histogram->buckets[bucket_of(value)] += times;
	histogram->total += times;
}

void kvpool_histogram_merge(struct kvpool_histogram *into, const struct kvpool_histogram *from)
{
	uint32_t i;

	for (i = 0; i < KVPOOL_HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->total += from->total;
}

uint64_t kvpool_histogram_percentile(const struct kvpool_histogram *histogram, double share)
{
	uint64_t wanted = (uint64_t)ceil(share * (double)histogram->total);
	uint64_t seen = 0;
	uint32_t i;

	if (histogram->total == 0)
		return 0;
	for (i = 0; i < KVPOOL_HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen >= KVPOOL_MAX(wanted, UINT64_C(1)))
			return value_of(i);
	}
	return value_of(KVPOOL_HISTOGRAM_BUCKETS - 1);
}
