/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys as an engine's hash would give them: 32 bytes that look random, the same for the same
 * (chain, place in it), so that nothing has to be kept. And a small generator of random numbers.
 *
 * Pure functions over their arguments, usable from any thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_KEYS_H
#define KVPOOL_TOOLS_BENCH_KEYS_H

#include "shm/limits.h"

#include <stdint.h>
#include <string.h>

/* The finaliser of splitmix64: every bit of the answer hangs on every bit of the argument. */
static inline uint64_t kvpool_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The next number of a splitmix64 sequence. */
static inline uint64_t kvpool_random(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return kvpool_mix(*state);
}

/* A number below n, which is not 0; the bias of 2^-32 does no harm here. */
static inline uint64_t kvpool_random_below(uint64_t *state, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)kvpool_random(state) * n) >> 64);
}

/* Keys first..first+n-1 of a chain. `keys` takes n * KVPOOL_KEY_BYTES bytes. */
static inline void kvpool_bench_keys(uint64_t chain, uint64_t first, uint64_t n, uint8_t *keys)
{
	uint64_t base = kvpool_mix(chain + 1);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t state = base ^ kvpool_mix(~(first + i));
		uint64_t words[KVPOOL_KEY_BYTES / 8];

		for (unsigned int w = 0; w < KVPOOL_KEY_BYTES / 8; w++)
			words[w] = kvpool_random(&state);
		memcpy(keys + i * KVPOOL_KEY_BYTES, words, KVPOOL_KEY_BYTES);
	}
}

#endif
