/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call into the C library that fails in a kvpoold under test: which one, when and how.
 *
 * The words lie in a file whose name $KVPOOL_FAULT has, mapped by the test that made it and by
 * every process that has the shim (LD_PRELOAD of fault_shim.c): the supervisor and all lives of its
 * child count together. The test writes what is to happen before a process starts, or later;
 * `armed` is stored last.
 */
#ifndef KVPOOL_TESTS_FAULT_SHIM_H
#define KVPOOL_TESTS_FAULT_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

#define KVPOOL_FAULT_CALLS(X)              \
	X(MEMFD_CREATE, "memfd_create")    \
	X(FTRUNCATE, "ftruncate")          \
	X(ADD_SEALS, "F_ADD_SEALS")        \
	X(MMAP, "mmap")                    \
	X(MADVISE, "madvise")              \
	X(POPULATE, "MADV_POPULATE_WRITE") \
	X(FALLOCATE, "fallocate")          \
	X(EVENTFD, "eventfd")              \
	X(EPOLL_ADD, "EPOLL_CTL_ADD")      \
	X(SOCKET, "socket")                \
	X(ACCEPT, "accept4")               \
	X(PEER_PIDFD, "SO_PEERPIDFD")      \
	X(PIDFD_OPEN, "pidfd_open")        \
	X(SENDMSG, "sendmsg")              \
	X(RECVMSG, "recvmsg")

#define KVPOOL_FAULT_ENUM(name, text) KVPOOL_FAULT_##name,

enum kvpool_fault_call {
	KVPOOL_FAULT_CALLS(KVPOOL_FAULT_ENUM) KVPOOL_FAULT_COUNT
};

struct kvpool_fault {
	uint32_t call;  /* enum kvpool_fault_call */
	int32_t error;  /* errno */
	uint64_t at;    /* the first that fails of those that are counted, from 1 */
	uint32_t lasts; /* not that one alone, but all from then on */
	uint32_t
		old; /* as on an old kernel: no SO_PEERPIDFD (6.5), no MADV_POPULATE_WRITE (5.14) */
	_Atomic uint32_t armed; /* else nothing fails, and nothing is counted */
	_Atomic uint32_t hits;  /* that failed */
	_Atomic uint64_t seen;  /* calls of this kind */
};

#endif
