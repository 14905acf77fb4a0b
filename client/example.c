/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt of one block, as in the README: it is read from the pool, or computed and left there for
 * the next one. One thread.
 */
#include "client/kvpool.h"

#include <stdio.h>
#include <string.h>

int main(void)
{
	static uint8_t kv[65536], key[KVPOOL_KEY_SIZE];
	static const uint32_t prompt[16] = {1, 2, 3};
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = sizeof(kv)};
	struct kvpool_layout_spec spec = {.size = sizeof(spec), .groups = &group, .n_groups = 1};
	struct kvpool_piece piece = {kv, sizeof(kv)};
	struct kvpool_block block;
	struct kvpool_match match;
	struct kvpool *pool;
	struct kvpool_channel *channel;
	struct kvpool_layout *layout;
	int hit = 0;

	spec.engine = "example";
	spec.model = "sha256 of the weights";
	spec.block_tokens = 16;
	spec.n_shards = 1;
	if (kvpool_open(NULL, &pool) || kvpool_channel_open(pool, &channel) ||
	    kvpool_layout(pool, &spec, &layout) ||
	    kvpool_keys(layout, NULL, 0, NULL, prompt, 16, key) != 1)
		return 1;
	if (kvpool_match(channel, layout, key, 1, 0, 0, 0, &block, 1, &match) == 1) {
		hit = kvpool_load(channel, layout, 0, &block, 0, &piece, 1) == 0;
		kvpool_release(channel, &match, 0);
	}
	if (!hit) {
		memset(kv, 42, sizeof(kv)); /* here the engine computes */
		if (kvpool_reserve(channel, layout, 0, NULL, key, 1, 0, &block) == 1 &&
		    kvpool_store(channel, layout, 0, &block, 0, &piece, 1) == 0)
			kvpool_commit(channel, &block, 1, KVPOOL_ALL_SHARDS, 0);
	}
	puts(hit ? "read from the pool" : "computed, and left in the pool");
	kvpool_close(pool);
	return 0;
}
