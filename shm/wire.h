/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels in the rings: requests, replies, and what lies in the arena beside them.
 *
 * Requests are written by a client and believed by nobody: the daemon copies an entry once and
 * checks the copy. Replies are written by the daemon; a client checks their bounds all the same.
 * All numbers are little-endian. PROTOCOL.md says the same in prose.
 */
#ifndef KVPOOL_SHM_WIRE_H
#define KVPOOL_SHM_WIRE_H

#include "shm/base.h"
#include "shm/limits.h"

#define KVPOOL_PAYLOAD_BYTES 56u

enum kvpool_op {
	KVPOOL_OP_NOP = 0,     /* answered with OK: a ping */
	KVPOOL_OP_LAYOUT = 1,  /* arena: struct kvpool_wire_layout */
	KVPOOL_OP_MATCH = 2,   /* keys in, longest usable prefix out */
	KVPOOL_OP_WAIT = 3,    /* until a block that is being written is READY or abandoned */
	KVPOOL_OP_RESERVE = 4, /* keys in, places to write out */
	KVPOOL_OP_COMMIT = 5,  /* blocks in: one shard of each is written */
	KVPOOL_OP_ABORT = 6,   /* blocks in: give the reservations back */
	KVPOOL_OP_RELEASE = 7, /* a lease, or its tail; never answered */
	KVPOOL_OP_FORGET = 8,  /* keys, or a whole layout, are no longer true */
	KVPOOL_OP_SUMS = 9,    /* blocks in, the checksums of their COMMITs out */
	KVPOOL_OP_DROP = 10,   /* blocks in: their bytes are not what was stored */
	KVPOOL_OP_CLAIM = 11,  /* after RESUME: what this process still holds */
	KVPOOL_OP_COUNT = 12,
};

enum kvpool_request_flag {
	KVPOOL_REQUEST_INLINE_KEY = 1u << 0, /* n is 1 and the key is in the entry */
	KVPOOL_REQUEST_NO_LEASE = 1u << 1,   /* MATCH: look only */
	KVPOOL_REQUEST_PENDING = 1u << 2, /* MATCH: count what others are writing after the hit */
	KVPOOL_REQUEST_HAS_PARENT =
		1u << 3, /* RESERVE: arena holds the parent's key before the n keys */
	KVPOOL_REQUEST_WHOLE_LAYOUT = 1u << 4, /* FORGET: every block of the layout */
	KVPOOL_REQUEST_HAS_CRC = 1u << 5,      /* COMMIT: the checksum field of each block counts */
	KVPOOL_REQUEST_ALL_SHARDS = 1u << 6,   /* COMMIT: every shard at once, `shard` is ignored */
	KVPOOL_REQUEST_LAST = 1u << 7,         /* CLAIM: this process claims no more */
	KVPOOL_REQUEST_FLAGS = (1u << 8) - 1,
};

enum kvpool_status {
	KVPOOL_STATUS_OK = 0,
	KVPOOL_STATUS_INVALID = 1,   /* a field is out of its bounds; the channel stays usable */
	KVPOOL_STATUS_NO_LAYOUT = 2, /* this client did not register the layout that it names */
	KVPOOL_STATUS_GEOMETRY = 3,  /* LAYOUT: the fingerprint is known with another geometry */
	KVPOOL_STATUS_LIMIT = 4,     /* the client holds as much of this kind as it may */
	KVPOOL_STATUS_STALE = 5,     /* the handle's generation is over */
	KVPOOL_STATUS_NOT_FOUND = 6, /* WAIT: nobody has the block and nobody is writing it */
	KVPOOL_STATUS_TIMEOUT = 7,   /* WAIT: still being written at the deadline */
	KVPOOL_STATUS_ABANDONED = 8, /* WAIT: its writer gave it up or died */
	KVPOOL_STATUS_EXISTS = 9,    /* RESERVE, a key: READY already */
	KVPOOL_STATUS_BUSY = 10,     /* RESERVE, a key: somebody is writing it */
	KVPOOL_STATUS_NO_SPACE = 11, /* RESERVE, a key: see enum kvpool_no_space */
	KVPOOL_STATUS_NO_PARENT =
		12, /* RESERVE, a key: its parent is neither resident nor reserved */
	KVPOOL_STATUS_READ_ONLY = 13, /* a reader-only member may not do this */
	KVPOOL_STATUS_DRAINING = 14,  /* the daemon is about to leave */
	KVPOOL_STATUS_TOO_LARGE = 15, /* LAYOUT: a block does not fit in an extent */
	KVPOOL_STATUS_COUNT = 16,
};

/* Why there is no space, and so who holds it. */
enum kvpool_no_space {
	KVPOOL_NO_SPACE_NONE = 0,
	KVPOOL_NO_SPACE_LEASED = 1,   /* readers hold what could be evicted */
	KVPOOL_NO_SPACE_RESERVED = 2, /* writers do */
	KVPOOL_NO_SPACE_GROWING = 3,  /* the pool is still being made: ask again */
	KVPOOL_NO_SPACE_QUOTA = 4,    /* the client's or the domain's own limit */
	KVPOOL_NO_SPACE_TABLE = 5,    /* the block table is full */
};

enum kvpool_group_kind {
	KVPOOL_GROUP_FULL = 1,   /* needs the blocks of every token */
	KVPOOL_GROUP_WINDOW = 2, /* needs the blocks of the last `window` tokens */
	KVPOOL_GROUP_STATE = 3,  /* needs a snapshot exactly at the end */
};

/* A block's name and place; 16 bytes, so that four share a cache line. */
struct kvpool_wire_block {
	uint32_t block;      /* 0: none, then `generation` is an enum kvpool_status */
	uint32_t generation; /* of the block; a handle with another one is over */
	uint32_t segment;    /* where none: an enum kvpool_no_space */
	uint32_t offset;     /* units of KVPOOL_UNIT_BYTES from the start of the segment */
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_block, 16);

/* What COMMIT, ABORT, SUMS and DROP read for each block. */
struct kvpool_wire_handle {
	uint32_t block;
	uint32_t generation;
	uint32_t crc32c; /* COMMIT with HAS_CRC; otherwise 0 */
	uint32_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_handle, 16);

enum kvpool_sum_state {
	KVPOOL_SUM_NONE = 0,  /* stored without one, or not all shards had one */
	KVPOOL_SUM_GIVEN = 1, /* `crc32c` is the XOR over the shards, each rotated left by its
				 number */
	KVPOOL_SUM_STALE = 2, /* no such block any more, or not written yet */
};

/* What SUMS writes for each block. */
struct kvpool_wire_sum {
	uint32_t crc32c;
	uint32_t state; /* enum kvpool_sum_state */
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_sum, 8);

/* What CLAIM reads for each lease, or reserved block. */
struct kvpool_wire_claim {
	uint64_t lease; /* 0: a block */
	uint32_t block;
	uint32_t generation;
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_claim, 16);

struct kvpool_wire_group {
	uint32_t kind;       /* enum kvpool_group_kind */
	uint32_t window;     /* tokens; 0 unless kind is WINDOW */
	uint64_t slot_bytes; /* of one shard of one block */
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_group, 16);

struct kvpool_wire_layout {
	uint8_t fingerprint[KVPOOL_FINGERPRINT_BYTES];
	uint32_t block_tokens;
	uint16_t n_groups;
	uint16_t n_shards;
	char label[KVPOOL_NAME_BYTES]; /* for people; NUL-terminated, printable */
	struct kvpool_wire_group groups[KVPOOL_GROUPS_MAX];
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_layout, 360);

/* After LAYOUT, the arena at `result` holds this. The stride parts the shards of a block. */
struct kvpool_wire_layout_result {
	uint64_t shard_stride[KVPOOL_GROUPS_MAX]; /* bytes from one shard of a block to the next */
};

/* MATCH's result: this for each group in the layout's order, then the blocks, group by group. */
struct kvpool_wire_range {
	uint32_t first; /* index in the key list of the group's first reported block */
	uint32_t count; /* blocks reported for the group */
};

KVPOOL_ASSERT_SIZE(struct kvpool_wire_range, 8);

/*
 * One request. `keys` and `result` are offsets in the arena; both are multiples of 16.
 *
 * op       n             keys                       result (capacity)         others
 * LAYOUT   0             struct kvpool_wire_layout  .._layout_result
 * MATCH    keys          32-byte keys               ranges, then blocks       skip; result_blocks
 * WAIT     1, inline     -                          -                         group, timeout_ns
 * RESERVE  keys          [parent,] keys             a block for each key      group
 * COMMIT   blocks        struct kvpool_wire_handle  -                         shard
 * ABORT    blocks        struct kvpool_wire_handle  -
 * RELEASE  -             -                          -                         lease, keep
 * FORGET   keys          keys                       -                         group; whole layout
 * SUMS     blocks        struct kvpool_wire_handle  struct kvpool_wire_sum
 * DROP     blocks        struct kvpool_wire_handle  -
 * CLAIM    claims        struct kvpool_wire_claim   -                         n may be 0 with LAST
 *
 * With INLINE_KEY, n is 1 and the key (or for COMMIT and ABORT the handle, in its first 16 bytes)
 * is in the entry. The place then comes back in the reply: for RESERVE always, for MATCH only with
 * layouts of one group (others are refused as INVALID: ask through the arena). A RESERVE with
 * INLINE_KEY and HAS_PARENT has the parent's key alone in the arena at `keys`.
 */
struct kvpool_request {
	uint8_t op; /* enum kvpool_op */
	uint8_t flags;
	uint16_t layout; /* as LAYOUT answered */
	uint32_t id;     /* the client's own; comes back in the reply */
	uint32_t n;
	uint32_t keys;
	union {
		uint32_t result;
		uint32_t keep; /* RELEASE: leading blocks of the prefix to hold on to; 0: none */
	};
	union {
		uint32_t skip;  /* MATCH: leading keys whose blocks the engine has: counted, not
				   reported */
		uint32_t group; /* RESERVE, WAIT, FORGET: index of the group */
		uint32_t shard; /* COMMIT */
	};
	union {
		uint8_t key[KVPOOL_KEY_BYTES];
		struct kvpool_wire_handle handle;
		uint64_t lease; /* RELEASE */
		struct {
			uint32_t result_blocks; /* MATCH: blocks that fit in the result, all groups
						 */
		} match;
	};
};

KVPOOL_ASSERT_SIZE(struct kvpool_request, KVPOOL_PAYLOAD_BYTES);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, id, 4);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, n, 8);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, keys, 12);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, result, 16);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, skip, 20);
KVPOOL_ASSERT_OFFSET(struct kvpool_request, key, 24);

/* WAIT's key is inline; its timeout needs a place of its own: `keys` and `result` hold it. */
static inline uint64_t kvpool_request_timeout_ns(const struct kvpool_request *r)
{
	return (uint64_t)r->result << 32 | r->keys;
}

static inline void kvpool_request_set_timeout_ns(struct kvpool_request *r, uint64_t ns)
{
	r->keys = (uint32_t)ns;
	r->result = (uint32_t)(ns >> 32);
}

struct kvpool_reply {
	uint32_t id;     /* the request's */
	uint16_t status; /* enum kvpool_status of the request as a whole */
	uint16_t detail; /* enum kvpool_no_space, where status or a key says NO_SPACE */
	union {
		uint32_t blocks;  /* MATCH: length of the usable prefix, in keys */
		uint32_t granted; /* RESERVE: keys that got a place; COMMIT, ABORT, FORGET, DROP:
				     blocks done; SUMS: those with a checksum; CLAIM: what
				     is there */
		uint32_t layout;  /* LAYOUT: its id, for this client */
	};
	union {
		uint32_t pending; /* MATCH: keys more, were all that is being written READY */
		uint32_t holder;  /* RESERVE with NO_SPACE: the client that holds most of it */
		uint32_t extent;  /* LAYOUT with TOO_LARGE: what a block may take, in units */
	};
	uint64_t lease; /* MATCH: 0 where nothing is held */
	uint64_t epoch;
	struct kvpool_wire_block block; /* with INLINE_KEY */
	uint32_t reported;              /* MATCH: blocks in the result, all groups */
	uint32_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_reply, KVPOOL_PAYLOAD_BYTES);
KVPOOL_ASSERT_OFFSET(struct kvpool_reply, blocks, 8);
KVPOOL_ASSERT_OFFSET(struct kvpool_reply, lease, 16);
KVPOOL_ASSERT_OFFSET(struct kvpool_reply, epoch, 24);
KVPOOL_ASSERT_OFFSET(struct kvpool_reply, block, 32);

#endif
