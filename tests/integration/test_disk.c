/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system without a free byte under sockets, log and temporary files: nothing of the pool is
 * on it, so nothing changes. Needs root, to mount one.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static char folder[] = "/tmp/kvpool-disk-XXXXXX";

/* A mount namespace of its own with a tmpfs of one page on `folder`; -errno. */
static int mount_small(void)
{
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return -errno;
	if (!mkdtemp(folder))
		return -errno;
	return mount("kvpool", folder, "tmpfs", 0, "size=4096,mode=0700") == 0 ? 0 : -errno;
}

static void fill(void)
{
	static const char page[4096] = {1};
	char path[sizeof(folder) + 8];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/full", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, page, sizeof(page)), sizeof(page));
	ck_assert_int_eq(write(fd, page, 1), -1);
	ck_assert_int_eq(errno, ENOSPC);
	(void)close(fd);
}

START_TEST(should_serve_where_the_disk_is_full)
{
	struct kvpool_harness *daemon;
	struct kvpool_rig writer, reader;

	fill();
	ck_assert_int_eq(setenv("TMPDIR", folder, 1), 0);
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon), 0);
	ck_assert_int_eq(strncmp(kvpool_harness_socket(daemon), folder, strlen(folder)), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon), (struct kvpool_options){0}, &writer);
	kvpool_rig_open(kvpool_harness_socket(daemon), (struct kvpool_options){0}, &reader);
	ck_assert_uint_eq(kvpool_rig_put(&writer, 1, 0, KVPOOL_RIG_KEYS), KVPOOL_RIG_KEYS);
	ck_assert_int_eq(kvpool_rig_get(&reader, 1, KVPOOL_RIG_KEYS), KVPOOL_RIG_KEYS);
	kvpool_rig_close(&reader);
	kvpool_rig_close(&writer);
	kvpool_harness_free(daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("disk");
	TCase *tcase = tcase_create("full");
	int r = mount_small();

	if (r != 0) {
		(void)printf("skipped: cannot mount a small file system: %s\n", strerror(-r));
		return 77;
	}
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, should_serve_where_the_disk_is_full);
	suite_add_tcase(suite, tcase);
	r = kvpool_harness_run(suite);
	(void)umount2(folder, MNT_DETACH);
	(void)rmdir(folder);
	return r;
}
