/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of an earlier life: see ghost.h.
 */
#include "daemon/ghost.h"

#include "daemon/client.h"
#include "daemon/kill_point.h"
#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446
#endif

static void process_gone(void *cookie, uint32_t events)
{
	struct kvpool_ghost *ghost = cookie;

	(void)events;
	kvpool_client_ghost_gone(ghost->client, ghost);
}

int kvpool_ghost_new(struct kvpool_client *client, pid_t pid, int pidfd, uint32_t member,
		     const char *name, struct kvpool_ghost **out)
{
	struct kvpool_ghost *ghost = calloc(1, sizeof(*ghost));
	int r;

	if (!ghost)
		return -ENOMEM;
	r = kvpool_loop_add_fd(client->server->loop, pidfd, POLLIN, process_gone, ghost,
			       &ghost->source);
	if (r != 0) {
		free(ghost);
		return r;
	}
	ghost->client = client;
	ghost->pidfd = pidfd;
	ghost->pid = pid;
	ghost->member = member;
	(void)snprintf(ghost->name, sizeof(ghost->name), "%s", name);
	kvpool_list_append(&client->ghosts, &ghost->link);
	client->n_ghosts++;
	*out = ghost;
	return 0;
}

static void destroy(struct kvpool_ghost *ghost)
{
	kvpool_source_remove(ghost->source);
	(void)close(ghost->pidfd);
	kvpool_list_remove(&ghost->link);
	ghost->client->n_ghosts--;
	free(ghost);
}

void kvpool_ghost_free(struct kvpool_ghost *ghost)
{
	struct kvpool_client *client = ghost->client;

	/* First: the next life must find no fewer processes than are counted. */
	if (client->kept)
		client->kept->members--;
	(void)kvpool_store_remove(ghost->name);
	kvpool_kill_point(KVPOOL_KILL_GHOST_DONE);
	destroy(ghost);
}

void kvpool_ghost_hand_over(struct kvpool_ghost *ghost, struct kvpool_peer *peer)
{
	peer->member = ghost->member;
	destroy(ghost);
}

/* Since Linux 6.9 a pidfd has an inode of its process's own. */
static bool same_inode(int a, int b)
{
	struct stat x, y;
	struct statfs fs;

	return fstatfs(a, &fs) == 0 && fs.f_type == PID_FS_MAGIC && fstat(a, &x) == 0 &&
	       fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool kvpool_ghost_same(pid_t pid, int pidfd, const struct kvpool_peer *peer)
{
	/* Both live, so that one pid is one process. */
	return pid > 0 ? pid == peer->pid : same_inode(pidfd, peer->pidfd);
}
