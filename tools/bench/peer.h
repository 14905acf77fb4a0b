/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another store, as `compare` sees it: a server of Debian's on a Unix socket, started and stopped
 * here, asked in the quickest way that its own protocol has.
 *
 * One peer a file. Owned by the command; main thread. Every function but start and stop returns 0
 * or a negative errno; what it was asked goes over one connection, which stays open.
 */
#ifndef KVPOOL_TOOLS_BENCH_PEER_H
#define KVPOOL_TOOLS_BENCH_PEER_H

#include "tools/folder.h"

#include <stddef.h>
#include <stdint.h>

#define KVPOOL_PEER_KEYS_MAX 32768u /* in one lookup */

enum {
	KVPOOL_PEER_E_ABSENT = 1, /* its server is not installed */
};

struct kvpool_peer {
	const char *name;
	const char *lookup; /* how a lookup is asked */
	const char *copy;   /* how a block is stored and loaded */

	/*
	 * Starts the server in the folder, pinned to `cpu`, with room for `bytes` of values, and
	 * connects. 0, KVPOOL_PEER_E_ABSENT, or a negative errno.
	 */
	int (*start)(const struct kvpool_folder *folder, int cpu, uint64_t bytes, void **out);

	/* Takes NULL. */
	void (*stop)(void *peer);

	/* What the server says its version is; into `out`. */
	int (*version)(void *peer, char *out, size_t out_bytes);

	/*
	 * A lookup of n keys of 32 bytes: `prepare` makes the text of the request, outside what is
	 * timed, `ask` sends it in one go and counts the keys that exist.
	 */
	int (*prepare)(void *peer, const uint8_t *keys, uint32_t n);
	int (*ask)(void *peer, uint32_t *found);

	int (*set)(void *peer, const uint8_t *key, const void *value, size_t bytes);

	/* Copies the value to `value`. -ENOENT where there is none of that size. */
	int (*get)(void *peer, const uint8_t *key, void *value, size_t bytes);
};

extern const struct kvpool_peer kvpool_peer_redis;
extern const struct kvpool_peer kvpool_peer_memcached;

#endif
