/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine and its member processes: see client.h.
 */
#include "daemon/client.h"

#include "daemon/ghost.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The last sixteenth of the places is for domains that have no client yet. */
static bool place_left(const struct kvpool_domain *domain)
{
	const struct kvpool_server *s = domain->server;
	uint32_t max = s->config.clients_max;

	return s->n_clients < (domain->n_clients == 0 ? max : max - max / 16);
}

/* The next life will know it. 0 or KVPOOL_REFUSAL_LIMIT. */
static int keep(struct kvpool_client *client, struct kvpool_state *state, uid_t uid)
{
	struct kvpool_state_client entry = {
		.id = client->id, .uid = (uint32_t)uid, .epoch = client->epoch};

	state->control->next_client = client->id;
	memcpy(entry.token, client->token, sizeof(entry.token));
	if (kvpool_state_client_add(state, &entry, &client->kept) != 0)
		return KVPOOL_REFUSAL_LIMIT;
	kvpool_kill_point(KVPOOL_KILL_CLIENT_NOTED);
	return 0;
}

/* The member's process is told to the next life. */
static void keep_member(struct kvpool_client *client, const struct kvpool_peer *peer)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	if (!client->kept)
		return;
	/*
	 * Counted in any case: where the store takes no more, the next life finds a process
	 * missing, and does not believe that it knows all who may write.
	 */
	kvpool_kept_process_name(client->id, peer->member, name);
	(void)kvpool_store_put(name, peer->pidfd);
	kvpool_kill_point(KVPOOL_KILL_MEMBER_STORED);
	client->kept->members++;
	kvpool_kill_point(KVPOOL_KILL_MEMBER_COUNTED);
}

static void forget_member(struct kvpool_client *client, const struct kvpool_peer *peer)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	if (!client->kept)
		return;
	client->kept->members--;
	kvpool_kill_point(KVPOOL_KILL_MEMBER_UNCOUNTED);
	kvpool_kept_process_name(client->id, peer->member, name);
	(void)kvpool_store_remove(name);
}

void kvpool_client_set_gpu(struct kvpool_client *client)
{
	client->gpu = true;
	if (client->kept)
		kvpool_state_client_flag(client->kept, KVPOOL_STATE_GPU);
}

void kvpool_client_holds(struct kvpool_client *client)
{
	if (client->kept)
		client->kept->holding = 1;
}

void kvpool_client_released(struct kvpool_client *client)
{
	if (!client->kept || !client->kept->holding)
		return;
	if (client->past)
		kvpool_client_look_past(client);
	if (!client->past && !kvpool_cache_holder_holds(client->holder))
		client->kept->holding = 0;
}

int kvpool_client_new(struct kvpool_domain *domain, const char *name, struct kvpool_client **out)
{
	struct kvpool_server *s = domain->server;
	struct kvpool_client *client;
	int r;

	if (!place_left(domain))
		return KVPOOL_REFUSAL_LIMIT;
	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	if (getrandom(client->token, sizeof(client->token), 0) != sizeof(client->token)) {
		free(client);
		return -EIO;
	}
	client->id = ++s->next_client;
	client->epoch = s->epoch;
	client->resumable = true;
	r = kvpool_cache_holder_new(domain->cache, client->id, &client->holder);
	if (r != 0) {
		free(client);
		return r;
	}
	if (s->config.pool.state) {
		r = keep(client, s->config.pool.state, domain->uid);
		if (r != 0) {
			kvpool_cache_holder_free(domain->cache, client->holder);
			free(client);
			return r;
		}
	}
	client->server = s;
	client->domain = domain;
	client->last_ns = s->now_ns;
	(void)strncpy(client->name, name, sizeof(client->name) - 1);
	kvpool_list_init(&client->members);
	kvpool_list_init(&client->ghosts);
	kvpool_list_append(&s->clients, &client->link);
	s->n_clients++;
	domain->n_clients++;
	*out = client;
	return 0;
}

bool kvpool_client_token_equal(const uint8_t a[KVPOOL_TOKEN_BYTES],
			       const uint8_t b[KVPOOL_TOKEN_BYTES])
{
	uint8_t diff = 0;
	unsigned int i;

	for (i = 0; i < KVPOOL_TOKEN_BYTES; i++)
		diff = (uint8_t)(diff | (a[i] ^ b[i]));
	return diff == 0;
}

struct kvpool_client *kvpool_client_find(struct kvpool_domain *domain,
					 const uint8_t token[KVPOOL_TOKEN_BYTES])
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->server->clients)
	{
		struct kvpool_client *client = kvpool_list_entry(node, struct kvpool_client, link);

		if (client->domain == domain && !client->ended && client->resumable &&
		    kvpool_client_token_equal(client->token, token))
			return client;
	}
	return NULL;
}

static void add_member(struct kvpool_client *client, struct kvpool_peer *peer)
{
	peer->client = client;
	kvpool_list_append(&client->members, &peer->member_link);
	client->n_members++;
	client->n_open++;
}

int kvpool_client_join(struct kvpool_client *client, struct kvpool_peer *peer)
{
	assert(!client->ended);
	if (client->n_members >= KVPOOL_CLIENT_MEMBERS_MAX)
		return KVPOOL_REFUSAL_LIMIT;
	peer->member = client->next_member++;
	keep_member(client, peer);
	add_member(client, peer);
	return 0;
}

int kvpool_client_rejoin(struct kvpool_client *client, struct kvpool_peer *peer, uint32_t was,
			 const char *name)
{
	assert(!client->ended);
	if (client->n_members >= KVPOOL_CLIENT_MEMBERS_MAX)
		return KVPOOL_REFUSAL_LIMIT;
	/* First: the client is not to seem to be all there in between. */
	peer->claiming = true;
	client->n_claiming++;
	if (client->name[0] == '\0')
		(void)strncpy(client->name, name, sizeof(client->name) - 1);
	if (!kvpool_client_back(client, peer, was)) {
		peer->member = client->next_member++;
		keep_member(client, peer);
	}
	add_member(client, peer);
	return 0;
}

static void drop_member(struct kvpool_client *client, struct kvpool_peer *peer)
{
	kvpool_list_remove(&peer->member_link);
	forget_member(client, peer);
	client->n_claiming -= peer->claiming;
	client->n_members--;
	kvpool_peer_free(peer);
}

void kvpool_client_free(struct kvpool_client *client)
{
	struct kvpool_domain *domain = client->domain;
	struct kvpool_list *node, *spare;

	assert(client->n_open == 0 && client->n_channels == 0 && client->channel_bytes == 0);
	kvpool_list_each(node, spare, &client->members)
		drop_member(client, kvpool_list_entry(node, struct kvpool_peer, member_link));
	assert(client->n_members == 0);
	kvpool_list_each(node, spare, &client->ghosts)
		kvpool_ghost_free(kvpool_list_entry(node, struct kvpool_ghost, link));
	kvpool_source_remove(client->grace);
	kvpool_cache_holder_free(domain->cache, client->holder);
	kvpool_kill_point(KVPOOL_KILL_CLIENT_FREED);
	kvpool_state_client_remove(client->kept);
	kvpool_list_remove(&client->link);
	client->server->n_clients--;
	domain->n_clients--;
	if (client->past)
		kvpool_domain_past_left(domain);
	explicit_bzero(client->token, sizeof(client->token));
	free(client);
	kvpool_domain_client_left(domain);
}

static void grace_over(void *cookie, uint32_t events)
{
	(void)events;
	kvpool_client_free(cookie);
}

static bool all_gone(const struct kvpool_client *client)
{
	struct kvpool_list *node, *spare;

	if (client->n_ghosts > 0)
		return false;
	kvpool_list_each(node, spare, &client->members)
	{
		if (!kvpool_peer_proven_gone(
			    kvpool_list_entry(node, struct kvpool_peer, member_link)))
			return false;
	}
	return true;
}

/* Frees a client that holds nothing, or whose processes can write no more. */
static void free_if_over(struct kvpool_client *client)
{
	struct kvpool_holder_usage usage;

	if (!client->ended || client->grace)
		return;
	kvpool_cache_holder_usage(client->holder, &usage);
	/* Somebody may read or write what is nobody's, too, where not all is known. */
	if (usage.quarantined_blocks == 0 && !client->past) {
		kvpool_client_free(client);
		return;
	}
	if (!all_gone(client))
		return;
	if (client->gpu &&
	    kvpool_loop_add_timer(client->server->loop, grace_over, client, &client->grace) == 0) {
		kvpool_source_set_timer(client->grace,
					kvpool_clock_ns() + KVPOOL_CLIENT_GPU_GRACE_NS);
		return;
	}
	kvpool_client_free(client);
}

/* No member is served any more: nothing of it may become READY, nothing is read any more. */
static void end(struct kvpool_client *client)
{
	struct kvpool_holder_usage usage;

	client->ended = true;
	/* First: what it held is not to be gone for a next life that takes it for there. */
	if (client->kept)
		kvpool_state_client_never_resumes(client->kept);
	kvpool_cache_holder_quarantine(client->domain->cache, client->holder);
	kvpool_kill_point(KVPOOL_KILL_CLIENT_ENDED);
	kvpool_cache_holder_usage(client->holder, &usage);
	assert(usage.leases == 0 && usage.reserved_blocks == 0 && usage.waits == 0);
	kvpool_log(KVPOOL_LOG_INFO, "client %u (%s) left; %u blocks in quarantine", client->id,
		   client->name, usage.quarantined_blocks);
}

/*
 * Is another peer of this client watching the same process? Two pidfds of living processes with one
 * pid are of one process.
 */
static bool watched_by_another(const struct kvpool_client *client, const struct kvpool_peer *peer)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &client->members)
	{
		const struct kvpool_peer *other =
			kvpool_list_entry(node, struct kvpool_peer, member_link);

		if (other != peer && other->pid == peer->pid && peer->pid > 0 &&
		    kvpool_peer_alive(other) && kvpool_peer_alive(peer))
			return true;
	}
	return false;
}

/* Nothing of it is to be waited for, or what there is another peer waits for too. */
static bool watched_enough(const struct kvpool_client *client, const struct kvpool_peer *peer)
{
	return peer->fd < 0 &&
	       (peer->gone || (!peer->claiming && watched_by_another(client, peer)));
}

void kvpool_client_leave(struct kvpool_client *client, struct kvpool_peer *peer)
{
	assert(kvpool_list_empty(&peer->channels));
	client->n_open--;
	if (watched_enough(client, peer))
		drop_member(client, peer);
	kvpool_client_look(client);
}

void kvpool_client_look(struct kvpool_client *client)
{
	if (client->n_open == 0 && client->n_ghosts == 0 && client->n_claiming == 0 &&
	    !client->ended)
		end(client);
	if (client->past)
		kvpool_client_look_past(client);
	free_if_over(client);
}

void kvpool_client_member_news(struct kvpool_client *client, struct kvpool_peer *peer)
{
	assert(peer->state == KVPOOL_PEER_OVER);
	if (watched_enough(client, peer))
		drop_member(client, peer);
	kvpool_client_look(client);
}

static struct kvpool_peer *first_served(const struct kvpool_client *client)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &client->members)
	{
		struct kvpool_peer *peer = kvpool_list_entry(node, struct kvpool_peer, member_link);

		if (peer->state == KVPOOL_PEER_ATTACHED)
			return peer;
	}
	return NULL;
}

void kvpool_client_evict(struct kvpool_client *client)
{
	uint32_t left = client->n_open;

	assert(!client->ended);
	client->evicted = true;
	/* As if one were not back yet: so it is there when the last one has left. */
	client->n_claiming++;
	while (left-- > 0)
		kvpool_peer_refuse(first_served(client), KVPOOL_REFUSAL_EVICTED,
				   "evicted by the operator");
	client->n_claiming--;
	end(client);
	kvpool_client_look(client);
}
