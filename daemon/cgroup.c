/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in the control groups: see cgroup.h. Reads small files; stateless, usable from any thread.
 */
#include "daemon/cgroup.h"

#include "shm/base.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Version 1 writes "no limit" as the largest number of pages that it can count. */
#define V1_NO_LIMIT (UINT64_C(1) << 62)

struct version {
	const char *const limits[2]; /* the lower one counts; the second may be NULL */
	const char *usage;
	const char *inactive; /* line of <prefix>.stat */
};

static const struct version v1 = {
	.limits = {"limit_in_bytes", NULL},
	.usage = "usage_in_bytes",
	.inactive = "total_inactive_file",
};

static const struct version v2 = {
	.limits = {"max", "high"},
	.usage = "current",
	.inactive = "inactive_file",
};

/* One group of the walk. All borrowed for the call. */
struct group {
	const char *root;
	const char *mount;
	const char *path;
	const char *prefix;
};

static FILE *group_open(const struct group *g, const char *name)
{
	char full[PATH_MAX];
	int n = snprintf(full, sizeof(full), "%s%s%s/%s.%s", g->root, g->mount, g->path, g->prefix,
			 name);

	if (n < 0 || (size_t)n >= sizeof(full))
		return NULL;
	return fopen(full, "re");
}

/* `otherwise` where there is no such file or it holds no number ("max"). */
static uint64_t group_number(const struct group *g, const char *name, uint64_t otherwise)
{
	FILE *file = group_open(g, name);
	uint64_t value = otherwise;

	if (file == NULL)
		return otherwise;
	if (fscanf(file, "%" SCNu64, &value) != 1)
		value = otherwise;
	(void)fclose(file);
	return value;
}

static uint64_t group_inactive(const struct group *g, const char *line)
{
	FILE *file = group_open(g, "stat");
	uint64_t value, found = 0;
	char name[64];

	if (file == NULL)
		return 0;
	while (fscanf(file, "%63s %" SCNu64, name, &value) == 2) {
		if (strcmp(name, line) == 0)
			found = value;
	}
	(void)fclose(file);
	return found;
}

static void group_read(const struct group *g, const struct version *version,
		       struct kvpool_cgroup_room *best)
{
	uint64_t limit = UINT64_MAX;
	uint64_t used, room;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(version->limits); i++) {
		if (version->limits[i] != NULL)
			limit = KVPOOL_MIN(limit, group_number(g, version->limits[i], UINT64_MAX));
	}
	if (limit >= V1_NO_LIMIT)
		return;
	used = group_number(g, version->usage, 0);
	used -= KVPOOL_MIN(used, group_inactive(g, version->inactive));
	room = limit - KVPOOL_MIN(limit, used);
	if (room < best->room) {
		best->room = room;
		best->limit = limit;
	}
}

/* From the group at `path` to the root of the hierarchy: each of them limits those below it. */
static void hierarchy_read(struct group *g, char *path, const struct version *version,
			   struct kvpool_cgroup_room *best)
{
	char *slash;

	if (strcmp(path, "/") == 0)
		path[0] = '\0';
	g->path = path;
	group_read(g, version, best);
	while ((slash = strrchr(path, '/')) != NULL) {
		*slash = '\0';
		group_read(g, version, best);
	}
}

static bool list_has(char *list, const char *word)
{
	char *rest = NULL;

	for (char *item = strtok_r(list, ",", &rest); item != NULL;
	     item = strtok_r(NULL, ",", &rest)) {
		if (strcmp(item, word) == 0)
			return true;
	}
	return false;
}

/* A line of /proc/self/cgroup: "4:memory:/path" or, of version 2, "0::/path". */
static void line_read(const char *root, char *line, const char *controller, const char *prefix,
		      struct kvpool_cgroup_room *best)
{
	struct group group = {.root = root, .prefix = prefix};
	char *controllers = strchr(line, ':');
	char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
	char mount[64];

	if (path == NULL || path[1] != '/')
		return;
	*controllers++ = '\0';
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	if (controllers[0] == '\0') {
		group.mount = "/sys/fs/cgroup";
		hierarchy_read(&group, path, &v2, best);
	} else if (list_has(controllers, controller)) {
		(void)snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
		group.mount = mount;
		hierarchy_read(&group, path, &v1, best);
	}
}

void kvpool_cgroup_read(const char *root, const char *controller, const char *prefix,
			struct kvpool_cgroup_room *out)
{
	struct kvpool_cgroup_room best = {.room = UINT64_MAX, .limit = UINT64_MAX};
	char full[PATH_MAX];
	char *line = NULL;
	size_t size = 0;
	FILE *file;

	*out = best;
	if (snprintf(full, sizeof(full), "%s/proc/self/cgroup", root) >= (int)sizeof(full))
		return;
	file = fopen(full, "re");
	if (file == NULL)
		return;
	while (getline(&line, &size, file) >= 0)
		line_read(root, line, controller, prefix, &best);
	free(line);
	(void)fclose(file);
	*out = best;
}
