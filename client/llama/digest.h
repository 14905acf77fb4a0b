/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 over files and ranges of them.
 *
 * A digest belongs to the function that began it, and to one thread.
 */
#ifndef KVPOOL_CLIENT_LLAMA_DIGEST_H
#define KVPOOL_CLIENT_LLAMA_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define KVPOOL_LLAMA_DIGEST_BYTES 32u

struct kvpool_llama_digest {
	void *state; /* owned: libcrypto's */
	int error;   /* the first failure; what follows it is not digested */
};

void kvpool_llama_digest_begin(struct kvpool_llama_digest *d);
void kvpool_llama_digest_add(struct kvpool_llama_digest *d, const void *bytes, size_t n);

/* A number, little-endian; a text with its length before it. */
void kvpool_llama_digest_u64(struct kvpool_llama_digest *d, uint64_t value);
void kvpool_llama_digest_text(struct kvpool_llama_digest *d, const char *text);

/* Bytes [offset, offset + n) of an open file. A file that ends before is -EPROTO. */
void kvpool_llama_digest_range(struct kvpool_llama_digest *d, int fd, uint64_t offset, uint64_t n);

/* Ends it, in any case. 0, or the first failure as a negative errno. */
int kvpool_llama_digest_end(struct kvpool_llama_digest *d, uint8_t out[KVPOOL_LLAMA_DIGEST_BYTES]);

/* As text: `out` takes 65 bytes. */
void kvpool_llama_digest_hex(const uint8_t digest[KVPOOL_LLAMA_DIGEST_BYTES], char *out);

#endif
