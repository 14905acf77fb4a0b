/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts that the torture uses: see shapes.h.
 */
#include "tools/torture/shapes.h"

#include "tools/bench/keys.h"

const struct kvpool_shape kvpool_shapes[KVPOOL_SHAPES] = {
	{.label = "plain",
	 .shards = 1,
	 .groups = 1,
	 .specs = {{.kind = KVPOOL_FULL, .slot_bytes = KVPOOL_SHAPE_BYTES}}},
	{.label = "sharded",
	 .shards = KVPOOL_SHAPE_SHARDS,
	 .groups = 1,
	 .specs = {{.kind = KVPOOL_FULL, .slot_bytes = 2048}}},
	{.label = "window",
	 .shards = 2,
	 .groups = 2,
	 .specs = {{.kind = KVPOOL_FULL, .slot_bytes = 4096},
		   {.kind = KVPOOL_WINDOW, .window = 4 * KVPOOL_SHAPE_TOKENS, .slot_bytes = 1024}}},
};

int kvpool_shape_layout(struct kvpool *pool, uint32_t shape, struct kvpool_layout **out)
{
	const struct kvpool_shape *s = &kvpool_shapes[shape];
	const struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "kvpool-torture",
		.hash_algorithm = "splitmix64",
		.model = s->label,
		.label = s->label,
		.block_tokens = KVPOOL_SHAPE_TOKENS,
		.n_shards = s->shards,
		.n_groups = s->groups,
		.groups = s->specs,
	};

	return kvpool_layout(pool, &spec, out);
}

void kvpool_shape_keys(uint32_t shape, uint32_t chain, uint32_t from, uint32_t n, uint8_t *keys)
{
	kvpool_bench_keys((uint64_t)shape << 32 | chain, from, n, keys);
}
