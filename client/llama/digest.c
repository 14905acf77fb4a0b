/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 over files and ranges of them. See digest.h.
 *
 * A digest belongs to the function that began it, and to one thread.
 */
#include "client/llama/digest.h"

#include "shm/base.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 65536u

static void fail(struct kvpool_llama_digest *d, int error)
{
	if (d->error == 0)
		d->error = error;
}

void kvpool_llama_digest_begin(struct kvpool_llama_digest *d)
{
	EVP_MD_CTX *state = EVP_MD_CTX_new();

	*d = (struct kvpool_llama_digest){.state = state};
	if (!state)
		fail(d, -ENOMEM);
	else if (EVP_DigestInit_ex(state, EVP_sha256(), NULL) != 1)
		fail(d, -EIO);
}

void kvpool_llama_digest_add(struct kvpool_llama_digest *d, const void *bytes, size_t n)
{
	if (d->error == 0 && EVP_DigestUpdate(d->state, bytes, n) != 1)
		fail(d, -EIO);
}

void kvpool_llama_digest_u64(struct kvpool_llama_digest *d, uint64_t value)
{
	uint8_t bytes[8];

	for (unsigned int i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	kvpool_llama_digest_add(d, bytes, sizeof(bytes));
}

void kvpool_llama_digest_text(struct kvpool_llama_digest *d, const char *text)
{
	kvpool_llama_digest_u64(d, strlen(text));
	kvpool_llama_digest_add(d, text, strlen(text));
}

void kvpool_llama_digest_range(struct kvpool_llama_digest *d, int fd, uint64_t offset, uint64_t n)
{
	uint8_t bytes[PIECE_BYTES];

	while (n > 0 && d->error == 0) {
		ssize_t got = pread(fd, bytes, KVPOOL_MIN(n, sizeof(bytes)), (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			fail(d, got < 0 ? -errno : -EPROTO);
			return;
		}
		kvpool_llama_digest_add(d, bytes, (size_t)got);
		offset += (uint64_t)got;
		n -= (uint64_t)got;
	}
}

int kvpool_llama_digest_end(struct kvpool_llama_digest *d, uint8_t out[KVPOOL_LLAMA_DIGEST_BYTES])
{
	if (d->error == 0 && EVP_DigestFinal_ex(d->state, out, NULL) != 1)
		fail(d, -EIO);
	EVP_MD_CTX_free(d->state);
	d->state = NULL;
	return d->error;
}

void kvpool_llama_digest_hex(const uint8_t digest[KVPOOL_LLAMA_DIGEST_BYTES], char *out)
{
	for (uint32_t i = 0; i < KVPOOL_LLAMA_DIGEST_BYTES; i++)
		snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}
