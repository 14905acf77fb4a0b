/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory this host lets the daemon use: /proc/meminfo, its control groups, huge pages.
 *
 * A snapshot in plain numbers. Stateless; usable from any thread. The files are looked up below a
 * root directory, so that a test can lay out a host of its own.
 */
#ifndef KVPOOL_DAEMON_HOST_H
#define KVPOOL_DAEMON_HOST_H

#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_HOST_UNLIMITED UINT64_MAX

struct kvpool_host {
	uint64_t available;    /* MemAvailable */
	uint64_t cgroup_limit; /* the limit that leaves least room; KVPOOL_HOST_UNLIMITED: none */
	uint64_t cgroup_room;  /* what that limit leaves; file pages that can go count as room */
	uint64_t free_2m;      /* free, unreserved huge pages of 2 MiB, in bytes */
	uint64_t free_1g;      /* likewise of 1 GiB */
	bool thp;              /* shared memory may be given transparent huge pages */
	bool swap;             /* swap is on: what is not on huge pages could reach a disk */
};

/* `root`: "" for this host. -ENODATA where MemAvailable cannot be read. */
int kvpool_host_read(const char *root, struct kvpool_host *out);

/* Only what is needed between two steps: the smaller of MemAvailable and the control group's room.
 */
int kvpool_host_room(const char *root, uint64_t *out);

#endif
