/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of blocks: made of what lies in the pool at COMMIT, compared with it later.
 *
 * Called with a channel, by its thread. The arena of a question: handles, then a sum each. Bytes
 * are not looked at while a call is under way, since both need the channel.
 */
#include "client/channel.h"
#include "client/layout.h"
#include "client/view.h"
#include "shm/crc32c.h"

#include <errno.h>
#include <string.h>

/* Blocks a request; the smallest arena holds these several times over. */
#define BATCH 256u

struct verify {
	struct kvpool_channel *channel;     /* borrowed */
	const struct kvpool_layout *layout; /* borrowed */
	uint32_t group;
	uint64_t deadline_ns; /* of each request: reading the bytes takes as long as it takes */
};

uint32_t kvpool_crc32c(uint32_t crc, const void *bytes, size_t n)
{
	return kvpool_crc32c_add(crc, bytes, n);
}

int kvpool_checksum(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		    uint32_t group, const struct kvpool_block *block, uint32_t shard, uint32_t *out)
{
	struct kvpool_view view;
	int r = kvpool_view_open(channel, layout, group, block, shard, &view);

	if (r != 0)
		return r;
	*out = kvpool_crc32c_add(0, view.address, view.slot_bytes);
	kvpool_view_close(channel, &view);
	return 0;
}

/* Of one shard, or of the block where `shard` is KVPOOL_ALL_SHARDS. */
static int sum(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
	       const struct kvpool_block *block, uint32_t shard, uint32_t *out)
{
	uint32_t whole = 0;

	if (shard != KVPOOL_ALL_SHARDS)
		return kvpool_checksum(channel, layout, group, block, shard, out);
	for (uint32_t s = 0; s < layout->wire.n_shards; s++) {
		uint32_t crc = 0;
		int r = kvpool_checksum(channel, layout, group, block, s, &crc);

		if (r != 0)
			return r;
		whole ^= kvpool_crc32c_shard(crc, s);
	}
	*out = whole;
	return 0;
}

int64_t kvpool_commit_checksum(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			       uint32_t group, const struct kvpool_block *blocks, uint32_t n,
			       uint32_t shard, uint64_t deadline_ns)
{
	uint32_t crc32c[BATCH] = {0};
	int64_t done = 0;
	int r = kvpool_view_check(channel, layout, group, shard == KVPOOL_ALL_SHARDS ? 0 : shard);
	bool stale = false;

	if (r != 0)
		return r;
	if (n > 0 && !blocks)
		return kvpool_failure_literal(&channel->failure, -EINVAL, "commit: blocks");
	for (uint32_t at = 0; at < n; at += BATCH) {
		uint32_t count = KVPOOL_MIN(n - at, BATCH);
		int64_t taken;

		for (uint32_t i = 0; i < count; i++) {
			if (blocks[at + i].block == 0)
				continue;
			r = sum(channel, layout, group, &blocks[at + i], shard, &crc32c[i]);
			/* One of a life that is over is not taken either. */
			if (r != 0 && r != -ESTALE)
				return r;
		}
		taken = kvpool_commit_crc(channel, blocks + at, crc32c, count, shard, deadline_ns);
		if (taken < 0 && taken != -ESTALE)
			return taken;
		stale = stale || taken == -ESTALE;
		done += KVPOOL_MAX(taken, 0);
	}
	return done == 0 && stale ? -ESTALE : done;
}

/* ---- comparing ---- */

/*
 * Puts the handles into the arena and sends the request. `epoch`: of the handles; -ESTALE in
 * another life of the daemon, where they would be other blocks; 0: any.
 */
static int ask(struct verify *v, uint8_t op, uint64_t epoch,
	       const struct kvpool_wire_handle *handles, uint32_t n, struct kvpool_reply *reply)
{
	struct kvpool_request request = {.op = op, .n = n};
	struct kvpool_channel *channel = v->channel;
	struct kvpool_deadline deadline =
		kvpool_deadline_make(v->deadline_ns, channel->pool->deadline_ns);
	/* Whoever did not register a layout is told nothing of its blocks. */
	int r = kvpool_channel_begin(channel, v->layout, true, &deadline, &request.layout);

	if (r != 0)
		return r;
	if (epoch != 0 && epoch != channel->link->session->life)
		return -ESTALE;
	if (!(channel->link->session->features & KVPOOL_FEATURE_VERIFY))
		return kvpool_failure_literal(&channel->failure, -EOPNOTSUPP,
					      "verify: the daemon does not serve it");
	memcpy(channel->link->arena, handles, n * sizeof(*handles));
	if (op == KVPOOL_OP_SUMS)
		request.result = n * (uint32_t)sizeof(*handles);
	return kvpool_channel_call(channel, &request, &deadline, reply);
}

/* What the daemon was told at COMMIT; and in which life of it that holds. */
static int ask_sums(struct verify *v, const struct kvpool_block *blocks, uint32_t n,
		    struct kvpool_wire_sum *out, uint64_t *epoch)
{
	struct kvpool_wire_handle handles[BATCH];
	struct kvpool_reply reply = {0};
	int r;

	for (uint32_t i = 0; i < n; i++)
		handles[i] = (struct kvpool_wire_handle){.block = blocks[i].block,
							 .generation = blocks[i].generation};
	r = ask(v, KVPOOL_OP_SUMS, 0, handles, n, &reply);
	if (r == 0)
		r = kvpool_channel_status(v->channel, NULL, &reply, "verify");
	if (r != 0)
		return r;
	memcpy(out, v->channel->link->arena + n * sizeof(handles[0]), n * sizeof(*out));
	*epoch = v->channel->link->session->life;
	for (uint32_t i = 0; i < n; i++)
		if (blocks[i].epoch != *epoch)
			out[i].state = KVPOOL_SUM_STALE;
	return 0;
}

/* Compares one block. A KVPOOL_VERDICT_, or a negative errno. */
static int compare(struct verify *v, const struct kvpool_block *block,
		   const struct kvpool_wire_sum *told)
{
	uint32_t is = 0;
	int r;

	if (block->block == 0 || told->state == KVPOOL_SUM_NONE)
		return KVPOOL_VERDICT_NONE;
	if (told->state != KVPOOL_SUM_GIVEN)
		return KVPOOL_VERDICT_GONE;
	r = sum(v->channel, v->layout, v->group, block, KVPOOL_ALL_SHARDS, &is);
	if (r == -ESTALE)
		return KVPOOL_VERDICT_GONE;
	if (r != 0)
		return r;
	return is == told->crc32c ? KVPOOL_VERDICT_GOOD : KVPOOL_VERDICT_BAD;
}

/* Nobody shall read these. A reader may not say so; the next who verifies will. */
static int drop(struct verify *v, uint64_t epoch, const struct kvpool_wire_handle *bad, uint32_t n)
{
	struct kvpool_reply reply = {0};
	int r;

	if (n == 0 || v->channel->pool->wish.read_only)
		return 0;
	r = ask(v, KVPOOL_OP_DROP, epoch, bad, n, &reply);
	/* Gone with their daemon, or another one was faster. */
	if (r == -ESTALE || (r == 0 && reply.status == KVPOOL_STATUS_STALE))
		return 0;
	if (r != 0)
		return r;
	return kvpool_channel_status(v->channel, NULL, &reply, "verify");
}

/* Up to BATCH blocks. How many are bad, or a negative errno. */
static int verify_batch(struct verify *v, const struct kvpool_block *blocks, uint32_t n,
			uint8_t *verdicts)
{
	struct kvpool_wire_handle bad[BATCH];
	struct kvpool_wire_sum told[BATCH];
	uint64_t epoch = 0;
	uint32_t n_bad = 0;
	int r = ask_sums(v, blocks, n, told, &epoch);

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		int verdict = compare(v, &blocks[i], &told[i]);

		if (verdict < 0)
			return verdict;
		if (verdicts)
			verdicts[i] = (uint8_t)verdict;
		if (verdict == KVPOOL_VERDICT_BAD)
			bad[n_bad++] = (struct kvpool_wire_handle){
				.block = blocks[i].block, .generation = blocks[i].generation};
	}
	if (r == 0)
		r = drop(v, epoch, bad, n_bad);
	return r == 0 ? (int)n_bad : r;
}

int64_t kvpool_verify(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, const struct kvpool_block *blocks, uint32_t n,
		      uint64_t deadline_ns, uint8_t *verdicts)
{
	struct verify v = {
		.channel = channel, .layout = layout, .group = group, .deadline_ns = deadline_ns};
	int64_t bad = 0;
	int r = kvpool_view_check(channel, layout, group, 0);

	if (r != 0)
		return r;
	if (n > 0 && !blocks)
		return kvpool_failure_literal(&channel->failure, -EINVAL, "verify: blocks");
	for (uint32_t at = 0; at < n; at += BATCH) {
		r = verify_batch(&v, blocks + at, KVPOOL_MIN(n - at, BATCH),
				 verdicts ? verdicts + at : NULL);
		if (r < 0)
			return r;
		bad += r;
	}
	return bad;
}
