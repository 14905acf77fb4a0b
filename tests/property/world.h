/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache under test and the plain model beside it: which blocks there should be, who writes them,
 * who reads them, which bytes lie where. Written from the text of src/cache.h.
 *
 * The cache may choose what it evicts, where it puts a block and which handle it gives; the model
 * learns these answers and checks that each was allowed. Everything else it predicts. Owned by the
 * test's only thread.
 */
#ifndef KVPOOL_TESTS_WORLD_H
#define KVPOOL_TESTS_WORLD_H

#include "src/cache.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	NODES = 36, /* keys there are: a tree of prefixes */
	LAYOUTS = 3,
	GROUPS = 4,
	BLOCKS = LAYOUTS * GROUPS * NODES,
	HOLDERS = 4,
	LEASES = 64,
	LIMBOS = 4096,
	WAITERS = 32,
	SEGMENTS = 6,
	LIST_MAX = 24, /* keys in one request */
};

#define EXTENT_BYTES  UINT64_C(16384)
#define SEGMENT_BYTES UINT64_C(65536)

enum block_state {
	BLOCK_ABSENT = 0,
	BLOCK_RESERVED = 1,
	BLOCK_READY = 2,
};

/* One possible block: a layout, a group of it, a key. */
struct block {
	enum block_state state;
	int holder;         /* RESERVED: who writes it */
	uint64_t committed; /* RESERVED: a bit a shard */
	int parent;         /* index of the block that it hangs on; -1: none */
	struct kvpool_wire_block place;
	uint64_t stamp;   /* what its bytes say */
	uint64_t used_ms; /* when it was used for certain */
};

struct layout {
	struct kvpool_wire_layout wire;
	uint64_t stride[GROUPS];
	uint64_t frame[GROUPS];
	int first_full; /* group; -1: none */
};

enum holder_state {
	HOLDER_NONE = 0,
	HOLDER_LIVE = 1,
	HOLDER_QUARANTINED = 2,
};

struct holder {
	enum holder_state state;
	struct kvpool_holder *cache; /* borrowed from the cache */
	uint32_t id;
	bool has[LAYOUTS];
	uint16_t ids[LAYOUTS];
};

/* A block that a lease holds, as it was reported. */
struct item {
	int block;
	int parent;
	uint32_t key; /* index in the key list */
	struct kvpool_wire_block place;
	uint64_t stamp;
};

struct lease {
	uint64_t id; /* 0: not used */
	int holder;
	uint32_t length;
	bool faint; /* all that it reported was given back: it may be over */
	uint32_t n;
	struct item items[GROUPS * LIST_MAX];
	/* FULL blocks of skipped keys: not reported, and so not promised, but perhaps held. */
	uint32_t n_below;
	struct item below[GROUPS * LIST_MAX];
};

/* A reservation that nobody finds any more, and whose writer may still write. */
struct limbo {
	int block;
	int parent;
	int holder;
	bool quarantined;
	bool dead; /* dropped with what it hung on, or forgotten: which figure counts it is open */
	bool firm; /* its frame must not be given out; false: the text leaves it open */
	uint64_t committed; /* a bit a shard: with the last one its writers are done */
	struct kvpool_wire_block place;
};

struct waiter {
	bool used;
	struct kvpool_waiter *cache; /* borrowed from the cache */
	int holder;
	int block;
	bool due;       /* a wake-up must have come by the end of this step */
	uint32_t wakes; /* at most one may ever come */
	enum kvpool_status expected, got;
};

struct segment {
	uint32_t id;    /* 0: not used */
	uint8_t *bytes; /* owned */
	bool given[SEGMENT_BYTES / EXTENT_BYTES];
};

/* How often the rare things happened, so that a run that never met them fails. */
struct seen {
	uint64_t granted, exists, busy, no_parent, no_space, table, quota, too_large;
	uint64_t evicted, expired, flushed, moved, taken, take_busy, leased, hits, pending;
	uint64_t quarantined, forgotten_leased, dead_commits, aborted, woken_ok, woken_abandoned;
	uint64_t more, partial;
};

struct world {
	uint64_t seed;
	uint64_t random;
	uint64_t step;
	struct kvpool_cache_config config;
	struct kvpool_cache *cache; /* owned */
	void *catalog;              /* owned: mapped */
	uint64_t catalog_bytes;
	uint64_t now_ms;
	bool growing;
	bool calm;             /* deaths, FORGETs and flushes are rare: the pool fills */
	uint32_t segments_max; /* of the cache */
	bool more_allowed;     /* the callback may add an extent now */
	uint64_t more_asked;
	int parents[NODES]; /* the tree of keys; -1: root */
	uint8_t keys[NODES][KVPOOL_KEY_BYTES];
	struct layout layouts[LAYOUTS];
	struct block blocks[BLOCKS];
	struct holder holders[HOLDERS];
	struct kvpool_holder *observer; /* owned: has every layout, leases nothing */
	uint16_t observer_ids[LAYOUTS];
	uint32_t next_holder, next_segment;
	struct lease leases[LEASES];
	struct limbo limbos[LIMBOS];
	uint32_t n_limbos;
	struct waiter waiters[WAITERS];
	struct segment segments[SEGMENTS];
	uint64_t stamps;
	struct kvpool_cache_usage usage; /* as it was after the step before */
	struct seen *seen;               /* borrowed */
};

/* Prints the seed, the step, the last operations and the message, and ends the process. */
void world_fail(const struct world *w, const char *format, ...) KVPOOL_PRINTF(2, 3)
	__attribute__((noreturn));

#define WORLD_CHECK(w, condition, ...)                              \
	do {                                                        \
		if (!(condition))                                   \
			world_fail(w, #condition ": " __VA_ARGS__); \
	} while (0)

/* One line of the log of operations. */
void world_log(struct world *w, const char *format, ...) KVPOOL_PRINTF(2, 3);

uint64_t world_random(struct world *w, uint64_t below);
bool world_chance(struct world *w, uint64_t percent);

struct world *world_new(uint64_t seed, struct seen *seen);
void world_free(struct world *w);

static inline int block_index(int layout, int group, int node)
{
	return (layout * GROUPS + group) * NODES + node;
}

static inline int block_layout(int block)
{
	return block / (GROUPS * NODES);
}

static inline int block_group(int block)
{
	return block / NODES % GROUPS;
}

static inline int block_node(int block)
{
	return block % NODES;
}

uint64_t block_frame(const struct world *w, int block);
/* A bit for this shard of the block, or for each where it is UINT32_MAX. */
uint64_t shard_bits(const struct world *w, int block, uint32_t shard);
bool place_equal(const struct kvpool_wire_block *a, const struct kvpool_wire_block *b);

/* A live holder, or -1. With a layout that it has, where `layout` is not NULL. */
int world_pick_holder(struct world *w, int *layout);

/* The nodes from a root down to a random one, LIST_MAX at most. Sometimes in a wrong order. */
uint32_t world_path(struct world *w, int nodes[LIST_MAX]);

/* ---- memory.c: bytes of blocks and of segments ---- */

struct segment *world_segment(struct world *w, uint32_t id);
/* Gives the cache an extent, or a whole new segment. Whether there was one to give. */
bool world_add_memory(struct world *w);
void world_drop_segment(struct world *w, struct segment *s);
void stamp_write(struct world *w, int block, const struct kvpool_wire_block *place, uint64_t stamp);
void stamp_check(struct world *w, int block, const struct kvpool_wire_block *place, uint64_t stamp);
/* A frame that was just given out: lies in an extent that was given, touches no other. */
void place_check(struct world *w, int block);

/* ---- observe.c: what is there, and whether that is allowed ---- */

/* Blocks that must stay: leased, being written, and what these hang on. */
void world_pinned(const struct world *w, bool pinned[BLOCKS]);
/* Those, and blocks of which the text leaves open whether the cache may drop them now. */
void world_maybe_pinned(const struct world *w, bool pinned[BLOCKS]);
/* Compares every block with the model and checks the accounting. `may_evict`: fewer are allowed. */
uint32_t world_observe(struct world *w, bool may_evict);
/* Why the text obliges the cache to find a frame for this block, which hangs on `parent`, or NULL.
 */
const char *world_could_fit(const struct world *w, int block, int parent);

/* ---- model.c: what an operation does to the model ---- */

/* Who made blocks disappear, and so what becomes of the reservations among them. */
struct drop {
	enum {
		DROP_ABORT,
		DROP_FORGET,
		DROP_QUARANTINE
	} why;
	int holder; /* who asked, or died */
};

/* The block and all that hangs on it stop being found. Returns how many. */
uint32_t model_drop(struct world *w, int block, const struct drop *drop);
/* The holder gives up a frame in limbo: all of its, or that of a handle. Whether there was one. */
bool model_limbo_end(struct world *w, int holder, const struct kvpool_wire_handle *handle);
/* The holder says that it wrote a shard (or all) of a frame in limbo. Whether there was one. */
bool model_limbo_commit(struct world *w, int holder, const struct kvpool_wire_handle *handle,
			uint32_t shard);
/* Whoever waits for this block must have been woken when the step is over. */
void model_wake(struct world *w, int block, enum kvpool_status status);
void model_woken(void *cookie, enum kvpool_status status);

/* ---- steps: one random operation each ---- */

void step_layout(struct world *w);
void step_reserve(struct world *w);
void step_commit(struct world *w);
void step_abort(struct world *w);
void step_match(struct world *w);
void step_release(struct world *w);
void step_wait(struct world *w);
void step_wait_cancel(struct world *w);
void step_forget(struct world *w);
void step_holder(struct world *w);
void step_time(struct world *w);
void step_flush(struct world *w);
void step_memory(struct world *w);

#endif
