/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The definition of a usable prefix, group kind by group kind.
 *
 * Pure functions, no state.
 */
#include "tests/property/section7.h"

/* The first key whose block covers a token of the last `window` before `length` keys. */
static uint32_t window_first(const struct kvpool_wire_layout *layout, uint32_t group,
			     uint32_t length)
{
	uint64_t end = (uint64_t)length * layout->block_tokens;
	uint64_t window = layout->groups[group].window;

	return window >= end ? 0 : (uint32_t)((end - window) / layout->block_tokens);
}

struct kvpool_wire_range section7_range(const struct section7 *s, uint32_t group, uint32_t length)
{
	struct kvpool_wire_range range = {0, 0};

	if (length <= s->skip)
		return range;
	switch (s->layout->groups[group].kind) {
	case KVPOOL_GROUP_FULL:
		range.first = s->skip;
		break;
	case KVPOOL_GROUP_WINDOW:
		range.first = KVPOOL_MAX(window_first(s->layout, group, length), s->skip);
		break;
	default:
		range.first = length - 1;
		break;
	}
	range.count = length - range.first;
	return range;
}

/* Is the block of this group and key there, in one sense or the other? */
typedef bool presence(const void *cookie, uint32_t group, uint32_t key);

static bool group_allows(const struct section7 *s, presence *there, uint32_t group, uint32_t length)
{
	struct kvpool_wire_range range = section7_range(s, group, length);

	/* A FULL group needs every key, also those that the asker has. */
	if (s->layout->groups[group].kind == KVPOOL_GROUP_FULL)
		range = (struct kvpool_wire_range){0, length};
	for (uint32_t i = 0; i < range.count; i++)
		if (!there(s->cookie, group, range.first + i))
			return false;
	return true;
}

static uint32_t longest(const struct section7 *s, presence *there)
{
	for (uint32_t length = s->n; length > 0; length--) {
		bool usable = true;

		for (uint32_t g = 0; g < s->layout->n_groups; g++)
			usable = usable && group_allows(s, there, g, length);
		if (usable)
			return length;
	}
	return 0;
}

uint32_t section7_longest(const struct section7 *s)
{
	return longest(s, s->ready);
}

uint32_t section7_pending(const struct section7 *s, uint32_t length)
{
	uint32_t usable = longest(s, s->taken);

	return usable > length ? usable - length : 0;
}
