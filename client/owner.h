/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process made a handle: tells a child of fork() that the handle is not its own, without a
 * system call.
 *
 * A page that the kernel wipes in the child (MADV_WIPEONFORK); where there is no such advice, the
 * process id is asked for. Owned by a handle; any thread may ask.
 */
#ifndef KVPOOL_CLIENT_OWNER_H
#define KVPOOL_CLIENT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

struct kvpool_owner {
	const volatile uint64_t *mark; /* owned page; NULL: compare the process id */
	pid_t pid;
};

int kvpool_owner_init(struct kvpool_owner *owner); /* -ENOMEM */
void kvpool_owner_fini(struct kvpool_owner *owner);

static inline bool kvpool_owner_is_me(const struct kvpool_owner *owner)
{
	return owner->mark ? *owner->mark != 0 : owner->pid == getpid();
}

#endif
