/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process does, as /proc says: for people, nothing is decided by it.
 *
 * Stateless; any thread.
 */
#ifndef KVPOOL_DAEMON_PROCESS_STATE_H
#define KVPOOL_DAEMON_PROCESS_STATE_H

#include <sys/types.h>

enum kvpool_process_state {
	KVPOOL_PROCESS_UNKNOWN = 0, /* not visible from here, or /proc does not tell */
	KVPOOL_PROCESS_RUNNING = 1, /* or asleep */
	KVPOOL_PROCESS_STOPPED = 2, /* by a signal or a debugger */
	KVPOOL_PROCESS_GONE = 3,
};

/* `pid` in our namespace; 0: not visible. */
enum kvpool_process_state kvpool_process_state_read(pid_t pid);

/* Of the text of /proc/PID/stat. */
enum kvpool_process_state kvpool_process_state_parse(const char *stat);

/* "unknown", "running", "stopped", "gone". Static. */
const char *kvpool_process_state_name(enum kvpool_process_state state);

#endif
