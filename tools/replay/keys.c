/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block keys of a traced request: see keys.h.
 *
 * key[0] = SHA-256(fingerprint, scope, id), key[i] = SHA-256(key[i-1], id); numbers are 8 bytes in
 * the machine's order, as a replay never leaves it. Belongs to one thread.
 */
#include "tools/replay/keys.h"

#include "shm/limits.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct kvpool_replay_keys {
	EVP_MD_CTX *context; /* owned */
	EVP_MD *sha256;      /* owned */
	uint8_t fingerprint[KVPOOL_KEY_BYTES];
};

int kvpool_replay_keys_new(const uint8_t *fingerprint, struct kvpool_replay_keys **out)
{
	struct kvpool_replay_keys *keys = calloc(1, sizeof(*keys));

	if (keys == NULL)
		return -ENOMEM;
	keys->context = EVP_MD_CTX_new();
	keys->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (keys->context == NULL || keys->sha256 == NULL) {
		kvpool_replay_keys_free(keys);
		return -EIO;
	}
	memcpy(keys->fingerprint, fingerprint, sizeof(keys->fingerprint));
	*out = keys;
	return 0;
}

void kvpool_replay_keys_free(struct kvpool_replay_keys *keys)
{
	if (keys == NULL)
		return;
	EVP_MD_CTX_free(keys->context);
	EVP_MD_free(keys->sha256);
	free(keys);
}

static int hash(struct kvpool_replay_keys *keys, const void *bytes, size_t n, uint8_t *key)
{
	if (EVP_DigestInit_ex2(keys->context, keys->sha256, NULL) != 1 ||
	    EVP_DigestUpdate(keys->context, bytes, n) != 1 ||
	    EVP_DigestFinal_ex(keys->context, key, NULL) != 1)
		return -EIO;
	return 0;
}

int kvpool_replay_keys_make(struct kvpool_replay_keys *keys, const struct kvpool_trace *trace,
			    const struct kvpool_trace_request *request, uint8_t *out)
{
	uint8_t link[KVPOOL_KEY_BYTES + 2 * sizeof(uint64_t)];
	const struct kvpool_trace_run *run = trace->runs + request->first_run;
	size_t head = KVPOOL_KEY_BYTES + sizeof(uint64_t);
	uint32_t in_run = 0;
	uint32_t i;

	memcpy(link, keys->fingerprint, KVPOOL_KEY_BYTES);
	memcpy(link + KVPOOL_KEY_BYTES, &request->scope, sizeof(uint64_t));
	for (i = 0; i < request->blocks; i++) {
		uint64_t id = run->first + in_run;
		uint8_t *key = out + (size_t)i * KVPOOL_KEY_BYTES;

		memcpy(link + head, &id, sizeof(id));
		if (hash(keys, link, head + sizeof(id), key) != 0)
			return -EIO;
		memcpy(link, key, KVPOOL_KEY_BYTES);
		head = KVPOOL_KEY_BYTES;
		if (++in_run == run->count) {
			in_run = 0;
			run++;
		}
	}
	return 0;
}
