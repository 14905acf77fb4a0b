/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back what any channel of this process took. See holdings.h.
 *
 * Any thread.
 */
#include "client/holdings.h"

struct ending {
	uint64_t epoch;
	uint64_t lease; /* 0: a block */
	uint32_t block, generation;
	uint32_t shard; /* UINT32_MAX: the whole */
	bool owed;
	const struct kvpool_session *told; /* borrowed; whose daemon knows, unless it is owed */
};

/* Returns whether it was in this ledger. */
static bool end_in(struct kvpool_ledger *ledger, const struct ending *e)
{
	if (e->lease != 0)
		return kvpool_ledger_end_lease(ledger, e->lease, e->owed);
	if (e->shard != UINT32_MAX)
		return kvpool_ledger_end_shard(ledger, e->block, e->generation, e->shard);
	return kvpool_ledger_end_block(ledger, e->block, e->generation, e->owed);
}

static void owe_in(struct kvpool_ledger *ledger, const struct ending *e)
{
	if (e->lease != 0)
		kvpool_ledger_owe_lease(ledger, e->lease);
	else
		kvpool_ledger_owe_block(ledger, e->block, e->generation);
}

/*
 * In any ledger of a session. A debt goes to the orphans, which any channel pays: the channel that
 * took it may never make a call again. Pool lock.
 */
static bool end_in_session(struct kvpool_session *session, const struct ending *e)
{
	struct ending there = *e;
	/* A shard that is written needs no telling: the daemon that knew has noted it. */
	bool owed = e->shard == UINT32_MAX && (e->owed || e->told != session);

	there.owed = owed;
	if (owed && kvpool_ledger_make_room(&session->orphans, 1, 1) == 0)
		there.owed = false;
	for (struct kvpool_link *link = session->links; link; link = link->next) {
		if (!end_in(&link->ledger, &there))
			continue;
		if (owed && !there.owed)
			owe_in(&session->orphans, e);
		return true;
	}
	there.owed = owed;
	return end_in(&session->orphans, &there);
}

/*
 * Another member's, in no ledger of this process: owed by the newest session of that life, whose
 * orphans the next one takes over. Pool lock.
 */
static void owe_for_another(struct kvpool_session *session, const struct ending *e)
{
	if (e->owed && kvpool_ledger_make_room(&session->orphans, 1, 1) == 0)
		owe_in(&session->orphans, e);
}

/* In another ledger of that life, or in none. */
static void end_elsewhere(struct kvpool_channel *channel, const struct ending *e)
{
	struct kvpool *pool = channel->pool;
	struct kvpool_session *newest = NULL;
	bool found = false, lost = false;

	pthread_mutex_lock(&pool->lock);
	for (struct kvpool_session *s = pool->sessions; s && !found; s = s->next) {
		if (s->life != e->epoch)
			continue;
		newest = newest ? newest : s;
		lost = lost || kvpool_session_lost(s);
		found = end_in_session(s, e);
	}
	if (!found && newest)
		owe_for_another(newest, e);
	pthread_mutex_unlock(&pool->lock);
	if (lost)
		kvpool_pool_settle(pool);
}

static void end(struct kvpool_channel *channel, struct ending *e)
{
	struct kvpool_link *link = channel->link;

	e->told = link ? link->session : NULL;
	if (link && link->session->life == e->epoch && !kvpool_session_lost(link->session) &&
	    end_in(&link->ledger, e))
		return;
	end_elsewhere(channel, e);
}

void kvpool_holdings_end_lease(struct kvpool_channel *channel, uint64_t epoch, uint64_t lease,
			       enum kvpool_holdings_end how)
{
	struct ending e = {.epoch = epoch,
			   .lease = lease,
			   .shard = UINT32_MAX,
			   .owed = how == KVPOOL_HOLDINGS_OWED};

	end(channel, &e);
}

void kvpool_holdings_end_block(struct kvpool_channel *channel, const struct kvpool_block *block,
			       enum kvpool_holdings_end how)
{
	struct ending e = {.epoch = block->epoch,
			   .block = block->block,
			   .generation = block->generation,
			   .shard = UINT32_MAX,
			   .owed = how == KVPOOL_HOLDINGS_OWED};

	end(channel, &e);
}

void kvpool_holdings_end_shard(struct kvpool_channel *channel, const struct kvpool_block *blocks,
			       uint32_t n, uint32_t shard)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ending e = {.epoch = blocks[i].epoch,
				   .block = blocks[i].block,
				   .generation = blocks[i].generation,
				   .shard = shard};

		if (blocks[i].block != 0)
			end(channel, &e);
	}
}
