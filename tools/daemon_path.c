/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kvpoold is that belongs to this tool: see daemon_path.h.
 *
 * No state; main thread.
 */
#include "tools/daemon_path.h"

#include "shm/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seen from this program's folder: installed, tools/ of a build tree, a folder in tools/. */
static const char *const places[] = {"kvpoold", "../daemon/kvpoold", "../../daemon/kvpoold"};

void kvpool_daemon_path_find(const char *given, char out[KVPOOL_DAEMON_PROGRAM_BYTES])
{
	const char *named = given != NULL ? given : getenv("KVPOOLD");
	char self[KVPOOL_DAEMON_PROGRAM_BYTES / 2];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;
	size_t i;

	if (named != NULL && named[0] != '\0') {
		snprintf(out, KVPOOL_DAEMON_PROGRAM_BYTES, "%s", named);
		return;
	}
	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	for (i = 0; slash != NULL && i < KVPOOL_ARRAY_SIZE(places); i++) {
		snprintf(out, KVPOOL_DAEMON_PROGRAM_BYTES, "%.*s/%s", (int)(slash - self), self,
			 places[i]);
		if (access(out, X_OK) == 0)
			return;
	}
	snprintf(out, KVPOOL_DAEMON_PROGRAM_BYTES, "kvpoold");
}
