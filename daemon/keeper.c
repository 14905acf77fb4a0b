/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor's descriptor store, socket and table: see keeper.h. Messages are read in
 * keeper_message.c.
 */
#include "daemon/keeper.h"

#include "daemon/clock.h"
#include "shm/base.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* Descriptors that are no kept ones: the supervisor's own, and those of a message. */
#define OTHERS 300u

/* Starting a child takes two numbers for each: where it is held and where it goes. */
static uint32_t room_for(uint32_t wish)
{
	struct rlimit files;
	rlim_t most = 0;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > OTHERS)
		most = (files.rlim_cur - OTHERS) / 2;
	return (uint32_t)KVPOOL_MIN((rlim_t)wish, most);
}

/* An abstract name that the kernel picks: no file is left behind, and no folder is needed. */
static int socket_open(struct kvpool_keeper *k)
{
	const struct sockaddr_un nameless = {.sun_family = AF_UNIX};
	struct sockaddr_un address = nameless;
	socklen_t bytes = sizeof(address);
	const int on = 1;
	size_t n;

	k->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->fd < 0)
		return -errno;
	/* Before it has a name: no message may come without its sender. */
	if (setsockopt(k->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    bind(k->fd, (const struct sockaddr *)&nameless, sizeof(sa_family_t)) < 0 ||
	    getsockname(k->fd, (struct sockaddr *)&address, &bytes) < 0)
		return -errno;
	n = bytes - offsetof(struct sockaddr_un, sun_path);
	if (n < 2 || n >= sizeof(k->address) || address.sun_path[0] != '\0')
		return -EADDRNOTAVAIL;
	memcpy(k->address, address.sun_path, n);
	k->address[0] = '@';
	k->address[n] = '\0';
	return 0;
}

int kvpool_keeper_open(uint32_t room, struct kvpool_keeper *out)
{
	struct kvpool_keeper k = {
		.fd = -1,
		.room = room_for(KVPOOL_MIN(room, KVPOOL_STORE_MAX)),
		.quiet = KVPOOL_LOG_LIMIT(5, 10 * KVPOOL_NS_PER_S),
	};
	int r = 0;

	k.kept = calloc(k.room + KVPOOL_KEEPER_GIVEN, sizeof(*k.kept));
	if (!k.kept)
		r = -ENOMEM;
	if (r == 0)
		r = socket_open(&k);
	if (r != 0) {
		if (k.fd >= 0)
			(void)close(k.fd);
		free(k.kept);
		return r;
	}
	*out = k;
	return 0;
}

void kvpool_keeper_close(struct kvpool_keeper *k)
{
	if (k->fd < 0)
		return;
	while (k->n > 0)
		(void)close(k->kept[--k->n].fd);
	free(k->kept);
	k->kept = NULL;
	(void)close(k->fd);
	k->fd = -1;
}

static void append(struct kvpool_keeper *k, const char *name, int fd)
{
	struct kvpool_store_kept_fd *kept = &k->kept[k->n++];

	kept->fd = fd;
	(void)snprintf(kept->name, sizeof(kept->name), "%s", name);
}

int kvpool_keeper_take_given(struct kvpool_keeper *k)
{
	char **names = NULL;
	int n, r = 0;

	n = sd_listen_fds_with_names(1, &names);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (k->n < k->room + KVPOOL_KEEPER_GIVEN) {
			append(k, names[i], SD_LISTEN_FDS_START + i);
		} else {
			(void)close(SD_LISTEN_FDS_START + i);
			r = KVPOOL_KEEPER_E_FULL;
		}
		free(names[i]);
	}
	free(names);
	return r;
}

static struct kvpool_store_kept_fd *find(struct kvpool_keeper *k, const char *name)
{
	for (uint32_t i = 0; i < k->n; i++) {
		if (strcmp(k->kept[i].name, name) == 0)
			return &k->kept[i];
	}
	return NULL;
}

int kvpool_keeper_put(struct kvpool_keeper *k, const char *name, int fd)
{
	struct kvpool_store_kept_fd *there = find(k, name);

	if (there) {
		(void)close(there->fd);
		there->fd = fd;
		return 0;
	}
	if (k->n >= k->room)
		return KVPOOL_KEEPER_E_FULL;
	append(k, name, fd);
	return 0;
}

void kvpool_keeper_remove(struct kvpool_keeper *k, const char *name)
{
	struct kvpool_store_kept_fd *there = find(k, name);

	if (!there)
		return;
	(void)close(there->fd);
	*there = k->kept[--k->n];
}
