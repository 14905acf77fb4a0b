/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's calls that fail where a test says: see fault_shim.h. Loaded by LD_PRELOAD into
 * kvpoold and its supervisor; not installed.
 *
 * No object but the mapped words. Any thread. A call that is not to fail goes on to whoever would
 * have been called without the shim, which may be a sanitizer.
 */
#include "tests/integration/fault_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SHOWN __attribute__((visibility("default")))

/* The function behind ours of the same name, looked up once. */
static void *behind(const char *name, _Atomic(void *) *found)
{
	void *at = atomic_load(found);

	if (!at) {
		at = dlsym(RTLD_NEXT, name);
		atomic_store(found, at);
	}
	return at;
}

#define NEXT(name)                            \
	({                                    \
		static _Atomic(void *) found; \
		behind(name, &found);         \
	})

static struct kvpool_fault *fault; /* NULL: nothing is asked for */

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("KVPOOL_FAULT");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *(*map)(void *, size_t, int, int, int, off_t) = NEXT("mmap");
	void *at;

	if (fd < 0)
		return;
	at = map(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (at != MAP_FAILED)
		fault = at;
}

static bool fails(enum kvpool_fault_call call)
{
	uint64_t n;

	if (!fault || !atomic_load(&fault->armed) || fault->call != (uint32_t)call)
		return false;
	n = atomic_fetch_add(&fault->seen, 1) + 1;
	if (fault->lasts ? n < fault->at : n != fault->at)
		return false;
	(void)atomic_fetch_add(&fault->hits, 1);
	errno = fault->error;
	return true;
}

/* The headers' names for parameters are reserved ones. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

SHOWN int memfd_create(const char *name, unsigned int flags)
{
	int (*next)(const char *, unsigned int) = NEXT("memfd_create");

	return fails(KVPOOL_FAULT_MEMFD_CREATE) ? -1 : next(name, flags);
}

SHOWN int ftruncate(int fd, off_t bytes)
{
	int (*next)(int, off_t) = NEXT("ftruncate");

	return fails(KVPOOL_FAULT_FTRUNCATE) ? -1 : next(fd, bytes);
}

SHOWN int fcntl(int fd, int command, ...)
{
	int (*next)(int, int, ...) = NEXT("fcntl");
	va_list arguments;
	void *argument;

	/* As wide as any that there may be. */
	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (command == F_ADD_SEALS && fails(KVPOOL_FAULT_ADD_SEALS))
		return -1;
	return next(fd, command, argument);
}

SHOWN void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t) = NEXT("mmap");

	return fails(KVPOOL_FAULT_MMAP) ? MAP_FAILED
					: next(at, bytes, protection, flags, fd, offset);
}

SHOWN int madvise(void *at, size_t bytes, int advice)
{
	int (*next)(void *, size_t, int) = NEXT("madvise");

	if (fault && fault->old && advice == MADV_POPULATE_WRITE) {
		errno = EINVAL;
		return -1;
	}
	if (advice == MADV_POPULATE_WRITE && fails(KVPOOL_FAULT_POPULATE))
		return -1;
	return fails(KVPOOL_FAULT_MADVISE) ? -1 : next(at, bytes, advice);
}

SHOWN int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	int (*next)(int, int, off_t, off_t) = NEXT("fallocate");

	return fails(KVPOOL_FAULT_FALLOCATE) ? -1 : next(fd, mode, offset, bytes);
}

SHOWN int eventfd(unsigned int count, int flags)
{
	int (*next)(unsigned int, int) = NEXT("eventfd");

	return fails(KVPOOL_FAULT_EVENTFD) ? -1 : next(count, flags);
}

/* To watch a descriptor needs memory; to stop watching does not. */
SHOWN int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	int (*next)(int, int, int, struct epoll_event *) = NEXT("epoll_ctl");

	if (what == EPOLL_CTL_ADD && fails(KVPOOL_FAULT_EPOLL_ADD))
		return -1;
	return next(epoll, what, fd, event);
}

SHOWN int socket(int family, int type, int protocol)
{
	int (*next)(int, int, int) = NEXT("socket");

	return fails(KVPOOL_FAULT_SOCKET) ? -1 : next(family, type, protocol);
}

SHOWN int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
	int (*next)(int, struct sockaddr *, socklen_t *, int) = NEXT("accept4");

	return fails(KVPOOL_FAULT_ACCEPT) ? -1 : next(fd, address, bytes, flags);
}

SHOWN int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	int (*next)(int, int, int, void *, socklen_t *) = NEXT("getsockopt");

	if (level == SOL_SOCKET && name == SO_PEERPIDFD) {
		if (fault && fault->old) {
			errno = ENOPROTOOPT;
			return -1;
		}
		if (fails(KVPOOL_FAULT_PEER_PIDFD))
			return -1;
	}
	return next(fd, level, name, value, bytes);
}

SHOWN long syscall(long number, ...)
{
	long (*next)(long, ...) = NEXT("syscall");
	va_list list;
	long a[6];

	/* As many as any has. */
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_open && fails(KVPOOL_FAULT_PIDFD_OPEN))
		return -1;
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

SHOWN ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = NEXT("sendmsg");

	return fails(KVPOOL_FAULT_SENDMSG) ? -1 : next(fd, message, flags);
}

SHOWN ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) = NEXT("recvmsg");

	return fails(KVPOOL_FAULT_RECVMSG) ? -1 : next(fd, message, flags);
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
