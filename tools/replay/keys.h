/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block keys of a traced request: SHA-256 of the key before and the trace's block id, so that equal
 * keys mean equal prefixes whatever the trace promises about its ids.
 *
 * An object belongs to one thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_KEYS_H
#define KVPOOL_TOOLS_REPLAY_KEYS_H

#include "tools/replay/trace.h"

struct kvpool_replay_keys;

/* `fingerprint`: 32 bytes of the layout, in the first link of every chain. -ENOMEM, -EIO. */
int kvpool_replay_keys_new(const uint8_t *fingerprint, struct kvpool_replay_keys **out);
void kvpool_replay_keys_free(struct kvpool_replay_keys *keys); /* takes NULL */

/* The keys of the request's whole blocks, 32 bytes each, into `out`. -EIO where libcrypto fails. */
int kvpool_replay_keys_make(struct kvpool_replay_keys *keys, const struct kvpool_trace *trace,
			    const struct kvpool_trace_request *request, uint8_t *out);

#endif
