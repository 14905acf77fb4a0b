/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounting and counters of the caches as JSON: see admin_usage.h.
 */
#include "daemon/admin_usage.h"

#include "daemon/domain.h"
#include "daemon/server.h"

/* Every field is a count or a sum, so that domains can be added up field by field. */
_Static_assert(sizeof(struct kvpool_cache_usage) % sizeof(uint64_t) == 0, "not only uint64_t");

void kvpool_admin_usage_sum(const struct kvpool_server *s, struct kvpool_cache_usage *out)
{
	struct kvpool_list *node, *spare;
	union {
		struct kvpool_cache_usage usage;
		uint64_t fields[sizeof(struct kvpool_cache_usage) / sizeof(uint64_t)];
	} one, sum = {.fields = {0}};
	size_t i;

	kvpool_list_each(node, spare, &s->domains)
	{
		kvpool_cache_usage(kvpool_list_entry(node, struct kvpool_domain, link)->cache,
				   &one.usage);
		for (i = 0; i < KVPOOL_ARRAY_SIZE(sum.fields); i++)
			sum.fields[i] += one.fields[i];
	}
	*out = sum.usage;
}

json_t *kvpool_admin_usage_accounting(const struct kvpool_cache_usage *u)
{
	uint64_t blocks = u->ready_blocks + u->reserved_blocks + u->leased_only_blocks +
			  u->quarantined_blocks;
	double per_block = blocks ? (double)u->metadata_bytes / (double)blocks : 0.0;

	return json_pack(
		"{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I}, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:f}",
		"bytes", "total", (json_int_t)u->total_bytes, "free", (json_int_t)u->free_bytes,
		"ready", (json_int_t)u->ready_bytes, "reserved", (json_int_t)u->reserved_bytes,
		"leased_only", (json_int_t)u->leased_only_bytes, "quarantined",
		(json_int_t)u->quarantined_bytes, "slack", (json_int_t)u->slack_bytes, "blocks",
		"ready", (json_int_t)u->ready_blocks, "reserved", (json_int_t)u->reserved_blocks,
		"leased_only", (json_int_t)u->leased_only_blocks, "quarantined",
		(json_int_t)u->quarantined_blocks, "leases", (json_int_t)u->leases, "clients",
		(json_int_t)u->holders, "layouts", (json_int_t)u->layouts, "extents",
		(json_int_t)u->extents, "extents_free", (json_int_t)u->extents_free,
		"metadata_bytes", (json_int_t)u->metadata_bytes, "metadata_bytes_per_block",
		per_block);
}

static double rate(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0.0;
}

json_t *kvpool_admin_usage_counters(const struct kvpool_cache_usage *u)
{
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"matches", (json_int_t)u->matches, "match_keys", (json_int_t)u->match_keys,
		"match_hit_keys", (json_int_t)u->match_hit_keys, "match_tokens",
		(json_int_t)u->match_tokens, "match_hit_tokens", (json_int_t)u->match_hit_tokens,
		"key_hit_rate", rate(u->match_hit_keys, u->match_keys), "token_hit_rate",
		rate(u->match_hit_tokens, u->match_tokens), "stored", (json_int_t)u->stored,
		"evicted", (json_int_t)u->evicted, "expired", (json_int_t)u->expired, "forgotten",
		(json_int_t)u->forgotten, "corrupt", (json_int_t)u->corrupt, "abandoned",
		(json_int_t)u->abandoned, "no_space", (json_int_t)u->no_space, "extents_moved",
		(json_int_t)u->extents_moved);
}

json_t *kvpool_admin_usage_domains(const struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;
	struct kvpool_cache_usage usage;
	json_t *list = json_array();

	kvpool_list_each(node, spare, &s->domains)
	{
		const struct kvpool_domain *d = kvpool_list_entry(node, struct kvpool_domain, link);

		kvpool_cache_usage(d->cache, &usage);
		(void)json_array_append_new(
			list,
			json_pack("{s:s, s:I, s:I, s:I, s:b, s:o, s:o}", "name", d->name, "uid",
				  (json_int_t)d->uid, "clients", (json_int_t)d->n_clients,
				  "segments", (json_int_t)d->n_segments, "wants_memory",
				  (int)(d->wanted_ns != 0), "accounting",
				  kvpool_admin_usage_accounting(&usage), "counters",
				  kvpool_admin_usage_counters(&usage)));
	}
	return list;
}
