/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of every figure under a microsecond: the processor's counter where it runs at a
 * constant rate, else CLOCK_MONOTONIC. One and the same for the ping-pong and for what is
 * compared with it; its own cost is measured and stated, not subtracted.
 *
 * A struct kvpool_ticks is made once and then only read, by any thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_TICKS_H
#define KVPOOL_TOOLS_BENCH_TICKS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct kvpool_ticks {
	bool counter;       /* the processor's; else nanoseconds of CLOCK_MONOTONIC */
	double ns_per_tick; /* 1 without the counter */
	double cost_ns;     /* of one kvpool_ticks_now(), which every sample contains once */
};

static inline uint64_t kvpool_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The fence keeps loads that belong before the reading from being done after it. */
static inline uint64_t kvpool_ticks_now(const struct kvpool_ticks *ticks)
{
#if defined(__x86_64__)
	if (ticks->counter) {
		_mm_lfence();
		return __rdtsc();
	}
#endif
	(void)ticks;
	return kvpool_monotonic_ns();
}

static inline uint64_t kvpool_ticks_to_ns(const struct kvpool_ticks *ticks, uint64_t n)
{
	return (uint64_t)((double)n * ticks->ns_per_tick + 0.5);
}

/* Calibrates against CLOCK_MONOTONIC for 50 ms. */
void kvpool_ticks_init(struct kvpool_ticks *ticks);

const char *kvpool_ticks_source(const struct kvpool_ticks *ticks);

#endif
