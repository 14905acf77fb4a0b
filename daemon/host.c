/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory this host lets the daemon use: see host.h. Reads small files of /proc and /sys;
 * stateless, usable from any thread.
 */
#include "daemon/host.h"

#include "daemon/cgroup.h"
#include "shm/base.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MIB UINT64_C(0x100000)
#define GIB UINT64_C(0x40000000)

#define CHOICE_BYTES 32

#define HUGEPAGES "/sys/kernel/mm/hugepages/hugepages-"
#define THP       "/sys/kernel/mm/transparent_hugepage/"

static FILE *file_open(const char *root, const char *path)
{
	char full[PATH_MAX];
	int n = snprintf(full, sizeof(full), "%s%s", root, path);

	if (n < 0 || (size_t)n >= sizeof(full))
		return NULL;
	return fopen(full, "re");
}

/* The number that a file starts with; 0 where there is no such file. */
static uint64_t number_read(const char *root, const char *path)
{
	FILE *file = file_open(root, path);
	uint64_t value = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%" SCNu64, &value) != 1)
		value = 0;
	(void)fclose(file);
	return value;
}

/* A line of /proc/meminfo, in bytes. -ENODATA where there is none. */
static int meminfo_read(const char *root, const char *name, uint64_t *out)
{
	FILE *file = file_open(root, "/proc/meminfo");
	bool found = false;
	char field[64];
	uint64_t kib = 0;

	if (file == NULL)
		return -ENODATA;
	while (!found && fscanf(file, "%63s %" SCNu64 "%*[^\n]", field, &kib) == 2)
		found = strcmp(field, name) == 0;
	(void)fclose(file);
	if (!found || kib > UINT64_MAX / 1024)
		return -ENODATA;
	*out = kib * 1024;
	return 0;
}

/* Free huge pages that no mapping has reserved, in bytes, within the control group's limit. */
static uint64_t huge_read(const char *root, const char *kib, const char *prefix,
			  uint64_t page_bytes)
{
	struct kvpool_cgroup_room room;
	uint64_t free_pages, reserved;
	char path[128];

	(void)snprintf(path, sizeof(path), HUGEPAGES "%skB/free_hugepages", kib);
	free_pages = number_read(root, path);
	if (free_pages == 0)
		return 0;
	(void)snprintf(path, sizeof(path), HUGEPAGES "%skB/resv_hugepages", kib);
	reserved = number_read(root, path);
	free_pages -= KVPOOL_MIN(free_pages, reserved);
	kvpool_cgroup_read(root, "hugetlb", prefix, &room);
	return KVPOOL_MIN(free_pages, room.room / page_bytes) * page_bytes;
}

/*
 * The word in brackets is what is chosen: "always within_size advise [never] deny force". Empty
 * where there is no such file.
 */
static void choice_read(const char *root, const char *path, char word[CHOICE_BYTES])
{
	FILE *file = file_open(root, path);

	word[0] = '\0';
	if (file == NULL)
		return;
	if (fscanf(file, "%*[^[][%31[^]]", word) != 1) {
		rewind(file);
		if (fscanf(file, "[%31[^]]", word) != 1)
			word[0] = '\0';
	}
	(void)fclose(file);
}

static bool thp_read(const char *root)
{
	static const char *const yes[] = {"always", "within_size", "advise", "force"};
	char word[CHOICE_BYTES];

	/* Newer kernels choose for each page size, and by default as the general choice says. */
	choice_read(root, THP "hugepages-2048kB/shmem_enabled", word);
	if (word[0] == '\0' || strcmp(word, "inherit") == 0)
		choice_read(root, THP "shmem_enabled", word);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(yes); i++) {
		if (strcmp(word, yes[i]) == 0)
			return true;
	}
	return false;
}

int kvpool_host_read(const char *root, struct kvpool_host *out)
{
	struct kvpool_cgroup_room room;
	struct kvpool_host host;
	uint64_t swap;
	int r;

	r = meminfo_read(root, "MemAvailable:", &host.available);
	if (r < 0)
		return r;
	host.swap = meminfo_read(root, "SwapTotal:", &swap) == 0 && swap > 0;
	kvpool_cgroup_read(root, "memory", "memory", &room);
	host.cgroup_limit = room.limit;
	host.cgroup_room = room.room;
	host.free_2m = huge_read(root, "2048", "hugetlb.2MB", 2 * MIB);
	host.free_1g = huge_read(root, "1048576", "hugetlb.1GB", GIB);
	host.thp = thp_read(root);
	*out = host;
	return 0;
}

int kvpool_host_room(const char *root, uint64_t *out)
{
	struct kvpool_cgroup_room room;
	uint64_t available;
	int r;

	r = meminfo_read(root, "MemAvailable:", &available);
	if (r < 0)
		return r;
	kvpool_cgroup_read(root, "memory", "memory", &room);
	*out = KVPOOL_MIN(available, room.room);
	return 0;
}
