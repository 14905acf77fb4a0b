/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache from inside: what its files share and nobody else may include (unit tests excepted).
 *
 *	catalog   what is where (index, records), in the caller's memory
 *	blocks    who holds it (leases, tree, order), private
 *	extents   memory: segments, extents, frames
 *	layouts   what bytes mean
 *	holders   clients, their leases, reservations and waits
 *	notes     what the next life must know of leases, in the caller's memory
 *
 * The tree. A block hangs on its parent (record.parent); a parent lists its children. A block with
 * children is never evicted, so whoever is found has all its ancestors, and a lease on a block
 * holds them too. Roots are listed by their layout.
 *
 * Owned by the daemon's service thread; nothing here may be called from two threads at once.
 */
#ifndef KVPOOL_SRC_CACHE_INTERNAL_H
#define KVPOOL_SRC_CACHE_INTERNAL_H

#include "src/cache.h"
#include "src/extents.h"
#include "src/index.h"
#include "src/notes.h"
#include "src/policy.h"
#include "src/slab.h"

/* Bounds on what one client makes us remember, beside leases_max. */
#define KVPOOL_WAITS_MAX          4096u
#define KVPOOL_LEASES_DEFAULT     65536u
#define KVPOOL_HOLDS_PER_LEASE    64u /* on average; see kvpool_lease_room() */
#define KVPOOL_DOMAIN_LEASES_MAX  (1u << 22)
#define KVPOOL_DOMAIN_WAITERS_MAX (1u << 20)

/* Who holds a block and what hangs on it: half a line, touched by writes and by evictions. */
struct kvpool_block {
	uint32_t leases; /* holds of leases; free: link of the slab */
	uint32_t first_child;
	uint32_t next_sibling;
	uint32_t prev_sibling;
	uint32_t order_next;  /* the policy's; 0: in no order */
	uint32_t order_prev;  /* the policy's */
	uint32_t reservation; /* RESERVED, VOID, QUARANTINED: whose; otherwise 0 */
	uint32_t mark;        /* number of the last walk that saw it */
};

KVPOOL_ASSERT_SIZE(struct kvpool_block, 32);

struct kvpool_layout {
	uint8_t fingerprint[KVPOOL_FINGERPRINT_BYTES];
	uint32_t block_tokens;
	uint16_t n_shards;
	uint16_t n_groups; /* 0: the entry is free */
	uint16_t n_full;
	uint16_t first_full; /* index of the first FULL group; n_groups where there is none */
	uint32_t holders;
	uint64_t blocks; /* in any state but FREE */
	uint32_t roots;  /* blocks without a parent, linked as siblings */
	struct kvpool_layout_group {
		uint8_t kind; /* enum kvpool_group_kind */
		uint16_t size_class;
		uint32_t window; /* tokens */
		uint32_t frame_units;
		uint64_t stride; /* bytes from shard to shard */
	} groups[KVPOOL_GROUPS_MAX];
};

/* Where a lease or a reservation comes from. */
enum kvpool_kept {
	KVPOOL_KEPT_NO = 0,        /* this life granted it */
	KVPOOL_KEPT_UNCLAIMED = 1, /* an earlier one; perhaps its client never heard of it */
	KVPOOL_KEPT_CLAIMED = 2,   /* an earlier one, and its client goes on with it */
};

/* One block that a lease holds. */
struct kvpool_hold {
	uint32_t block;
	uint32_t key; /* index in the matched list */
	uint16_t group;
	uint16_t chain; /* 1: for all keys before it too, as its ancestors */
};

struct kvpool_lease {
	uint32_t next, prev; /* of the holder; free: link of the slab */
	uint32_t generation;
	uint32_t n_holds;
	struct kvpool_holder *holder; /* borrowed; NULL: free */
	uint64_t bytes;
	uint32_t keys; /* of the prefix that it holds */
	uint16_t layout;
	uint16_t kept;            /* enum kvpool_kept */
	struct kvpool_hold *many; /* owned; NULL where `one` is all */
	struct kvpool_hold one;
};

struct kvpool_reservation {
	uint32_t next, prev; /* of the holder; free: link of the slab */
	uint32_t block;
	uint32_t waiters;             /* list of kvpool_waiter */
	struct kvpool_holder *holder; /* borrowed */
	uint64_t committed;           /* a bit for each shard */
	uint32_t crc32c;
	uint32_t shards_with_crc; /* in this life */
	uint32_t kept;            /* enum kvpool_kept */
};

/* Named by its address outside, by its index inside. */
struct kvpool_waiter {
	uint32_t next, prev; /* of the reservation; free: link of the slab */
	uint32_t holder_next, holder_prev;
	uint32_t reservation;
	uint32_t self;
	struct kvpool_holder *holder; /* borrowed */
	void *cookie;                 /* borrowed: the caller's */
};

struct kvpool_holder {
	struct kvpool_cache *cache;        /* borrowed */
	struct kvpool_holder *next, *prev; /* borrowed: the cache's list */
	uint32_t id;
	uint32_t leases, first_lease;
	uint32_t holds;
	uint64_t leased_bytes;
	uint32_t reserved, first_reservation; /* RESERVED and VOID */
	uint64_t reserved_bytes;
	uint32_t quarantined, first_quarantined;
	uint64_t quarantined_bytes;
	uint32_t kept; /* leases and reservations that an earlier life granted */
	uint32_t waits, first_wait;
	uint32_t layouts;
	uint64_t layout_bits[KVPOOL_DOMAIN_LAYOUTS_MAX / 64 + 1];
};

/* What the last MATCH left to do. `found` is the cache's scratch. */
struct kvpool_settlement {
	bool pending;
	uint16_t layout;
	uint32_t lease; /* index; 0: none */
	uint32_t n;     /* keys of the request */
	uint32_t hit;   /* L */
	uint32_t n_ranges;
	struct kvpool_settlement_range {
		const struct kvpool_wire_block *found; /* borrowed: scratch */
		uint32_t count;
		bool records; /* their records are to be touched too */
	} ranges[KVPOOL_GROUPS_MAX];
	struct kvpool_wire_block one; /* what ranges[0] points at after a match of one key */
};

/* What clients of an earlier daemon life may still read and write. See adopt.c. */
struct kvpool_past {
	struct kvpool_holder *holder; /* owned: of the blocks in quarantine; NULL: all is over */
	uint32_t *leaves; /* owned: READY blocks that it holds, with their ancestors, where not all
			     leases are known */
	uint32_t n_leaves;
	bool doubt; /* a record did not say where it lies: its writer may write anywhere */
};

/* An extent on its way from one class to another: at most one at a time. */
struct kvpool_drain {
	uint32_t extent;  /* KVPOOL_EXTENT_NONE: none */
	uint32_t slot;    /* the next to look at */
	uint32_t next;    /* where the next search for any extent starts */
	uint32_t swept;   /* extents that searches saw in vain, one after the other, ... */
	uint64_t changes; /* ... since the cache's count of changes was this */
};

struct kvpool_cache {
	struct kvpool_index index;
	struct kvpool_record *records; /* borrowed: catalog */
	struct kvpool_block *blocks;   /* borrowed: block_slab's memory */
	uint32_t tick;
	struct kvpool_settlement settlement;
	struct kvpool_slab block_slab;
	struct kvpool_slab lease_slab;
	struct kvpool_slab reservation_slab;
	struct kvpool_slab waiter_slab;
	struct kvpool_extents extents;
	struct kvpool_catalog catalog;
	struct kvpool_notes notes;
	struct kvpool_cache_config config;
	void *orders[KVPOOL_CLASSES_MAX];       /* owned: one a class in use */
	uint32_t evictions[KVPOOL_CLASSES_MAX]; /* counts to the next look at other classes */
	struct kvpool_layout layouts[KVPOOL_DOMAIN_LAYOUTS_MAX + 1];
	uint32_t layouts_fresh; /* entries ever used */
	uint32_t n_layouts;
	struct kvpool_holder *holders; /* owned list */
	uint32_t n_holders;
	struct kvpool_wire_block *scratch; /* owned: places found by a match, [group][key] */
	uint64_t scratch_blocks;
	uint64_t holds_bytes; /* of leases' lists */
	uint64_t changes;     /* grows when a block changes its state or is leased no more */
	uint32_t walk;        /* number of the current walk, see kvpool_block.mark */
	struct kvpool_drain drain;
	uint32_t expire_at; /* where the next search for idle blocks starts */
	bool growing;
	struct kvpool_cache_calls calls;
	struct kvpool_past past;
	uint64_t count[KVPOOL_BLOCK_STATES];
	uint64_t bytes[KVPOOL_BLOCK_STATES];
	struct kvpool_counters {
		uint64_t matches, match_keys, match_hit_keys, match_tokens, match_hit_tokens;
		uint64_t stored, evicted, expired, forgotten, corrupt, abandoned, no_space;
	} counters;
};

/* ---- cache.c ---- */

/* A cache over this memory, which is neither written nor looked at. As kvpool_cache_new(). */
int kvpool_cache_make(const struct kvpool_cache_config *config, void *catalog,
		      const struct kvpool_cache_calls *calls, struct kvpool_cache **out);

/* Frees a cache with all its holders, whatever it holds. Its catalog stays as it is. */
void kvpool_cache_abandon(struct kvpool_cache *cache);

/* ---- layouts.c ---- */

/* The layout that an earlier life registered under this number. 0, or why not: positive. */
int kvpool_layout_adopt(struct kvpool_cache *cache, uint16_t layout);

/* NULL where the holder did not register it. */
static inline const struct kvpool_layout *kvpool_layout_of(const struct kvpool_cache *cache,
							   const struct kvpool_holder *holder,
							   uint16_t layout)
{
	if (layout > KVPOOL_DOMAIN_LAYOUTS_MAX ||
	    !(holder->layout_bits[layout / 64] >> layout % 64 & 1))
		return NULL;
	return &cache->layouts[layout];
}

/* The holder leaves every layout. */
void kvpool_layouts_leave(struct kvpool_cache *cache, struct kvpool_holder *holder);

/* ---- blocks.c ---- */

static inline const struct kvpool_layout_group *kvpool_block_group(
	const struct kvpool_cache *cache, const struct kvpool_record *record)
{
	return &cache->layouts[record->layout].groups[record->group];
}

static inline uint64_t kvpool_block_bytes(const struct kvpool_cache *cache, uint32_t block)
{
	const struct kvpool_record *r = &cache->records[block];

	return (uint64_t)kvpool_block_group(cache, r)->frame_units << KVPOOL_UNIT_SHIFT;
}

static inline bool kvpool_block_indexed(const struct kvpool_record *record)
{
	return record->state == KVPOOL_BLOCK_READY || record->state == KVPOOL_BLOCK_RESERVED;
}

static inline struct kvpool_place kvpool_block_place(const struct kvpool_record *record)
{
	return (struct kvpool_place){record->segment, record->offset};
}

/* READY, nothing hangs on it, nobody leases it: may go. For policies. */
static inline bool kvpool_block_evictable(const struct kvpool_cache *cache, uint32_t block)
{
	const struct kvpool_block *b = &cache->blocks[block];

	return b->leases == 0 && b->first_child == 0 &&
	       cache->records[block].state == KVPOOL_BLOCK_READY;
}

static inline void kvpool_block_touch(struct kvpool_cache *cache, struct kvpool_record *record)
{
	/* Compared first: a hot line that already says so stays clean. */
	if (record->last_use != cache->tick)
		record->last_use = cache->tick;
	if (record->clock != KVPOOL_CLOCK_HOT)
		record->clock = KVPOOL_CLOCK_HOT;
}

/* Who the new block is and where it hangs and lies. */
struct kvpool_block_new {
	const uint8_t *key; /* private */
	uint16_t layout;
	uint8_t group;
	uint32_t parent; /* 0: none */
	uint32_t owner;  /* id of the holder that will write it */
	struct kvpool_place place;
};

/* Fills the taken id: a RESERVED block, indexed and linked. */
void kvpool_block_begin(struct kvpool_cache *cache, uint32_t block,
			const struct kvpool_block_new *new);

/*
 * Takes over the block of an earlier life: its id and its frame are taken, its record is right but
 * for its state, which becomes READY or RESERVED (it is in the index already), VOID or QUARANTINED.
 */
void kvpool_block_adopt(struct kvpool_cache *cache, uint32_t block, enum kvpool_block_state state);

/* Another state, with the accounting; leaves and enters the index as the states say. */
void kvpool_block_become(struct kvpool_cache *cache, uint32_t block, enum kvpool_block_state state);

/* The block does not hang on its parent any more. What that allows is done for the parent. */
void kvpool_block_detach(struct kvpool_cache *cache, uint32_t block);

/* Out of everything: frame, index, order, tree, id. Has no children, no leases, no reservation. */
void kvpool_block_end(struct kvpool_cache *cache, uint32_t block);

/* The same for one that may be evicted: its parent is likely to be the next, see relax. */
void kvpool_block_evict(struct kvpool_cache *cache, uint32_t block);

/*
 * Something that held the block is gone (a lease, a child): it may be evictable now, or, if it was
 * DEAD, end. `old`: as kvpool_policy.insert().
 */
void kvpool_block_relax(struct kvpool_cache *cache, uint32_t block, bool old);

/* One hold on the block ends. */
void kvpool_block_unhold(struct kvpool_cache *cache, uint32_t block);

/* ---- tree.c ---- */

/*
 * Whether anything at or under the block is leased, reserved or quarantined, or was used at `limit`
 * or later. Skips what this walk (cache->walk) has seen. Visits at most *budget blocks and counts
 * them off; at its end the answer is yes.
 */
bool kvpool_tree_held(struct kvpool_cache *cache, uint32_t block, uint32_t limit, uint32_t *budget);

/* Evicts the block and all under it; nothing there is held. Returns how many went. */
uint32_t kvpool_tree_evict(struct kvpool_cache *cache, uint32_t block);

/* What a walk of kvpool_tree_kill() did; starts with `giver` alone. */
struct kvpool_killed {
	const struct kvpool_holder *giver; /* gives its own reservations back; NULL: nobody */
	uint32_t ready;                    /* not found any more */
	uint32_t reserved;                 /* likewise, with those given back */
	uint32_t given;
};

/*
 * The block and all under it are not found any more. READY ones end, or are DEAD while somebody
 * leases them. RESERVED ones are VOID, or end where the giver had them, and who waits is told.
 */
void kvpool_tree_kill(struct kvpool_cache *cache, uint32_t block, struct kvpool_killed *killed);

/* ---- leases.c ---- */

/* Whether the holder may have one more lease, with so many holds. */
bool kvpool_lease_room(const struct kvpool_cache *cache, const struct kvpool_holder *holder,
		       uint32_t holds);

/*
 * A lease with a list of holds, to be filled by the caller; counts nothing until
 * kvpool_lease_settle(). 0 where there is no memory or no number left.
 */
uint32_t kvpool_lease_new(struct kvpool_cache *cache, struct kvpool_holder *holder, uint16_t layout,
			  uint32_t n_holds);
void kvpool_lease_settle(struct kvpool_cache *cache, uint32_t lease);

/* Its holds are as they will stay: the next life is to know, before anybody else does. */
void kvpool_lease_note(struct kvpool_cache *cache, uint32_t index);

void kvpool_lease_end(struct kvpool_cache *cache, uint32_t index);
void kvpool_lease_end_all(struct kvpool_cache *cache, struct kvpool_holder *holder);

static inline struct kvpool_lease *kvpool_lease_at(const struct kvpool_cache *cache, uint32_t index)
{
	return kvpool_slab_at(&cache->lease_slab, index);
}

static inline struct kvpool_hold *kvpool_lease_holds(struct kvpool_lease *lease)
{
	return lease->many ? lease->many : &lease->one;
}

/* ---- reservations.c ---- */

static inline struct kvpool_reservation *kvpool_reservation_at(const struct kvpool_cache *cache,
							       uint32_t index)
{
	return kvpool_slab_at(&cache->reservation_slab, index);
}

/* The block, RESERVED, is this holder's from now on. The slab has room. */
void kvpool_reservation_new(struct kvpool_cache *cache, struct kvpool_holder *holder,
			    uint32_t block);

/* The block's reservation, if any, ends; the block's state is the caller's matter. */
void kvpool_reservation_end(struct kvpool_cache *cache, uint32_t block);

/* The block, QUARANTINED, is this holder's from now on. The slab has room. */
void kvpool_reservation_adopt(struct kvpool_cache *cache, struct kvpool_holder *holder,
			      uint32_t block);

/* The block, RESERVED or VOID, is this holder's still; what its record says is committed, is. */
void kvpool_reservation_keep(struct kvpool_cache *cache, struct kvpool_holder *holder,
			     uint32_t block);

/* The holder's reservation of a block in this generation; NULL where there is none. */
struct kvpool_reservation *kvpool_reservation_find(const struct kvpool_cache *cache,
						   const struct kvpool_holder *holder,
						   uint32_t block, uint32_t generation);

/* Nobody writes this block, RESERVED or VOID: it goes, and what hangs on it can not commit. */
void kvpool_reservation_drop(struct kvpool_cache *cache, uint32_t block);

/* All of a holder's become quarantined; and: what is quarantined ends. */
void kvpool_reservation_quarantine_all(struct kvpool_cache *cache, struct kvpool_holder *holder);
void kvpool_reservation_free_all(struct kvpool_cache *cache, struct kvpool_holder *holder);

/* ---- adopt_leases.c ---- */

/*
 * The leases of the holders that there are, from the notes of an earlier life; blocks are adopted.
 * Others' notes are emptied. *exact is false where not all that is leased is known. -ENOMEM.
 */
int kvpool_leases_adopt(struct kvpool_cache *cache, const struct kvpool_cache_left *left,
			struct kvpool_cache_adopted *result, bool *exact);

/* ---- waiters.c ---- */

void kvpool_waiter_wake_all(struct kvpool_cache *cache, struct kvpool_reservation *reservation,
			    enum kvpool_status status);
void kvpool_waiter_drop_all(struct kvpool_cache *cache, struct kvpool_holder *holder);

static inline struct kvpool_waiter *kvpool_waiter_at(const struct kvpool_cache *cache,
						     uint32_t index)
{
	return kvpool_slab_at(&cache->waiter_slab, index);
}

/* ---- evict.c ---- */

/*
 * Whether something in the extent, or under what is there, is held: as kvpool_tree_held(), and of
 * the same walk.
 */
bool kvpool_extent_held(struct kvpool_cache *cache, uint32_t extent, uint32_t limit,
			uint32_t *budget);

/* What one request has learnt about space, so that it does not ask again for each key. */
struct kvpool_space {
	bool no_more;                  /* `more` has nothing */
	bool full[KVPOOL_CLASSES_MAX]; /* nothing of or for this class can be evicted */
};

/*
 * A frame and an id for a new block, evicting where needed. 0 or the enum kvpool_no_space reason
 * TABLE, or QUOTA where there is no memory: see kvpool_space_reason().
 */
int kvpool_space_take(struct kvpool_cache *cache, struct kvpool_space *space, uint16_t size_class,
		      uint32_t *block, struct kvpool_place *place);

/* Why nothing can be evicted, and the id of the client that holds most. */
uint16_t kvpool_space_reason(const struct kvpool_cache *cache, uint32_t *holder);

#endif
