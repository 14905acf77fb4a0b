/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NUMA nodes by libnuma: see nodes.h.
 */
#include "daemon/nodes.h"

#include <errno.h>
#include <limits.h>
#include <numa.h>
#include <numaif.h>
#include <string.h>

#define LONG_BITS (sizeof(unsigned long) * CHAR_BIT)

void kvpool_nodes_find(struct kvpool_nodes *out)
{
	struct bitmask *allowed;

	memset(out, 0, sizeof(*out));
	if (numa_available() >= 0) {
		allowed = numa_get_mems_allowed();
		for (int i = 0; i <= numa_max_node() && out->n < KVPOOL_NODES_MAX; i++) {
			if (numa_bitmask_isbitset(allowed, (unsigned int)i) &&
			    numa_node_size64(i, NULL) > 0)
				out->ids[out->n++] = (uint16_t)i;
		}
		numa_bitmask_free(allowed);
	}
	if (out->n == 0)
		out->n = 1;
}

int kvpool_nodes_bind(void *start, size_t bytes, uint32_t node, bool strict)
{
	unsigned long mask[UINT16_MAX / LONG_BITS + 1] = {0};

	if (node > UINT16_MAX)
		return -EINVAL;
	mask[node / LONG_BITS] = 1UL << (node % LONG_BITS);
	/* The kernel counts one bit less than it is told. */
	if (mbind(start, bytes, strict ? MPOL_BIND : MPOL_PREFERRED, mask, node + 2, 0) < 0)
		return -errno;
	return 0;
}
