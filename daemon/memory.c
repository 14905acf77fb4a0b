/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anonymous memory that can be handed over by descriptor: see memory.h.
 */
#include "daemon/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* The name shows in /proc only; kernels before 6.3 do not know NOEXEC_SEAL. */
static int create(void)
{
	int fd = memfd_create("kvpool", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("kvpool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

bool kvpool_memory_sealed(int fd, uint64_t *bytes)
{
	const int fixed = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & fixed) != fixed || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	*bytes = (uint64_t)st.st_size;
	return true;
}

int kvpool_memory_adopt(int fd, uint64_t bytes, struct kvpool_memory *out)
{
	void *address =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	int r;

	if (address == MAP_FAILED)
		return -errno;
	if (madvise(address, bytes, MADV_DONTDUMP) < 0) {
		r = -errno;
		(void)munmap(address, bytes);
		return r;
	}
	*out = (struct kvpool_memory){.fd = fd, .address = address, .bytes = bytes};
	return 0;
}

int kvpool_memory_new(uint64_t bytes, struct kvpool_memory *out)
{
	int fd, r = 0;

	fd = create();
	if (fd < 0)
		return fd;
	if (ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		r = -errno;
	if (r == 0)
		r = kvpool_memory_adopt(fd, bytes, out);
	if (r != 0)
		(void)close(fd);
	return r;
}

int kvpool_memory_new_private(uint64_t bytes, struct kvpool_memory *out)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int r;

	if (address == MAP_FAILED)
		return -errno;
	/* A child of the daemon would get a copy; it has none. */
	if (madvise(address, bytes, MADV_DONTDUMP) < 0 ||
	    madvise(address, bytes, MADV_DONTFORK) < 0) {
		r = -errno;
		(void)munmap(address, bytes);
		return r;
	}
	*out = (struct kvpool_memory){.fd = -1, .address = address, .bytes = bytes};
	return 0;
}

void kvpool_memory_close_fd(struct kvpool_memory *memory)
{
	if (memory->fd >= 0)
		(void)close(memory->fd);
	memory->fd = -1;
}

void kvpool_memory_free(struct kvpool_memory *memory)
{
	if (!memory->address)
		return;
	(void)munmap(memory->address, memory->bytes);
	memory->address = NULL;
	kvpool_memory_close_fd(memory);
}
