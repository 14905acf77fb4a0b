/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of one domain: which blocks there are, where they lie, who reads and who writes them.
 *
 * A library without I/O: it is told of memory by (segment, offset, bytes), of time by a tick, of
 * clients by holders, and answers requests. It never touches block bytes. Owned by the daemon's
 * service thread (one cache a domain); nothing here may be called from two threads at once.
 *
 * Results: negative errno where the environment failed (-ENOMEM), a positive enum kvpool_status
 * where the request cannot be served (the caller puts it in the reply), 0 for success.
 * Out-parameters are untouched on failure. Pointers marked "peer" lie in memory that a client may
 * change at any time: they are read once into private memory, or only written.
 */
#ifndef KVPOOL_SRC_CACHE_H
#define KVPOOL_SRC_CACHE_H

#include "shm/wire.h"

#include <stdbool.h>

struct kvpool_cache;
struct kvpool_holder; /* one client, as the cache sees it */
struct kvpool_waiter; /* one WAIT that is not answered yet */
struct kvpool_policy;

struct kvpool_cache_config {
	uint64_t bytes_max; /* of blocks, that this cache may ever be given */
	uint64_t
		extent_bytes; /* power of two, at most segment_bytes; a block's frame fits in one */
	uint64_t segment_bytes; /* power of two, at most KVPOOL_SEGMENT_MAX */
	uint32_t blocks_max; /* records in the block table; 0: bytes_max / KVPOOL_UNIT_BYTES, capped
			      */
	uint64_t epoch;
	uint64_t secret[4]; /* of the index's hash: random, so that no client can aim */
	const struct kvpool_policy *policy; /* borrowed, static; NULL: kvpool_policy_clock */
	uint32_t idle_limit;                /* seconds after which an unused block goes; 0: never */
	uint32_t leases_max;                /* per client; 0: 65536 */
	uint32_t reservations_max; /* per client, in blocks, with those that can no longer commit;
				      0: no limit */
	void *notes; /* borrowed: kvpool_cache_notes_bytes() of page-aligned shared memory, zeroed
			or an earlier life's, for what the next life is to know of leases; NULL:
			there is no next life */
};

/* How a WAIT ends. Called from within the operation that ended it; must not call the cache. */
typedef void (*kvpool_cache_wake_fn)(void *cookie, enum kvpool_status status);

/*
 * Asked when no extent is free, before anything is evicted. May call kvpool_cache_memory_add(), and
 * nothing else of the cache; returns whether it did. May be NULL.
 */
typedef bool (*kvpool_cache_more_fn)(void *cookie);

/* What the cache asks of its owner. */
struct kvpool_cache_calls {
	kvpool_cache_wake_fn wake; /* NULL: nobody waits */
	kvpool_cache_more_fn more; /* NULL: there is no more */
	void *more_cookie;         /* borrowed */
};

/*
 * Bytes of catalog memory that a cache of this configuration needs: virtual, touched only as it is
 * used. 0 where the configuration is out of bounds.
 */
uint64_t kvpool_cache_catalog_bytes(const struct kvpool_cache_config *config);
uint64_t kvpool_cache_notes_bytes(void);

/*
 * `catalog`: zeroed, page-aligned memory of that size, borrowed until kvpool_cache_free(); the
 * cache writes the header (KVPOOL_HEADER_CATALOG) and its regions there, and asks for huge pages.
 * -EINVAL, -ENOMEM.
 */
int kvpool_cache_new(const struct kvpool_cache_config *config, void *catalog,
		     const struct kvpool_cache_calls *calls, struct kvpool_cache **out);

/* What kvpool_cache_adopt() found. */
struct kvpool_cache_adopted {
	uint32_t layouts;         /* kept */
	uint32_t layouts_dropped; /* what they say is not what was written, or cannot be */
	uint64_t blocks;          /* READY, kept */
	uint64_t torn;            /* dropped: their check did not fit */
	uint64_t misplaced;   /* dropped: no such place, layout or group; or another lies there */
	uint64_t orphaned;    /* dropped: what they hang on was dropped, or their key is twice */
	uint64_t unfinished;  /* were not READY when that life ended */
	uint64_t quarantined; /* of all these, frames that are not reused yet */
	uint64_t writing;     /* of the unfinished, those whose writer may go on */
	uint64_t leases;      /* of clients that may go on */
	bool all_leases;      /* every lease is known; else all blocks are held as by one */
	const char *notes_fault; /* why no lease is known; NULL: they are, or there are no notes */
	const char *fault;       /* why nothing could be kept; NULL: it could */
};

/* Memory that the cache of the earlier life had: whole extents. */
struct kvpool_cache_range {
	uint32_t segment;
	uint64_t offset;
	uint64_t bytes;
};

/* What an earlier life left beside its catalog and its notes. Borrowed for the call. */
struct kvpool_cache_left {
	const struct kvpool_cache_range *ranges;
	uint32_t n_ranges;
	const uint32_t *clients; /* ascending: those that may go on */
	uint32_t n_clients;
	bool others; /* there are clients that may not, but may still read and write */
	/*
	 * Leases are lost: no client that held anything may go on, in this life or a later one,
	 * since none of them would be told of it. Called before the next life could take what is
	 * left for all there was. NULL: nobody asks.
	 */
	void (*lost)(void *cookie);
	void *cookie;
};

/*
 * A cache over the catalog of an earlier life of the daemon, with that life's memory for blocks.
 * Believes nothing: each record is checked by itself and against the others, and what does not fit
 * is dropped and counted. Keeps READY blocks with their ancestors, and layouts, under their
 * numbers. Clients that may go on become holders (kvpool_cache_holder_find()) with their leases and
 * reservations, see kvpool_cache_claim(); those of others end. What else was neither READY nor FREE
 * stays in quarantine until kvpool_cache_end_past(): clients of that life may still write there.
 * Until then, too, nothing that is kept is evicted, where not every lease of a client that is there
 * could be known. May be cut short at any instruction and begun again by the next life.
 * KVPOOL_CACHE_E_FOREIGN: `result->fault` says why; the memory is as it was. -EINVAL, -ENOMEM,
 * -ENOSPC.
 */
enum {
	KVPOOL_CACHE_E_FOREIGN = 1, /* the memory is no catalog for this configuration */
};

int kvpool_cache_adopt(const struct kvpool_cache_config *config, void *catalog,
		       const struct kvpool_cache_calls *calls, const struct kvpool_cache_left *left,
		       struct kvpool_cache_adopted *result, struct kvpool_cache **out);

/* No client of the earlier life reads or writes any more. May be called when it was already. */
void kvpool_cache_end_past(struct kvpool_cache *cache);

/* Whether the earlier life is not over yet. */
bool kvpool_cache_has_past(const struct kvpool_cache *cache);

/* Takes NULL. Every holder must be gone: asserts that nothing is held. */
void kvpool_cache_free(struct kvpool_cache *cache);

/* Tells the cache the time, in milliseconds from any start; never goes back. */
void kvpool_cache_set_time(struct kvpool_cache *cache, uint64_t now_ms);

/*
 * More memory for blocks: whole extents of segment `segment`, at `offset`. -EINVAL where it is not
 * aligned, out of the segment or given twice; -ENOSPC beyond bytes_max.
 */
int kvpool_cache_memory_add(struct kvpool_cache *cache, uint32_t segment, uint64_t offset,
			    uint64_t bytes);

/* Whether more memory will come (the pool is being made): NO_SPACE then says GROWING. */
void kvpool_cache_set_growing(struct kvpool_cache *cache, bool growing);

/*
 * Empties a whole segment so that it can leave the domain: evicts what lies there, with what hangs
 * on it. KVPOOL_STATUS_BUSY, and nothing changed, where a lease or reservation holds a part of it.
 */
int kvpool_cache_memory_take(struct kvpool_cache *cache, uint32_t segment);

/* The segment that was used longest ago and that could be taken. KVPOOL_STATUS_NOT_FOUND: none. */
int kvpool_cache_memory_coldest(struct kvpool_cache *cache, uint32_t *segment);

/* ---- clients ---- */

/* `id` shows in NO_SPACE answers and in kvpool_cache_usage; not 0, unique. -ENOMEM. */
int kvpool_cache_holder_new(struct kvpool_cache *cache, uint32_t id, struct kvpool_holder **out);

/*
 * The client's socket ended: its leases end now, its waits are dropped without a call to wake, its
 * reservations become quarantined: not READY ever, not reused until kvpool_cache_holder_free().
 * Whoever waits for such a block is woken with ABANDONED.
 */
void kvpool_cache_holder_quarantine(struct kvpool_cache *cache, struct kvpool_holder *holder);

/*
 * The client's processes are proven gone: frees what was quarantined (quarantines first where that
 * was not done). Takes NULL. Asserts that the holder's counters are zero.
 */
void kvpool_cache_holder_free(struct kvpool_cache *cache, struct kvpool_holder *holder);

/* The holder of this id, which kvpool_cache_adopt() made; NULL: there is none. */
struct kvpool_holder *kvpool_cache_holder_find(const struct kvpool_cache *cache, uint32_t id);

/*
 * What a process of an adopted holder still holds, lease by lease and block by block; `known`
 * counts what is the holder's, or was committed. *sound is false where one of the list is neither,
 * and may be what could not be known: a block that is in quarantine as nobody's, or a lease for
 * whose sake all are held. `claims` is peer memory; `writes`: blocks may be claimed, else only
 * leases count. INVALID: n.
 */
int kvpool_cache_claim(struct kvpool_cache *cache, struct kvpool_holder *holder, bool writes,
		       uint32_t n, const struct kvpool_wire_claim *claims, uint32_t *known,
		       bool *sound);

/*
 * Every process has claimed, or is gone: what an earlier life granted and nobody claims, since its
 * answer was never read, ends.
 */
void kvpool_cache_claims_end(struct kvpool_cache *cache, struct kvpool_holder *holder);

/* Whether it holds something that an earlier life granted. */
bool kvpool_cache_holder_has_past(const struct kvpool_holder *holder);

/* Whether it leases, reserves, or has something in quarantine. Cheap. */
bool kvpool_cache_holder_holds(const struct kvpool_holder *holder);

struct kvpool_holder_usage {
	uint32_t id;
	uint32_t leases;
	uint32_t leased_blocks; /* holds, as counted on blocks */
	uint32_t
		reserved_blocks; /* without the quarantined, with those that can no longer commit */
	uint32_t quarantined_blocks;
	uint32_t layouts;
	uint32_t waits;
	uint64_t leased_bytes; /* of the blocks held and of their ancestors, as if each lease were
				  alone */
	uint64_t reserved_bytes;
};

void kvpool_cache_holder_usage(const struct kvpool_holder *holder, struct kvpool_holder_usage *out);

/* ---- operations; `layout` is always the id that this holder got ---- */

/*
 * Registers a layout or joins it. INVALID: counts, kinds or sizes out of bounds, label not NUL-
 * terminated. GEOMETRY, LIMIT, TOO_LARGE (a frame, all shards of one block, exceeds an extent).
 * `wire` is a private copy. Strides are slot_bytes rounded up to KVPOOL_UNIT_BYTES.
 */
int kvpool_cache_layout(struct kvpool_cache *cache, struct kvpool_holder *holder,
			const struct kvpool_wire_layout *wire, uint16_t *layout,
			struct kvpool_wire_layout_result *result);

/* What a frame (all shards of one block) takes at most. */
uint64_t kvpool_cache_extent_bytes(const struct kvpool_cache *cache);

/*
 * How many groups a layout has that this holder registered; 0 where it did not. One load or two:
 * the daemon asks with every MATCH, to know how long the result may be.
 */
uint32_t kvpool_cache_layout_groups(const struct kvpool_cache *cache,
				    const struct kvpool_holder *holder, uint16_t layout);

struct kvpool_match_args {
	uint16_t layout;
	uint8_t flags;                    /* NO_LEASE, PENDING */
	uint32_t n;                       /* keys */
	uint32_t skip;                    /* at most n */
	const uint8_t *keys;              /* peer: n * 32 bytes; borrowed for the call */
	struct kvpool_wire_range *ranges; /* peer, written: one a group */
	struct kvpool_wire_block *blocks; /* peer, written */
	uint32_t capacity;                /* of blocks; too few: INVALID, nothing leased */
};

struct kvpool_match_result {
	uint32_t blocks; /* L: usable prefix in keys */
	uint32_t pending;
	uint32_t reported;
	uint64_t lease;                 /* 0: nothing held */
	struct kvpool_wire_block first; /* the first reported block, for inline replies */
};

/*
 * The longest usable prefix (design section 7). With L the answer:
 * - every FULL group has READY blocks for keys 0..L-1;
 * - every WINDOW(W) group has READY blocks for the keys that cover tokens [max(0, L*bt - W), L*bt),
 *   where keys below `skip` count as present (the engine has them);
 * - every STATE group has a READY block for key L-1 exactly, unless L <= skip;
 * - L is the largest such number; where the FULL groups end below skip, L is where they end.
 * Reported, where L > skip: FULL groups [skip, L), WINDOW groups the needed keys from skip on,
 * STATE groups key L-1. The lease holds all blocks reported (through their descendants where they
 * form a chain). pending (flag PENDING): number of keys in a row after L whose blocks in every FULL
 * group (in the first group, where there is no FULL one) are READY or reserved by anybody. Errors:
 * NO_LAYOUT, INVALID (also n 0), LIMIT (leases).
 *
 * The reply may be published as soon as this returns; bookkeeping that the reply does not depend on
 * is left for kvpool_cache_settle(), which every later operation runs first.
 */
int kvpool_cache_match(struct kvpool_cache *cache, struct kvpool_holder *holder,
		       const struct kvpool_match_args *args, struct kvpool_match_result *result);

void kvpool_cache_settle(struct kvpool_cache *cache);

/*
 * keep == 0: the whole lease. Otherwise keeps what serves the first `keep` keys; the lease stays,
 * even where that is nothing. STALE; INVALID where `keep` is more than the lease is for.
 */
int kvpool_cache_release(struct kvpool_cache *cache, struct kvpool_holder *holder, uint64_t lease,
			 uint32_t keep);

struct kvpool_reserve_args {
	uint16_t layout;
	uint32_t group;
	uint32_t n;
	const uint8_t *keys;              /* peer */
	const uint8_t *parent;            /* peer, 32 bytes; NULL: keys[0] starts a chain */
	struct kvpool_wire_block *blocks; /* peer, written: n; block 0 says why, see wire.h */
};

struct kvpool_reserve_result {
	uint32_t granted;
	uint16_t detail; /* enum kvpool_no_space of the first key refused for space */
	uint32_t holder; /* client that holds most, where detail is not NONE */
	struct kvpool_wire_block first;
};

/*
 * Key by key, in order: a place to write, EXISTS, BUSY, NO_SPACE or NO_PARENT. In a FULL group key
 * i's parent is key i-1 (`parent` for the first); it must be READY or reserved. In a WINDOW or
 * STATE group of a layout with a FULL group, the block hangs on the first FULL group's block of the
 * same key, which must be READY or reserved; `parent` is ignored. In a layout without FULL groups
 * blocks stand alone. Evicts where needed. Errors as a whole: NO_LAYOUT, INVALID (also n 0), LIMIT
 * where the client has reservations_max already; keys beyond it are NO_SPACE with QUOTA.
 */
int kvpool_cache_reserve(struct kvpool_cache *cache, struct kvpool_holder *holder,
			 const struct kvpool_reserve_args *args,
			 struct kvpool_reserve_result *result);

/*
 * One shard (or UINT32_MAX: all) of each block is written; the block becomes READY with its last
 * shard, in this group. Blocks that are not this holder's reservation, or whose shard was
 * committed, are skipped; `done` counts the others. STALE where none was done; INVALID shard.
 * With UINT32_MAX every shard must be open. A block that can no longer commit is never done, but
 * its frame is free once its last shard was given. `handles` is peer memory.
 */
int kvpool_cache_commit(struct kvpool_cache *cache, struct kvpool_holder *holder, uint32_t shard,
			bool has_crc, uint32_t n, const struct kvpool_wire_handle *handles,
			uint32_t *done);

/*
 * Gives reservations back, and this holder's own that hang on them: `done` counts both, and those
 * that could no longer commit. READY blocks that hang on them are forgotten; reservations of others
 * can no longer commit. STALE where none was done.
 */
int kvpool_cache_abort(struct kvpool_cache *cache, struct kvpool_holder *holder, uint32_t n,
		       const struct kvpool_wire_handle *handles, uint32_t *done);

/*
 * The blocks of these keys in one group, with all that hangs on them, are not found any more. Those
 * leased stay where they are until their leases end. Reservations among them can no longer commit.
 */
int kvpool_cache_forget(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
			uint32_t group, uint32_t n, const uint8_t *keys, uint32_t *done);

int kvpool_cache_forget_layout(struct kvpool_cache *cache, struct kvpool_holder *holder,
			       uint16_t layout, uint32_t *done);

/*
 * Waits for one key. OK at once where READY, NOT_FOUND where nobody is writing it; BUSY: it is
 * being written, `out` is the waiter and wake(cookie, OK or ABANDONED) will come, once. LIMIT.
 * `key` is private.
 */
int kvpool_cache_wait(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
		      uint32_t group, const uint8_t *key, void *cookie, struct kvpool_waiter **out);

/* The deadline came, or the channel went: no wake any more. */
void kvpool_cache_wait_cancel(struct kvpool_cache *cache, struct kvpool_waiter *waiter);

/* ---- checksums ---- */

/*
 * The checksums that came with the COMMITs of these blocks; READY ones, and those that somebody
 * still leases, of layouts that the holder registered. `found` counts those that have one.
 * `handles` and `sums` are peer memory, n of each. INVALID: n.
 */
int kvpool_cache_sums(struct kvpool_cache *cache, const struct kvpool_holder *holder, uint32_t n,
		      const struct kvpool_wire_handle *handles, struct kvpool_wire_sum *sums,
		      uint32_t *found);

/*
 * The bytes of these blocks are not what was stored: they go, with all that hangs on them, as
 * kvpool_cache_forget() does it; `done` counts these too. Passed over is what is not READY any
 * more, in this generation, or of a layout that the holder did not register (NULL: the daemon
 * itself asks); STALE where that is all. `handles` is peer memory.
 */
int kvpool_cache_drop(struct kvpool_cache *cache, const struct kvpool_holder *holder, uint32_t n,
		      const struct kvpool_wire_handle *handles, uint32_t *done);

/* A READY block: where its bytes are, and what they should sum up to. */
struct kvpool_cache_stored {
	struct kvpool_wire_block place;
	uint64_t slot_bytes; /* of one shard */
	uint64_t stride;     /* from shard to shard */
	uint32_t n_shards;
	uint32_t crc32c;
	bool has_crc;
};

/*
 * The next READY block, in no order; *cursor starts with 0 and moves on. Looks at *budget records
 * at most and counts them off: BUSY where they are spent. KVPOOL_STATUS_NOT_FOUND after the last.
 */
int kvpool_cache_stored_next(const struct kvpool_cache *cache, uint32_t *cursor, uint32_t *budget,
			     struct kvpool_cache_stored *out);

/* Records that kvpool_cache_check() and a whole walk of kvpool_cache_stored_next() look at. */
uint32_t kvpool_cache_records(const struct kvpool_cache *cache);

/* Evicts blocks unused for longer than the idle limit, at most `budget`. Returns how many went. */
uint32_t kvpool_cache_expire(struct kvpool_cache *cache, uint32_t budget);

/* Evicts whatever is not held. Returns how many went. For `flush` and tests. */
uint32_t kvpool_cache_flush(struct kvpool_cache *cache);

/* ---- figures ---- */

/* Bytes: total = free + ready + reserved + leased_only + quarantined + slack. */
struct kvpool_cache_usage {
	uint64_t total_bytes; /* given with kvpool_cache_memory_add() */
	uint64_t free_bytes;  /* extents without a size, and free frames */
	uint64_t ready_bytes;
	uint64_t reserved_bytes;
	uint64_t leased_only_bytes; /* forgotten, but somebody still reads them */
	uint64_t quarantined_bytes;
	uint64_t slack_bytes; /* ends of extents that no frame fits in */
	uint64_t ready_blocks;
	uint64_t reserved_blocks;
	uint64_t leased_only_blocks;
	uint64_t quarantined_blocks;
	uint64_t leases;
	uint64_t holders;
	uint64_t layouts;
	uint64_t extents;
	uint64_t extents_free;
	uint64_t metadata_bytes; /* touched memory: index, records, states, extents, leases */
	/* counters since the start */
	uint64_t matches;
	uint64_t match_keys;
	uint64_t match_hit_keys;
	uint64_t match_tokens;
	uint64_t match_hit_tokens;
	uint64_t stored;  /* blocks that became READY */
	uint64_t evicted; /* for space */
	uint64_t expired; /* for idleness */
	uint64_t forgotten;
	uint64_t corrupt;       /* blocks whose bytes were found not to be what was stored */
	uint64_t abandoned;     /* reservations that died with their client or were aborted */
	uint64_t no_space;      /* keys refused */
	uint64_t extents_moved; /* from one size to another */
};

void kvpool_cache_usage(const struct kvpool_cache *cache, struct kvpool_cache_usage *out);

struct kvpool_cache_layout_info {
	struct kvpool_wire_layout wire; /* as it was registered */
	uint32_t holders;               /* clients that registered it and are there */
	uint64_t blocks;                /* in any state */
};

/*
 * The next layout, in no order; *cursor starts with 0 and moves on. KVPOOL_STATUS_NOT_FOUND after
 * the last.
 */
int kvpool_cache_layout_info(const struct kvpool_cache *cache, uint32_t *cursor,
			     struct kvpool_cache_layout_info *out);

/*
 * Walks every structure and checks it against every other: counts, links, index, accounting.
 * 0, or -EUCLEAN with the first fault in `text`. Slow: for tests and `kvpoolctl verify`.
 */
int kvpool_cache_check(const struct kvpool_cache *cache, char *text, size_t text_bytes);

#endif
