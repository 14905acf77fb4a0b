/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a block under torture: see mark.h.
 */
#include "tools/torture/mark.h"

#include "tools/bench/keys.h"

#include <string.h>

#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t cover(uint64_t key, uint32_t shard)
{
	return kvpool_mix(kvpool_mix(key + STEP) + shard);
}

static uint64_t base(const struct kvpool_mark *mark)
{
	return kvpool_mix(cover(mark->key, mark->shard) + mark->version * STEP);
}

void kvpool_mark_fill(const struct kvpool_mark *mark, void *to, size_t bytes)
{
	uint64_t start = base(mark);
	uint64_t *words = to;

	words[0] = cover(mark->key, mark->shard) ^ mark->version;
	for (size_t i = 1; i < bytes / sizeof(*words); i++)
		words[i] = kvpool_mix(start + i);
}

uint32_t kvpool_mark_version(uint64_t key, uint32_t shard, const void *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	word ^= cover(key, shard);
	return word <= UINT32_MAX ? (uint32_t)word : 0;
}

static uint64_t bytes_apart(uint64_t a, uint64_t b)
{
	uint64_t apart = 0;

	for (uint64_t x = a ^ b; x != 0; x >>= 8)
		apart += (x & 0xff) != 0;
	return apart;
}

uint64_t kvpool_mark_wrong(const struct kvpool_mark *mark, const void *from, size_t bytes)
{
	uint64_t start = base(mark);
	const uint64_t *words = from;
	uint64_t wrong = bytes_apart(words[0], cover(mark->key, mark->shard) ^ mark->version);

	for (size_t i = 1; i < bytes / sizeof(*words); i++) {
		if (words[i] != kvpool_mix(start + i))
			wrong += bytes_apart(words[i], kvpool_mix(start + i));
	}
	return wrong;
}
