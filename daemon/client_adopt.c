/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that outlived its daemon: see client.h.
 *
 * It holds what it held: its leases and reservations are in its holder. What an answer granted that
 * no process ever read is among them, so each process that is back says what it holds, and the rest
 * ends once every one has said so, has let go or is gone. Until all that an earlier life granted is
 * given back the client has a past, and with it its domain.
 */
#include "daemon/client.h"

#include "daemon/ghost.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvpool_client_adopt(struct kvpool_domain *domain, struct kvpool_state_client *entry,
			struct kvpool_client **out)
{
	struct kvpool_server *s = domain->server;
	struct kvpool_client *client = calloc(1, sizeof(*client));
	int r = 0;

	if (!client)
		return -ENOMEM;
	client->holder = kvpool_cache_holder_find(domain->cache, entry->id);
	if (!client->holder)
		r = kvpool_cache_holder_new(domain->cache, entry->id, &client->holder);
	if (r != 0) {
		free(client);
		return r;
	}
	client->server = s;
	client->domain = domain;
	client->kept = entry;
	client->id = entry->id;
	client->epoch = entry->epoch;
	client->resumable = kvpool_state_client_resumable(entry);
	/* It may have been granted something and not be told. */
	client->past = entry->holding != 0 || kvpool_cache_holder_has_past(client->holder);
	entry->holding = client->past;
	client->gpu = (entry->flags & KVPOOL_STATE_GPU) != 0;
	client->last_ns = s->now_ns;
	memcpy(client->token, entry->token, sizeof(client->token));
	kvpool_list_init(&client->members);
	kvpool_list_init(&client->ghosts);
	kvpool_list_append(&s->clients, &client->link);
	s->n_clients++;
	domain->n_clients++;
	domain->n_past += client->past;
	*out = client;
	return 0;
}

int kvpool_client_add_ghost(struct kvpool_client *client, pid_t pid, int pidfd, uint32_t member,
			    const char *name)
{
	struct kvpool_ghost *ghost;
	int r = kvpool_ghost_new(client, pid, pidfd, member, name, &ghost);

	if (r == 0 && member >= client->next_member)
		client->next_member = member + 1;
	return r;
}

void kvpool_client_look_past(struct kvpool_client *client)
{
	if (client->n_ghosts > 0 || client->n_claiming > 0 || client->disputed || client->grace)
		return;
	kvpool_cache_claims_end(client->domain->cache, client->holder);
	kvpool_kill_point(KVPOOL_KILL_CLAIMS_ENDED);
	if (!client->past || kvpool_cache_holder_has_past(client->holder))
		return;
	kvpool_log(KVPOOL_LOG_INFO, "client %u holds nothing of an earlier life any more",
		   client->id);
	client->past = false;
	kvpool_domain_past_left(client->domain);
}

/* One less is missing. */
static void look(struct kvpool_client *client)
{
	kvpool_client_look_past(client);
	kvpool_client_released(client);
	kvpool_client_look(client);
}

static void grace_over(void *cookie, uint32_t events)
{
	struct kvpool_client *client = cookie;

	(void)events;
	kvpool_source_remove(client->grace);
	client->grace = NULL;
	look(client);
}

void kvpool_client_ghost_gone(struct kvpool_client *client, struct kvpool_ghost *ghost)
{
	struct kvpool_loop *loop = client->server->loop;

	kvpool_ghost_free(ghost);
	/* Its device may still write to what nobody claims. */
	if (client->gpu && !client->grace &&
	    kvpool_loop_add_timer(loop, grace_over, client, &client->grace) == 0)
		kvpool_source_set_timer(client->grace,
					kvpool_clock_ns() + KVPOOL_CLIENT_GPU_GRACE_NS);
	if (!client->grace)
		look(client);
}

/*
 * A ghost that is this peer's process, the one with number `was` - 1 where there is such a one;
 * NULL: none.
 */
static struct kvpool_ghost *ghost_of(const struct kvpool_client *client,
				     const struct kvpool_peer *peer, uint32_t was)
{
	struct kvpool_ghost *found = NULL;
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &client->ghosts)
	{
		struct kvpool_ghost *ghost = kvpool_list_entry(node, struct kvpool_ghost, link);

		if (!kvpool_ghost_same(ghost->pid, ghost->pidfd, peer))
			continue;
		if (!found || ghost->member + 1 == was)
			found = ghost;
	}
	return found;
}

/*
 * A member that was lost before it had said what it holds is this peer's handle: it says so now.
 * Perhaps the end of its socket was not seen yet.
 */
static bool lost_no_more(struct kvpool_client *client, const struct kvpool_peer *peer, uint32_t was)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &client->members)
	{
		struct kvpool_peer *lost = kvpool_list_entry(node, struct kvpool_peer, member_link);

		if (lost == peer || !lost->claiming ||
		    (lost->state != KVPOOL_PEER_OVER && lost->member + 1 != was) ||
		    !kvpool_ghost_same(lost->pid, lost->pidfd, peer))
			continue;
		lost->claiming = false;
		client->n_claiming--;
		return true;
	}
	return false;
}

/* A handle of the peer's process, this or any, is not missing any more. False: none was. */
static bool let_go(struct kvpool_client *client, const struct kvpool_peer *peer, uint32_t was)
{
	struct kvpool_ghost *ghost = ghost_of(client, peer, was);

	if (ghost && was != 0 && ghost->member + 1 != was)
		return false;
	if (!ghost)
		return was == 0 && lost_no_more(client, peer, 0);
	kvpool_ghost_free(ghost);
	return true;
}

void kvpool_client_retire(struct kvpool_domain *domain, const uint8_t token[KVPOOL_TOKEN_BYTES],
			  const struct kvpool_peer *peer, uint32_t was)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->server->clients)
	{
		struct kvpool_client *client = kvpool_list_entry(node, struct kvpool_client, link);

		if (client->domain != domain || !kvpool_client_token_equal(client->token, token))
			continue;
		/* Its word is as good as its end, and a device has finished what it waited for. */
		if (let_go(client, peer, was) && !client->grace)
			look(client);
		return;
	}
}

bool kvpool_client_back(struct kvpool_client *client, struct kvpool_peer *peer, uint32_t was)
{
	struct kvpool_ghost *ghost = ghost_of(client, peer, was);

	if (ghost)
		kvpool_ghost_hand_over(ghost, peer);
	else
		(void)lost_no_more(client, peer, was);
	kvpool_kill_point(KVPOOL_KILL_CLIENT_BACK);
	return ghost != NULL;
}

void kvpool_client_claimed(struct kvpool_client *client, struct kvpool_peer *peer)
{
	if (!peer->claiming)
		return;
	peer->claiming = false;
	client->n_claiming--;
	kvpool_kill_point(KVPOOL_KILL_CLAIMS_TAKEN);
	kvpool_client_look_past(client);
}
