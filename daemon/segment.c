/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memfd of one segment: see segment.h. Stateless; called by the populating thread.
 */
#include "daemon/segment.h"

#include "daemon/pages.h"
#include "shm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Kernel 6.3 and 5.14; glibc 2.36 has the second only. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << MFD_HUGE_SHIFT)
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB (30U << MFD_HUGE_SHIFT)
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int memfd_open(enum kvpool_pages pages)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (pages == KVPOOL_PAGES_1G)
		flags |= MFD_HUGETLB | MFD_HUGE_1GB;
	else if (pages == KVPOOL_PAGES_2M)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create("kvpool-segment", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("kvpool-segment", flags);
	return fd < 0 ? -errno : fd;
}

/*
 * Mapping a file of huge pages takes them out of the common reserve, and they stay with the file
 * until it goes.
 */
static int reserve(int fd, uint64_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (start == MAP_FAILED)
		return -errno;
	(void)munmap(start, bytes);
	return 0;
}

int kvpool_segment_make(enum kvpool_pages pages, uint64_t bytes, const char **step, int *out_fd)
{
	int fd, r = 0;

	*step = "memfd_create";
	fd = memfd_open(pages);
	if (fd < 0)
		return fd;
	*step = "ftruncate";
	if (ftruncate(fd, (off_t)bytes) < 0)
		r = -errno;
	if (r == 0) {
		*step = "F_ADD_SEALS";
		if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
			r = -errno;
	}
	if (r == 0 && kvpool_pages_reserved(pages)) {
		*step = "reserving huge pages";
		r = reserve(fd, bytes);
	}
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	*out_fd = fd;
	return 0;
}

/* Pages by fallocate(2): for kernels before 5.14, which cannot populate a mapping to be written. */
static int allocate(const struct kvpool_segment_fill *fill, const char **step)
{
	int r;

	*step = "fallocate";
	do
		r = fallocate(fill->fd, 0, (off_t)fill->offset, (off_t)fill->bytes);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return 0;
	return errno == ENOSPC ? -ENOMEM : -errno;
}

static int populate(const struct kvpool_segment_fill *fill, void *start, const char **step)
{
	int r;

	*step = "MADV_POPULATE_WRITE";
	do
		r = madvise(start, fill->bytes, MADV_POPULATE_WRITE);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	if (r == 0)
		return 0;
	if (errno == EINVAL || errno == ENOSYS)
		return allocate(fill, step);
	/* EFAULT: touching it would have been a SIGBUS, since no page is to be had. */
	return errno == EFAULT ? -ENOMEM : -errno;
}

int kvpool_segment_fill(const struct kvpool_segment_fill *fill, const char **step, int *bind_error)
{
	/* A mapping takes a huge page only where both begin at a multiple of its size. */
	uint64_t align = kvpool_pages_bytes(fill->pages);
	uint64_t room = fill->bytes + align;
	void *base, *start;
	int r;

	*step = "mmap";
	base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	start = (char *)base + (KVPOOL_ROUND_UP((uintptr_t)base, align) - (uintptr_t)base);
	if (mmap(start, fill->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fill->fd,
		 (off_t)fill->offset) == MAP_FAILED) {
		r = -errno;
		(void)munmap(base, room);
		return r;
	}
	(void)madvise(start, fill->bytes, MADV_DONTDUMP);
	if (fill->pages == KVPOOL_PAGES_THP)
		(void)madvise(start, fill->bytes, MADV_HUGEPAGE);
	if (fill->node != KVPOOL_NODE_NONE) {
		r = kvpool_nodes_bind(start, fill->bytes, fill->node,
				      kvpool_pages_reserved(fill->pages));
		if (r < 0)
			*bind_error = -r;
	}
	r = populate(fill, start, step);
	(void)munmap(base, room);
	return r;
}

void kvpool_segment_wipe(int fd, uint64_t bytes)
{
	int r;

	do
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
	while (r < 0 && errno == EINTR);
	(void)close(fd);
}
