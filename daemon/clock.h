/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's time: CLOCK_MONOTONIC in nanoseconds, read without entering the kernel (vdso).
 *
 * Stateless; usable from any thread. What can be tested with an injected time takes it as an
 * argument instead of calling this.
 */
#ifndef KVPOOL_DAEMON_CLOCK_H
#define KVPOOL_DAEMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define KVPOOL_NS_PER_US UINT64_C(1000)
#define KVPOOL_NS_PER_MS UINT64_C(1000000)
#define KVPOOL_NS_PER_S  UINT64_C(1000000000)

static inline uint64_t kvpool_clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * KVPOOL_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
