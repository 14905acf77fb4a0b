/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier life left in the store: see kept.h.
 */
#include "daemon/kept.h"

#include "shm/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENT "kvpool-segment-%u"
#define CATALOG "kvpool-catalog-%u"
#define NOTES   "kvpool-leases-%u"
#define PROCESS "kvpool-member-%x-%x"

void kvpool_kept_segment_name(uint32_t id, char out[KVPOOL_STORE_NAME_BYTES])
{
	(void)snprintf(out, KVPOOL_STORE_NAME_BYTES, SEGMENT, id);
}

void kvpool_kept_catalog_name(uid_t uid, char out[KVPOOL_STORE_NAME_BYTES])
{
	(void)snprintf(out, KVPOOL_STORE_NAME_BYTES, CATALOG, (unsigned int)uid);
}

void kvpool_kept_notes_name(uid_t uid, char out[KVPOOL_STORE_NAME_BYTES])
{
	(void)snprintf(out, KVPOOL_STORE_NAME_BYTES, NOTES, (unsigned int)uid);
}

void kvpool_kept_process_name(uint32_t client, uint32_t member, char out[KVPOOL_STORE_NAME_BYTES])
{
	(void)snprintf(out, KVPOOL_STORE_NAME_BYTES, PROCESS, client, member);
}

/* The numbers of a name are right where they make the same name again. */
static bool segment_id(const char *name, uint32_t *id)
{
	char same[KVPOOL_STORE_NAME_BYTES];

	if (sscanf(name, SEGMENT, id) != 1)
		return false;
	kvpool_kept_segment_name(*id, same);
	return strcmp(name, same) == 0;
}

static bool catalog_uid(const char *name, uint32_t *uid)
{
	char same[KVPOOL_STORE_NAME_BYTES];

	if (sscanf(name, CATALOG, uid) != 1)
		return false;
	kvpool_kept_catalog_name(*uid, same);
	return strcmp(name, same) == 0;
}

static bool notes_uid(const char *name, uint32_t *uid)
{
	char same[KVPOOL_STORE_NAME_BYTES];

	if (sscanf(name, NOTES, uid) != 1)
		return false;
	kvpool_kept_notes_name(*uid, same);
	return strcmp(name, same) == 0;
}

static bool process_client(const char *name, uint32_t *client, uint32_t *member)
{
	char same[KVPOOL_STORE_NAME_BYTES];

	if (sscanf(name, PROCESS, client, member) != 2)
		return false;
	kvpool_kept_process_name(*client, *member, same);
	return strcmp(name, same) == 0;
}

/* The process of a pidfd; -1 where it is none, 0 where it is gone or not visible from here. */
static pid_t pid_of(int pidfd)
{
	char path[48], line[128];
	pid_t pid = -1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		int n;

		/* -1: it is gone. It is known all the same, and its pidfd says so. */
		if (sscanf(line, "Pid: %d", &n) == 1)
			pid = n > 0 ? n : 0;
	}
	(void)fclose(file);
	return pid;
}

/* Takes the descriptor if the state knows a segment of this id and it looks like one. */
static bool take_segment(struct kvpool_kept *kept, uint32_t id, int fd)
{
	uint64_t bytes = kept->state->control->sizes.segment_bytes, is;
	struct kvpool_state_segment entry;

	for (uint32_t i = 0; i < kept->state->n_segments; i++) {
		if (!kvpool_state_segment_get(kept->state, i, &entry) || entry.id != id)
			continue;
		if (!kvpool_memory_sealed(fd, &is) || is != bytes || entry.made > bytes)
			return false;
		kept->segments[kept->n_segments++] =
			(struct kvpool_kept_segment){.entry = entry, .place = i, .fd = fd};
		return true;
	}
	return false;
}

static bool take_process(struct kvpool_kept *kept, uint32_t client, uint32_t member,
			 const char *name, int fd)
{
	struct kvpool_kept_process process = {
		.client = client, .member = member, .pid = pid_of(fd), .pidfd = fd};

	if (process.pid < 0)
		return false;
	(void)snprintf(process.name, sizeof(process.name), "%s", name);
	kept->processes[kept->n_processes++] = process;
	return true;
}

static bool take(struct kvpool_kept *kept, const struct kvpool_store_kept_fd *from)
{
	uint64_t bytes;
	uint32_t n, member;

	if (segment_id(from->name, &n))
		return take_segment(kept, n, from->fd);
	if (process_client(from->name, &n, &member))
		return take_process(kept, n, member, from->name, from->fd);
	if (!kvpool_memory_sealed(from->fd, &bytes))
		return false;
	if (notes_uid(from->name, &n)) {
		kept->notes[kept->n_notes++] =
			(struct kvpool_kept_notes){.uid = (uid_t)n, .fd = from->fd};
		return true;
	}
	if (!catalog_uid(from->name, &n))
		return false;
	kept->catalogs[kept->n_catalogs++] =
		(struct kvpool_kept_catalog){.uid = (uid_t)n, .fd = from->fd};
	return true;
}

/* Negative errno: for want of something now, which is no reason to give up what is there. */
static int take_state(struct kvpool_store_list *list, struct kvpool_kept *kept)
{
	for (size_t i = 0; i < list->n; i++) {
		const char *fault;
		int r;

		if (strcmp(list->fds[i].name, KVPOOL_STATE_NAME) != 0)
			continue;
		r = kvpool_state_adopt(list->fds[i].fd, &fault, &kept->state);
		if (r < 0)
			return r;
		if (r == 0)
			list->fds[i].fd = -1;
		else
			(void)snprintf(kept->text, sizeof(kept->text), "its state: %s", fault);
		return 0;
	}
	(void)snprintf(kept->text, sizeof(kept->text), "its state did not come back");
	return 0;
}

int kvpool_kept_sort(struct kvpool_store_list *list, struct kvpool_kept *out)
{
	struct kvpool_kept kept = {.state = NULL};
	int r;

	if (list->n == 0) {
		*out = kept;
		return 0;
	}
	kept.segments = calloc(list->n, sizeof(*kept.segments));
	kept.catalogs = calloc(list->n, sizeof(*kept.catalogs));
	kept.notes = calloc(list->n, sizeof(*kept.notes));
	kept.processes = calloc(list->n, sizeof(*kept.processes));
	r = kept.segments && kept.catalogs && kept.notes && kept.processes ? take_state(list, &kept)
									   : -ENOMEM;
	if (r != 0) {
		free(kept.segments);
		free(kept.catalogs);
		free(kept.notes);
		free(kept.processes);
		return r;
	}
	for (size_t i = 0; kept.state && i < list->n; i++) {
		if (list->fds[i].fd < 0)
			continue;
		if (take(&kept, &list->fds[i]))
			list->fds[i].fd = -1;
		else
			kept.dropped++;
	}
	kvpool_store_list_drop(list);
	if (kept.state && kept.state->control->crashes >= KVPOOL_STATE_CRASHES_MAX)
		kvpool_kept_drop(&kept, "the last lives ended as soon as they had taken it over");
	else if (kept.state)
		kept.state->control->crashes++;
	*out = kept;
	return 0;
}

static void close_all(struct kvpool_kept *kept)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	for (uint32_t i = 0; i < kept->n_segments; i++) {
		if (kept->segments[i].fd < 0)
			continue;
		kvpool_kept_segment_name(kept->segments[i].entry.id, name);
		(void)kvpool_store_remove(name);
		(void)close(kept->segments[i].fd);
	}
	for (uint32_t i = 0; i < kept->n_catalogs; i++) {
		if (kept->catalogs[i].fd < 0)
			continue;
		kvpool_kept_catalog_name(kept->catalogs[i].uid, name);
		(void)kvpool_store_remove(name);
		(void)close(kept->catalogs[i].fd);
	}
	for (uint32_t i = 0; i < kept->n_notes; i++) {
		if (kept->notes[i].fd < 0)
			continue;
		kvpool_kept_notes_name(kept->notes[i].uid, name);
		(void)kvpool_store_remove(name);
		(void)close(kept->notes[i].fd);
	}
	for (uint32_t i = 0; i < kept->n_processes; i++) {
		if (kept->processes[i].pidfd < 0)
			continue;
		(void)kvpool_store_remove(kept->processes[i].name);
		(void)close(kept->processes[i].pidfd);
	}
}

void kvpool_kept_finish(struct kvpool_kept *kept)
{
	close_all(kept);
	free(kept->segments);
	free(kept->catalogs);
	free(kept->notes);
	free(kept->processes);
	kept->segments = NULL;
	kept->catalogs = NULL;
	kept->notes = NULL;
	kept->processes = NULL;
	kept->n_segments = kept->n_catalogs = kept->n_notes = kept->n_processes = 0;
}

void kvpool_kept_drop(struct kvpool_kept *kept, const char *why)
{
	(void)snprintf(kept->text, sizeof(kept->text), "%s", why);
	kvpool_kept_finish(kept);
	if (!kept->state)
		return;
	(void)kvpool_store_remove(KVPOOL_STATE_NAME);
	kvpool_state_free(kept->state);
	kept->state = NULL;
}
