/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process does, as /proc says: see process_state.h.
 */
#include "daemon/process_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Pid, name and state are within these. */
#define HEAD_BYTES 128

enum kvpool_process_state kvpool_process_state_parse(const char *stat)
{
	/* The name is the process's own choice and may hold any of this, so: the last one. */
	const char *name_end = strrchr(stat, ')');

	if (!name_end || name_end[1] != ' ')
		return KVPOOL_PROCESS_UNKNOWN;
	switch (name_end[2]) {
	case 'T':
	case 't':
		return KVPOOL_PROCESS_STOPPED;
	case 'Z':
	case 'X':
		return KVPOOL_PROCESS_GONE;
	case '\0':
		return KVPOOL_PROCESS_UNKNOWN;
	default:
		return KVPOOL_PROCESS_RUNNING;
	}
}

enum kvpool_process_state kvpool_process_state_read(pid_t pid)
{
	char path[32], head[HEAD_BYTES];
	ssize_t n;
	int fd;

	if (pid <= 0)
		return KVPOOL_PROCESS_UNKNOWN;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return KVPOOL_PROCESS_UNKNOWN;
	n = read(fd, head, sizeof(head) - 1);
	(void)close(fd);
	if (n <= 0)
		return KVPOOL_PROCESS_UNKNOWN;
	head[n] = '\0';
	return kvpool_process_state_parse(head);
}

const char *kvpool_process_state_name(enum kvpool_process_state state)
{
	static const char *const names[] = {
		[KVPOOL_PROCESS_UNKNOWN] = "unknown",
		[KVPOOL_PROCESS_RUNNING] = "running",
		[KVPOOL_PROCESS_STOPPED] = "stopped",
		[KVPOOL_PROCESS_GONE] = "gone",
	};

	return names[state];
}
