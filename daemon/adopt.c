/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new life of the daemon: see adopt.h.
 */
#include "daemon/adopt.h"

#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What it took over is not what this life will end of. */
static void lasted(void *cookie, uint32_t events)
{
	struct kvpool_server *s = cookie;

	(void)events;
	s->config.pool.state->control->crashes = 0;
}

static uint32_t processes_of(const struct kvpool_kept *kept, uint32_t client)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kept->n_processes; i++)
		n += kept->processes[i].client == client;
	return n;
}

/* Whether every process is known that may write to blocks of this user's domain. */
static bool all_known(struct kvpool_kept *kept, uid_t uid)
{
	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		const struct kvpool_state_client *entry = &kept->state->clients[i];

		if (entry->id == 0)
			continue;
		/* An entry that rotted may have been anybody's. */
		if (!kvpool_state_client_valid(entry))
			return false;
		if (entry->uid == uid && entry->holding &&
		    processes_of(kept, entry->id) < entry->members)
			return false;
	}
	return true;
}

static void add(struct kvpool_cache_adopted *sum, const struct kvpool_cache_adopted *one)
{
	sum->layouts += one->layouts;
	sum->layouts_dropped += one->layouts_dropped;
	sum->blocks += one->blocks;
	sum->torn += one->torn;
	sum->misplaced += one->misplaced;
	sum->orphaned += one->orphaned;
	sum->unfinished += one->unfinished;
	sum->quarantined += one->quarantined;
	sum->writing += one->writing;
	sum->leases += one->leases;
}

static int ascending(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The clients of a user's domain whose processes are there. -ENOMEM. */
static int find_clients(struct kvpool_kept *kept, struct kvpool_domain_left *left)
{
	uint32_t *clients = calloc(KVPOOL_STATE_CLIENTS_MAX, sizeof(*clients));

	if (!clients)
		return -ENOMEM;
	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		const struct kvpool_state_client *entry = &kept->state->clients[i];

		if (entry->id == 0 || entry->uid != left->uid || processes_of(kept, entry->id) == 0)
			continue;
		if (kvpool_state_client_resumable(entry))
			clients[left->n_clients++] = entry->id;
		else
			left->others |= entry->holding != 0;
	}
	qsort(clients, left->n_clients, sizeof(*clients), ascending);
	left->clients = clients;
	return 0;
}

struct losers {
	struct kvpool_state *state; /* borrowed */
	uid_t uid;
};

/*
 * Leases of this user's clients are lost. One that resumed would read on what it holds no more; it
 * begins anew, and says when it has let go of the old.
 */
static void leases_lost(void *cookie)
{
	const struct losers *losers = cookie;

	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		struct kvpool_state_client *entry = &losers->state->clients[i];

		if (entry->id != 0 && entry->uid == losers->uid && entry->holding)
			kvpool_state_client_never_resumes(entry);
	}
}

/* The notes of a user's leases; -1 where they did not come back. Stays the caller's. */
static int *notes_of(struct kvpool_kept *kept, uid_t uid)
{
	static int none = -1;

	for (uint32_t i = 0; i < kept->n_notes; i++) {
		if (kept->notes[i].uid == uid)
			return &kept->notes[i].fd;
	}
	return &none;
}

static int make_domain(struct kvpool_server *s, struct kvpool_kept *kept,
		       struct kvpool_kept_catalog *catalog, struct kvpool_cache_adopted *result,
		       struct kvpool_domain **domain)
{
	int *notes = notes_of(kept, catalog->uid);
	struct losers losers = {kept->state, catalog->uid};
	struct kvpool_domain_left left = {.uid = catalog->uid,
					  .catalog = catalog->fd,
					  .notes = *notes,
					  .lost = leases_lost,
					  .cookie = &losers};
	int r = find_clients(kept, &left);

	if (r != 0)
		return r;
	r = kvpool_domain_adopt(s, &left, result, domain);
	free((void *)left.clients);
	if (r != 0)
		return r;
	catalog->fd = -1;
	/* Notes of no use were replaced by new ones. */
	if (*notes >= 0 && (*domain)->notes.fd != *notes)
		(void)close(*notes);
	*notes = -1;
	return 0;
}

static int adopt_domain(struct kvpool_server *s, struct kvpool_kept *kept,
			struct kvpool_kept_catalog *catalog)
{
	struct kvpool_cache_adopted result = {0};
	bool came_back = *notes_of(kept, catalog->uid) >= 0;
	struct kvpool_domain *domain;
	int r;

	if (!all_known(kept, catalog->uid)) {
		kvpool_log(KVPOOL_LOG_WARNING,
			   "domain uid-%u starts empty: not every process that may write to its "
			   "blocks is known",
			   (unsigned int)catalog->uid);
		s->adoption.domains_empty++;
		return 0;
	}
	r = make_domain(s, kept, catalog, &result, &domain);
	if (r == KVPOOL_CACHE_E_FOREIGN) {
		kvpool_log(KVPOOL_LOG_WARNING, "domain uid-%u starts empty: its catalog: %s",
			   (unsigned int)catalog->uid, result.fault);
		s->adoption.domains_empty++;
		return 0;
	}
	if (r != 0)
		return r;
	kvpool_kill_point(KVPOOL_KILL_CATALOG_ADOPTED);
	if (result.notes_fault)
		kvpool_log(KVPOOL_LOG_NOTICE, "domain %s: its leases are not known: %s",
			   domain->name,
			   came_back ? result.notes_fault : "their notes did not come back");
	add(&s->adoption.sum, &result);
	kvpool_log(KVPOOL_LOG_NOTICE,
		   "domain %s: %" PRIu64 " blocks kept; dropped: %" PRIu64 " torn, %" PRIu64
		   " misplaced, %" PRIu64 " orphaned; %" PRIu64 " were being written, %" PRIu64
		   " go on; %" PRIu64 " leases%s",
		   domain->name, result.blocks, result.torn, result.misplaced, result.orphaned,
		   result.unfinished, result.writing, result.leases,
		   result.all_leases ? "" : ", not all are known");
	return 0;
}

/* A client of the earlier life, if it is there and may come back or holds something. */
static int adopt_client(struct kvpool_server *s, struct kvpool_kept *kept,
			struct kvpool_state_client *entry)
{
	struct kvpool_domain *domain = kvpool_domain_find(s, (uid_t)entry->uid);
	struct kvpool_client *client;
	int r;

	if (!domain || processes_of(kept, entry->id) == 0 ||
	    (!entry->holding && !kvpool_state_client_resumable(entry))) {
		kvpool_state_client_remove(entry);
		return 0;
	}
	r = kvpool_client_adopt(domain, entry, &client);
	for (uint32_t i = 0; r == 0 && i < kept->n_processes; i++) {
		struct kvpool_kept_process *p = &kept->processes[i];

		if (p->client != entry->id)
			continue;
		r = kvpool_client_add_ghost(client, p->pid, p->pidfd, p->member, p->name);
		if (r == 0)
			p->pidfd = -1;
	}
	return r;
}

static int adopt_clients(struct kvpool_server *s, struct kvpool_kept *kept)
{
	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		struct kvpool_state_client *entry = &kept->state->clients[i];
		int r;

		if (entry->id == 0)
			continue;
		s->next_client = KVPOOL_MAX(s->next_client, entry->id);
		r = adopt_client(s, kept, entry);
		if (r != 0)
			return r;
	}
	s->next_client = KVPOOL_MAX(s->next_client, kept->state->control->next_client);
	return 0;
}

/* Where nobody of the earlier life holds anything its past is over. */
static void end_pasts(struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &s->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);

		if (domain->n_past == 0) {
			kvpool_cache_end_past(domain->cache);
			kvpool_kill_point(KVPOOL_KILL_PAST_ENDED);
		}
		kvpool_domain_client_left(domain);
	}
}

int kvpool_adopt(struct kvpool_server *s, struct kvpool_kept *kept)
{
	struct kvpool_state_control *control = s->config.pool.state->control;
	uint64_t begun = kvpool_clock_ns();
	int r;

	control->lives++;
	r = kvpool_loop_add_timer(s->loop, lasted, s, &s->lasted);
	if (r != 0)
		return r;
	kvpool_source_set_timer(s->lasted, begun + s->config.crash_window * KVPOOL_NS_PER_S);
	/* Else it might be killed before the timer runs out. */
	if (s->config.crash_window == 0)
		control->crashes = 0;
	if (!kept)
		return 0;
	for (uint32_t i = 0; r == 0 && i < kept->n_catalogs; i++)
		r = adopt_domain(s, kept, &kept->catalogs[i]);
	/* This life is not to be: what it has not claimed is not nobody's. */
	if (r != 0)
		return r;
	kvpool_pool_claimed(s->pool);
	kvpool_kill_point(KVPOOL_KILL_SEGMENTS_CLAIMED);
	r = adopt_clients(s, kept);
	if (r != 0)
		return r;
	kvpool_kill_point(KVPOOL_KILL_CLIENTS_ADOPTED);
	s->adoption.any = true;
	s->adoption.dropped = kept->dropped;
	end_pasts(s);
	kvpool_kept_finish(kept);
	s->adoption.ns = kvpool_clock_ns() - begun;
	return 0;
}
