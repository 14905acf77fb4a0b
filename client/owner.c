/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process made a handle. See owner.h.
 *
 * Owned by a handle.
 */
#include "client/owner.h"

#include <errno.h>
#include <sys/mman.h>

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int kvpool_owner_init(struct kvpool_owner *owner)
{
	uint64_t *mark = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mark == MAP_FAILED)
		return -ENOMEM;
	owner->pid = getpid();
	if (madvise(mark, page_bytes(), MADV_WIPEONFORK) != 0) {
		munmap(mark, page_bytes());
		owner->mark = NULL;
		return 0;
	}
	*mark = 1;
	owner->mark = mark;
	return 0;
}

void kvpool_owner_fini(struct kvpool_owner *owner)
{
	if (owner->mark)
		munmap((void *)(uintptr_t)owner->mark, page_bytes());
	owner->mark = NULL;
}
