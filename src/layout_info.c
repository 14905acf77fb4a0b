/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts as the daemon asks about them: how long a result is, and what there is to show.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

uint32_t kvpool_cache_layout_groups(const struct kvpool_cache *cache,
				    const struct kvpool_holder *holder, uint16_t layout)
{
	const struct kvpool_layout *l = kvpool_layout_of(cache, holder, layout);

	return l ? l->n_groups : 0;
}

int kvpool_cache_layout_info(const struct kvpool_cache *cache, uint32_t *cursor,
			     struct kvpool_cache_layout_info *out)
{
	uint32_t i;

	for (i = *cursor + 1; i <= cache->layouts_fresh; i++) {
		const struct kvpool_layout *l = &cache->layouts[i];

		if (l->n_groups == 0)
			continue;
		out->wire = cache->catalog.layouts[i].wire;
		out->holders = l->holders;
		out->blocks = l->blocks;
		*cursor = i;
		return 0;
	}
	return KVPOOL_STATUS_NOT_FOUND;
}
