/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that a tool starts and ends: kvpoold, or another store. It dies with the tool,
 * whatever way that ends. Owned by whoever started it; main thread.
 */
#ifndef KVPOOL_TOOLS_PROCESS_H
#define KVPOOL_TOOLS_PROCESS_H

#include <sys/types.h>

struct kvpool_process {
	pid_t pid; /* 0: none */
};

struct kvpool_process_spec {
	const char *const
		*arguments; /* NULL-terminated; [0] is looked up in PATH if it has no '/' */
	const char *log;    /* stdout and stderr go there; appended */
	int cpu;            /* -1: not pinned */
};

/* -ENOENT where there is no such program, other negative errno. */
int kvpool_process_start(const struct kvpool_process_spec *spec, struct kvpool_process *out);

/* 1 while it runs; 0 once it has ended (it is then reaped and forgotten). */
int kvpool_process_alive(struct kvpool_process *process);

/* SIGTERM, and SIGKILL after five seconds. A zeroed one is fine. */
void kvpool_process_stop(struct kvpool_process *process);

#endif
