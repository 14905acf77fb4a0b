/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process holds through one channel of one daemon life: leases, and shards of reserved
 * blocks that it has neither committed nor aborted.
 *
 * Three uses: the blocks stay mapped while anything is held, also after the daemon died; what is
 * held is claimed from the daemon's next life; and what the caller gave back, or never learned that
 * it had, while the daemon did not listen, is owed: it is told to the daemon with a later call. It
 * is not claimed: the daemon may have heard of it before it died. Leases and blocks that another
 * member of the client holds are not in here.
 *
 * What is claimed is what was in a ledger when its session was succeeded by another one. So a
 * ledger that was moved takes nothing more: an answer that comes out of the old ring after that is
 * not claimed, and must not reach the caller.
 *
 * Owned by a link or a session. Mostly used by one thread; another channel's thread may give back
 * what this one took, hence the lock.
 */
#ifndef KVPOOL_CLIENT_LEDGER_H
#define KVPOOL_CLIENT_LEDGER_H

#include "client/table.h"
#include "shm/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct kvpool_ledger {
	pthread_mutex_t lock;
	struct kvpool_table leases; /* id: HELD or OWED */
	struct kvpool_table blocks; /* block and generation: shards outstanding, or OWED */
	bool moved;                 /* all is in another ledger; set only */
	/* W: under the lock. R: any thread, relaxed: hints, exact where the reader has the lock. */
	_Atomic uint32_t held;
	_Atomic uint32_t owed;
};

int kvpool_ledger_init(struct kvpool_ledger *ledger); /* -ENOMEM, -EAGAIN */
void kvpool_ledger_fini(struct kvpool_ledger *ledger);

/* What the next call may bring will find room. For the one thread that adds. -ENOMEM. */
int kvpool_ledger_make_room(struct kvpool_ledger *ledger, uint32_t leases, uint32_t blocks);

/*
 * What an answer granted is added between these two, all of it or nothing; the lock is held. False:
 * the ledger was moved; then there is no second one.
 */
bool kvpool_ledger_begin(struct kvpool_ledger *ledger);
void kvpool_ledger_end(struct kvpool_ledger *ledger);

/* The daemon granted this. Room was made. */
void kvpool_ledger_add_lease(struct kvpool_ledger *ledger, uint64_t lease);
void kvpool_ledger_add_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     uint32_t n_shards);

/* The daemon granted this, but nobody wants it any more. Room was made. */
void kvpool_ledger_owe_lease(struct kvpool_ledger *ledger, uint64_t lease);
void kvpool_ledger_owe_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation);

/* The caller gave it back. Returns whether it was here. `owed`: the daemon does not know yet. */
bool kvpool_ledger_end_lease(struct kvpool_ledger *ledger, uint64_t lease, bool owed);
bool kvpool_ledger_end_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     bool owed);

/* One shard (UINT32_MAX: each) was committed. Returns whether the block was here. */
bool kvpool_ledger_end_shard(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     uint32_t shard);

/* Everything that is held is owed now. */
void kvpool_ledger_owe_all(struct kvpool_ledger *ledger);

/* Takes up to n of what is owed, to be told to the daemon now. Returns how many. */
uint32_t kvpool_ledger_take_leases(struct kvpool_ledger *ledger, uint64_t *leases, uint32_t n);
uint32_t kvpool_ledger_take_blocks(struct kvpool_ledger *ledger, struct kvpool_wire_handle *handles,
				   uint32_t n);

/* Everything in `from` is in `to` from now on. -ENOMEM, and nothing moved. */
int kvpool_ledger_move(struct kvpool_ledger *from, struct kvpool_ledger *to);

/* All that is held, as CLAIM has it; the caller frees *claims (NULL: none). -ENOMEM. */
int kvpool_ledger_claims(struct kvpool_ledger *ledger, struct kvpool_wire_claim **claims,
			 uint32_t *n);

static inline uint32_t kvpool_ledger_held(const struct kvpool_ledger *ledger)
{
	/* No edge: a hint, exact under the lock. */
	return atomic_load_explicit(&ledger->held, memory_order_relaxed);
}

static inline uint32_t kvpool_ledger_owed(const struct kvpool_ledger *ledger)
{
	/* No edge: a hint, exact under the lock. */
	return atomic_load_explicit(&ledger->owed, memory_order_relaxed);
}

#endif
