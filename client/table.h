/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small hash table from a number that is not 0 to a number: linear probing, no tombstones.
 *
 * Grows only in kvpool_table_make_room(), so that what was made room for cannot fail later. Owned
 * by a ledger and guarded by its lock.
 */
#ifndef KVPOOL_CLIENT_TABLE_H
#define KVPOOL_CLIENT_TABLE_H

#include <stdint.h>

struct kvpool_table_entry {
	uint64_t key; /* 0: empty */
	uint64_t value;
};

struct kvpool_table {
	struct kvpool_table_entry *entries; /* owned; NULL while capacity is 0 */
	uint32_t capacity;                  /* a power of two, or 0 */
	uint32_t n;
};

void kvpool_table_init(struct kvpool_table *t);
void kvpool_table_fini(struct kvpool_table *t);

/* The next `more` new keys will find room. -ENOMEM. */
int kvpool_table_make_room(struct kvpool_table *t, uint32_t more);

/* Adds a key, or gives it another value. Room was made. */
void kvpool_table_put(struct kvpool_table *t, uint64_t key, uint64_t value);

/* NULL where it is not there. Good until the next put or remove. */
uint64_t *kvpool_table_find(struct kvpool_table *t, uint64_t key);

/* Removes all keys; the room that was made stays. */
void kvpool_table_clear(struct kvpool_table *t);

/* 1 where it was there. */
int kvpool_table_remove(struct kvpool_table *t, uint64_t key);

#endif
