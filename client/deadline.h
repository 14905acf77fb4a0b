/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a call: relative as the caller gave it, made absolute when somebody has to wait.
 *
 * Reading the clock costs as much as a tenth of a short call, so it is put off until the answer is
 * late anyway. Lives on the stack of one call; one thread.
 */
#ifndef KVPOOL_CLIENT_DEADLINE_H
#define KVPOOL_CLIENT_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Beyond this a deadline is as good as never, and sums of two cannot overflow. */
#define KVPOOL_DEADLINE_MAX_NS (UINT64_MAX / 8)

struct kvpool_deadline {
	uint64_t relative_ns;
	uint64_t at_ns; /* CLOCK_MONOTONIC; 0: not fixed yet */
};

static inline uint64_t kvpool_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static inline struct kvpool_deadline kvpool_deadline_make(uint64_t relative_ns, uint64_t otherwise)
{
	uint64_t ns = relative_ns ? relative_ns : otherwise;

	return (struct kvpool_deadline){
		.relative_ns = ns < KVPOOL_DEADLINE_MAX_NS ? ns : KVPOOL_DEADLINE_MAX_NS};
}

/* The clock starts now, unless it runs already. Returns the end. */
static inline uint64_t kvpool_deadline_fix(struct kvpool_deadline *deadline, uint64_t now_ns)
{
	if (deadline->at_ns == 0)
		deadline->at_ns = now_ns + deadline->relative_ns;
	return deadline->at_ns;
}

static inline struct timespec kvpool_deadline_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
				 .tv_nsec = (long)(ns % UINT64_C(1000000000))};
}

/* How long from now_ns; zero where the end has come. */
static inline struct timespec kvpool_deadline_left(const struct kvpool_deadline *deadline,
						   uint64_t now_ns)
{
	return kvpool_deadline_timespec(deadline->at_ns > now_ns ? deadline->at_ns - now_ns : 0);
}

#endif
