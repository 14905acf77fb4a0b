/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes KV bytes interchangeable, and its canonical SHA-256; and chained keys of token blocks.
 *
 * Pure functions over their arguments, usable from any thread; SHA-256 comes from libcrypto.
 */
#ifndef KVPOOL_SHM_FINGERPRINT_H
#define KVPOOL_SHM_FINGERPRINT_H

#include "shm/wire.h"

/* Every string is NUL-terminated or NULL (as if empty). Borrowed for the call. */
struct kvpool_identity {
	const char *engine;         /* engine family: "vllm", "llama.cpp", ... */
	const char *hash_algorithm; /* of the block keys: "sha256", "sha256_cbor", ... */
	const char *hash_seed;
	const char *model; /* identity of the weights, not a path */
	const char *revision;
	const char *adapter; /* identity of the adapter's weights; empty: none */
	const char *dtype;   /* of the KV cache, with quantisation: "bfloat16", "fp8_e4m3", ... */
	const char *order;   /* of the bytes in a block: "LBHNC", ... */
};

/*
 * SHA-256 over "kvpool-layout-1\0", then for each string of the identity in the order above a
 * 4-byte little-endian length and its bytes, then block_tokens, n_groups, n_shards (4 bytes each)
 * and for each group kind, window (4 bytes each) and slot_bytes (8 bytes), little-endian. 0, or
 * -EIO where libcrypto fails.
 */
int kvpool_fingerprint_layout(const struct kvpool_identity *identity,
			      const struct kvpool_wire_layout *geometry,
			      uint8_t out[KVPOOL_FINGERPRINT_BYTES]);

/*
 * Keys of whole blocks of tokens, for engines without hashes of their own:
 * key[0] = SHA-256(fingerprint, salt length and salt, tokens of block 0), key[i] =
 * SHA-256(key[i-1], tokens of block i); a token is 4 bytes little-endian, the salt's length 4
 * bytes. `keys` takes n_tokens / block_tokens keys of 32 bytes. With `parent`, the chain goes on
 * after that key instead of starting from the fingerprint. 0, or -EIO where libcrypto fails.
 */
int kvpool_fingerprint_keys(const uint8_t fingerprint[KVPOOL_FINGERPRINT_BYTES], const void *salt,
			    uint32_t salt_bytes, const uint8_t *parent, const uint32_t *tokens,
			    uint64_t n_tokens, uint32_t block_tokens, uint8_t *keys);

#endif
