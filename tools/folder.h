/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A temporary folder for sockets and logs, gone with all that is in it when it is closed.
 * Owned by whoever made it; main thread.
 */
#ifndef KVPOOL_TOOLS_FOLDER_H
#define KVPOOL_TOOLS_FOLDER_H

#include <stddef.h>

struct kvpool_folder {
	char path[64]; /* empty: none */
};

/* Under $TMPDIR, or /tmp where that is unset or too long for a socket's path. Negative errno. */
int kvpool_folder_make(struct kvpool_folder *out);

/* Removes the files in it and the folder; it holds no folders. A zeroed one is fine. */
void kvpool_folder_remove(struct kvpool_folder *folder);

/* The path of a file in it; `out` takes sizeof(struct sockaddr_un.sun_path) bytes at least. */
void kvpool_folder_file(const struct kvpool_folder *folder, const char *name, char *out,
			size_t out_bytes);

/* Copies the last lines of a file in it to stderr. */
void kvpool_folder_show(const struct kvpool_folder *folder, const char *name);

#endif
