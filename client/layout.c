/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts: checked, fingerprinted and kept by the handle. See layout.h.
 *
 * Any thread.
 */
#include "client/layout.h"

#include "client/pool.h"
#include "shm/fingerprint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int bad(struct kvpool_failure *failure, const char *why)
{
	return kvpool_failure_literal(failure, -EINVAL, why);
}

static int read_group(const struct kvpool_group_spec *given, struct kvpool_failure *failure,
		      struct kvpool_wire_group *out)
{
	if (given->kind != KVPOOL_FULL && given->kind != KVPOOL_WINDOW &&
	    given->kind != KVPOOL_STATE)
		return bad(failure, "layout: a group is of no known kind");
	if (given->kind == KVPOOL_WINDOW &&
	    (given->window == 0 || given->window > KVPOOL_WINDOW_MAX))
		return bad(failure, "layout: a window is 0 or too wide");
	if (given->kind != KVPOOL_WINDOW && given->window != 0)
		return bad(failure, "layout: a group without a window has one");
	if (given->slot_bytes == 0 || given->slot_bytes > KVPOOL_SEGMENT_MAX)
		return bad(failure, "layout: slot_bytes is 0 or beyond a segment");
	*out = (struct kvpool_wire_group){
		.kind = given->kind, .window = given->window, .slot_bytes = given->slot_bytes};
	return 0;
}

static int read_label(const char *label, struct kvpool_failure *failure,
		      char out[KVPOOL_NAME_BYTES])
{
	size_t n = label ? strlen(label) : 0;

	if (n >= KVPOOL_NAME_BYTES)
		return bad(failure, "layout: the label is longer than 63 bytes");
	if (n > 0)
		memcpy(out, label, n);
	for (size_t i = 0; i < n; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
	return 0;
}

/* A caller of another version: what this one does not know must be 0. */
static int read_spec(const struct kvpool_layout_spec *given, struct kvpool_failure *failure,
		     struct kvpool_layout_spec *out)
{
	struct kvpool_layout_spec spec = {.size = sizeof(spec)};

	if (given->size < sizeof(given->size))
		return bad(failure, "layout: size is not set");
	for (size_t i = sizeof(spec); i < given->size; i++)
		if (((const uint8_t *)given)[i] != 0)
			return bad(failure, "layout: asks for what this version does not know");
	memcpy(&spec, given, KVPOOL_MIN(given->size, sizeof(spec)));
	if (spec.block_tokens == 0 || spec.block_tokens > KVPOOL_BLOCK_TOKENS_MAX)
		return bad(failure, "layout: block_tokens is 0 or beyond 65536");
	if (spec.n_shards == 0 || spec.n_shards > KVPOOL_SHARDS_MAX)
		return bad(failure, "layout: n_shards is 0 or beyond 64");
	if (spec.n_groups == 0 || spec.n_groups > KVPOOL_GROUPS_MAX || !spec.groups)
		return bad(failure, "layout: n_groups is 0 or beyond 16");
	*out = spec;
	return 0;
}

static int make_wire(const struct kvpool_layout_spec *spec, struct kvpool_failure *failure,
		     struct kvpool_wire_layout *out)
{
	struct kvpool_identity identity = {
		.engine = spec->engine,
		.hash_algorithm = spec->hash_algorithm,
		.hash_seed = spec->hash_seed,
		.model = spec->model,
		.revision = spec->revision,
		.adapter = spec->adapter,
		.dtype = spec->dtype,
		.order = spec->order,
	};
	int r = read_label(spec->label, failure, out->label);

	out->block_tokens = spec->block_tokens;
	out->n_groups = (uint16_t)spec->n_groups;
	out->n_shards = (uint16_t)spec->n_shards;
	for (uint32_t g = 0; r == 0 && g < spec->n_groups; g++)
		r = read_group(&spec->groups[g], failure, &out->groups[g]);
	if (r == 0 && kvpool_fingerprint_layout(&identity, out, out->fingerprint) != 0)
		r = kvpool_failure_literal(failure, -EIO, "layout: libcrypto fails");
	return r;
}

/* Adds it to the handle, or finds that it is there already. Lock. */
static int keep(struct kvpool *pool, const struct kvpool_wire_layout *wire,
		struct kvpool_layout **out)
{
	struct kvpool_layout *layout;

	for (layout = pool->layouts; layout; layout = layout->next) {
		if (memcmp(layout->wire.fingerprint, wire->fingerprint,
			   sizeof(wire->fingerprint)) == 0) {
			*out = layout;
			return 0;
		}
	}
	if (pool->n_layouts == KVPOOL_CLIENT_LAYOUTS_MAX)
		return kvpool_failure_literal(&pool->failure, -EDQUOT,
					      "layout: a handle has at most 64");
	layout = calloc(1, sizeof(*layout));
	if (!layout)
		return kvpool_failure_literal(&pool->failure, -ENOMEM, "out of memory");
	layout->pool = pool;
	layout->wire = *wire;
	layout->index = pool->n_layouts++;
	layout->next = pool->layouts;
	pool->layouts = layout;
	*out = layout;
	return 0;
}

int kvpool_layout(struct kvpool *pool, const struct kvpool_layout_spec *spec,
		  struct kvpool_layout **out)
{
	struct kvpool_wire_layout wire = {0};
	struct kvpool_layout_spec known = {0};
	int r;

	if (kvpool_pool_check(pool) != 0)
		return -EOWNERDEAD;
	pthread_mutex_lock(&pool->lock);
	r = read_spec(spec, &pool->failure, &known);
	if (r == 0)
		r = make_wire(&known, &pool->failure, &wire);
	if (r == 0)
		r = keep(pool, &wire, out);
	pthread_mutex_unlock(&pool->lock);
	return r;
}

const uint8_t *kvpool_layout_fingerprint(const struct kvpool_layout *layout)
{
	return layout->wire.fingerprint;
}

uint64_t kvpool_layout_reported_max(const struct kvpool_layout *layout, uint32_t n, uint32_t skip)
{
	const struct kvpool_wire_layout *wire = &layout->wire;
	uint64_t all = 0, keys = n - skip;

	for (uint32_t g = 0; g < wire->n_groups; g++) {
		/* A window that starts within a block needs one block more. */
		uint64_t window = (uint64_t)wire->groups[g].window / wire->block_tokens + 2;

		if (wire->groups[g].kind == KVPOOL_GROUP_FULL)
			all += keys;
		else if (wire->groups[g].kind == KVPOOL_GROUP_WINDOW)
			all += KVPOOL_MIN(keys, window);
		else
			all += KVPOOL_MIN(keys, 1);
	}
	return all;
}
