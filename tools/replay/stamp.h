/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a block in a replay: every 8-byte word follows from the block's key and the word's
 * position, so that a word of another block, of another place or of an unfinished write shows.
 *
 * Pure functions over their arguments, usable from any thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_STAMP_H
#define KVPOOL_TOOLS_REPLAY_STAMP_H

#include <stddef.h>
#include <stdint.h>

/* What a block's size must be a multiple of. */
#define KVPOOL_STAMP_UNIT 32u

/* `to` is aligned to KVPOOL_STAMP_UNIT; `key` has 32 bytes. */
void kvpool_stamp_fill(const uint8_t *key, void *to, size_t bytes);

/* How many bytes are not as kvpool_stamp_fill() would write them. */
uint64_t kvpool_stamp_wrong(const uint8_t *key, const void *from, size_t bytes);

#endif
