/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkdtemp and its opposite. No state of its own; main thread.
 */
#include "tools/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_BYTES 2048

int kvpool_folder_make(struct kvpool_folder *out)
{
	static const char name[] = "/kvpool-tool-XXXXXX";
	const char *base = getenv("TMPDIR");
	struct kvpool_folder folder;

	if (!base || base[0] != '/' || strlen(base) + sizeof(name) > sizeof(folder.path))
		base = "/tmp";
	snprintf(folder.path, sizeof(folder.path), "%.42s%s", base, name);
	if (!mkdtemp(folder.path))
		return -errno;
	*out = folder;
	return 0;
}

void kvpool_folder_remove(struct kvpool_folder *folder)
{
	struct dirent *entry;
	DIR *dir;

	if (folder->path[0] == '\0')
		return;
	dir = opendir(folder->path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
	rmdir(folder->path);
	folder->path[0] = '\0';
}

void kvpool_folder_file(const struct kvpool_folder *folder, const char *name, char *out,
			size_t out_bytes)
{
	snprintf(out, out_bytes, "%s/%s", folder->path, name);
}

void kvpool_folder_show(const struct kvpool_folder *folder, const char *name)
{
	char path[128];
	char text[SHOWN_BYTES + 1];
	ssize_t n;
	int fd;

	kvpool_folder_file(folder, name, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (lseek(fd, -SHOWN_BYTES, SEEK_END) < 0)
		lseek(fd, 0, SEEK_SET);
	n = read(fd, text, SHOWN_BYTES);
	if (n > 0) {
		text[n] = '\0';
		fprintf(stderr, "%s", text);
	}
	close(fd);
}
