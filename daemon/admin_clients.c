/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of clients on the admin socket, and who of them writes: see admin_json.h.
 *
 * Fields of a client: `state` is "attached" or "gone-quarantined" (no member is served; what it
 * reserved waits until all are proven gone), `evicted` says that the operator ended it, `idle_ms`
 * how long ago its last request was. Of a member: `state` is "attached" or "gone" (not served any
 * more), `process` is "running", "stopped", "gone" or "unknown", and `socket` is "open" as long as
 * anybody has a copy of its end, else "closed".
 */
#include "daemon/admin_json.h"
#include "daemon/admin_usage.h"
#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/peer.h"
#include "daemon/process_state.h"
#include "daemon/server.h"

/* Processes that one page looks up in /proc, some microseconds each; the others are "unknown". */
#define LOOKS_MAX 1024u

static const char *process(const struct kvpool_peer *peer, uint32_t *looks)
{
	enum kvpool_process_state state = KVPOOL_PROCESS_UNKNOWN;

	if (!kvpool_peer_alive(peer)) {
		state = KVPOOL_PROCESS_GONE;
	} else if (*looks > 0) {
		--*looks;
		state = kvpool_process_state_read(peer->pid);
	}
	return kvpool_process_state_name(state);
}

static json_t *member(const struct kvpool_peer *peer, uint32_t *looks, uint32_t *hot)
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
	return json_pack("{s:I, s:I, s:s, s:s, s:s, s:b, s:I}", "member", (json_int_t)peer->member,
			 "pid", (json_int_t)peer->pid, "state",
			 peer->state == KVPOOL_PEER_ATTACHED ? "attached" : "gone", "process",
			 process(peer, looks), "socket", peer->fd >= 0 ? "open" : "closed",
			 "read_only", (int)peer->read_only, "channels", (json_int_t)channels);
}

static const char *state(const struct kvpool_client *c)
{
	if (c->ended)
		return "gone-quarantined";
	return c->n_open > 0 ? "attached" : "not-back";
}

static json_t *client(const struct kvpool_client *c, uint32_t *looks)
{
	struct kvpool_holder_usage usage;
	struct kvpool_list *node, *spare;
	json_t *members = json_array();
	uint64_t now = kvpool_clock_ns();
	uint32_t hot = 0;

	kvpool_cache_holder_usage(c->holder, &usage);
	kvpool_list_each(node, spare, &c->members)
	{
		(void)json_array_append_new(
			members, member(kvpool_list_entry(node, struct kvpool_peer, member_link),
					looks, &hot));
	}
	return json_pack(
		"{s:I, s:s, s:s, s:I, s:s, s:b, s:b, s:o, s:I, s:{s:I, s:I, s:I}, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:I, s:I, s:I}",
		"id", (json_int_t)c->id, "name", c->name, "domain", c->domain->name, "uid",
		(json_int_t)c->domain->uid, "state", state(c), "evicted", (int)c->evicted, "gpu",
		(int)c->gpu, "members", members, "not_back", (json_int_t)c->n_ghosts, "channels",
		"hot", (json_int_t)hot, "cold", (json_int_t)(c->n_channels - hot), "bytes",
		(json_int_t)c->channel_bytes, "leases", (json_int_t)usage.leases, "leased_blocks",
		(json_int_t)usage.leased_blocks, "leased_bytes", (json_int_t)usage.leased_bytes,
		"reserved_blocks", (json_int_t)usage.reserved_blocks, "reserved_bytes",
		(json_int_t)usage.reserved_bytes, "quarantined_blocks",
		(json_int_t)usage.quarantined_blocks, "waits", (json_int_t)usage.waits, "layouts",
		(json_int_t)usage.layouts, "idle_ms",
		(json_int_t)((now - KVPOOL_MIN(now, c->last_ns)) / KVPOOL_NS_PER_MS));
}

char *kvpool_admin_json_clients(const struct kvpool_server *s, const char *admin_socket)
{
	struct kvpool_list *node, *spare;
	json_t *list = json_array();
	uint32_t looks = LOOKS_MAX;

	(void)admin_socket;
	kvpool_list_each(node, spare, &s->clients)
	{
		(void)json_array_append_new(
			list, client(kvpool_list_entry(node, struct kvpool_client, link), &looks));
	}
	return kvpool_admin_json_text(json_pack("{s:o}", "clients", list));
}

json_t *kvpool_admin_usage_writers(const struct kvpool_server *s)
{
	struct kvpool_holder_usage usage;
	struct kvpool_list *node, *spare;
	json_t *list = json_array();

	kvpool_list_each(node, spare, &s->clients)
	{
		const struct kvpool_client *c = kvpool_list_entry(node, struct kvpool_client, link);

		kvpool_cache_holder_usage(c->holder, &usage);
		if (usage.reserved_blocks == 0)
			continue;
		(void)json_array_append_new(
			list, json_pack("{s:I, s:s, s:I}", "id", (json_int_t)c->id, "name", c->name,
					"reserved_blocks", (json_int_t)usage.reserved_blocks));
	}
	return list;
}
