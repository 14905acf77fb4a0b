/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calibration of the clock. Called once by the main thread before anything is measured.
 */
#include "tools/bench/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CALIBRATION_NS 50000000u
#define COST_READINGS  200000u

/* CPUID 0x80000007, EDX bit 8: the counter's rate is the same in all power states. */
static bool has_constant_counter(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
	return false;
#endif
}

static double calibrate(const struct kvpool_ticks *ticks)
{
	uint64_t from_ns = kvpool_monotonic_ns();
	uint64_t from = kvpool_ticks_now(ticks);
	uint64_t to_ns;
	uint64_t to;

	do {
		to_ns = kvpool_monotonic_ns();
		to = kvpool_ticks_now(ticks);
	} while (to_ns - from_ns < CALIBRATION_NS);
	return (double)(to_ns - from_ns) / (double)(to - from);
}

void kvpool_ticks_init(struct kvpool_ticks *ticks)
{
	uint64_t from;

	*ticks = (struct kvpool_ticks){.counter = has_constant_counter(), .ns_per_tick = 1};
	if (ticks->counter)
		ticks->ns_per_tick = calibrate(ticks);
	from = kvpool_ticks_now(ticks);
	for (uint32_t i = 0; i < COST_READINGS; i++)
		(void)kvpool_ticks_now(ticks);
	ticks->cost_ns =
		(double)(kvpool_ticks_now(ticks) - from) * ticks->ns_per_tick / (COST_READINGS + 1);
}

const char *kvpool_ticks_source(const struct kvpool_ticks *ticks)
{
	return ticks->counter ? "tsc" : "CLOCK_MONOTONIC";
}
