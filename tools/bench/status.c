/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of the daemon's status document. No state; any thread.
 */
#include "tools/bench/status.h"

static uint64_t number(const json_t *object, const char *field)
{
	json_int_t value = json_integer_value(json_object_get(object, field));

	return value > 0 ? (uint64_t)value : 0;
}

void kvpool_status_cache(const json_t *status, struct kvpool_status_cache *out)
{
	const json_t *accounting = json_object_get(status, "accounting");

	*out = (struct kvpool_status_cache){
		.ready_blocks = number(json_object_get(accounting, "blocks"), "ready"),
		.metadata_bytes = number(accounting, "metadata_bytes"),
		.evicted = number(json_object_get(status, "counters"), "evicted"),
	};
}

bool kvpool_status_growing(const json_t *status)
{
	return json_is_true(json_object_get(json_object_get(status, "pool"), "growing"));
}

bool kvpool_status_kept(const json_t *status)
{
	return json_is_true(json_object_get(json_object_get(status, "restart"), "kept"));
}

json_t *kvpool_status_pool(const json_t *status)
{
	json_t *pool = json_object_get(status, "pool");

	return pool ? json_incref(pool) : json_null();
}

enum kvpool_shape_pages kvpool_status_pages(const json_t *status)
{
	static const struct {
		const char *name;
		enum kvpool_shape_pages pages;
	} kinds[] = {
		{"4k", KVPOOL_SHAPE_SHARED},
		{"thp", KVPOOL_SHAPE_SHARED_THP},
		{"2M", KVPOOL_SHAPE_SHARED_2M},
		{"1G", KVPOOL_SHAPE_SHARED_2M},
	};
	const json_t *pages = json_object_get(json_object_get(status, "pool"), "pages");
	enum kvpool_shape_pages best = KVPOOL_SHAPE_SHARED;
	uint64_t most = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint64_t bytes = number(pages, kinds[i].name);

		if (bytes > most) {
			most = bytes;
			best = kinds[i].pages;
		}
	}
	return best;
}

uint64_t kvpool_status_pool_number(const json_t *status, const char *field)
{
	return number(json_object_get(status, "pool"), field);
}
