/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A known set of blocks in the pool: chains of a few lengths, each length with an equal share of
 * the blocks, so that a lookup of n keys has many chains to choose from, whatever n is.
 *
 * Filled through RESERVE and COMMIT as an engine would, but without writing the bytes. Owned by
 * the command that runs; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_RESIDENT_H
#define KVPOOL_TOOLS_BENCH_RESIDENT_H

#include "tools/bench/progress.h"
#include "tools/bench/session.h"

#define KVPOOL_RESIDENT_SLOT_BYTES 256u
#define KVPOOL_RESIDENT_KEYS_MAX   32768u /* in a chain */

struct kvpool_resident_class {
	uint32_t keys;   /* length of each chain */
	uint64_t chains; /* how many */
};

struct kvpool_resident {
	uint64_t blocks;
	uint32_t n_classes;
	struct kvpool_resident_class classes[KVPOOL_BENCH_LIST_MAX];
};

/*
 * Divides `blocks` among chains of the lengths in `keys`; a length with less than one chain in its
 * share is left out where `lenient`, else refused with a message. -EINVAL.
 */
int kvpool_resident_plan(uint64_t blocks, const struct kvpool_bench_list *keys, bool lenient,
			 struct kvpool_resident *out);

/* Bytes of a pool that holds them, with room for what an allocator leaves unused. */
uint64_t kvpool_resident_pool_bytes(const struct kvpool_resident *resident);

/* Stores every chain. Says on stderr what fails. */
int kvpool_resident_fill(const struct kvpool_resident *resident,
			 struct kvpool_bench_session *session, struct kvpool_layout *layout);

/* The keys of chain j of class `c`. `keys` takes classes[c].keys * KVPOOL_KEY_BYTES. */
void kvpool_resident_keys(const struct kvpool_resident *resident, uint32_t c, uint64_t j,
			  uint8_t *keys);

/* The same of a random chain. */
void kvpool_resident_pick(const struct kvpool_resident *resident, uint32_t c, uint64_t *random,
			  uint8_t *keys);

/* Keys of which none is in the pool, a chain of n. */
void kvpool_resident_pick_missing(uint32_t n, uint64_t *random, uint8_t *keys);

#endif
