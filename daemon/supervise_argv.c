/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor's child is called with: see supervise.h.
 */
#include "daemon/supervise.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLAG     "--supervise"
#define FLAG_MIN 4 /* "--su": the shortest form that getopt takes for it */

/* What the kernel puts behind the path of a file that an upgrade has replaced. */
#define DELETED " (deleted)"

static bool is_flag(const char *word)
{
	size_t n = strlen(word);

	return n >= FLAG_MIN && n <= strlen(FLAG) && strncmp(word, FLAG, n) == 0;
}

/* NULL with errno set. */
static char *own_path(void)
{
	char path[PATH_MAX];
	size_t tail = strlen(DELETED);
	ssize_t n;

	n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (n < 0)
		return NULL;
	path[n] = '\0';
	if ((size_t)n > tail && strcmp(path + (size_t)n - tail, DELETED) == 0)
		path[(size_t)n - tail] = '\0';
	return strdup(path);
}

int kvpool_supervise_argv(int argc, char *const argv[], char *const **out)
{
	char **words;
	size_t n = 0;

	words = calloc((size_t)argc + 2, sizeof(*words));
	if (!words)
		return -ENOMEM;
	words[n] = own_path();
	if (!words[n++]) {
		int r = -errno;

		free((void *)words);
		return r;
	}
	for (int i = 1; i < argc; i++) {
		if (!is_flag(argv[i]))
			words[n++] = argv[i];
	}
	*out = words;
	return 0;
}

void kvpool_supervise_argv_free(char *const *argv)
{
	if (!argv)
		return;
	free(argv[0]);
	free((void *)(uintptr_t)argv);
}
