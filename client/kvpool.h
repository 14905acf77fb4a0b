/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool: find, read and fill the KV cache blocks that the processes of one host share.
 *
 * A `struct kvpool` is a process's membership of one client (an engine); a `struct kvpool_channel`
 * is one thread's way to the daemon. Open the first once, one of the second in each thread.
 *
 * Threads: a channel and what is called with it belong to one thread at a time. Functions that take
 * a `struct kvpool` may be called from any thread, except kvpool_close(), which comes last.
 *
 * Errors: 0 or a count is success, a negative errno is failure, kvpool_error() has a sentence
 * about it. Every failure is a miss: the engine computes, as if the pool were not there. None is
 * fatal and none blocks beyond the deadline. Out-parameters are untouched on failure.
 *
 *	-ENOTCONN   no daemon, or it went away; the library attaches again by itself
 *	-ETIMEDOUT  the deadline passed
 *	-ESTALE     a lease, block or layout of a client's life that is over; and while no daemon
 *	            is there nobody says what its blocks hold
 *	-ENOSPC     no place for a block: kvpool_no_space_text() says who holds it
 *	-EEXIST, -EBUSY, -ENOENT, -ECANCELED   documented where they occur
 *	-EINVAL, -E2BIG, -EDQUOT, -EACCES, -ENOMEM, -EPROTO   as usual
 *	-EOWNERDEAD the handle was inherited through fork(): open an own one
 *
 * Deadlines are relative, in nanoseconds; 0 takes the handle's default (kvpool_options).
 *
 * Restarts: where the pool outlives the daemon (kvpoold(8) under a supervisor), so does the client.
 * The library attaches again by itself with the next call, and goes on: leases and reservations
 *that the caller has, their blocks' addresses, the epoch that they carry and the token stay good,
 *and nothing need be done about it. Calls that the daemon died under have failed, and what they
 *would have brought is nobody's. Where the pool is lost, or the client was ended meanwhile, a new
 *life of the client begins, with another epoch and token: leases are forgotten, reservations are
 *-ESTALE.
 *
 * No signal handlers, no threads, no global state, no output.
 */
#ifndef KVPOOL_H
#define KVPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define KVPOOL_VERSION_MAJOR 0
#define KVPOOL_VERSION_MINOR 2

#define KVPOOL_KEY_SIZE 32

struct kvpool;
struct kvpool_channel;
struct kvpool_layout;

struct kvpool_options {
	size_t size;          /* sizeof(struct kvpool_options), so that it can grow */
	const char *socket;   /* NULL: $KVPOOL_SOCKET, /run/kvpool/kvpool.sock,
				 $XDG_RUNTIME_DIR/kvpool.sock */
	const char *name;     /* shown by kvpoolctl; NULL: the program's name */
	uint64_t deadline_ns; /* of a call that gives none; 0: 50 ms */
	uint64_t spin_ns; /* how long a call spins before it sleeps, cut short by itself where that
			     never helps; 0: 50 us; UINT64_MAX: never sleep */
	uint32_t ring_entries; /* of a channel; a power of two; 0: 64 */
	uint32_t flags;        /* enum kvpool_open_flag */
	uint64_t arena_bytes; /* of a channel: bounds the keys of one call; 0: 2 MiB (32768 keys) */
	const uint8_t *join;  /* 16-byte token of a client to join; NULL: be a client of one's own.
				 Tokens end with their client, and so with a daemon that keeps no
				 pool: after it a member goes on as a client of its own */
};

enum kvpool_open_flag {
	KVPOOL_OPEN_READ_ONLY = 1u << 0, /* map blocks so that the kernel refuses writes */
	KVPOOL_OPEN_REQUIRE = 1u << 1,   /* fail with -ENOTCONN where no daemon answers now */
};

/*
 * Makes a handle. Without KVPOOL_OPEN_REQUIRE it succeeds with no daemon there: calls miss until
 * one is. `options` may be NULL. -EINVAL, -ENOMEM, -ENAMETOOLONG (socket path); with REQUIRE also
 * -ENOTCONN, -EACCES, -EPROTO.
 */
int kvpool_open(const struct kvpool_options *options, struct kvpool **out);

/*
 * Ends leases and reservations of this process's channels and unmaps the blocks. Takes NULL. With
 * it go channels that are still open, and layouts. In a child of fork() it only frees what the
 * child inherited.
 */
void kvpool_close(struct kvpool *pool);

/* 1 where attached now, 0 where not. Makes no call to the daemon. */
int kvpool_attached(struct kvpool *pool);

/*
 * The token with which further processes of this engine join (16 bytes); good for the client's
 * life, also over restarts of the daemon that the client outlives. -ENOTCONN.
 */
int kvpool_token(struct kvpool *pool, uint8_t token[16]);

/* What went wrong last with attaching; never NULL; valid until the next call. */
const char *kvpool_error(const struct kvpool *pool);

/* What went wrong last on this channel; never NULL; valid until the next call on it. */
const char *kvpool_channel_error(const struct kvpool_channel *channel);

/*
 * One thread's way to the daemon. Succeeds with no daemon there, as kvpool_open() does. -ENOMEM,
 * -EOWNERDEAD.
 */
int kvpool_channel_open(struct kvpool *pool, struct kvpool_channel **out);

/* What was taken through it stays held until it is given back by another channel. Takes NULL. */
void kvpool_channel_close(struct kvpool_channel *channel);

/* ---- layouts ---- */

enum kvpool_group {
	KVPOOL_FULL = 1,   /* layers that need the blocks of every token */
	KVPOOL_WINDOW = 2, /* layers that need the last `window` tokens */
	KVPOOL_STATE = 3,  /* layers that need a snapshot at the end of the prefix */
};

struct kvpool_group_spec {
	uint32_t kind;       /* enum kvpool_group */
	uint32_t window;     /* tokens; WINDOW only */
	uint64_t slot_bytes; /* of one shard of one block in this group */
};

/* What must be equal for two processes to share bytes. Strings may be NULL; copied. */
struct kvpool_layout_spec {
	size_t size; /* sizeof(struct kvpool_layout_spec) */
	const char *engine, *hash_algorithm, *hash_seed;
	const char *model, *revision; /* identity of the weights: contents, not names */
	const char *adapter;
	const char *dtype, *order;
	const char *label;     /* for people, at most 63 bytes */
	uint32_t block_tokens; /* tokens a block */
	uint32_t n_shards;     /* tensor- or pipeline-parallel ranks; at least 1 */
	uint32_t n_groups;     /* 1..16 */
	const struct kvpool_group_spec *groups;
};

/*
 * Describes a layout; the daemon learns of it with the first call that uses it, and again after it
 * was restarted. Belongs to the handle until kvpool_close(); usable from every channel. -EINVAL,
 * -ENOMEM.
 */
int kvpool_layout(struct kvpool *pool, const struct kvpool_layout_spec *spec,
		  struct kvpool_layout **out);

/* SHA-256 that names the layout (32 bytes). */
const uint8_t *kvpool_layout_fingerprint(const struct kvpool_layout *layout);

/*
 * Chained SHA-256 keys of the whole blocks of `tokens`, with the layout in the first link (and
 * `salt`, if any). `parent`: go on after this key. Returns the number of keys written to `keys`
 * (n_tokens / block_tokens, 32 bytes each), -EINVAL, -EIO.
 */
int64_t kvpool_keys(const struct kvpool_layout *layout, const void *salt, size_t salt_bytes,
		    const uint8_t *parent, const uint32_t *tokens, size_t n_tokens, uint8_t *keys);

/* ---- reading ---- */

struct kvpool_block {
	uint32_t block, generation; /* handle */
	uint32_t segment, offset;   /* place; offset in units of 256 bytes */
	uint64_t epoch;             /* of the client's life that gave it, the same in all its
				       members and in every daemon life that it resumes in: numbers
				       come again in the next */
};

struct kvpool_range {
	uint32_t first; /* index of the key of the group's first block */
	uint32_t count;
};

struct kvpool_match {
	uint32_t blocks;   /* usable prefix, in keys */
	uint32_t pending;  /* keys that the prefix would gain, were all that is written READY */
	uint32_t reported; /* entries written to `out` */
	uint32_t n_groups;
	struct kvpool_range
		groups[16]; /* of each group, in order; their blocks follow one another */
	uint64_t lease;     /* 0: nothing is held */
	uint64_t epoch;     /* as in its blocks */
};

enum kvpool_match_flag {
	KVPOOL_MATCH_NO_LEASE = 1u << 1, /* look only: blocks may go at any time */
	KVPOOL_MATCH_PENDING = 1u << 2,  /* fill `pending` */
};

/*
 * The longest prefix of `keys` (n, 32 bytes each, chained) that is resident, leased so that it
 * stays until kvpool_release(). `skip`: leading keys whose blocks the caller has already: counted,
 * not reported. `out` takes up to `capacity` blocks; a match never reports more than (n - skip) a
 * group; with capacity 0 only the length is told. Returns match->blocks. -E2BIG: more keys than the
 * arena holds. -EINVAL: more blocks than `capacity`.
 */
int64_t kvpool_match(struct kvpool_channel *channel, struct kvpool_layout *layout,
		     const uint8_t *keys, uint32_t n, uint32_t skip, uint32_t flags,
		     uint64_t deadline_ns, struct kvpool_block *out, uint32_t capacity,
		     struct kvpool_match *match);

/*
 * Gives a match's lease back; never waits. `keep`: leading keys to hold on to, 0: none. Where no
 * daemon hears of it now, the next one is told; a lease of a client's life that is over is
 * forgotten silently.
 */
void kvpool_release(struct kvpool_channel *channel, const struct kvpool_match *match,
		    uint32_t keep);

/*
 * Until the block of `key` is READY. 0: it is. -ENOENT: nobody is writing it. -ECANCELED: its
 * writer gave it up. -ETIMEDOUT: still being written after timeout_ns.
 */
int kvpool_wait(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		const uint8_t *key, uint64_t timeout_ns);

/* ---- writing ---- */

/*
 * Places to write the blocks of `keys`. `parent`: key before keys[0], NULL where a chain starts.
 * out[i].block is 0 where there is none; out[i].generation then says why: enum kvpool_reserve_code.
 * Returns how many were granted. What was granted must be committed or aborted.
 */
int64_t kvpool_reserve(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		       const uint8_t *parent, const uint8_t *keys, uint32_t n, uint64_t deadline_ns,
		       struct kvpool_block *out);

enum kvpool_reserve_code {
	KVPOOL_RESERVE_EXISTS = 9,
	KVPOOL_RESERVE_BUSY = 10,
	KVPOOL_RESERVE_NO_SPACE = 11,
	KVPOOL_RESERVE_NO_PARENT = 12,
};

/* Why the last kvpool_reserve() on this channel found no space and who holds it; never NULL. */
const char *kvpool_no_space_text(const struct kvpool_channel *channel);

/*
 * The bytes of one shard (KVPOOL_ALL_SHARDS: of all) of these blocks are written. A block can be
 * found once its last shard is committed. Entries with block 0 are skipped. Returns how many blocks
 * were taken; -ESTALE where none was.
 */
#define KVPOOL_ALL_SHARDS UINT32_MAX
int64_t kvpool_commit(struct kvpool_channel *channel, const struct kvpool_block *blocks, uint32_t n,
		      uint32_t shard, uint64_t deadline_ns);

/*
 * The same with a CRC32C a block, stored beside it: of the shard's slot_bytes as they lie in the
 * pool. With KVPOOL_ALL_SHARDS it is the XOR of all shards', each rotated left by its number in 32
 * bits. See "checksums" below.
 */
int64_t kvpool_commit_crc(struct kvpool_channel *channel, const struct kvpool_block *blocks,
			  const uint32_t *crc32c, uint32_t n, uint32_t shard, uint64_t deadline_ns);

/*
 * Gives reservations back unwritten. Returns how many; -ESTALE where none was. Where the daemon did
 * not hear of it by the deadline, it is told with a later call.
 */
int64_t kvpool_abort(struct kvpool_channel *channel, const struct kvpool_block *blocks, uint32_t n,
		     uint64_t deadline_ns);

/* Drops the blocks of these keys and all that follow them. n 0: the whole layout. Returns how many.
 */
int64_t kvpool_forget(struct kvpool_channel *channel, struct kvpool_layout *layout, uint32_t group,
		      const uint8_t *keys, uint32_t n, uint64_t deadline_ns);

/* ---- bytes ---- */

/*
 * The address of one shard of a block in this process; its segment is mapped on first use. Good
 * while the block is leased or reserved, also after the daemon died and when the client resumed in
 * its next life: blocks stay mapped until this process gave back what it held. Where a client has
 * several members, one cannot know what the others hold: then a client's life that addresses were
 * handed out of stays mapped until kvpool_close(). Mapped does not mean unchanged: see
 * kvpool_check(). -ENOTCONN, -ESTALE, -EINVAL.
 */
int kvpool_pointer(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		   uint32_t group, const struct kvpool_block *block, uint32_t shard, void **out);

/*
 * For whoever read through kvpool_pointer() what a lease holds: first read, then ask. 0: what was
 * read until now is what was leased, also if a daemon died meanwhile and the client resumed.
 * -ESTALE: nobody says so (no daemon is there now, or it ended the client), others may have the
 * memory, and what was read must not be used. `epoch` is the match's. Asks the kernel, not the
 * daemon.
 */
int kvpool_check(struct kvpool_channel *channel, uint64_t epoch);

struct kvpool_piece {
	void *address; /* in the engine's memory */
	size_t bytes;
};

/*
 * Gathers the pieces, in order, into one shard of a block that the caller reserved. Together they
 * are at most the group's slot_bytes. No call to the daemon. -EINVAL, -EACCES (by a reader), and as
 * kvpool_pointer().
 */
int kvpool_store(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		 const struct kvpool_block *block, uint32_t shard,
		 const struct kvpool_piece *pieces, uint32_t n);

/*
 * Scatters one shard of a block that the caller leases into the pieces; otherwise the same. -ESTALE
 * also where the client was over by the end of the copy (kvpool_check()): the pieces then hold
 * anything.
 */
int kvpool_load(struct kvpool_channel *channel, const struct kvpool_layout *layout, uint32_t group,
		const struct kvpool_block *block, uint32_t shard, const struct kvpool_piece *pieces,
		uint32_t n);

/*
 * A plane of an engine's paged KV memory, usually one layer: page i begins at base + i * stride,
 * and `bytes` of it, side by side, belong to a block.
 */
struct kvpool_plane {
	void *base;       /* in the engine's memory */
	uint64_t stride;  /* bytes from one page to the next; at least `bytes` */
	uint64_t bytes;   /* of one page */
	uint32_t n_pages; /* that the plane has */
	uint32_t table;   /* which row of `pages` numbers this plane's pages */
};

/*
 * Gathers pages into one shard of n blocks of a group: block i takes, plane after plane, page
 * pages[plane.table * n + i]. `pages` has n_tables rows of n numbers. Together the planes' bytes
 * are at most the group's slot_bytes. Entries with block 0 are skipped. No call to the daemon.
 * -EINVAL (sizes, a page that its plane has not, a table beyond n_tables) and -EACCES come before
 * any byte is copied; what else kvpool_store() says may come after some blocks were.
 */
int kvpool_store_pages(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		       uint32_t group, const struct kvpool_block *blocks, uint32_t n,
		       uint32_t shard, const struct kvpool_plane *planes, uint32_t n_planes,
		       const uint32_t *pages, uint32_t n_tables);

/*
 * Scatters one shard of n blocks into pages; otherwise the same, but an entry with block 0 is
 * -EINVAL: its pages would keep what they had. -ESTALE as kvpool_load(): all of the pages then hold
 * anything.
 */
int kvpool_load_pages(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, const struct kvpool_block *blocks, uint32_t n, uint32_t shard,
		      const struct kvpool_plane *planes, uint32_t n_planes, const uint32_t *pages,
		      uint32_t n_tables);

/* ---- checksums ---- */

/*
 * A block whose shards all came with a checksum can be verified: here by whoever is about to use
 * it, and by the daemon with `kvpoolctl verify`. What differs is dropped, and so is a miss.
 */

/* CRC32C (RFC 3720) of n bytes that follow those whose CRC is `crc`; 0 to begin with. No call. */
uint32_t kvpool_crc32c(uint32_t crc, const void *bytes, size_t n);

/* CRC32C of one shard, all slot_bytes of it, as it lies in the pool. As kvpool_pointer(). */
int kvpool_checksum(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		    uint32_t group, const struct kvpool_block *block, uint32_t shard,
		    uint32_t *out);

/*
 * kvpool_commit_crc() of blocks of one group, with the checksums made here. Reads what was written;
 * `kvpool-bench copy --checksum` says what that costs.
 */
int64_t kvpool_commit_checksum(struct kvpool_channel *channel, const struct kvpool_layout *layout,
			       uint32_t group, const struct kvpool_block *blocks, uint32_t n,
			       uint32_t shard, uint64_t deadline_ns);

enum kvpool_verdict {
	KVPOOL_VERDICT_NONE = 0, /* no checksum to compare with */
	KVPOOL_VERDICT_GOOD = 1,
	KVPOOL_VERDICT_BAD = 2,  /* not what was stored */
	KVPOOL_VERDICT_GONE = 3, /* no such block any more */
};

/*
 * Compares blocks of one group, which the caller leases, with their checksums; reads all shards of
 * each. Bad ones are dropped at the daemon with all that hangs on them, except by a reader; the
 * caller's lease on them stays. Returns how many are bad. `verdicts`: n enum kvpool_verdict, or
 * NULL. `deadline_ns` is of each call to the daemon, one or two for 256 blocks. -EOPNOTSUPP: the
 * daemon is too old.
 */
int64_t kvpool_verify(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, const struct kvpool_block *blocks, uint32_t n,
		      uint64_t deadline_ns, uint8_t *verdicts);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
