/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts: what the domain's clients say their bytes mean, by fingerprint.
 *
 * A layout's number is the same for every client, but only who registered it may use it. It stays
 * after its last client has gone, because its blocks do; entries with neither are taken when a new
 * layout finds no room. Numbers start at 1. Owned by a cache; its one thread uses it.
 */
#include "src/cache_internal.h"

#include <errno.h>

static bool label_valid(const char *label)
{
	for (size_t i = 0; i < KVPOOL_NAME_BYTES; i++) {
		if (label[i] == '\0')
			return true;
		if (label[i] < ' ' || label[i] > '~')
			return false;
	}
	return false;
}

static bool group_valid(const struct kvpool_wire_group *group)
{
	if (group->slot_bytes == 0)
		return false;
	switch (group->kind) {
	case KVPOOL_GROUP_FULL:
	case KVPOOL_GROUP_STATE:
		return group->window == 0;
	case KVPOOL_GROUP_WINDOW:
		return group->window > 0 && group->window <= KVPOOL_WINDOW_MAX;
	default:
		return false;
	}
}

static bool wire_valid(const struct kvpool_wire_layout *wire)
{
	if (wire->block_tokens == 0 || wire->block_tokens > KVPOOL_BLOCK_TOKENS_MAX ||
	    wire->n_groups == 0 || wire->n_groups > KVPOOL_GROUPS_MAX || wire->n_shards == 0 ||
	    wire->n_shards > KVPOOL_SHARDS_MAX || !label_valid(wire->label))
		return false;
	for (uint16_t g = 0; g < wire->n_groups; g++) {
		if (!group_valid(&wire->groups[g]))
			return false;
	}
	return true;
}

static uint64_t stride_of(const struct kvpool_wire_group *group)
{
	return KVPOOL_ROUND_UP(group->slot_bytes, (uint64_t)KVPOOL_UNIT_BYTES);
}

static bool frames_fit(const struct kvpool_cache *cache, const struct kvpool_wire_layout *wire)
{
	for (uint16_t g = 0; g < wire->n_groups; g++) {
		if (wire->groups[g].slot_bytes > cache->config.extent_bytes ||
		    stride_of(&wire->groups[g]) * wire->n_shards > cache->config.extent_bytes)
			return false;
	}
	return true;
}

static bool same_geometry(const struct kvpool_layout *layout,
			  const struct kvpool_wire_layout *known,
			  const struct kvpool_wire_layout *wire)
{
	if (layout->block_tokens != wire->block_tokens || layout->n_groups != wire->n_groups ||
	    layout->n_shards != wire->n_shards)
		return false;
	for (uint16_t g = 0; g < wire->n_groups; g++) {
		if (known->groups[g].kind != wire->groups[g].kind ||
		    known->groups[g].window != wire->groups[g].window ||
		    known->groups[g].slot_bytes != wire->groups[g].slot_bytes)
			return false;
	}
	return true;
}

static uint16_t find(const struct kvpool_cache *cache, const uint8_t *fingerprint)
{
	for (uint32_t i = 1; i <= cache->layouts_fresh; i++) {
		if (cache->layouts[i].n_groups && memcmp(cache->layouts[i].fingerprint, fingerprint,
							 KVPOOL_FINGERPRINT_BYTES) == 0)
			return (uint16_t)i;
	}
	return 0;
}

static void class_put(struct kvpool_cache *cache, uint16_t size_class)
{
	if (!kvpool_extents_class_put(&cache->extents, size_class))
		return;
	cache->config.policy->destroy(cache->orders[size_class]);
	cache->orders[size_class] = NULL;
}

/* 0, KVPOOL_EXTENTS_E_CLASS or -ENOMEM. */
static int class_get(struct kvpool_cache *cache, uint32_t frame_units, uint16_t *out)
{
	uint16_t c;
	int r = kvpool_extents_class_get(&cache->extents, frame_units, &c);

	if (r)
		return r;
	if (!cache->orders[c]) {
		cache->orders[c] = cache->config.policy->create(cache, c);
		cache->evictions[c] = 0;
	}
	if (!cache->orders[c]) {
		(void)kvpool_extents_class_put(&cache->extents, c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

static void layout_drop(struct kvpool_cache *cache, uint32_t layout)
{
	struct kvpool_layout *l = &cache->layouts[layout];

	for (uint16_t g = 0; g < l->n_groups; g++)
		class_put(cache, l->groups[g].size_class);
	*l = (struct kvpool_layout){0};
	cache->catalog.layouts[layout] = (struct kvpool_layout_record){0};
	cache->n_layouts--;
}

/* Makes room: whatever layout has neither clients nor blocks is forgotten. */
static void drop_unused(struct kvpool_cache *cache)
{
	for (uint32_t i = 1; i <= cache->layouts_fresh; i++) {
		const struct kvpool_layout *l = &cache->layouts[i];

		if (l->n_groups && l->holders == 0 && l->blocks == 0)
			layout_drop(cache, i);
	}
}

/* The check last: one that was cut short does not fit. */
static void record_write(struct kvpool_layout_record *record, const struct kvpool_wire_layout *wire)
{
	record->wire = *wire;
	atomic_signal_fence(memory_order_seq_cst);
	*(volatile uint32_t *)&record->check = kvpool_crc32c_add(0, wire, sizeof(*wire));
}

static uint32_t entry_take(struct kvpool_cache *cache)
{
	if (cache->layouts_fresh == KVPOOL_DOMAIN_LAYOUTS_MAX) {
		for (uint32_t i = 1; i <= KVPOOL_DOMAIN_LAYOUTS_MAX; i++) {
			if (cache->layouts[i].n_groups == 0)
				return i;
		}
		return 0;
	}
	return ++cache->layouts_fresh;
}

static int groups_make(struct kvpool_cache *cache, const struct kvpool_wire_layout *wire,
		       struct kvpool_layout *l)
{
	l->first_full = wire->n_groups;
	for (uint16_t g = 0; g < wire->n_groups; g++) {
		struct kvpool_layout_group *group = &l->groups[g];
		int r;

		group->kind = (uint8_t)wire->groups[g].kind;
		group->window = wire->groups[g].window;
		group->stride = stride_of(&wire->groups[g]);
		group->frame_units =
			(uint32_t)(group->stride * wire->n_shards >> KVPOOL_UNIT_SHIFT);
		r = class_get(cache, group->frame_units, &group->size_class);
		if (r) {
			while (g > 0)
				class_put(cache, l->groups[--g].size_class);
			return r;
		}
		if (group->kind == KVPOOL_GROUP_FULL && l->n_full++ == 0)
			l->first_full = g;
	}
	l->n_groups = wire->n_groups;
	return 0;
}

/* A new layout. 0, KVPOOL_STATUS_LIMIT or -ENOMEM. */
static int layout_make(struct kvpool_cache *cache, const struct kvpool_wire_layout *wire,
		       uint16_t *out)
{
	struct kvpool_layout l = {.block_tokens = wire->block_tokens, .n_shards = wire->n_shards};
	uint32_t entry;
	int r;

	memcpy(l.fingerprint, wire->fingerprint, sizeof(l.fingerprint));
	if (cache->n_layouts == KVPOOL_DOMAIN_LAYOUTS_MAX)
		drop_unused(cache);
	r = groups_make(cache, wire, &l);
	if (r == KVPOOL_EXTENTS_E_CLASS) {
		drop_unused(cache);
		l.n_full = 0;
		r = groups_make(cache, wire, &l);
	}
	if (r)
		return r < 0 ? r : KVPOOL_STATUS_LIMIT;
	entry = entry_take(cache);
	if (!entry) {
		for (uint16_t g = 0; g < l.n_groups; g++)
			class_put(cache, l.groups[g].size_class);
		return KVPOOL_STATUS_LIMIT;
	}
	cache->layouts[entry] = l;
	record_write(&cache->catalog.layouts[entry], wire);
	cache->n_layouts++;
	*out = (uint16_t)entry;
	return 0;
}

int kvpool_layout_adopt(struct kvpool_cache *cache, uint16_t layout)
{
	const struct kvpool_layout_record *record = &cache->catalog.layouts[layout];
	struct kvpool_layout l = {.block_tokens = record->wire.block_tokens,
				  .n_shards = record->wire.n_shards};
	int r;

	if (record->check != kvpool_crc32c_add(0, &record->wire, sizeof(record->wire)) ||
	    !wire_valid(&record->wire) || !frames_fit(cache, &record->wire) ||
	    find(cache, record->wire.fingerprint))
		return KVPOOL_STATUS_INVALID;
	memcpy(l.fingerprint, record->wire.fingerprint, sizeof(l.fingerprint));
	r = groups_make(cache, &record->wire, &l);
	if (r)
		return r < 0 ? r : KVPOOL_STATUS_LIMIT;
	cache->layouts[layout] = l;
	cache->layouts_fresh = KVPOOL_MAX(cache->layouts_fresh, (uint32_t)layout);
	cache->n_layouts++;
	return 0;
}

uint64_t kvpool_cache_extent_bytes(const struct kvpool_cache *cache)
{
	return cache->config.extent_bytes;
}

int kvpool_cache_layout(struct kvpool_cache *cache, struct kvpool_holder *holder,
			const struct kvpool_wire_layout *wire, uint16_t *layout,
			struct kvpool_wire_layout_result *result)
{
	uint16_t id;

	kvpool_cache_settle(cache);
	if (!wire_valid(wire))
		return KVPOOL_STATUS_INVALID;
	id = find(cache, wire->fingerprint);
	if (id) {
		if (!same_geometry(&cache->layouts[id], &cache->catalog.layouts[id].wire, wire))
			return KVPOOL_STATUS_GEOMETRY;
	} else if (!frames_fit(cache, wire)) {
		return KVPOOL_STATUS_TOO_LARGE;
	}
	if (!id || !kvpool_layout_of(cache, holder, id)) {
		if (holder->layouts == KVPOOL_CLIENT_LAYOUTS_MAX)
			return KVPOOL_STATUS_LIMIT;
		if (!id) {
			int r = layout_make(cache, wire, &id);

			if (r)
				return r;
		}
		holder->layout_bits[id / 64] |= UINT64_C(1) << id % 64;
		holder->layouts++;
		cache->layouts[id].holders++;
	}
	*result = (struct kvpool_wire_layout_result){0};
	for (uint16_t g = 0; g < wire->n_groups; g++)
		result->shard_stride[g] = cache->layouts[id].groups[g].stride;
	*layout = id;
	return 0;
}

void kvpool_layouts_leave(struct kvpool_cache *cache, struct kvpool_holder *holder)
{
	for (uint32_t i = 1; i <= cache->layouts_fresh && holder->layouts; i++) {
		if (!kvpool_layout_of(cache, holder, (uint16_t)i))
			continue;
		holder->layout_bits[i / 64] &= ~(UINT64_C(1) << i % 64);
		holder->layouts--;
		cache->layouts[i].holders--;
	}
}
