/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounds that daemon and client agree on. A number beyond one of these is refused before it is
 * multiplied, indexed with or allocated for.
 *
 * Holds constants only: no object, no state, usable from any thread.
 */
#ifndef KVPOOL_SHM_LIMITS_H
#define KVPOOL_SHM_LIMITS_H

#include <stdint.h>

#define KVPOOL_KEY_BYTES         32u
#define KVPOOL_FINGERPRINT_BYTES 32u
#define KVPOOL_TOKEN_BYTES       16u
#define KVPOOL_NAME_BYTES        64u /* names of clients, domains and layouts, with the NUL */

#define KVPOOL_GROUPS_MAX       16u
#define KVPOOL_SHARDS_MAX       64u
#define KVPOOL_BLOCK_TOKENS_MAX 65536u
#define KVPOOL_WINDOW_MAX       (1u << 24) /* tokens */

/* A block's place is counted in units, so that 32 bits reach through a segment of 1 GiB. */
#define KVPOOL_UNIT_SHIFT   8u
#define KVPOOL_UNIT_BYTES   (1u << KVPOOL_UNIT_SHIFT)
#define KVPOOL_SEGMENT_MAX  (UINT64_C(1) << 30) /* bytes */
#define KVPOOL_SEGMENTS_MAX 65536u

#define KVPOOL_RING_ENTRIES_MIN 16u
#define KVPOOL_RING_ENTRIES_MAX 4096u
#define KVPOOL_ARENA_MIN        (UINT64_C(64) << 10) /* bytes */
#define KVPOOL_ARENA_MAX        (UINT64_C(64) << 20) /* bytes */
#define KVPOOL_KEYS_MAX         (1u << 18)           /* keys in one request */

/* What one client may hold; the daemon's configuration may lower these. */
#define KVPOOL_CLIENT_MEMBERS_MAX  128u
#define KVPOOL_CLIENT_CHANNELS_MAX 256u
#define KVPOOL_CLIENT_LAYOUTS_MAX  64u
#define KVPOOL_DOMAIN_LAYOUTS_MAX  4096u

#endif
