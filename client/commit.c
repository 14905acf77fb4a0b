/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COMMIT and ABORT: what was reserved is written, or is not going to be.
 *
 * Called with a channel, by its thread. Blocks of a daemon life that is over are passed over: their
 * numbers mean others by now.
 */
#include "client/channel.h"
#include "client/holdings.h"

#include <errno.h>

struct batch {
	struct kvpool_channel *channel;    /* borrowed */
	const struct kvpool_block *blocks; /* borrowed: the caller's */
	const uint32_t *crc32c;            /* borrowed; NULL: none */
	uint32_t n;
	uint32_t at; /* the next to look at */
	struct kvpool_request request;
};

static struct kvpool_wire_handle handle_of(const struct batch *b, uint32_t i)
{
	return (struct kvpool_wire_handle){
		.block = b->blocks[i].block,
		.generation = b->blocks[i].generation,
		.crc32c = b->crc32c ? b->crc32c[i] : 0,
	};
}

/*
 * Puts the next handles into the request or the arena, as many as fit. Returns how many, 0 at the
 * end.
 */
static uint32_t fill(struct batch *b)
{
	struct kvpool_link *link = b->channel->link;
	struct kvpool_wire_handle *to = (struct kvpool_wire_handle *)(void *)link->arena;
	uint64_t room = KVPOOL_MIN(link->arena_bytes / sizeof(*to), KVPOOL_KEYS_MAX);
	uint32_t filled = 0;

	b->request.flags &= (uint8_t)~KVPOOL_REQUEST_INLINE_KEY;
	for (; b->at < b->n && filled < room; b->at++) {
		if (b->blocks[b->at].block == 0 || b->blocks[b->at].epoch != link->session->life)
			continue;
		if (b->n == 1) {
			b->request.flags |= KVPOOL_REQUEST_INLINE_KEY;
			b->request.handle = handle_of(b, b->at);
		} else {
			to[filled] = handle_of(b, b->at);
		}
		filled++;
	}
	b->request.n = filled;
	return filled;
}

/* Sends all batches. Returns how many blocks the daemon took; *sent is where it stopped. */
static int64_t run(struct batch *b, const char *operation, struct kvpool_deadline *deadline,
		   uint32_t *sent)
{
	struct kvpool_channel *channel = b->channel;
	struct kvpool_reply reply;
	int64_t done = 0;
	int r;

	for (*sent = 0;; *sent = b->at) {
		r = kvpool_channel_begin(channel, NULL, b->n > 1, deadline, NULL);
		if (r != 0)
			return r;
		if (fill(b) == 0)
			return done;
		r = kvpool_channel_call(channel, &b->request, deadline, &reply);
		if (r != 0)
			return r;
		if (reply.status == KVPOOL_STATUS_STALE)
			continue;
		r = kvpool_channel_status(channel, NULL, &reply, operation);
		if (r != 0)
			return r;
		if (reply.granted > b->request.n)
			return kvpool_channel_disbelieve(
				channel, "the daemon takes more blocks than it was given");
		done += reply.granted;
	}
}

static bool any(const struct kvpool_block *blocks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (blocks[i].block != 0)
			return true;
	return false;
}

/* None was taken: an error, unless there was none. */
static int64_t judge(const struct batch *b, int64_t done, const char *why)
{
	if (done == 0 && any(b->blocks, b->n))
		return kvpool_failure_literal(&b->channel->failure, -ESTALE, why);
	return done;
}

static int64_t commit(struct kvpool_channel *channel, const struct kvpool_block *blocks,
		      const uint32_t *crc32c, uint32_t n, uint32_t shard, uint64_t deadline_ns)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(deadline_ns, channel->pool->deadline_ns);
	struct batch b = {
		.channel = channel,
		.blocks = blocks,
		.n = n,
		.request = {.op = KVPOOL_OP_COMMIT},
	};
	uint32_t sent = 0;
	int64_t done;

	if (kvpool_pool_check(channel->pool) != 0)
		return kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	if ((n > 0 && !blocks) || (shard >= KVPOOL_SHARDS_MAX && shard != KVPOOL_ALL_SHARDS))
		return kvpool_failure_literal(&channel->failure, -EINVAL,
					      "commit: blocks or shard");
	if (!any(blocks, n))
		return 0;
	done = kvpool_channel_begin(channel, NULL, n > 1, &deadline, NULL);
	if (done != 0)
		return done;
	if (crc32c && channel->link->session->features & KVPOOL_FEATURE_CHECKSUM) {
		b.crc32c = crc32c;
		b.request.flags |= KVPOOL_REQUEST_HAS_CRC;
	}
	if (shard == KVPOOL_ALL_SHARDS)
		b.request.flags |= KVPOOL_REQUEST_ALL_SHARDS;
	else
		b.request.shard = shard;
	done = run(&b, "commit", &deadline, &sent);
	/* What was not told stays the caller's, who may try again or abort. */
	kvpool_holdings_end_shard(channel, blocks, done < 0 ? sent : n, shard);
	return judge(&b, done, "commit: none of the blocks is this client's to commit");
}

int64_t kvpool_commit(struct kvpool_channel *channel, const struct kvpool_block *blocks, uint32_t n,
		      uint32_t shard, uint64_t deadline_ns)
{
	return commit(channel, blocks, NULL, n, shard, deadline_ns);
}

int64_t kvpool_commit_crc(struct kvpool_channel *channel, const struct kvpool_block *blocks,
			  const uint32_t *crc32c, uint32_t n, uint32_t shard, uint64_t deadline_ns)
{
	return commit(channel, blocks, crc32c, n, shard, deadline_ns);
}

int64_t kvpool_abort(struct kvpool_channel *channel, const struct kvpool_block *blocks, uint32_t n,
		     uint64_t deadline_ns)
{
	struct kvpool_deadline deadline =
		kvpool_deadline_make(deadline_ns, channel->pool->deadline_ns);
	struct batch b = {
		.channel = channel,
		.blocks = blocks,
		.n = n,
		.request = {.op = KVPOOL_OP_ABORT},
	};
	uint32_t sent = 0;
	int64_t done;

	if (kvpool_pool_check(channel->pool) != 0)
		return kvpool_channel_begin(channel, NULL, false, &deadline, NULL);
	if (n > 0 && !blocks)
		return kvpool_failure_literal(&channel->failure, -EINVAL, "abort: blocks");
	if (!any(blocks, n))
		return 0;
	done = run(&b, "abort", &deadline, &sent);
	if (done >= 0)
		sent = n;
	/* What the daemon did not hear of is owed. */
	for (uint32_t i = 0; i < n; i++)
		if (blocks[i].block != 0)
			kvpool_holdings_end_block(channel, &blocks[i],
						  i < sent ? KVPOOL_HOLDINGS_TOLD
							   : KVPOOL_HOLDINGS_OWED);
	return judge(&b, done, "abort: none of the blocks is this client's reservation");
}
