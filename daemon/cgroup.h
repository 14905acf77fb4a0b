/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the control groups that this process is in still let it allocate: version 2 and 1, from the
 * process's own group up to the root.
 *
 * Stateless; usable from any thread.
 */
#ifndef KVPOOL_DAEMON_CGROUP_H
#define KVPOOL_DAEMON_CGROUP_H

#include <stdint.h>

struct kvpool_cgroup_room {
	uint64_t room;  /* left under the tightest limit; UINT64_MAX: there is no limit */
	uint64_t limit; /* that limit; UINT64_MAX: none */
};

/*
 * `prefix`: of the controller's files: "memory", "hugetlb.2MB". What cannot be read is no limit.
 * File pages that are not in use count as room: the kernel drops them for whoever needs memory.
 */
void kvpool_cgroup_read(const char *root, const char *controller, const char *prefix,
			struct kvpool_cgroup_room *out);

#endif
