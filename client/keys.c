/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block keys from tokens, for engines without hashes of their own.
 *
 * Pure, but for the question whose handle the layout belongs to; any thread.
 */
#include "client/layout.h"
#include "client/pool.h"
#include "shm/fingerprint.h"

#include <errno.h>

int64_t kvpool_keys(const struct kvpool_layout *layout, const void *salt, size_t salt_bytes,
		    const uint8_t *parent, const uint32_t *tokens, size_t n_tokens, uint8_t *keys)
{
	uint64_t n = n_tokens / layout->wire.block_tokens;
	int r;

	if (kvpool_pool_check(layout->pool) != 0)
		return -EOWNERDEAD;
	if (salt_bytes > UINT32_MAX || (salt_bytes > 0 && !salt))
		return -EINVAL;
	if (n == 0)
		return 0;
	if (!tokens || !keys)
		return -EINVAL;
	r = kvpool_fingerprint_keys(layout->wire.fingerprint, salt, (uint32_t)salt_bytes, parent,
				    tokens, n_tokens, layout->wire.block_tokens, keys);
	return r == 0 ? (int64_t)n : r;
}
