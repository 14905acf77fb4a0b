/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an engine as `copy` needs it: blocks that lie in pieces, a layer here and a layer
 * there, in buffers that no cache holds; and plain memcpy over the same pieces.
 *
 *	buffer   | piece 0 of block 0, 1, 2 ... | piece 1 of block 0, 1, 2 ... | ...
 *
 * Every piece carries a stamp in its first and last word, so that a copy can be checked. Owned by
 * the command that runs; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_SHAPE_H
#define KVPOOL_TOOLS_BENCH_SHAPE_H

#include "client/kvpool.h"

#include <stdint.h>

#define KVPOOL_SHAPE_PIECES_MAX 64u

struct kvpool_shape {
	uint8_t *buffer;      /* borrowed: at least blocks * block_bytes */
	uint64_t block_bytes; /* a multiple of 16 * pieces */
	uint32_t pieces;
	uint64_t blocks;
};

/* The pieces of a block; `out` takes shape->pieces. */
void kvpool_shape_pieces(const struct kvpool_shape *shape, uint64_t block,
			 struct kvpool_piece *out);

/* Gathers the pieces of a block to `to`, or scatters `from` to them: plain memcpy, piece by piece.
 */
void kvpool_shape_gather(const struct kvpool_shape *shape, uint64_t block, uint8_t *to);
void kvpool_shape_scatter(const struct kvpool_shape *shape, uint64_t block, const uint8_t *from);

/* Stamps every piece of every block; `salt` makes one round's stamps unlike another's. */
void kvpool_shape_stamp(const struct kvpool_shape *shape, uint64_t salt);

/* How many pieces of `n` blocks from `first` on do not carry the stamp of `salt`. */
uint64_t kvpool_shape_wrong(const struct kvpool_shape *shape, uint64_t first, uint64_t n,
			    uint64_t salt);

enum kvpool_shape_pages {
	KVPOOL_SHAPE_PRIVATE = 0,    /* anonymous, as malloc gives large blocks */
	KVPOOL_SHAPE_SHARED = 1,     /* a memfd on 4 KiB pages */
	KVPOOL_SHAPE_SHARED_THP = 2, /* a memfd, huge pages asked for */
	KVPOOL_SHAPE_SHARED_2M =
		3, /* a memfd on reserved huge pages; SHARED where there are none */
};

/* Mapped, populated memory. Stores the kind that came out in `pages`. Negative errno. */
int kvpool_shape_map(uint64_t bytes, enum kvpool_shape_pages *pages, uint8_t **out);
void kvpool_shape_unmap(uint8_t *memory, uint64_t bytes); /* takes NULL */

#endif
