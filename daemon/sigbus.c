/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Survives SIGBUS on client-writable memory: see sigbus.h.
 *
 * The table has static storage because a signal handler has no other way to it. The service thread
 * fills and empties entries; the handler, which may run in any thread at any instruction, reads
 * them and sets `poisoned`. It uses atomics, the system call mmap, sigaction(2) and raise(3) only.
 */
#include "daemon/sigbus.h"

#include "shm/base.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct kvpool_sigbus_range {
	/* W: service thread. R: handler. 0: the entry is free. G1: stored last; G2: acquired. */
	_Atomic(uintptr_t) start;
	_Atomic(size_t) bytes;
	/* W: handler sets (P1), service thread clears on reuse. R: service thread (P2). */
	atomic_bool poisoned;
};

static struct kvpool_sigbus_range ranges[KVPOOL_SIGBUS_RANGES_MAX];
static atomic_uint ranges_used;  /* entries ever used; W: service thread, R: handler (G3 -> G4) */
static unsigned int search_from; /* service thread: no entry before it is free */
static atomic_ullong poisonings; /* W: handler (P3), R: service thread (P4) */

/* Every later SIGBUS, and this access when it is tried again, ends the process. */
static void default_action(int signo, const siginfo_t *info)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	(void)sigaction(signo, &action, NULL);
	/* Sent by a process, not by an access: returning would swallow it. */
	if (info->si_code <= 0)
		(void)raise(signo);
}

static struct kvpool_sigbus_range *range_of(uintptr_t address)
{
	/* G4 <- G3 */
	unsigned int used = atomic_load_explicit(&ranges_used, memory_order_acquire);

	for (unsigned int i = 0; i < used; i++) {
		/* G2 <- G1 */
		uintptr_t start = atomic_load_explicit(&ranges[i].start, memory_order_acquire);
		size_t bytes = atomic_load_explicit(&ranges[i].bytes, memory_order_relaxed);

		if (start != 0 && address >= start && address - start < bytes)
			return &ranges[i];
	}
	return NULL;
}

static void on_sigbus(int signo, siginfo_t *info, void *context)
{
	struct kvpool_sigbus_range *range;
	int saved = errno;
	void *start;
	size_t bytes;

	(void)context;
	range = info->si_code > 0 ? range_of((uintptr_t)info->si_addr) : NULL;
	if (range == NULL) {
		default_action(signo, info);
		return;
	}
	/* G2 <- G1, by the search above. */
	start = (void *)atomic_load_explicit(&range->start, memory_order_relaxed);
	bytes = atomic_load_explicit(&range->bytes, memory_order_relaxed);
	/*
	 * All of it: a hostile client would make every page fault in turn. By the bare system call:
	 * mmap() may be interposed (sanitizers do) by what is not safe in a signal handler.
	 */
	if (syscall(SYS_mmap, start, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) < 0) {
		default_action(signo, info);
		return;
	}
	/* P1 -> P2, P3 -> P4: whoever sees the mark knows that the memory is not shared any more.
	 */
	if (!atomic_exchange_explicit(&range->poisoned, true, memory_order_release))
		(void)atomic_fetch_add_explicit(&poisonings, 1, memory_order_release);
	errno = saved;
}

int kvpool_sigbus_install(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_sigbus;
	action.sa_flags = SA_SIGINFO;
	(void)sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, NULL) < 0)
		return -errno;
	return 0;
}

int kvpool_sigbus_guard(void *start, size_t bytes, struct kvpool_sigbus_range **out)
{
	/* No edge: only the service thread writes it. */
	unsigned int used = atomic_load_explicit(&ranges_used, memory_order_relaxed);
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct kvpool_sigbus_range *range;
	unsigned int i;

	if (start == NULL || bytes == 0 || (uintptr_t)start % page != 0 || bytes % page != 0)
		return -EINVAL;
	for (i = search_from; i < used; i++) {
		/* No edge: only the service thread writes it. */
		if (atomic_load_explicit(&ranges[i].start, memory_order_relaxed) == 0)
			break;
	}
	if (i == KVPOOL_SIGBUS_RANGES_MAX) {
		search_from = i;
		return -ENOSPC;
	}
	range = &ranges[i];
	/* Published by G1 below. */
	atomic_store_explicit(&range->poisoned, false, memory_order_relaxed);
	atomic_store_explicit(&range->bytes, bytes, memory_order_relaxed);
	/* G1 -> G2 */
	atomic_store_explicit(&range->start, (uintptr_t)start, memory_order_release);
	if (i == used)
		/* G3 -> G4 */
		atomic_store_explicit(&ranges_used, used + 1, memory_order_release);
	search_from = i + 1;
	*out = range;
	return 0;
}

void kvpool_sigbus_release(struct kvpool_sigbus_range *range)
{
	unsigned int index;

	if (range == NULL)
		return;
	index = (unsigned int)(range - ranges);
	/* The handler finds the entry or does not; nobody accesses the range any more. */
	atomic_store_explicit(&range->start, 0, memory_order_relaxed);
	search_from = KVPOOL_MIN(search_from, index);
}

bool kvpool_sigbus_poisoned(const struct kvpool_sigbus_range *range)
{
	/* P2 <- P1 */
	return atomic_load_explicit(&range->poisoned, memory_order_acquire);
}

uint64_t kvpool_sigbus_count(void)
{
	/* P4 <- P3 */
	return atomic_load_explicit(&poisonings, memory_order_acquire);
}
