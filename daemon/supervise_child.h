/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the supervisor's child becomes a daemon: descriptors, environment, signals. Used by
 * supervise.c only, in the new process.
 */
#ifndef KVPOOL_DAEMON_SUPERVISE_CHILD_H
#define KVPOOL_DAEMON_SUPERVISE_CHILD_H

#include "daemon/keeper.h"

#include <signal.h>
#include <sys/types.h>

/*
 * Executes argv with everything that `k` holds as descriptors 3, 4, ... and the variables of socket
 * activation; it gets SIGTERM when `parent` dies. Does not return: where it fails, a line says why
 * and the process ends with 127.
 */
void kvpool_supervise_become(const struct kvpool_keeper *k, char *const argv[], pid_t parent,
			     const sigset_t *mask) __attribute__((noreturn));

#endif
