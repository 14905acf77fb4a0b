/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small cache for unit tests, and short names for what the tests do to it.
 *
 * One cache a test, in `fx`. Keys are numbers: key i of chain c. Extents are 4 KiB, segments 16
 * KiB. fx_close() checks every structure, the accounting, and that nothing is left when all holders
 * have gone and everything was evicted. Owned by the test's only thread.
 */
#ifndef KVPOOL_TESTS_CACHE_FIXTURE_H
#define KVPOOL_TESTS_CACHE_FIXTURE_H

#include "src/cache.h"

#include <check.h>

#define FX_EXTENT   UINT64_C(4096)
#define FX_SEGMENT  UINT64_C(16384)
#define FX_HOLDERS  4
#define FX_KEYS_MAX 4096

struct fx {
	struct kvpool_cache_config config;
	void *catalog; /* owned: mapped; a forked child has the same */
	size_t catalog_bytes;
	void *notes;                /* owned: likewise */
	uint32_t extents;           /* given by fx_open() */
	struct kvpool_cache *cache; /* owned */
	struct kvpool_holder *holders[FX_HOLDERS];
	uint32_t wakes;
	void *woken; /* cookie of the last wake-up, and how it ended */
	enum kvpool_status wake_status;
	uint32_t more_asked;
	uint32_t more_extents; /* that fx_more() may still give, from segment 99 */
};

extern struct fx fx;

/* A cache with `extents` extents, from segment 1 on; fx.config is as it was set, or the default. */
void fx_open(uint32_t extents);
void fx_default(void);
void fx_close(void);

/*
 * The daemon dies here: all but the catalog, the notes and the memory is lost. fx_adopt() is the
 * next life, with as many extents as fx_open() gave; nobody goes on, and all may still be there.
 */
void fx_crash(void);
int fx_adopt(struct kvpool_cache_adopted *result);
/* Both; it adopts. */
struct kvpool_cache_adopted fx_restart(void);

/* The same, and the holders with numbers 0 to n-1 go on; of others no process is there. */
int fx_adopt_with(int n, struct kvpool_cache_adopted *result);
struct kvpool_cache_adopted fx_restart_with(int n);

/* Structures, accounting identity, figures of all holders. */
void fx_check(void);
struct kvpool_cache_usage fx_usage(void);
struct kvpool_holder_usage fx_holder_usage(int holder);

/* The holder with this number, made when it is first asked for; its id is 100 + number. */
struct kvpool_holder *fx_holder(int number);
void fx_holder_gone(int number);

/* A layout named by `name`, for this holder; slots are of one shard. */
struct kvpool_wire_layout fx_wire(int name, uint16_t n_shards, uint16_t n_groups,
				  const struct kvpool_wire_group *groups);
uint16_t fx_register(int holder, const struct kvpool_wire_layout *wire);
/* One FULL group with frames of this size, blocks of 16 tokens. */
uint16_t fx_plain(int holder, int name, uint64_t frame_bytes);

/* n keys of a chain from key `from` on; good until the next call. */
const uint8_t *fx_keys(int chain, uint32_t from, uint32_t n);

/* What a list of keys is asked for. */
struct fx_range {
	uint16_t layout;
	uint32_t group;
	int chain;
	uint32_t from, n;
};

/* RESERVE of a chain's keys; the parent is the key before, if there is one. */
struct kvpool_reserve_result fx_reserve(int holder, struct fx_range range,
					struct kvpool_wire_block *blocks);
/* COMMIT of one shard, or all: how many were done, 0 for STALE. */
uint32_t fx_commit(int holder, uint32_t shard, const struct kvpool_wire_block *blocks, uint32_t n);
uint32_t fx_abort(int holder, const struct kvpool_wire_block *blocks, uint32_t n);
/* Both, all of it granted. */
void fx_store(int holder, struct fx_range range);

struct fx_match {
	int status;
	struct kvpool_match_result result;
	struct kvpool_wire_range ranges[KVPOOL_GROUPS_MAX];
	struct kvpool_wire_block blocks[FX_KEYS_MAX];
};

/* MATCH of keys 0..n-1 of a chain; good until the next call. */
const struct fx_match *fx_match(int holder, uint16_t layout, int chain, uint32_t n, uint32_t skip,
				uint8_t flags);
/* L of a match that leases nothing. */
uint32_t fx_hit(int holder, uint16_t layout, int chain, uint32_t n);
int fx_release(int holder, uint64_t lease, uint32_t keep);
uint32_t fx_forget(int holder, struct fx_range range);

/* How the block of this key is: READY (OK), being written (BUSY), or NOT_FOUND. */
int fx_state(int holder, struct fx_range key);

#endif
