/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process holds through one channel. See ledger.h.
 *
 * Owned by a link or a session; guarded by its lock.
 */
#include "client/ledger.h"

#include "shm/base.h"

#include <errno.h>
#include <stdlib.h>

enum {
	OWED = 0,
	HELD = 1,
};

static uint64_t block_key(uint32_t block, uint32_t generation)
{
	return (uint64_t)block << 32 | generation;
}

static uint64_t all_shards(uint32_t n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* Under the lock; relaxed, as ledger.h says. */
static void count(struct kvpool_ledger *ledger, int held, int owed)
{
	/* No edge: hints; who must know has the lock. */
	atomic_store_explicit(&ledger->held, kvpool_ledger_held(ledger) + (uint32_t)held,
			      memory_order_relaxed);
	atomic_store_explicit(&ledger->owed, kvpool_ledger_owed(ledger) + (uint32_t)owed,
			      memory_order_relaxed);
}

/* Gives a key a value, whatever it had. */
static void put(struct kvpool_ledger *ledger, struct kvpool_table *t, uint64_t key, uint64_t value)
{
	const uint64_t *old = kvpool_table_find(t, key);

	if (old)
		count(ledger, -(*old != OWED), -(*old == OWED));
	kvpool_table_put(t, key, value);
	count(ledger, value != OWED, value == OWED);
}

/* Ends what is held under a key. Returns whether it was held. */
static bool end(struct kvpool_ledger *ledger, struct kvpool_table *t, uint64_t key, bool owed)
{
	uint64_t *value = kvpool_table_find(t, key);

	if (!value || *value == OWED)
		return false;
	if (owed) {
		*value = OWED;
	} else {
		kvpool_table_remove(t, key);
	}
	count(ledger, -1, owed);
	return true;
}

int kvpool_ledger_init(struct kvpool_ledger *ledger)
{
	kvpool_table_init(&ledger->leases);
	kvpool_table_init(&ledger->blocks);
	ledger->moved = false;
	atomic_init(&ledger->held, 0);
	atomic_init(&ledger->owed, 0);
	return -pthread_mutex_init(&ledger->lock, NULL);
}

void kvpool_ledger_fini(struct kvpool_ledger *ledger)
{
	kvpool_table_fini(&ledger->leases);
	kvpool_table_fini(&ledger->blocks);
	pthread_mutex_destroy(&ledger->lock);
}

int kvpool_ledger_make_room(struct kvpool_ledger *ledger, uint32_t leases, uint32_t blocks)
{
	uint64_t n = (uint64_t)kvpool_ledger_held(ledger) + kvpool_ledger_owed(ledger);
	int r;

	/* Only the caller adds; what others remove meanwhile makes no less room. */
	if (KVPOOL_LIKELY((n + leases) * 2 <= ledger->leases.capacity &&
			  (n + blocks) * 2 <= ledger->blocks.capacity))
		return 0;
	pthread_mutex_lock(&ledger->lock);
	r = kvpool_table_make_room(&ledger->leases, leases);
	if (r == 0)
		r = kvpool_table_make_room(&ledger->blocks, blocks);
	pthread_mutex_unlock(&ledger->lock);
	return r;
}

bool kvpool_ledger_begin(struct kvpool_ledger *ledger)
{
	pthread_mutex_lock(&ledger->lock);
	if (KVPOOL_LIKELY(!ledger->moved))
		return true;
	pthread_mutex_unlock(&ledger->lock);
	return false;
}

void kvpool_ledger_end(struct kvpool_ledger *ledger)
{
	pthread_mutex_unlock(&ledger->lock);
}

void kvpool_ledger_add_lease(struct kvpool_ledger *ledger, uint64_t lease)
{
	put(ledger, &ledger->leases, lease, HELD);
}

void kvpool_ledger_add_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     uint32_t n_shards)
{
	put(ledger, &ledger->blocks, block_key(block, generation), all_shards(n_shards));
}

void kvpool_ledger_owe_lease(struct kvpool_ledger *ledger, uint64_t lease)
{
	pthread_mutex_lock(&ledger->lock);
	put(ledger, &ledger->leases, lease, OWED);
	pthread_mutex_unlock(&ledger->lock);
}

void kvpool_ledger_owe_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation)
{
	pthread_mutex_lock(&ledger->lock);
	put(ledger, &ledger->blocks, block_key(block, generation), OWED);
	pthread_mutex_unlock(&ledger->lock);
}

bool kvpool_ledger_end_lease(struct kvpool_ledger *ledger, uint64_t lease, bool owed)
{
	bool was;

	pthread_mutex_lock(&ledger->lock);
	was = end(ledger, &ledger->leases, lease, owed);
	pthread_mutex_unlock(&ledger->lock);
	return was;
}

bool kvpool_ledger_end_block(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     bool owed)
{
	bool was;

	pthread_mutex_lock(&ledger->lock);
	was = end(ledger, &ledger->blocks, block_key(block, generation), owed);
	pthread_mutex_unlock(&ledger->lock);
	return was;
}

bool kvpool_ledger_end_shard(struct kvpool_ledger *ledger, uint32_t block, uint32_t generation,
			     uint32_t shard)
{
	uint64_t key = block_key(block, generation);
	uint64_t *value;
	bool was;

	pthread_mutex_lock(&ledger->lock);
	value = kvpool_table_find(&ledger->blocks, key);
	was = value && *value != OWED;
	if (was && shard < 64 && (*value & ~(UINT64_C(1) << shard)) != 0)
		*value &= ~(UINT64_C(1) << shard);
	else if (was)
		end(ledger, &ledger->blocks, key, false);
	pthread_mutex_unlock(&ledger->lock);
	return was;
}

static void owe_table(struct kvpool_table *t)
{
	for (uint32_t i = 0; i < t->capacity; i++)
		t->entries[i].value = OWED;
}

void kvpool_ledger_owe_all(struct kvpool_ledger *ledger)
{
	pthread_mutex_lock(&ledger->lock);
	owe_table(&ledger->leases);
	owe_table(&ledger->blocks);
	count(ledger, -(int)kvpool_ledger_held(ledger), (int)kvpool_ledger_held(ledger));
	pthread_mutex_unlock(&ledger->lock);
}

/*
 * The next key that is owed, taken out; 0 where there is none. A removal may move a later entry to
 * *at, so the search goes on from there.
 */
static uint64_t take(struct kvpool_ledger *ledger, struct kvpool_table *t, uint32_t *at)
{
	for (; *at < t->capacity; ++*at) {
		uint64_t key = t->entries[*at].key;

		if (key == 0 || t->entries[*at].value != OWED)
			continue;
		kvpool_table_remove(t, key);
		count(ledger, 0, -1);
		return key;
	}
	return 0;
}

uint32_t kvpool_ledger_take_leases(struct kvpool_ledger *ledger, uint64_t *leases, uint32_t n)
{
	uint32_t taken = 0, at = 0;

	pthread_mutex_lock(&ledger->lock);
	while (taken < n) {
		uint64_t key = take(ledger, &ledger->leases, &at);

		if (key == 0)
			break;
		leases[taken++] = key;
	}
	pthread_mutex_unlock(&ledger->lock);
	return taken;
}

uint32_t kvpool_ledger_take_blocks(struct kvpool_ledger *ledger, struct kvpool_wire_handle *handles,
				   uint32_t n)
{
	uint32_t taken = 0, at = 0;

	pthread_mutex_lock(&ledger->lock);
	while (taken < n) {
		uint64_t key = take(ledger, &ledger->blocks, &at);

		if (key == 0)
			break;
		handles[taken++] = (struct kvpool_wire_handle){.block = (uint32_t)(key >> 32),
							       .generation = (uint32_t)key};
	}
	pthread_mutex_unlock(&ledger->lock);
	return taken;
}

static void move_table(struct kvpool_ledger *to, struct kvpool_table *from, struct kvpool_table *t)
{
	for (uint32_t i = 0; i < from->capacity; i++)
		if (from->entries[i].key != 0)
			put(to, t, from->entries[i].key, from->entries[i].value);
}

static void empty(struct kvpool_ledger *ledger)
{
	/* The room stays: who had it made may be about to owe something here. */
	kvpool_table_clear(&ledger->leases);
	kvpool_table_clear(&ledger->blocks);
	count(ledger, -(int)kvpool_ledger_held(ledger), -(int)kvpool_ledger_owed(ledger));
	ledger->moved = true;
}

int kvpool_ledger_move(struct kvpool_ledger *from, struct kvpool_ledger *to)
{
	int r;

	pthread_mutex_lock(&from->lock);
	pthread_mutex_lock(&to->lock);
	r = kvpool_table_make_room(&to->leases, from->leases.n);
	if (r == 0)
		r = kvpool_table_make_room(&to->blocks, from->blocks.n);
	if (r == 0) {
		move_table(to, &from->leases, &to->leases);
		move_table(to, &from->blocks, &to->blocks);
		empty(from);
	}
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
	return r;
}

static uint32_t claim_table(const struct kvpool_table *t, bool leases, struct kvpool_wire_claim *to)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->capacity; i++) {
		uint64_t key = t->entries[i].key;

		if (key == 0 || t->entries[i].value == OWED)
			continue;
		to[n++] = leases ? (struct kvpool_wire_claim){.lease = key}
				 : (struct kvpool_wire_claim){.block = (uint32_t)(key >> 32),
							      .generation = (uint32_t)key};
	}
	return n;
}

int kvpool_ledger_claims(struct kvpool_ledger *ledger, struct kvpool_wire_claim **claims,
			 uint32_t *n)
{
	struct kvpool_wire_claim *all = NULL;
	uint32_t total, leases;

	pthread_mutex_lock(&ledger->lock);
	total = kvpool_ledger_held(ledger);
	if (total > 0)
		all = calloc(total, sizeof(*all));
	if (all) {
		leases = claim_table(&ledger->leases, true, all);
		claim_table(&ledger->blocks, false, all + leases);
	}
	pthread_mutex_unlock(&ledger->lock);
	if (total > 0 && !all)
		return -ENOMEM;
	*claims = all;
	*n = total;
	return 0;
}
