/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for an inference engine's own KV memory: blocks are computed here before they are
 * stored, and loaded to here. Also what plain memcpy does with the same blocks, for comparison.
 *
 * An object belongs to one thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_ENGINE_H
#define KVPOOL_TOOLS_REPLAY_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvpool_engine;

/* Blocks in a chunk at most. */
#define KVPOOL_ENGINE_CHUNK_MAX 64u

/* -ENOMEM. */
int kvpool_engine_new(size_t block_bytes, struct kvpool_engine **out);
void kvpool_engine_free(struct kvpool_engine *engine); /* takes NULL */

/* How many blocks kvpool_engine_next() has room for. */
uint32_t kvpool_engine_chunk_blocks(const struct kvpool_engine *engine);

/*
 * Room for one chunk of blocks, side by side: a part of the memory that was used longest ago, good
 * until the memory has gone round once.
 */
void *kvpool_engine_next(struct kvpool_engine *engine);

/*
 * Copies n blocks by memcpy() between the chunk and other memory, out of it or into it, on every
 * eighth call. The nanoseconds of one block; 0 where this call was not one of those.
 */
uint64_t kvpool_engine_sample(struct kvpool_engine *engine, void *chunk, uint32_t n, bool out);

/* CLOCK_MONOTONIC. */
uint64_t kvpool_engine_now(void);

#endif
