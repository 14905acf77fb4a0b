/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back what any channel of this process took, in any daemon life: finds whose ledger it is
 * in. Mostly that is the caller's own.
 *
 * What another member took is in none, and can be owed all the same.
 *
 * What was told, was told through the channel's link. Where another session has taken the holding
 * over by then, and so has claimed it, its daemon may not know, and it is owed there.
 *
 * Any thread.
 */
#ifndef KVPOOL_CLIENT_HOLDINGS_H
#define KVPOOL_CLIENT_HOLDINGS_H

#include "client/channel.h"

/* How a hold ends. */
enum kvpool_holdings_end {
	KVPOOL_HOLDINGS_TOLD = 0, /* the daemon of the channel's link knows */
	KVPOOL_HOLDINGS_OWED = 1, /* the daemon is to be told with a later call */
};

void kvpool_holdings_end_lease(struct kvpool_channel *channel, uint64_t epoch, uint64_t lease,
			       enum kvpool_holdings_end how);

void kvpool_holdings_end_block(struct kvpool_channel *channel, const struct kvpool_block *block,
			       enum kvpool_holdings_end how);

/* One shard of each block; UINT32_MAX: all. Blocks with number 0 are passed over. */
void kvpool_holdings_end_shard(struct kvpool_channel *channel, const struct kvpool_block *blocks,
			       uint32_t n, uint32_t shard);

#endif
