/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of an earlier life: see ghost.h.
 */
#include "daemon/ghost.h"

#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/state.h"
#include "daemon/store.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kvpool_ghost {
	struct kvpool_list link;           /* in domain->ghosts */
	struct kvpool_domain *domain;      /* borrowed */
	struct kvpool_state_client *entry; /* owned: in the state */
	struct kvpool_list processes;      /* owned: struct process */
	struct kvpool_source *grace;       /* owned; NULL: not running */
	uint32_t id;
};

struct process {
	struct kvpool_list link;
	struct kvpool_ghost *ghost;   /* borrowed */
	struct kvpool_source *source; /* owned: the pidfd */
	int pidfd;                    /* owned */
	pid_t pid;
	char name[KVPOOL_STORE_NAME_BYTES];
};

int kvpool_ghost_new(struct kvpool_domain *domain, struct kvpool_state_client *entry,
		     struct kvpool_ghost **out)
{
	struct kvpool_ghost *ghost = calloc(1, sizeof(*ghost));

	if (!ghost)
		return -ENOMEM;
	ghost->domain = domain;
	ghost->entry = entry;
	ghost->id = entry->id;
	kvpool_list_init(&ghost->processes);
	kvpool_list_append(&domain->ghosts, &ghost->link);
	domain->n_ghosts++;
	*out = ghost;
	return 0;
}

static void process_free(struct process *process)
{
	kvpool_source_remove(process->source);
	(void)kvpool_store_remove(process->name);
	(void)close(process->pidfd);
	kvpool_list_remove(&process->link);
	free(process);
}

static void ghost_free(struct kvpool_ghost *ghost)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &ghost->processes)
		process_free(kvpool_list_entry(node, struct process, link));
	kvpool_source_remove(ghost->grace);
	kvpool_state_client_remove(ghost->entry);
	kvpool_list_remove(&ghost->link);
	ghost->domain->n_ghosts--;
	free(ghost);
}

static void end(struct kvpool_ghost *ghost)
{
	struct kvpool_domain *domain = ghost->domain;

	kvpool_log(KVPOOL_LOG_INFO, "client %u of the earlier life holds nothing any more",
		   ghost->id);
	ghost_free(ghost);
	kvpool_kill_point(KVPOOL_KILL_GHOST_DONE);
	if (domain->n_ghosts > 0)
		return;
	kvpool_cache_end_past(domain->cache);
	kvpool_domain_client_left(domain);
}

static void grace_over(void *cookie, uint32_t events)
{
	(void)events;
	end(cookie);
}

static void end_if_over(struct kvpool_ghost *ghost)
{
	struct kvpool_loop *loop = ghost->domain->server->loop;

	if (ghost->grace || !kvpool_list_empty(&ghost->processes))
		return;
	if (ghost->entry->flags & KVPOOL_STATE_GPU &&
	    kvpool_loop_add_timer(loop, grace_over, ghost, &ghost->grace) == 0)
		kvpool_source_set_timer(ghost->grace,
					kvpool_clock_ns() + KVPOOL_CLIENT_GPU_GRACE_NS);
	else
		end(ghost);
}

static void process_gone(void *cookie, uint32_t events)
{
	struct process *process = cookie;
	struct kvpool_ghost *ghost = process->ghost;

	(void)events;
	process_free(process);
	end_if_over(ghost);
}

int kvpool_ghost_watch(struct kvpool_ghost *ghost, pid_t pid, int pidfd, const char *name)
{
	struct process *process = calloc(1, sizeof(*process));
	int r;

	if (!process)
		return -ENOMEM;
	r = kvpool_loop_add_fd(ghost->domain->server->loop, pidfd, POLLIN, process_gone, process,
			       &process->source);
	if (r != 0) {
		free(process);
		return r;
	}
	process->ghost = ghost;
	process->pidfd = pidfd;
	process->pid = pid;
	(void)snprintf(process->name, sizeof(process->name), "%s", name);
	kvpool_list_append(&ghost->processes, &process->link);
	return 0;
}

static struct kvpool_ghost *find(struct kvpool_domain *domain, const uint8_t *token)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->ghosts)
	{
		struct kvpool_ghost *ghost = kvpool_list_entry(node, struct kvpool_ghost, link);

		if (kvpool_client_token_equal(ghost->entry->token, token))
			return ghost;
	}
	return NULL;
}

void kvpool_ghost_retire(struct kvpool_domain *domain, const uint8_t token[KVPOOL_TOKEN_BYTES],
			 pid_t pid)
{
	struct kvpool_ghost *ghost = find(domain, token);
	struct kvpool_list *node, *spare;

	if (!ghost || pid <= 0)
		return;
	kvpool_list_each(node, spare, &ghost->processes)
	{
		struct process *process = kvpool_list_entry(node, struct process, link);

		if (process->pid == pid)
			process_free(process);
	}
	/* Its word is as good as its end, and a device has finished what it waited for. */
	if (kvpool_list_empty(&ghost->processes) && !ghost->grace)
		end(ghost);
}

void kvpool_ghost_free_all(struct kvpool_domain *domain)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->ghosts)
		ghost_free(kvpool_list_entry(node, struct kvpool_ghost, link));
}
