/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's socket may be. See places.h.
 *
 * Settled when the handle is made; read-only afterwards.
 */
#include "client/places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SYSTEM_SOCKET "/run/kvpool/kvpool.sock"

static int add(struct kvpool_places *places, const char *folder, const char *path)
{
	struct sockaddr_un *at = &places->at[places->n];
	int n = snprintf(at->sun_path, sizeof(at->sun_path), "%s%s", folder, path);

	if (n < 0 || (size_t)n >= sizeof(at->sun_path))
		return -ENAMETOOLONG;
	at->sun_family = AF_UNIX;
	places->n++;
	return 0;
}

int kvpool_places_find(const char *socket, struct kvpool_places *out)
{
	const char *named = socket ? socket : secure_getenv("KVPOOL_SOCKET");
	const char *folder = secure_getenv("XDG_RUNTIME_DIR");
	struct kvpool_places places = {0};
	int r;

	if (named && *named) {
		r = add(&places, "", named);
	} else {
		r = add(&places, "", SYSTEM_SOCKET);
		/* Nobody named this one: a folder that is too deep is no place. */
		if (folder && *folder)
			(void)add(&places, folder, "/kvpool.sock");
	}
	if (r == 0)
		*out = places;
	return r;
}

static int connect_one(const struct sockaddr_un *at, int *out)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0) {
		*out = fd;
		return 0;
	}
	r = errno == EACCES || errno == EPERM ? -EACCES : -ENOTCONN;
	close(fd);
	return r;
}

int kvpool_places_connect(const struct kvpool_places *places, int *out)
{
	int r = -ENOTCONN;

	for (uint32_t i = 0; i < places->n; i++) {
		int one = connect_one(&places->at[i], out);

		if (one == 0)
			return 0;
		if (one != -ENOTCONN)
			r = one;
	}
	return r;
}
