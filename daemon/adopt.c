/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new life of the daemon: see adopt.h.
 */
#include "daemon/adopt.h"

#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/ghost.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
}

static int adopt_domain(struct kvpool_server *s, struct kvpool_kept *kept,
			struct kvpool_kept_catalog *catalog)
{
	struct kvpool_cache_adopted result = {0};
	struct kvpool_domain *domain;
	int r;

	if (!all_known(kept, catalog->uid)) {
		kvpool_log(KVPOOL_LOG_WARNING,
			   "domain uid-%u starts empty: not every process that may write to its "
			   "blocks is known",
			   (unsigned int)catalog->uid);
		return 0;
	}
	r = kvpool_domain_adopt(s, catalog->uid, catalog->fd, &result, &domain);
	if (r == KVPOOL_CACHE_E_FOREIGN) {
		kvpool_log(KVPOOL_LOG_WARNING, "domain uid-%u starts empty: its catalog: %s",
			   (unsigned int)catalog->uid, result.fault);
		return 0;
	}
	if (r != 0)
		return r;
	kvpool_kill_point(KVPOOL_KILL_CATALOG_ADOPTED);
	catalog->fd = -1;
	add(&s->adoption.sum, &result);
	kvpool_log(KVPOOL_LOG_NOTICE,
		   "domain %s: %" PRIu64 " blocks kept; dropped: %" PRIu64 " torn, %" PRIu64
		   " misplaced, %" PRIu64 " orphaned; %" PRIu64 " were being written",
		   domain->name, result.blocks, result.torn, result.misplaced, result.orphaned,
		   result.unfinished);
	return 0;
}

/* A client of the earlier life: watched where it held something. */
static int adopt_client(struct kvpool_server *s, struct kvpool_kept *kept,
			struct kvpool_state_client *entry)
{
	struct kvpool_domain *domain = kvpool_domain_find(s, (uid_t)entry->uid);
	struct kvpool_ghost *ghost;
	int r;

	if (!domain || !entry->holding || processes_of(kept, entry->id) == 0) {
		kvpool_state_client_remove(entry);
		return 0;
	}
	r = kvpool_ghost_new(domain, entry, &ghost);
	for (uint32_t i = 0; r == 0 && i < kept->n_processes; i++) {
		struct kvpool_kept_process *p = &kept->processes[i];

		if (p->client != entry->id)
			continue;
		r = kvpool_ghost_watch(ghost, p->pid, p->pidfd, p->name);
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

		if (domain->n_ghosts > 0)
			continue;
		kvpool_cache_end_past(domain->cache);
		kvpool_kill_point(KVPOOL_KILL_PAST_ENDED);
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
