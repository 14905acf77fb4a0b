/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the service manager: see manager.h.
 *
 * Not sd_notify(): that finds the socket by name each time, and waits for ever where nobody reads.
 */
#include "daemon/manager.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 1
/* Who did not read for that long is not waited for again for a while: clients are served meanwhile.
 */
#define DEAF_S 10

/* Messages go out one at a time: the service thread's and the populating thread's. */
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1; /* owned; under `sending` */
static time_t deaf_until;   /* CLOCK_MONOTONIC, seconds; 0: it reads; under `sending` */

/* NULL: there is none. */
static const char *manager_name(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	return name && name[0] != '\0' ? name : NULL;
}

bool kvpool_manager_exists(void)
{
	return manager_name() != NULL;
}

/* A path, or an abstract name, which is written with '@' first. The address's bytes; 0: neither. */
static socklen_t address_read(const char *name, struct sockaddr_un *to)
{
	size_t n = strlen(name);

	if ((name[0] != '@' && name[0] != '/') || n < 2 || n >= sizeof(to->sun_path))
		return 0;
	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	memcpy(to->sun_path, name, n);
	if (name[0] == '@')
		to->sun_path[0] = '\0';
	else
		n++;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static int manager_connect(const char *name)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un address;
	socklen_t bytes;
	int fd, r;

	bytes = address_read(name, &address);
	if (bytes == 0)
		return -EAFNOSUPPORT;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, bytes) < 0) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	connection = fd;
	return 0;
}

static time_t now_s(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static int send_once(const char *text, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec line = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
	struct msghdr message = {.msg_iov = &line, .msg_iovlen = 1};
	int flags = MSG_NOSIGNAL;
	ssize_t n;

	if (deaf_until != 0 && now_s() < deaf_until)
		flags |= MSG_DONTWAIT;

	if (fd >= 0) {
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
	}
	do
		n = sendmsg(connection, &message, flags);
	while (n < 0 && errno == EINTR);
	if (n >= 0) {
		deaf_until = 0;
		return 0;
	}
	if (errno == EAGAIN && !(flags & MSG_DONTWAIT))
		deaf_until = now_s() + DEAF_S;
	return -errno;
}

/* `sending` is held. */
static int send_connected(const char *name, const char *text, int fd)
{
	bool fresh = connection < 0;
	int r;

	if (fresh) {
		r = manager_connect(name);
		if (r != 0)
			return r;
	}
	r = send_once(text, fd);
	if ((r != -ECONNREFUSED && r != -ENOTCONN) || fresh || name[0] != '/')
		return r;
	/* Only the manager can bind its path: it made its socket anew. */
	(void)close(connection);
	connection = -1;
	r = manager_connect(name);
	return r != 0 ? r : send_once(text, fd);
}

int kvpool_manager_send(const char *text, int fd)
{
	const char *name = manager_name();
	int r;

	if (!name)
		return KVPOOL_MANAGER_E_NONE;
	(void)pthread_mutex_lock(&sending);
	r = send_connected(name, text, fd);
	(void)pthread_mutex_unlock(&sending);
	return r;
}
