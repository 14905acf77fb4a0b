/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt of three blocks, as in the README: what the pool has is read from there, what it has not
 * is computed and left for the next one. Every failure is a miss, so few of them are looked at.
 */
#include "client/kvpool.h"

#include <stdio.h>
#include <string.h>

static uint32_t prompt[3 * 16] = {1, 2, 3};
static uint8_t keys[3][KVPOOL_KEY_SIZE], kv[3][65536];

int main(void)
{
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = sizeof(kv[0])};
	struct kvpool_layout_spec spec = {
		.size = sizeof(spec), .model = "weights", .groups = &group};
	struct kvpool_block blocks[3];
	struct kvpool_match match = {0};
	struct kvpool *pool;
	struct kvpool_channel *channel;
	struct kvpool_layout *layout;
	uint32_t hit = 0, stored = 0;

	spec.block_tokens = 16;
	spec.n_shards = spec.n_groups = 1;
	if (kvpool_open(NULL, &pool) != 0 || kvpool_channel_open(pool, &channel) != 0 ||
	    kvpool_layout(pool, &spec, &layout) != 0 ||
	    kvpool_keys(layout, NULL, 0, NULL, prompt, sizeof(prompt) / sizeof(prompt[0]),
			keys[0]) != 3)
		return 1;
	kvpool_match(channel, layout, keys[0], 3, 0, 0, 0, blocks, 3, &match);
	for (struct kvpool_piece to = {kv[0], sizeof(kv[0])}; hit < match.reported; hit++) {
		to.address = kv[hit];
		if (kvpool_load(channel, layout, 0, &blocks[hit], 0, &to, 1) != 0)
			break;
	}
	kvpool_release(channel, &match, 0);
	printf("%u blocks came from the pool, %u are computed\n", hit, 3 - hit);
	for (uint32_t i = hit; i < 3; i++)
		memset(kv[i], 42, sizeof(kv[i])); /* here the engine does its work */
	if (hit < 3 && kvpool_reserve(channel, layout, 0, hit ? keys[hit - 1] : NULL, keys[hit],
				      3 - hit, 0, blocks) > 0) {
		for (struct kvpool_piece from = {kv[0], sizeof(kv[0])}; stored < 3 - hit;
		     stored++) {
			from.address = kv[hit + stored];
			if (blocks[stored].block != 0 &&
			    kvpool_store(channel, layout, 0, &blocks[stored], 0, &from, 1) != 0)
				break;
		}
		kvpool_commit(channel, blocks, stored, KVPOOL_ALL_SHARDS, 0);
		kvpool_abort(channel, blocks + stored, 3 - hit - stored, 0);
	}
	kvpool_close(pool);
	return 0;
}
