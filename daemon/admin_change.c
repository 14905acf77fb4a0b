/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin socket changes: see admin_change.h.
 */
#include "daemon/admin_change.h"

#include "daemon/admin_json.h"
#include "daemon/admin_usage.h"
#include "daemon/client.h"
#include "daemon/server.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>

/* Whole decimal numbers only. False: none, or not one of a client. */
static bool read_number(const char *text, uint32_t *out)
{
	unsigned long long number;
	char *end;

	if (!text || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || number > UINT32_MAX)
		return false;
	*out = (uint32_t)number;
	return true;
}

static struct kvpool_client *attached_client(const struct kvpool_server *s, uint32_t id)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &s->clients)
	{
		struct kvpool_client *client = kvpool_list_entry(node, struct kvpool_client, link);

		if (client->id == id && !client->ended)
			return client;
	}
	return NULL;
}

char *kvpool_admin_change_evict(struct kvpool_server *s, struct MHD_Connection *connection,
				unsigned int *code)
{
	struct kvpool_holder_usage usage;
	struct kvpool_client *client;
	char text[64];
	json_t *page;
	uint32_t id;

	*code = MHD_HTTP_BAD_REQUEST;
	if (!read_number(MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "client"),
			 &id))
		return kvpool_admin_json_error("say which client: /v1/evict?client=NUMBER");
	*code = MHD_HTTP_NOT_FOUND;
	client = attached_client(s, id);
	if (!client) {
		(void)snprintf(text, sizeof(text), "no client %u is attached", id);
		return kvpool_admin_json_error(text);
	}
	*code = MHD_HTTP_OK;
	kvpool_cache_holder_usage(client->holder, &usage);
	page = json_pack("{s:I, s:s, s:I, s:I, s:I}", "client", (json_int_t)id, "name",
			 client->name, "members", (json_int_t)client->n_open, "leases",
			 (json_int_t)usage.leases, "quarantined_blocks",
			 (json_int_t)usage.reserved_blocks);
	kvpool_client_evict(client);
	return kvpool_admin_json_text(page);
}

static char *state(const struct kvpool_server *s, unsigned int *code)
{
	*code = MHD_HTTP_OK;
	return kvpool_admin_json_text(
		json_pack("{s:s}", "state", s->draining ? "draining" : "serving"));
}

char *kvpool_admin_change_drain(struct kvpool_server *s, struct MHD_Connection *connection,
				unsigned int *code)
{
	(void)connection;
	kvpool_server_drain(s);
	return state(s, code);
}

char *kvpool_admin_change_resume(struct kvpool_server *s, struct MHD_Connection *connection,
				 unsigned int *code)
{
	(void)connection;
	if (s->leaving) {
		*code = MHD_HTTP_CONFLICT;
		return kvpool_admin_json_error("the daemon is about to leave");
	}
	kvpool_server_resume(s);
	return state(s, code);
}
