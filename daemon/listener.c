/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening Unix socket: see listener.h. Accepting is in listener_accept.c.
 */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 512

static int say(int r, char *text, size_t text_bytes, const char *fmt, ...) KVPOOL_PRINTF(4, 5);

static int say(int r, char *text, size_t text_bytes, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, text_bytes, fmt, args);
	va_end(args);
	return r;
}

/*
 * "process 1234 (kvpoold) of user 0", who listens at the other end of `fd`; false where that
 * process is dead. The kernel may hold a socket for some milliseconds after the death of a process
 * whose io_uring watched it; who connects meanwhile finds it open.
 */
static bool describe_peer(int fd, char *out, size_t out_bytes)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	char path[64], comm[32] = "?";
	ssize_t got;
	int f;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || cred.pid <= 0) {
		(void)snprintf(out, out_bytes, "a process that cannot be seen from here");
		return true;
	}
	if (kill(cred.pid, 0) < 0 && errno == ESRCH)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)cred.pid);
	f = open(path, O_RDONLY | O_CLOEXEC);
	if (f >= 0) {
		got = read(f, comm, sizeof(comm) - 1);
		if (got > 0)
			comm[got] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
		(void)close(f);
	}
	(void)snprintf(out, out_bytes, "process %d (%s) of user %u", (int)cred.pid, comm,
		       (unsigned int)cred.uid);
	return true;
}

/*
 * 0: somebody listens; an errno. The listener of a daemon that was killed may be there still, with
 * its queue full, until the kernel has cleaned up: so that is asked again for a moment.
 */
static int try_connect(int fd, const struct sockaddr_un *address)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	int r = EAGAIN;

	for (int i = 0; r == EAGAIN && i < 40; i++) {
		r = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? errno : 0;
		if (r == EAGAIN)
			(void)nanosleep(&pause, NULL);
	}
	return r;
}

/* Something is at the path. 0: it was a dead socket, and is gone now. */
static int take_over(const struct sockaddr_un *address, int type, char *text, size_t text_bytes)
{
	const char *path = address->sun_path;
	char who[96];
	struct stat st;
	int fd, r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0
				       : say(-errno, text, text_bytes, "cannot look at %s: %s",
					     path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return say(KVPOOL_LISTENER_E_PATH, text, text_bytes,
			   "%s exists and is not a socket; remove it or choose another --socket",
			   path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return say(-errno, text, text_bytes, "cannot make a socket: %s", strerror(errno));
	r = try_connect(fd, address);
	if (r == 0 && !describe_peer(fd, who, sizeof(who)))
		r = ECONNREFUSED;
	(void)close(fd);
	if (r == 0)
		return say(KVPOOL_LISTENER_E_LIVE, text, text_bytes,
			   "%s is in use: %s answers on it; stop that daemon or choose another "
			   "--socket",
			   path, who);
	if (r == EAGAIN || r == EPROTOTYPE)
		return say(KVPOOL_LISTENER_E_LIVE, text, text_bytes,
			   "%s is in use: somebody listens on it%s", path,
			   r == EPROTOTYPE ? ", with another type of socket" : "");
	if (r != ECONNREFUSED)
		return say(-r, text, text_bytes, "cannot tell whether %s is in use: %s", path,
			   strerror(r));
	if (unlink(path) < 0 && errno != ENOENT)
		return say(-errno, text, text_bytes, "cannot remove the dead socket %s: %s", path,
			   strerror(errno));
	return 0;
}

/*
 * Between "nobody answers" and "ours is bound" no other daemon may think the same: the folder is
 * locked meanwhile. A stranger who holds that lock can only delay us.
 */
static int lock_folder(const char *path)
{
	char copy[PATH_MAX];
	int fd, tries;

	(void)snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	for (tries = 0; tries < 100 && flock(fd, LOCK_EX | LOCK_NB) < 0; tries++)
		(void)usleep(10000);
	return fd;
}

static int bind_at(int fd, const struct sockaddr_un *address, int type, mode_t mode,
		   struct stat *st, char *text, size_t text_bytes)
{
	const struct sockaddr *sa = (const struct sockaddr *)address;
	const char *path = address->sun_path;
	int r;

	if (bind(fd, sa, sizeof(*address)) < 0) {
		if (errno != EADDRINUSE)
			return say(-errno, text, text_bytes, "cannot bind %s: %s", path,
				   strerror(errno));
		r = take_over(address, type, text, text_bytes);
		if (r != 0)
			return r;
		if (bind(fd, sa, sizeof(*address)) < 0)
			return say(-errno, text, text_bytes, "cannot bind %s: %s", path,
				   strerror(errno));
	}
	/* Nobody can connect before listen(), so the mode is never too wide or too narrow. */
	if (chmod(path, mode) < 0 || lstat(path, st) < 0 || listen(fd, BACKLOG) < 0) {
		r = -errno;
		(void)unlink(path);
		return say(r, text, text_bytes, "cannot listen on %s: %s", path, strerror(-r));
	}
	return 0;
}

static int open_spare(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int kvpool_listener_open(const char *path, int type, mode_t mode, struct kvpool_listener *out,
			 char *text, size_t text_bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, folder, r;

	if (strlen(path) == 0 || strlen(path) >= sizeof(address.sun_path))
		return say(KVPOOL_LISTENER_E_PATH, text, text_bytes,
			   "socket path of %zu bytes: the kernel takes 1 to %zu (%s)", strlen(path),
			   sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return say(-errno, text, text_bytes, "cannot make a socket: %s", strerror(errno));
	folder = lock_folder(path);
	r = bind_at(fd, &address, type, mode, &st, text, text_bytes);
	if (folder >= 0)
		(void)close(folder);
	if (r != 0) {
		(void)close(fd);
		return r;
	}
	*out = (struct kvpool_listener){
		.fd = fd,
		.spare = open_spare(),
		.made = true,
		.dev = st.st_dev,
		.ino = st.st_ino,
	};
	memcpy(out->path, path, strlen(path) + 1);
	return 0;
}

int kvpool_listener_adopt(int fd, int type, struct kvpool_listener *out, char *text,
			  size_t text_bytes)
{
	struct sockaddr_un address;
	socklen_t n = sizeof(address);
	int is = 0, listening = 0, flags;
	socklen_t size = sizeof(int);

	memset(&address, 0, sizeof(address));
	if (getsockname(fd, (struct sockaddr *)&address, &n) < 0 || address.sun_family != AF_UNIX ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &size) < 0 || is != type ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening)
		return say(KVPOOL_LISTENER_E_GIVEN, text, text_bytes,
			   "descriptor %d from systemd is not a listening Unix socket of type %s",
			   fd,
			   type == SOCK_SEQPACKET ? "SOCK_SEQPACKET (ListenSequentialPacket=)"
						  : "SOCK_STREAM (ListenStream=)");
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return say(-errno, text, text_bytes, "cannot set flags of descriptor %d: %s", fd,
			   strerror(errno));
	*out = (struct kvpool_listener){.fd = fd, .spare = open_spare()};
	memcpy(out->path, address.sun_path, sizeof(out->path));
	out->path[sizeof(out->path) - 1] = '\0';
	return 0;
}

void kvpool_listener_close(struct kvpool_listener *l)
{
	struct stat st;

	if (l->fd < 0)
		return;
	kvpool_source_remove(l->source);
	kvpool_source_remove(l->retry);
	l->source = NULL;
	l->retry = NULL;
	if (l->made && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		(void)unlink(l->path);
	(void)close(l->fd);
	if (l->spare >= 0)
		(void)close(l->spare);
	l->fd = -1;
	l->spare = -1;
}
