/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys, bytes and the layout of the blocks that the tests of releases store. Used by programs of
 * several releases and by images that were recorded: what is here never changes.
 *
 * Nothing but <kvpool.h> of any release.
 */
#ifndef KVPOOL_TESTS_RELEASE_STAMPS_H
#define KVPOOL_TESTS_RELEASE_STAMPS_H

#include <kvpool.h>
#include <stdint.h>
#include <string.h>

#define STAMPS_BYTES 1024u
#define STAMPS_WORDS (STAMPS_BYTES / 8)
#define STAMPS_KEYS  64u /* the longest chain */

/* The chains of a recorded image and their blocks. */
#define STAMPS_CHAINS 3u
static const uint32_t stamps_lengths[STAMPS_CHAINS] = {6, 4, 2};

/* The keys of chain `chain` from `from` on, side by side. */
static inline void stamps_keys(uint64_t chain, uint32_t from, uint32_t n, uint8_t *keys)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *key = keys + (size_t)i * KVPOOL_KEY_SIZE;
		uint64_t place = (uint64_t)from + i;

		memset(key, 0x5a, KVPOOL_KEY_SIZE);
		memcpy(key, &chain, sizeof(chain));
		memcpy(key + 8, &place, sizeof(place));
	}
}

/* Tells chain, block and word, and compresses well. */
static inline uint64_t stamps_word(uint64_t chain, uint32_t i, uint32_t w)
{
	return chain << 40 | (uint64_t)i << 16 | w;
}

static inline void stamps_write(uint64_t chain, uint32_t i, uint64_t *words)
{
	for (uint32_t w = 0; w < STAMPS_WORDS; w++)
		words[w] = stamps_word(chain, i, w);
}

static inline int stamps_right(uint64_t chain, uint32_t i, const uint64_t *words)
{
	uint32_t wrong = 0;

	for (uint32_t w = 0; w < STAMPS_WORDS; w++)
		wrong += words[w] != stamps_word(chain, i, w);
	return wrong == 0;
}

static inline int stamps_layout(struct kvpool *pool, struct kvpool_layout **out)
{
	const struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = STAMPS_BYTES};
	const struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "release",
		.model = "stamps",
		.label = "release",
		.block_tokens = 16,
		.n_shards = 1,
		.n_groups = 1,
		.groups = &group,
	};

	return kvpool_layout(pool, &spec, out);
}

#endif
