/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest usable prefix, by definition: tries every length from the longest down and looks at
 * every block that it needs. Slow and plain on purpose; the cache's answer must equal it.
 *
 * Pure functions over the caller's presence; used by both property tests.
 */
#ifndef KVPOOL_TESTS_SECTION7_H
#define KVPOOL_TESTS_SECTION7_H

#include "shm/wire.h"

#include <stdbool.h>

struct section7 {
	const struct kvpool_wire_layout *layout; /* borrowed */
	uint32_t n;                              /* keys in the list */
	uint32_t skip;                           /* leading keys that the asker has already */
	/* Is the block of this group and key READY? Is it READY or being written? */
	bool (*ready)(const void *cookie, uint32_t group, uint32_t key);
	bool (*taken)(const void *cookie, uint32_t group, uint32_t key);
	const void *cookie; /* borrowed */
};

uint32_t section7_longest(const struct section7 *s);

/* Keys after `length` that would be usable too, were all that is written READY: `pending`. */
uint32_t section7_pending(const struct section7 *s, uint32_t length);

/* What MATCH reports of one group for a prefix of that length. */
struct kvpool_wire_range section7_range(const struct section7 *s, uint32_t group, uint32_t length);

#endif
