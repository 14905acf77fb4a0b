/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bench reads from the daemon's status document: the one place that knows its fields.
 *
 * Pure functions over a borrowed document, usable from any thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_STATUS_H
#define KVPOOL_TOOLS_BENCH_STATUS_H

#include "tools/bench/shape.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Sums over all domains. */
struct kvpool_status_cache {
	uint64_t ready_blocks;
	uint64_t metadata_bytes;
	uint64_t evicted;
};

void kvpool_status_cache(const json_t *status, struct kvpool_status_cache *out);

/* Whether the daemon still populates its memory. */
bool kvpool_status_growing(const json_t *status);

/* Whether its pool outlives it. */
bool kvpool_status_kept(const json_t *status);

/* The pool's part of the document, a new reference; null where there is none. */
json_t *kvpool_status_pool(const json_t *status);

/* The kind of pages that most of the pool lies on, as a memory of the bench would have it. */
enum kvpool_shape_pages kvpool_status_pages(const json_t *status);

/* A number of the pool's part; 0 where there is none. */
uint64_t kvpool_status_pool_number(const json_t *status, const char *field);

#endif
