/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts that the torture uses and the keys in them: one plain, one of several shards, one
 * with a window group.
 *
 * Constant; usable from any thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_SHAPES_H
#define KVPOOL_TOOLS_TORTURE_SHAPES_H

#include "client/kvpool.h"

#include <stdint.h>

#define KVPOOL_SHAPES       3u
#define KVPOOL_SHAPE_CHAINS 48u
#define KVPOOL_SHAPE_DEPTH  32u    /* keys of a chain */
#define KVPOOL_SHAPE_GROUPS 2u     /* at most */
#define KVPOOL_SHAPE_SHARDS 3u     /* at most */
#define KVPOOL_SHAPE_BYTES  16384u /* of a shard, at most */
#define KVPOOL_SHAPE_TOKENS 16u

struct kvpool_shape {
	const char *label;
	uint32_t shards;
	uint32_t groups;
	struct kvpool_group_spec specs[KVPOOL_SHAPE_GROUPS];
};

extern const struct kvpool_shape kvpool_shapes[KVPOOL_SHAPES];

/* Negative errno. */
int kvpool_shape_layout(struct kvpool *pool, uint32_t shape, struct kvpool_layout **out);

/* Keys from..from+n of a chain, 32 bytes each. */
void kvpool_shape_keys(uint32_t shape, uint32_t chain, uint32_t from, uint32_t n, uint8_t *keys);

/* What stands for the block of one key in one group, in marks and books. */
static inline uint64_t kvpool_shape_key(uint32_t shape, uint32_t group, uint32_t chain,
					uint32_t place)
{
	return (uint64_t)shape << 40 | (uint64_t)group << 32 | (uint64_t)chain << 16 | place;
}

#endif
