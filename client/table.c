/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small hash table. See table.h.
 *
 * Owned by a ledger and guarded by its lock.
 */
#include "client/table.h"

#include "shm/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64u
#define CAPACITY_MAX (1u << 30)

static uint32_t home(const struct kvpool_table *t, uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (t->capacity - 1);
}

/* Where the key is, or the empty place where it would go. The table is never full. */
static uint32_t place(const struct kvpool_table *t, uint64_t key)
{
	uint32_t i = home(t, key);

	while (t->entries[i].key != 0 && t->entries[i].key != key)
		i = (i + 1) & (t->capacity - 1);
	return i;
}

void kvpool_table_init(struct kvpool_table *t)
{
	*t = (struct kvpool_table){0};
}

void kvpool_table_fini(struct kvpool_table *t)
{
	free(t->entries);
	kvpool_table_init(t);
}

void kvpool_table_clear(struct kvpool_table *t)
{
	if (t->capacity > 0)
		memset(t->entries, 0, t->capacity * sizeof(*t->entries));
	t->n = 0;
}

int kvpool_table_make_room(struct kvpool_table *t, uint32_t more)
{
	uint64_t wanted = ((uint64_t)t->n + more) * 2;
	struct kvpool_table bigger = {.capacity = KVPOOL_MAX(t->capacity, CAPACITY_MIN)};

	if (wanted <= t->capacity)
		return 0;
	while (bigger.capacity < wanted && bigger.capacity < CAPACITY_MAX)
		bigger.capacity *= 2;
	if (bigger.capacity < wanted)
		return -ENOMEM;
	bigger.entries = calloc(bigger.capacity, sizeof(*bigger.entries));
	if (!bigger.entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->capacity; i++)
		if (t->entries[i].key != 0)
			kvpool_table_put(&bigger, t->entries[i].key, t->entries[i].value);
	free(t->entries);
	*t = bigger;
	return 0;
}

void kvpool_table_put(struct kvpool_table *t, uint64_t key, uint64_t value)
{
	struct kvpool_table_entry *e = &t->entries[place(t, key)];

	if (e->key == 0)
		t->n++;
	*e = (struct kvpool_table_entry){key, value};
}

uint64_t *kvpool_table_find(struct kvpool_table *t, uint64_t key)
{
	uint32_t i;

	if (t->n == 0)
		return NULL;
	i = place(t, key);
	return t->entries[i].key == key ? &t->entries[i].value : NULL;
}

/* Closes the gap: whoever was pushed on past it moves back, so that no search ends too early. */
static void close_gap(struct kvpool_table *t, uint32_t gap)
{
	uint32_t mask = t->capacity - 1;

	for (uint32_t i = (gap + 1) & mask; t->entries[i].key != 0; i = (i + 1) & mask) {
		uint32_t from_home = (i - home(t, t->entries[i].key)) & mask;

		if (from_home < ((i - gap) & mask))
			continue;
		t->entries[gap] = t->entries[i];
		gap = i;
	}
	t->entries[gap].key = 0;
}

int kvpool_table_remove(struct kvpool_table *t, uint64_t key)
{
	uint32_t i;

	if (t->n == 0)
		return 0;
	i = place(t, key);
	if (t->entries[i].key != key)
		return 0;
	close_gap(t, i);
	t->n--;
	return 1;
}
