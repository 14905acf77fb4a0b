/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening Unix socket: made at a path (a dead daemon's is taken over, a live one's is not) or
 * given by systemd; accepts for as long as there are descriptors and refuses politely when not.
 *
 * Owned by the server (data) and the admin object; service thread only.
 */
#ifndef KVPOOL_DAEMON_LISTENER_H
#define KVPOOL_DAEMON_LISTENER_H

#include "daemon/loop.h"
#include "shm/base.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
	KVPOOL_LISTENER_E_PATH = 1,  /* too long, or something that is no socket is there */
	KVPOOL_LISTENER_E_LIVE = 2,  /* somebody answers on it */
	KVPOOL_LISTENER_E_GIVEN = 3, /* the descriptor from systemd is not such a socket */
};

/*
 * A connection came; takes `fd`. `starved`: it could be accepted only by giving up the spare
 * descriptor, so it must be refused and closed before the function returns.
 */
typedef void (*kvpool_listener_fn)(void *cookie, int fd, bool starved);

struct kvpool_listener {
	int fd;    /* owned; -1: closed */
	int spare; /* owned; given up for a moment when descriptors run out */
	bool made; /* the path is ours to unlink */
	dev_t dev; /* of the path, when we bound it */
	ino_t ino;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	uint64_t starved; /* connections refused for want of descriptors */

	struct kvpool_loop *loop;     /* borrowed from start to stop */
	struct kvpool_source *source; /* owned; NULL while accepting is paused */
	struct kvpool_source *retry;  /* owned: ends a pause */
	kvpool_listener_fn fn;
	void *cookie; /* borrowed from start to stop */
};

/*
 * Binds and listens. `type` is SOCK_SEQPACKET or SOCK_STREAM. Negative errno or KVPOOL_LISTENER_E_;
 * `text` then says what and why.
 */
int kvpool_listener_open(const char *path, int type, mode_t mode, struct kvpool_listener *out,
			 char *text, size_t text_bytes);

/* The same with a descriptor that systemd bound; takes `fd` on success. */
int kvpool_listener_adopt(int fd, int type, struct kvpool_listener *out, char *text,
			  size_t text_bytes);

/* Accepts from now on. -ENOMEM, -ENOSPC. */
int kvpool_listener_start(struct kvpool_listener *l, struct kvpool_loop *loop,
			  kvpool_listener_fn fn, void *cookie);

/* Stops, unlinks the path if the socket there is still ours, closes. A closed one is left alone. */
void kvpool_listener_close(struct kvpool_listener *l);

#endif
