/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact percentiles by sorting. Owned by the thread that adds the samples; no other state.
 */
#include "tools/bench/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvpool_samples_init(struct kvpool_samples *samples, size_t capacity)
{
	uint64_t *values = malloc(capacity * sizeof(*values));

	if (!values)
		return -ENOMEM;
	/* Not calloc: its pages would come with the first samples, as outliers. */
	memset(values, 0xff, capacity * sizeof(*values));
	*samples = (struct kvpool_samples){.values = values, .capacity = capacity};
	return 0;
}

void kvpool_samples_clear(struct kvpool_samples *samples)
{
	free(samples->values);
	*samples = (struct kvpool_samples){0};
}

void kvpool_samples_join(struct kvpool_samples *samples, const struct kvpool_samples *from)
{
	for (size_t i = 0; i < from->n; i++)
		kvpool_samples_add(samples, from->values[i]);
	samples->lost += from->lost;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t kvpool_samples_percentile(struct kvpool_samples *samples, double percent)
{
	double exact = percent / 100 * (double)samples->n;
	size_t rank = (size_t)exact;

	if (samples->n == 0)
		return 0;
	qsort(samples->values, samples->n, sizeof(*samples->values), compare);
	if ((double)rank < exact)
		rank++;
	if (rank == 0)
		rank = 1;
	if (rank > samples->n)
		rank = samples->n;
	return samples->values[rank - 1];
}
