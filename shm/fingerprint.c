/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 of layouts and of token blocks, in the canonical framing that fingerprint.h states.
 *
 * Pure functions, usable from any thread.
 */
#include "shm/fingerprint.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#define TOKENS_AT_ONCE 256u

static int add(EVP_MD_CTX *md, const void *bytes, size_t n)
{
	return EVP_DigestUpdate(md, bytes, n) == 1 ? 0 : -EIO;
}

static int add_number(EVP_MD_CTX *md, uint64_t value, size_t bytes)
{
	uint8_t le[8];

	for (size_t i = 0; i < bytes; i++)
		le[i] = (uint8_t)(value >> (8 * i));
	return add(md, le, bytes);
}

static int add_string(EVP_MD_CTX *md, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	int r = add_number(md, n, 4);

	return r == 0 ? add(md, s ? s : "", n) : r;
}

static int finish(EVP_MD_CTX *md, uint8_t *out)
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (EVP_DigestFinal_ex(md, digest, NULL) != 1)
		return -EIO;
	memcpy(out, digest, KVPOOL_FINGERPRINT_BYTES);
	return 0;
}

static int add_identity(EVP_MD_CTX *md, const struct kvpool_identity *identity)
{
	const char *const fields[] = {
		identity->engine,   identity->hash_algorithm, identity->hash_seed, identity->model,
		identity->revision, identity->adapter,        identity->dtype,     identity->order,
	};
	static const char domain[16] = "kvpool-layout-1";
	int r = add(md, domain, sizeof(domain));

	for (size_t i = 0; r == 0 && i < KVPOOL_ARRAY_SIZE(fields); i++)
		r = add_string(md, fields[i]);
	return r;
}

static int add_geometry(EVP_MD_CTX *md, const struct kvpool_wire_layout *g)
{
	int r = add_number(md, g->block_tokens, 4);

	if (r == 0)
		r = add_number(md, g->n_groups, 4);
	if (r == 0)
		r = add_number(md, g->n_shards, 4);
	for (uint32_t i = 0; r == 0 && i < KVPOOL_MIN(g->n_groups, KVPOOL_GROUPS_MAX); i++) {
		r = add_number(md, g->groups[i].kind, 4);
		if (r == 0)
			r = add_number(md, g->groups[i].window, 4);
		if (r == 0)
			r = add_number(md, g->groups[i].slot_bytes, 8);
	}
	return r;
}

int kvpool_fingerprint_layout(const struct kvpool_identity *identity,
			      const struct kvpool_wire_layout *geometry,
			      uint8_t out[KVPOOL_FINGERPRINT_BYTES])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int r = -EIO;

	if (md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1)
		r = add_identity(md, identity);
	if (r == 0)
		r = add_geometry(md, geometry);
	if (r == 0)
		r = finish(md, out);
	EVP_MD_CTX_free(md);
	return r;
}

static int add_tokens(EVP_MD_CTX *md, const uint32_t *tokens, uint32_t n)
{
	uint8_t le[4 * TOKENS_AT_ONCE];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n;) {
		uint32_t some = KVPOOL_MIN(n - i, TOKENS_AT_ONCE);

		for (size_t k = 0; k < some; k++) {
			uint32_t t = tokens[i + k];

			le[4 * k] = (uint8_t)t;
			le[4 * k + 1] = (uint8_t)(t >> 8);
			le[4 * k + 2] = (uint8_t)(t >> 16);
			le[4 * k + 3] = (uint8_t)(t >> 24);
		}
		r = add(md, le, 4 * (size_t)some);
		i += some;
	}
	return r;
}

/* The link before the first block: the parent's key, or the layout and the salt. */
static int add_first_link(EVP_MD_CTX *md, const uint8_t *fingerprint, const void *salt,
			  uint32_t salt_bytes, const uint8_t *parent)
{
	int r;

	if (parent)
		return add(md, parent, KVPOOL_KEY_BYTES);
	r = add(md, fingerprint, KVPOOL_FINGERPRINT_BYTES);
	if (r == 0)
		r = add_number(md, salt_bytes, 4);
	return r == 0 && salt_bytes ? add(md, salt, salt_bytes) : r;
}

int kvpool_fingerprint_keys(const uint8_t fingerprint[KVPOOL_FINGERPRINT_BYTES], const void *salt,
			    uint32_t salt_bytes, const uint8_t *parent, const uint32_t *tokens,
			    uint64_t n_tokens, uint32_t block_tokens, uint8_t *keys)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int r = md ? 0 : -EIO;

	for (uint64_t i = 0; r == 0 && i < n_tokens / block_tokens; i++) {
		uint8_t *key = keys + i * KVPOOL_KEY_BYTES;

		if (EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
			r = -EIO;
		else if (i == 0)
			r = add_first_link(md, fingerprint, salt, salt_bytes, parent);
		else
			r = add(md, key - KVPOOL_KEY_BYTES, KVPOOL_KEY_BYTES);
		if (r == 0)
			r = add_tokens(md, tokens + i * block_tokens, block_tokens);
		if (r == 0)
			r = finish(md, key);
	}
	EVP_MD_CTX_free(md);
	return r;
}
