/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket answers: see admin_json.h. The pages of status and clients are in
 * admin_status.c and admin_clients.c.
 */
#include "daemon/admin_json.h"

#include "daemon/admin_usage.h"
#include "daemon/domain.h"
#include "daemon/server.h"

#include <stdio.h>

char *kvpool_admin_json_text(json_t *page)
{
	char *text;

	if (!page || json_object_set_new(page, "schema_version",
					 json_integer(KVPOOL_ADMIN_SCHEMA_VERSION)) != 0) {
		json_decref(page);
		return NULL;
	}
	text = json_dumps(page, JSON_COMPACT);
	json_decref(page);
	return text;
}

char *kvpool_admin_json_error(const char *text)
{
	return kvpool_admin_json_text(json_pack("{s:s}", "error", text));
}

char *kvpool_admin_json_health(const struct kvpool_server *s, const char *admin_socket)
{
	(void)admin_socket;
	return kvpool_admin_json_text(
		json_pack("{s:s}", "status", s->draining ? "draining" : "ok"));
}

char *kvpool_admin_json_domains(const struct kvpool_server *s, const char *admin_socket)
{
	(void)admin_socket;
	return kvpool_admin_json_text(json_pack("{s:o}", "domains", kvpool_admin_usage_domains(s)));
}

static json_t *groups(const struct kvpool_wire_layout *wire)
{
	static const char *const kinds[] = {
		[KVPOOL_GROUP_FULL] = "full",
		[KVPOOL_GROUP_WINDOW] = "window",
		[KVPOOL_GROUP_STATE] = "state",
	};
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; i < wire->n_groups && i < KVPOOL_GROUPS_MAX; i++) {
		const struct kvpool_wire_group *g = &wire->groups[i];
		bool known = g->kind < KVPOOL_ARRAY_SIZE(kinds) && kinds[g->kind];

		(void)json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "kind",
							    known ? kinds[g->kind] : "?", "window",
							    (json_int_t)g->window, "slot_bytes",
							    (json_int_t)g->slot_bytes));
	}
	return list;
}

static json_t *layout(const struct kvpool_domain *domain,
		      const struct kvpool_cache_layout_info *info)
{
	char fingerprint[2 * KVPOOL_FINGERPRINT_BYTES + 1];
	size_t i;

	for (i = 0; i < KVPOOL_FINGERPRINT_BYTES; i++)
		(void)snprintf(fingerprint + 2 * i, 3, "%02x", info->wire.fingerprint[i]);
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "domain", domain->name,
			 "label", info->wire.label, "fingerprint", fingerprint, "block_tokens",
			 (json_int_t)info->wire.block_tokens, "shards",
			 (json_int_t)info->wire.n_shards, "clients", (json_int_t)info->holders,
			 "blocks", (json_int_t)info->blocks, "groups", groups(&info->wire));
}

char *kvpool_admin_json_layouts(const struct kvpool_server *s, const char *admin_socket)
{
	struct kvpool_cache_layout_info info;
	struct kvpool_list *node, *spare;
	json_t *list = json_array();
	uint32_t cursor;

	(void)admin_socket;
	kvpool_list_each(node, spare, &s->domains)
	{
		const struct kvpool_domain *domain =
			kvpool_list_entry(node, struct kvpool_domain, link);

		cursor = 0;
		while (kvpool_cache_layout_info(domain->cache, &cursor, &info) == 0)
			(void)json_array_append_new(list, layout(domain, &info));
	}
	return kvpool_admin_json_text(json_pack("{s:o}", "layouts", list));
}
