/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a block under torture: every word proves which key it belongs to, which shard, which
 * of the versions that were ever written for that key, and its own place.
 *
 * Pure functions, usable from any thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_MARK_H
#define KVPOOL_TOOLS_TORTURE_MARK_H

#include <stddef.h>
#include <stdint.h>

struct kvpool_mark {
	uint64_t key; /* kvpool_shape_key() */
	uint32_t shard;
	uint32_t version; /* kvpool_books_begin() */
};

/* `bytes` is a multiple of 8. */
void kvpool_mark_fill(const struct kvpool_mark *mark, void *to, size_t bytes);

/* Which version the first word says it is; 0: none, so it was not written for this shard. */
uint32_t kvpool_mark_version(uint64_t key, uint32_t shard, const void *from);

/* How many bytes are not as they were written. */
uint64_t kvpool_mark_wrong(const struct kvpool_mark *mark, const void *from, size_t bytes);

#endif
