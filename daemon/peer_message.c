/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client's message does: see peer_message.h.
 */
#include "daemon/peer_message.h"

#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/domain.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/peer_io.h"
#include "daemon/server.h"

#include <errno.h>
#include <string.h>

/* A message that could not be sent: the peer does not read, or is gone. False: so is the peer. */
static bool send_failed(struct kvpool_peer *peer, int r)
{
	if (r == -EAGAIN)
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_SOCKET_FULL, KVPOOL_REFUSAL_MESSAGE,
				    "asks and does not read the answers");
	else
		kvpool_peer_end(peer);
	return false;
}

/*
 * Not the peer's doing: the host is short of something, which may be room for descriptors that
 * others have not read yet.
 */
static bool is_shortage(int r)
{
	return r != -EAGAIN && r != -EPIPE && r != -ECONNRESET;
}

/*
 * Says no and goes on. Where not even that can be said the peer ends: it would take the next answer
 * for this one. False: it is gone.
 */
static bool decline(struct kvpool_peer *peer, enum kvpool_refusal reason, const char *text)
{
	int r = kvpool_peer_io_refuse(peer->fd, reason, text);

	peer->server->counters.refused++;
	return r == 0 || send_failed(peer, r);
}

static bool zero(const uint8_t *bytes, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

static bool printable(const char *name, size_t n)
{
	size_t i, length = strnlen(name, n);

	for (i = 0; i < length; i++) {
		if ((unsigned char)name[i] < 0x20 || (unsigned char)name[i] > 0x7e)
			return false;
	}
	return length < n;
}

/* What is wrong with it, or NULL. */
static const char *attach_fault(const struct kvpool_attach *m)
{
	uint32_t kin = m->flags & (KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_RESUME);

	if (m->flags & ~(uint32_t)KVPOOL_ATTACH_FLAGS)
		return "ATTACH: unknown flags";
	if (kin == (KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_RESUME))
		return "ATTACH: JOIN and RESUME exclude each other";
	if (m->member_plus_1 != 0 && !(m->flags & KVPOOL_ATTACH_RESUME))
		return "ATTACH: a member's number without RESUME";
	if (kin == 0 && !zero(m->token, sizeof(m->token)))
		return "ATTACH: a token without JOIN or RESUME";
	if (!zero(m->reserved, sizeof(m->reserved)))
		return "ATTACH: reserved bytes are not zero";
	if (!printable(m->name, sizeof(m->name)))
		return "ATTACH: the name is not printable ASCII with a NUL at its end";
	return NULL;
}

static bool channel_allowed(const struct kvpool_client *client, uint64_t arena_bytes)
{
	return client->n_channels < KVPOOL_CLIENT_CHANNELS_MAX &&
	       arena_bytes <= KVPOOL_CLIENT_CHANNEL_BYTES_MAX &&
	       client->channel_bytes + arena_bytes <= KVPOOL_CLIENT_CHANNEL_BYTES_MAX;
}

/* No channel now. The first one's want ends the peer; a further one's does not. */
static bool no_channel(struct kvpool_peer *peer, enum kvpool_refusal reason, const char *text)
{
	if (kvpool_list_empty(&peer->channels)) {
		kvpool_peer_refuse(peer, reason, "no channel: %s", text);
		return false;
	}
	return decline(peer, reason, text);
}

/* Makes a channel and sends it. False: the peer is gone. */
static bool give_channel(struct kvpool_peer *peer, uint32_t entries, uint64_t arena_bytes)
{
	struct kvpool_channel_grant grant = {
		.head = {KVPOOL_MESSAGE_CHANNEL, sizeof(grant)},
	};
	struct kvpool_channel *ch;
	int fds[3], r;

	if (!channel_allowed(peer->client, arena_bytes))
		return no_channel(peer, KVPOOL_REFUSAL_LIMIT,
				  "the client has as many channels, or as much memory in them, as "
				  "it may");
	r = kvpool_channel_new(peer, entries, arena_bytes, &ch);
	if (r == KVPOOL_CHANNEL_E_SIZE) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_FIELD, KVPOOL_REFUSAL_MESSAGE,
				    "a channel of %u entries and %llu bytes of arena", entries,
				    (unsigned long long)arena_bytes);
		return false;
	}
	if (r != 0)
		return no_channel(peer, KVPOOL_REFUSAL_RESOURCES, strerror(-r));
	grant.channel = ch->number;
	grant.ring_entries = ch->geometry.entries;
	grant.arena_bytes = ch->geometry.arena_bytes;
	grant.total_bytes = ch->geometry.total;
	fds[0] = ch->memory.fd;
	fds[1] = ch->bell_in;
	fds[2] = ch->bell_out;
	r = kvpool_peer_io_send(peer->fd, &grant, sizeof(grant), fds, 3);
	if (r != 0 && is_shortage(r)) {
		kvpool_channel_free(ch);
		return no_channel(peer, KVPOOL_REFUSAL_RESOURCES, strerror(-r));
	}
	if (r != 0)
		return send_failed(peer, r);
	kvpool_memory_close_fd(&ch->memory);
	return true;
}

static void turn_away(struct kvpool_peer *peer)
{
	kvpool_peer_refuse(peer, KVPOOL_REFUSAL_DRAINING, "%s",
			   peer->server->leaving
				   ? "the daemon is about to leave"
				   : "the daemon is drained: it takes no new clients");
}

/* Whoever resumes may begin as a new client where its old one is not known. Else: peer is gone. */
static bool may_begin(struct kvpool_peer *peer, const struct kvpool_attach *m)
{
	if (m->flags & KVPOOL_ATTACH_RESUME && !peer->server->draining)
		return true;
	if (m->flags & KVPOOL_ATTACH_RESUME)
		turn_away(peer);
	else
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_TOKEN, KVPOOL_REFUSAL_TOKEN,
				    "nobody in this domain has that token");
	return false;
}

/* The client that the peer belongs to: new, joined or resumed. False: the peer is gone. */
static bool find_client(struct kvpool_peer *peer, const struct kvpool_attach *m, bool *resumed)
{
	struct kvpool_client *client = NULL;
	struct kvpool_domain *domain;
	int r;

	r = kvpool_domain_get(peer->server, peer->uid, &domain);
	if (r == 0 && (m->flags & (KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_RESUME))) {
		client = kvpool_client_find(domain, m->token);
		*resumed = client && m->flags & KVPOOL_ATTACH_RESUME;
		if (!client && !may_begin(peer, m)) {
			kvpool_domain_client_left(domain);
			return false;
		}
	}
	if (r == 0 && !client) {
		r = kvpool_client_new(domain, m->name, &client);
		if (r != 0)
			kvpool_domain_client_left(domain);
	}
	if (r == 0)
		r = *resumed ? kvpool_client_rejoin(client, peer, m->member_plus_1, m->name)
			     : kvpool_client_join(client, peer);
	if (r == 0)
		return true;
	if (r == KVPOOL_REFUSAL_LIMIT)
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_LIMIT, KVPOOL_REFUSAL_LIMIT,
				    "as many clients or members as allowed are attached");
	else
		kvpool_peer_refuse(peer, KVPOOL_REFUSAL_RESOURCES, "cannot attach: %s",
				   strerror(-r));
	return false;
}

static bool welcome(struct kvpool_peer *peer, const struct kvpool_attach *m, bool resumed)
{
	const struct kvpool_client *client = peer->client;
	const struct kvpool_server_config *config = &peer->server->config;
	struct kvpool_welcome w = {
		.head = {KVPOOL_MESSAGE_WELCOME, sizeof(w)},
		.version = m->version,
		.features = peer->features,
		.epoch = peer->server->epoch,
		.client = client->id,
		.member = peer->member,
		.segment_bytes = config->pool.segment_bytes,
		.extent_bytes = config->extent_bytes,
		.client_epoch = peer->features & KVPOOL_FEATURE_RESUME ? client->epoch : 0,
		.flags = resumed ? KVPOOL_WELCOME_RESUMED : 0,
	};
	int r;

	memcpy(w.token, client->token, sizeof(w.token));
	memcpy(w.domain, client->domain->name, sizeof(w.domain));
	r = kvpool_peer_io_send(peer->fd, &w, sizeof(w), NULL, 0);
	if (r == 0)
		return true;
	if (!is_shortage(r))
		return send_failed(peer, r);
	kvpool_peer_refuse(peer, KVPOOL_REFUSAL_RESOURCES, "cannot attach: %s", strerror(-r));
	return false;
}

/* Where the daemon only drains, a writer may need further members to finish. */
static bool is_turned_away(const struct kvpool_server *s, const struct kvpool_attach *m)
{
	return s->leaving ||
	       (s->draining && !(m->flags & (KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_RESUME)));
}

static bool on_attach(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_attach *m = packet;
	const char *fault = attach_fault(m);
	bool resumed = false;

	if (m->version < KVPOOL_PROTOCOL_MIN || m->version > KVPOOL_PROTOCOL_MAX) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_VERSION, KVPOOL_REFUSAL_VERSION,
				    "version %u: this daemon speaks %u to %u", m->version,
				    KVPOOL_PROTOCOL_MIN, KVPOOL_PROTOCOL_MAX);
		return false;
	}
	if (fault) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_FIELD, KVPOOL_REFUSAL_MESSAGE, "%s",
				    fault);
		return false;
	}
	if (is_turned_away(peer->server, m)) {
		turn_away(peer);
		return false;
	}
	if (!find_client(peer, m, &resumed))
		return false;
	kvpool_source_remove(peer->deadline);
	peer->deadline = NULL;
	peer->state = KVPOOL_PEER_ATTACHED;
	peer->server->n_pending--;
	peer->server->counters.attached++;
	peer->features = m->features & kvpool_server_features(peer->server);
	peer->read_only = (m->flags & KVPOOL_ATTACH_READ_ONLY) != 0;
	if (m->flags & KVPOOL_ATTACH_GPU)
		kvpool_client_set_gpu(peer->client);
	kvpool_log(KVPOOL_LOG_INFO, "client %u (%s) of %s: member %u is process %d%s%s",
		   peer->client->id, peer->client->name, peer->client->domain->name, peer->member,
		   (int)peer->pid, peer->read_only ? ", read-only" : "",
		   resumed ? ", resumed" : "");
	return welcome(peer, m, resumed) && give_channel(peer, m->ring_entries, m->arena_bytes);
}

static bool on_channel_get(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_channel_get *m = packet;

	if (m->reserved != 0) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_FIELD, KVPOOL_REFUSAL_MESSAGE,
				    "CHANNEL_GET: reserved bytes are not zero");
		return false;
	}
	return give_channel(peer, m->ring_entries, m->arena_bytes);
}

static bool on_channel_put(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_channel_put *m = packet;
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &peer->channels)
	{
		struct kvpool_channel *ch = kvpool_list_entry(node, struct kvpool_channel, link);

		if (ch->number == m->channel && !ch->closing) {
			kvpool_channel_close(ch);
			return true;
		}
	}
	kvpool_peer_violate(peer, KVPOOL_VIOLATION_FIELD, KVPOOL_REFUSAL_MESSAGE,
			    "CHANNEL_PUT: this member has no channel %u", m->channel);
	return false;
}

static uint32_t page_shift(enum kvpool_pages pages)
{
	return pages == KVPOOL_PAGES_1G ? 30 : pages == KVPOOL_PAGES_2M ? 21 : 12;
}

static bool on_segment_get(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_segment_get *m = packet;
	struct kvpool_segment_grant grant = {
		.head = {KVPOOL_MESSAGE_SEGMENT, sizeof(grant)},
		.segment = m->segment,
		.read_only = peer->read_only,
	};
	const struct kvpool_segment *segment;
	int fd, r;

	r = kvpool_domain_segment(peer->client->domain, m->segment, peer->read_only, &segment, &fd);
	if (r == KVPOOL_DOMAIN_E_UNKNOWN)
		return decline(peer, KVPOOL_REFUSAL_UNKNOWN, "no such segment in this domain");
	if (r != 0)
		return decline(peer, KVPOOL_REFUSAL_RESOURCES, strerror(-r));
	grant.node = segment->node;
	grant.bytes = segment->bytes;
	grant.page_shift = page_shift(segment->pages);
	r = kvpool_peer_io_send(peer->fd, &grant, sizeof(grant), &fd, 1);
	if (r != 0 && is_shortage(r))
		return decline(peer, KVPOOL_REFUSAL_RESOURCES, strerror(-r));
	return r == 0 || send_failed(peer, r);
}

static bool on_retire(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_retire *m = packet;

	kvpool_client_retire(peer->client->domain, m->token, peer, 0);
	return true;
}

static bool on_retire_member(struct kvpool_peer *peer, const void *packet)
{
	const struct kvpool_retire_member *m = packet;

	if (m->reserved != 0 || m->member == UINT32_MAX) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_FIELD, KVPOOL_REFUSAL_MESSAGE,
				    "RETIRE_MEMBER: member, or reserved bytes are not zero");
		return false;
	}
	kvpool_client_retire(peer->client->domain, m->token, peer, m->member + 1);
	return true;
}

static const struct {
	const char *name;
	uint32_t bytes; /* exactly; 0: clients do not send it */
	enum kvpool_peer_state state;
	bool (*handle)(struct kvpool_peer *peer, const void *packet); /* false: the peer is gone */
} messages[] = {
	[KVPOOL_MESSAGE_ATTACH] = {"ATTACH", sizeof(struct kvpool_attach), KVPOOL_PEER_GREETED,
				   on_attach},
	[KVPOOL_MESSAGE_CHANNEL_GET] = {"CHANNEL_GET", sizeof(struct kvpool_channel_get),
					KVPOOL_PEER_ATTACHED, on_channel_get},
	[KVPOOL_MESSAGE_SEGMENT_GET] = {"SEGMENT_GET", sizeof(struct kvpool_segment_get),
					KVPOOL_PEER_ATTACHED, on_segment_get},
	[KVPOOL_MESSAGE_CHANNEL_PUT] = {"CHANNEL_PUT", sizeof(struct kvpool_channel_put),
					KVPOOL_PEER_ATTACHED, on_channel_put},
	[KVPOOL_MESSAGE_RETIRE_MEMBER] = {"RETIRE_MEMBER", sizeof(struct kvpool_retire_member),
					  KVPOOL_PEER_ATTACHED, on_retire_member},
	[KVPOOL_MESSAGE_RETIRE] = {"RETIRE", sizeof(struct kvpool_retire), KVPOOL_PEER_ATTACHED,
				   on_retire},
};

bool kvpool_peer_message(struct kvpool_peer *peer, const void *packet, uint32_t bytes)
{
	struct kvpool_message head;

	if (bytes < sizeof(head)) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_SIZE, KVPOOL_REFUSAL_MESSAGE,
				    "a message of %u bytes has no head", bytes);
		return false;
	}
	memcpy(&head, packet, sizeof(head));
	if (head.type >= KVPOOL_ARRAY_SIZE(messages) || messages[head.type].bytes == 0) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_TYPE, KVPOOL_REFUSAL_MESSAGE,
				    "message type %u is not one that clients send", head.type);
		return false;
	}
	if (bytes != messages[head.type].bytes || head.bytes != bytes) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_SIZE, KVPOOL_REFUSAL_MESSAGE,
				    "%s of %u bytes that says %u: it has %u",
				    messages[head.type].name, bytes, head.bytes,
				    messages[head.type].bytes);
		return false;
	}
	if (peer->state != messages[head.type].state) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_STATE, KVPOOL_REFUSAL_MESSAGE, "%s %s",
				    messages[head.type].name,
				    peer->state == KVPOOL_PEER_GREETED ? "before ATTACH"
								       : "after WELCOME");
		return false;
	}
	return messages[head.type].handle(peer, packet);
}
