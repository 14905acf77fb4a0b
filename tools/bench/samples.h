/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of one figure, all of them kept, so that percentiles are exact.
 *
 * The memory is touched when the object is made: adding a sample makes no system call and no page
 * fault. Owned by the thread that adds.
 */
#ifndef KVPOOL_TOOLS_BENCH_SAMPLES_H
#define KVPOOL_TOOLS_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

struct kvpool_samples {
	uint64_t *values; /* owned */
	size_t n;
	size_t capacity;
	uint64_t lost; /* that came when it was full: a fault of the caller's sizing */
};

/* -ENOMEM. */
int kvpool_samples_init(struct kvpool_samples *samples, size_t capacity);
void kvpool_samples_clear(struct kvpool_samples *samples); /* frees; a zeroed one is fine */

static inline void kvpool_samples_add(struct kvpool_samples *samples, uint64_t value)
{
	if (samples->n < samples->capacity)
		samples->values[samples->n++] = value;
	else
		samples->lost++;
}

/* Takes over what `from` holds, as far as there is room. */
void kvpool_samples_join(struct kvpool_samples *samples, const struct kvpool_samples *from);

/*
 * The smallest sample that at least `percent` of a hundred of the samples do not exceed (nearest
 * rank). Sorts. 0 where there is no sample.
 */
uint64_t kvpool_samples_percentile(struct kvpool_samples *samples, double percent);

#endif
