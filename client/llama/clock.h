/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monotonic clock.
 *
 * No state, usable from any thread.
 */
#ifndef KVPOOL_CLIENT_LLAMA_CLOCK_H
#define KVPOOL_CLIENT_LLAMA_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t kvpool_llama_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

#endif
