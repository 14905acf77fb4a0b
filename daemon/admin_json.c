/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket answers: see admin_json.h. The status page is in admin_status.c.
 */
#include "daemon/admin_json.h"

#include "daemon/admin_usage.h"
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/peer.h"
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

static json_t *member(const struct kvpool_peer *peer, uint32_t *hot)
{
	struct kvpool_list *node, *spare;
	uint32_t channels = 0;

	kvpool_list_each(node, spare, &peer->channels)
	{
		const struct kvpool_channel *ch =
			kvpool_list_entry(node, struct kvpool_channel, link);

		channels++;
		*hot += ch->hot != KVPOOL_CHANNEL_COLD;
	}
	return json_pack("{s:I, s:I, s:s, s:b, s:I}", "member", (json_int_t)peer->member, "pid",
			 (json_int_t)peer->pid, "state",
			 peer->state == KVPOOL_PEER_ATTACHED ? "attached" : "gone", "read_only",
			 (int)peer->read_only, "channels", (json_int_t)channels);
}

static json_t *client(const struct kvpool_server *s, const struct kvpool_client *c)
{
	struct kvpool_holder_usage usage;
	struct kvpool_list *node, *spare;
	json_t *members = json_array();
	uint64_t now = kvpool_clock_ns();
	uint32_t hot = 0;

	(void)s;
	kvpool_cache_holder_usage(c->holder, &usage);
	kvpool_list_each(node, spare, &c->members)
	{
		(void)json_array_append_new(
			members,
			member(kvpool_list_entry(node, struct kvpool_peer, member_link), &hot));
	}
	return json_pack(
		"{s:I, s:s, s:s, s:I, s:s, s:b, s:o, s:{s:I, s:I, s:I}, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:I}",
		"id", (json_int_t)c->id, "name", c->name, "domain", c->domain->name, "uid",
		(json_int_t)c->domain->uid, "state", c->ended ? "gone-quarantined" : "attached",
		"gpu", (int)c->gpu, "members", members, "channels", "hot", (json_int_t)hot, "cold",
		(json_int_t)(c->n_channels - hot), "bytes", (json_int_t)c->channel_bytes, "leases",
		(json_int_t)usage.leases, "leased_blocks", (json_int_t)usage.leased_blocks,
		"leased_bytes", (json_int_t)usage.leased_bytes, "reserved_blocks",
		(json_int_t)usage.reserved_blocks, "reserved_bytes",
		(json_int_t)usage.reserved_bytes, "quarantined_blocks",
		(json_int_t)usage.quarantined_blocks, "waits", (json_int_t)usage.waits, "layouts",
		(json_int_t)usage.layouts, "idle_ms",
		(json_int_t)((now - KVPOOL_MIN(now, c->last_ns)) / KVPOOL_NS_PER_MS));
}

char *kvpool_admin_json_clients(const struct kvpool_server *s, const char *admin_socket)
{
	struct kvpool_list *node, *spare;
	json_t *list = json_array();

	(void)admin_socket;
	kvpool_list_each(node, spare, &s->clients)
	{
		(void)json_array_append_new(
			list, client(s, kvpool_list_entry(node, struct kvpool_client, link)));
	}
	return kvpool_admin_json_text(json_pack("{s:o}", "clients", list));
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
