/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a block in a replay: see stamp.h.
 *
 * Word i is (word i mod 4 of the key) + i * STEP: STEP is odd, so no position repeats, and both
 * directions run at the speed of memory. Pure functions, usable from any thread.
 */
#include "tools/replay/stamp.h"

#include <string.h>

#define STEP UINT64_C(0x9e3779b97f4a7c15)

/* Four words: the compiler makes of it what the machine's vectors are. */
typedef uint64_t lanes __attribute__((vector_size(KVPOOL_STAMP_UNIT)));

#define LANES_START(key_words)                                                    \
	{                                                                         \
		(key_words)[0], (key_words)[1] + STEP, (key_words)[2] + 2 * STEP, \
			(key_words)[3] + 3 * STEP                                 \
	}
#define LANES_STEP                                     \
	{                                              \
		4 * STEP, 4 * STEP, 4 * STEP, 4 * STEP \
	}

void kvpool_stamp_fill(const uint8_t *key, void *to, size_t bytes)
{
	const lanes step = LANES_STEP;
	uint64_t words[4];
	lanes *out = to;
	size_t i;

	memcpy(words, key, sizeof(words));
	lanes value = LANES_START(words);
	for (i = 0; i < bytes / sizeof(lanes); i++) {
		out[i] = value;
		value += step;
	}
}

/* Slow: only for what is known to differ. */
static uint64_t count_wrong(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	uint64_t wrong = 0;
	size_t i;

	for (i = 0; i < bytes; i++)
		wrong += a[i] != b[i];
	return wrong;
}

uint64_t kvpool_stamp_wrong(const uint8_t *key, const void *from, size_t bytes)
{
	const lanes step = LANES_STEP;
	const lanes *in = from;
	uint64_t wrong = 0;
	uint64_t words[4];
	size_t i;

	memcpy(words, key, sizeof(words));
	lanes value = LANES_START(words);
	for (i = 0; i < bytes / sizeof(lanes); i++) {
		lanes odd = in[i] ^ value;

		if ((odd[0] | odd[1] | odd[2] | odd[3]) != 0)
			wrong += count_wrong((const uint8_t *)&in[i], (const uint8_t *)&value,
					     sizeof(lanes));
		value += step;
	}
	return wrong;
}
