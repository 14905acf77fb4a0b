/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon under torture: see subject.h.
 */
#include "tools/torture/subject.h"

#include "shm/base.h"
#include "tools/bench/ticks.h"
#include "tools/daemon_path.h"
#include "tools/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOG_NAME    "kvpoold.log"
#define PATIENCE_NS UINT64_C(30000000000)
#define POLL_MS     1

static int spawn(const char *daemon, struct kvpool_subject *s)
{
	char program[KVPOOL_DAEMON_PROGRAM_BYTES];
	char log[KVPOOL_ADMIN_SOCKET_BYTES];
	/* A pool for a third of what the clients want, and deaths as often as they come. */
	const char *const arguments[] = {program,
					 "--supervise",
					 "--socket",
					 s->socket,
					 "--admin-socket",
					 s->admin,
					 "--size=16M",
					 "--segment-size=4M",
					 "--extent-size=512K",
					 "--crash-window=0",
					 NULL};
	const struct kvpool_process_spec spec = {.arguments = arguments, .log = log, .cpu = -1};
	int r;

	kvpool_folder_file(&s->folder, LOG_NAME, log, sizeof(log));
	kvpool_folder_file(&s->folder, "kvpool.sock", s->socket, sizeof(s->socket));
	kvpool_folder_file(&s->folder, "admin.sock", s->admin, sizeof(s->admin));
	kvpool_daemon_path_find(daemon, program);
	r = kvpool_process_start(&spec, &s->supervisor);
	if (r < 0)
		fprintf(stderr, "kvpool-torture: cannot start %s: %s\n", program, strerror(-r));
	return r;
}

json_t *kvpool_subject_page(const struct kvpool_subject *subject, const char *resource)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *page;

	if (kvpool_admin_client_get(subject->admin, resource, why, sizeof(why), &page) != 0)
		return NULL;
	return page;
}

int64_t kvpool_subject_number(const json_t *page, const char *path)
{
	char name[64];

	while (*path != '\0') {
		size_t length = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)length, path);
		page = json_object_get(page, name);
		path += length + (path[length] == '.');
	}
	return json_integer_value(page);
}

json_t *kvpool_subject_next_life(struct kvpool_subject *subject)
{
	uint64_t until = kvpool_monotonic_ns() + PATIENCE_NS;

	while (kvpool_monotonic_ns() < until && kvpool_process_alive(&subject->supervisor)) {
		json_t *page = kvpool_subject_page(subject, "/v1/status");
		const char *epoch = json_string_value(json_object_get(page, "epoch"));

		if (epoch && strcmp(epoch, subject->epoch) != 0) {
			snprintf(subject->epoch, sizeof(subject->epoch), "%s", epoch);
			subject->pid = (pid_t)kvpool_subject_number(page, "pid");
			return page;
		}
		json_decref(page);
		kvpool_interrupt_pause(POLL_MS);
	}
	return NULL;
}

static int await_full(struct kvpool_subject *s)
{
	uint64_t until = kvpool_monotonic_ns() + PATIENCE_NS;
	json_t *page = kvpool_subject_next_life(s);

	while (page && json_is_true(json_object_get(json_object_get(page, "pool"), "growing")) &&
	       kvpool_monotonic_ns() < until) {
		json_decref(page);
		kvpool_interrupt_pause(POLL_MS);
		page = kvpool_subject_page(s, "/v1/status");
	}
	json_decref(page);
	if (page)
		return 0;
	fprintf(stderr, "kvpool-torture: kvpoold does not answer\n");
	return -ETIMEDOUT;
}

int kvpool_subject_start(const char *daemon, struct kvpool_subject *out)
{
	struct kvpool_subject s = {0};
	int r = kvpool_folder_make(&s.folder);

	if (r < 0) {
		fprintf(stderr, "kvpool-torture: cannot make a temporary folder: %s\n",
			strerror(-r));
		return r;
	}
	r = spawn(daemon, &s);
	if (r == 0)
		r = await_full(&s);
	if (r < 0) {
		kvpool_subject_stop(&s, true);
		return r;
	}
	*out = s;
	return 0;
}

void kvpool_subject_stop(struct kvpool_subject *subject, bool show)
{
	kvpool_process_stop(&subject->supervisor);
	if (show && subject->folder.path[0] != '\0') {
		fprintf(stderr, "kvpool-torture: the last that kvpoold said:\n");
		kvpool_folder_show(&subject->folder, LOG_NAME);
	}
	kvpool_folder_remove(&subject->folder);
}

pid_t kvpool_subject_child(const struct kvpool_subject *subject)
{
	char path[64];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)subject->supervisor.pid,
		 (int)subject->supervisor.pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

int kvpool_subject_descriptors(pid_t pid)
{
	const struct dirent *entry;
	char path[32];
	int n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	if (!folder)
		return -errno;
	while ((entry = readdir(folder)) != NULL)
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n;
}
