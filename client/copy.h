/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between one run of pool memory and the caller's pieces, past the cache where that pays.
 *
 * What a copy writes is not read again by this core soon: a block in the pool belongs to others,
 * and a block in an engine is one of many. So fetching the lines before overwriting them is wasted,
 * and non-temporal stores save a third of the traffic (measured on a Xeon with DDR5, memory on both
 * sides: 1.05 to 1.25 times memcpy for blocks from 64 KiB on in pieces from 1 KiB on). 64-byte
 * vectors gain nothing over 32-byte ones here. Blocks below that size stay in the cache and go by
 * memcpy.
 *
 * Pure functions; any thread.
 */
#ifndef KVPOOL_CLIENT_COPY_H
#define KVPOOL_CLIENT_COPY_H

#include "client/kvpool.h"

enum kvpool_copy_kind {
	KVPOOL_COPY_PLAIN = 0, /* memcpy, everywhere */
	KVPOOL_COPY_SSE2 = 1,
	KVPOOL_COPY_AVX2 = 2,
	KVPOOL_COPY_KINDS = 3,
};

/* Copies past the cache; kvpool_copy_fence() makes what it wrote visible in order. */
typedef void (*kvpool_copy_stream_fn)(uint8_t *to, const uint8_t *from, size_t bytes);

/* NULL where this machine cannot do it, and for PLAIN. */
kvpool_copy_stream_fn kvpool_copy_stream(enum kvpool_copy_kind kind);

/* The best that this machine has. */
enum kvpool_copy_kind kvpool_copy_best(void);

void kvpool_copy_fence(void);

/* All pieces, in order, into `to`. Whole and in order for whoever is told afterwards. */
void kvpool_copy_gather(enum kvpool_copy_kind kind, uint8_t *to, const struct kvpool_piece *pieces,
			uint32_t n);

/* `from` into all pieces, in order. `total`: their bytes together. */
void kvpool_copy_scatter(enum kvpool_copy_kind kind, const struct kvpool_piece *pieces, uint32_t n,
			 uint64_t total, const uint8_t *from);

#endif
