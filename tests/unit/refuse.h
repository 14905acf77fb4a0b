/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets the kernel refuse a system call to this process, as containers' seccomp profiles do.
 *
 * For tests that run in a process of their own: there is no way back.
 */
#ifndef KVPOOL_TESTS_UNIT_REFUSE_H
#define KVPOOL_TESTS_UNIT_REFUSE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Negative errno where the filter itself is refused. */
static inline int refuse_install(struct sock_filter *filter, unsigned short n)
{
	struct sock_fprog program = {.len = n, .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		return -errno;
	return 0;
}

/* From now on system call `number` fails with `error`, in all threads that come of this one. */
static inline int refuse(long number, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)error & 0xffff)),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return refuse_install(filter, sizeof(filter) / sizeof(filter[0]));
}

/* The same, but only where the argument at `index` is `value`. */
static inline int refuse_argument(long number, unsigned int index, uint32_t value, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 (uint32_t)(offsetof(struct seccomp_data, args) + index * 8)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)error & 0xffff)),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return refuse_install(filter, sizeof(filter) / sizeof(filter[0]));
}

#endif
