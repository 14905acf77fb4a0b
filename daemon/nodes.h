/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NUMA nodes whose memory this process may use, and binding memory to one of them.
 *
 * Read once at start; stateless, usable from any thread.
 */
#ifndef KVPOOL_DAEMON_NODES_H
#define KVPOOL_DAEMON_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVPOOL_NODES_MAX 256u
#define KVPOOL_NODE_NONE UINT32_MAX

struct kvpool_nodes {
	uint32_t n; /* at least 1 */
	uint16_t ids[KVPOOL_NODES_MAX];
};

/* One node with id 0 where the kernel knows of no NUMA. */
void kvpool_nodes_find(struct kvpool_nodes *out);

/*
 * Decides where the pages of a mapping come from that are not there yet. `strict`: from nowhere
 * else; otherwise from elsewhere when the node is full, rather than have the kernel kill a process
 * for it. Negative errno: -EPERM and -ENOSYS where a container refuses.
 */
int kvpool_nodes_bind(void *start, size_t bytes, uint32_t node, bool strict);

#endif
