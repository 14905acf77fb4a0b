/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process's threads have spent so far, as the kernel counts it.
 *
 * A pure reader of /proc; any thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_TASKS_H
#define KVPOOL_TOOLS_BENCH_TASKS_H

#include <stdint.h>
#include <sys/types.h>

/* Sums over the threads there are. */
struct kvpool_tasks {
	uint64_t cpu_ns;   /* on a processor */
	uint64_t switches; /* voluntary: each is a sleep, and so a wake-up */
	uint32_t threads;
	uint32_t sleeping; /* threads that sleep now */
};

/* -ESRCH where there is no such process, -EACCES where it may not be looked at. */
int kvpool_tasks_read(pid_t pid, struct kvpool_tasks *out);

#endif
