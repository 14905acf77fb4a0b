/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host of the test's own making: a temporary directory with /proc and /sys below it.
 *
 * One a process; the path is static. Removed with fixture_host_remove().
 */
#ifndef KVPOOL_TESTS_UNIT_FIXTURE_HOST_H
#define KVPOOL_TESTS_UNIT_FIXTURE_HOST_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fixture_host_root[PATH_MAX / 2];

static inline void fixture_host_make(void)
{
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(fixture_host_root, sizeof(fixture_host_root), "%s/kvpool-host-XXXXXX",
		       tmp == NULL ? "/tmp" : tmp);
	ck_assert_ptr_nonnull(mkdtemp(fixture_host_root));
}

/* Writes a file below the root, making the directories on its way. */
static inline void fixture_host_write(const char *path, const char *text)
{
	char full[PATH_MAX];
	FILE *file;

	ck_assert_int_lt(snprintf(full, sizeof(full), "%s%s", fixture_host_root, path), PATH_MAX);
	for (char *slash = full + strlen(fixture_host_root) + 1;
	     (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		ck_assert(mkdir(full, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(full, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static inline int fixture_host_unlink(const char *path, const struct stat *st, int type,
				      struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static inline void fixture_host_remove(void)
{
	ck_assert_int_eq(nftw(fixture_host_root, fixture_host_unlink, 8, FTW_DEPTH | FTW_PHYS), 0);
}

#endif
