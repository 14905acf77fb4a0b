/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout that replayed blocks have in a pool: see layout.h.
 *
 * No state.
 */
#include "tools/replay/layout.h"

int kvpool_replay_layout(struct kvpool *pool, const struct kvpool_trace *trace,
			 uint64_t block_bytes, struct kvpool_layout **out)
{
	struct kvpool_group_spec group = {KVPOOL_FULL, 0, block_bytes};
	struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "kvpool-replay",
		.hash_algorithm = "sha256",
		.model = kvpool_trace_format_name(trace->format),
		.dtype = "stamp",
		.label = "replayed trace",
		.block_tokens = trace->block_tokens,
		.n_shards = 1,
		.n_groups = 1,
		.groups = &group,
	};

	return kvpool_layout(pool, &spec, out);
}
