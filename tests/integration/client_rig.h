/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client process as the tests of libkvpool want it: handle, channel, layout; keys that are easy
 * to name; block bytes that tell which key they belong to.
 *
 * Owned by the test that made it; one thread. Functions without a result fail the test by
 * themselves.
 */
#ifndef KVPOOL_TESTS_CLIENT_RIG_H
#define KVPOOL_TESTS_CLIENT_RIG_H

#include "client/kvpool.h"
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#define KVPOOL_RIG_TOKENS 16u
#define KVPOOL_RIG_BYTES  4096u
#define KVPOOL_RIG_KEYS   64u                   /* the longest chain that these tests use */
#define KVPOOL_RIG_MS     20000u                /* how long anything may take before a test fails */
#define KVPOOL_RIG_LONG   UINT64_C(20000000000) /* a deadline that must not matter */

#define KVPOOL_RIG_PATIENCE UINT64_C(2000000000) /* of calls that give no deadline */

struct kvpool_rig {
	struct kvpool *pool;
	struct kvpool_channel *channel;
	struct kvpool_layout *layout;
};

/* The i-th key of chain `chain`; n of them from `from` on, side by side. */
void kvpool_rig_keys(uint64_t chain, uint32_t from, uint32_t n, uint8_t *keys);

/* Opens all three; the layout has one FULL group of one shard. `options` but for size and socket.
 */
void kvpool_rig_open(const char *socket, struct kvpool_options options, struct kvpool_rig *out);
void kvpool_rig_close(struct kvpool_rig *rig);

/* A further layout: `shards` shards of `bytes` bytes. */
struct kvpool_layout *kvpool_rig_layout(struct kvpool *pool, uint32_t shards, uint64_t bytes);

/* Words of a block that tell its chain, its place in it, and their own place. */
void kvpool_rig_stamp(uint64_t chain, uint32_t i, uint64_t *words, uint32_t n);
uint32_t kvpool_rig_wrong(uint64_t chain, uint32_t i, const uint64_t *words, uint32_t n);

/* Reserves, stamps and commits keys [from, from + n). Returns how many were granted. */
uint32_t kvpool_rig_put(struct kvpool_rig *rig, uint64_t chain, uint32_t from, uint32_t n);

/* Matches n keys, checks every word of every block, releases. Returns the hit; -1: a miss by error.
 */
int64_t kvpool_rig_get(struct kvpool_rig *rig, uint64_t chain, uint32_t n);

/*
 * The same of a daemon that may fail, die or be full: any call may miss. What is granted is stored
 * and committed; how long a prefix is found, -1 where none could be asked for. What can be read has
 * the right bytes; `read` (may be NULL) is how many blocks could.
 */
void kvpool_rig_try_put(struct kvpool_rig *rig, uint64_t chain, uint32_t n);
int64_t kvpool_rig_try_get(struct kvpool_rig *rig, uint64_t chain, uint32_t n, uint32_t *read);

/* Calls until the daemon answers again. */
void kvpool_rig_until_attached(struct kvpool_rig *rig);

/* Polls the daemon's status page until this number is there. */
void kvpool_rig_until_number(const struct kvpool_harness *daemon, const char *path, int64_t value);

/* The i-th key of a chain; good until the fourth call from now. */
const uint8_t *kvpool_rig_key(uint64_t chain, uint32_t i);

/* A daemon whose pool is whole, and a client of it; and their end, with nothing left held. */
void kvpool_rig_begin(struct kvpool_harness **daemon, struct kvpool_rig *rig);
void kvpool_rig_end(struct kvpool_harness *daemon, struct kvpool_rig *rig);

#endif
