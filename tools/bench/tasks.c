/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc/PID/task. No state; any thread.
 */
#include "tools/bench/tasks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 384

static int read_cpu(const char *folder, const char *thread, struct kvpool_tasks *tasks)
{
	char path[PATH_BYTES];
	uint64_t ns;
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "%s/%s/schedstat", folder, thread);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	n = fscanf(file, "%" SCNu64, &ns);
	fclose(file);
	if (n != 1)
		return -EPROTO;
	tasks->cpu_ns += ns;
	return 0;
}

static int read_status(const char *folder, const char *thread, struct kvpool_tasks *tasks)
{
	char path[PATH_BYTES];
	char line[128];
	uint64_t switches;
	FILE *file;
	char state;

	snprintf(path, sizeof(path), "%s/%s/status", folder, thread);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "State: %c", &state) == 1 && state == 'S')
			tasks->sleeping++;
		else if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &switches) == 1)
			tasks->switches += switches;
	}
	fclose(file);
	return 0;
}

int kvpool_tasks_read(pid_t pid, struct kvpool_tasks *out)
{
	struct kvpool_tasks tasks = {0};
	struct dirent *entry;
	char folder[64];
	DIR *dir;
	int r = 0;

	snprintf(folder, sizeof(folder), "/proc/%d/task", (int)pid);
	dir = opendir(folder);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (r == 0 && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		r = read_cpu(folder, entry->d_name, &tasks);
		if (r == 0)
			r = read_status(folder, entry->d_name, &tasks);
		tasks.threads++;
		/* A thread that ended meanwhile is no fault. */
		if (r == -ENOENT || r == -ESRCH)
			r = 0;
	}
	closedir(dir);
	if (r == 0 && tasks.threads == 0)
		r = -ESRCH;
	if (r == 0)
		*out = tasks;
	return r;
}
