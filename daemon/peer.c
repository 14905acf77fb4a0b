/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: see peer.h. What its messages do is in peer_message.c.
 */
#include "daemon/peer.h"

#include "daemon/channel.h"
#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/peer_io.h"
#include "daemon/peer_message.h"
#include "daemon/server.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define HANDSHAKE_NS     (5 * KVPOOL_NS_PER_S)
#define PENDING_MAX      256 /* connections that are not attached yet */
#define PENDING_USER_MAX 32  /* of these, from one user */
#define PACKETS_A_TURN   8

bool kvpool_peer_alive(const struct kvpool_peer *peer)
{
	struct pollfd p = {.fd = peer->pidfd, .events = POLLIN};

	return !peer->gone && poll(&p, 1, 0) == 0;
}

static void close_socket(struct kvpool_peer *peer)
{
	kvpool_source_remove(peer->source);
	peer->source = NULL;
	if (peer->fd < 0)
		return;
	kvpool_peer_io_drain(peer->fd);
	(void)close(peer->fd);
	peer->fd = -1;
}

void kvpool_peer_free(struct kvpool_peer *peer)
{
	assert(kvpool_list_empty(&peer->channels));
	close_socket(peer);
	kvpool_source_remove(peer->watch);
	kvpool_source_remove(peer->deadline);
	if (peer->pidfd >= 0)
		(void)close(peer->pidfd);
	free(peer);
}

/* Before the leases end, so that whoever reads after that can know it by the socket. */
static void hang_up(struct kvpool_peer *peer)
{
	if (kvpool_peer_io_ended(peer->fd))
		close_socket(peer);
	else
		(void)shutdown(peer->fd, SHUT_WR);
}

void kvpool_peer_end(struct kvpool_peer *peer)
{
	struct kvpool_list *node, *spare;

	assert(peer->state != KVPOOL_PEER_OVER);
	if (peer->state == KVPOOL_PEER_GREETED)
		peer->server->n_pending--;
	peer->state = KVPOOL_PEER_OVER;
	kvpool_source_remove(peer->deadline);
	peer->deadline = NULL;
	kvpool_list_remove(&peer->link);
	kvpool_list_each(node, spare, &peer->channels)
		kvpool_channel_free(kvpool_list_entry(node, struct kvpool_channel, link));
	if (!peer->client) {
		kvpool_peer_free(peer);
		return;
	}
	hang_up(peer);
	kvpool_client_leave(peer->client, peer);
}

void kvpool_peer_violate(struct kvpool_peer *peer, enum kvpool_violation kind,
			 enum kvpool_refusal reason, const char *fmt, ...)
{
	char text[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	kvpool_violation_note(&peer->server->violations, kind, peer->server->now_ns,
			      "process %d of user %u: %s; dropped", (int)peer->pid,
			      (unsigned int)peer->uid, text);
	peer->server->counters.refused++;
	(void)kvpool_peer_io_refuse(peer->fd, reason, text);
	kvpool_peer_end(peer);
}

void kvpool_peer_refuse(struct kvpool_peer *peer, enum kvpool_refusal reason, const char *fmt, ...)
{
	char text[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	kvpool_log(KVPOOL_LOG_INFO, "process %d of user %u refused: %s", (int)peer->pid,
		   (unsigned int)peer->uid, text);
	peer->server->counters.refused++;
	(void)kvpool_peer_io_refuse(peer->fd, reason, text);
	kvpool_peer_end(peer);
}

static void deadline_due(void *cookie, uint32_t events)
{
	(void)events;
	kvpool_peer_violate(cookie, KVPOOL_VIOLATION_DEADLINE, KVPOOL_REFUSAL_MESSAGE,
			    "no ATTACH within 5 s");
}

static void process_gone(void *cookie, uint32_t events)
{
	struct kvpool_peer *peer = cookie;

	(void)events;
	kvpool_source_remove(peer->watch);
	peer->watch = NULL;
	peer->gone = true;
	if (peer->state == KVPOOL_PEER_OVER) {
		kvpool_client_member_news(peer->client, peer);
		return;
	}
	if (peer->client && !kvpool_peer_io_ended(peer->fd))
		kvpool_log(KVPOOL_LOG_INFO,
			   "client %u (%s): process %d is gone, and somebody else has its socket",
			   peer->client->id, peer->client->name, (int)peer->pid);
	kvpool_peer_end(peer);
}

/* Whoever has the other end is not listened to; only its end counts. */
static void readable_over(struct kvpool_peer *peer)
{
	kvpool_peer_io_drain(peer->fd);
	if (!kvpool_peer_io_ended(peer->fd))
		return;
	close_socket(peer);
	kvpool_client_member_news(peer->client, peer);
}

static void readable(void *cookie, uint32_t events)
{
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_peer *peer = cookie;
	uint32_t bytes;
	int i, r;

	(void)events;
	if (peer->state == KVPOOL_PEER_OVER) {
		readable_over(peer);
		return;
	}
	peer->server->now_ns = kvpool_clock_ns();
	for (i = 0; i < PACKETS_A_TURN; i++) {
		r = kvpool_peer_io_receive(peer->fd, buffer, &bytes);
		if (r == -EAGAIN)
			return;
		if (r == KVPOOL_PEER_IO_E_DESCRIPTORS) {
			kvpool_peer_violate(peer, KVPOOL_VIOLATION_DESCRIPTORS,
					    KVPOOL_REFUSAL_MESSAGE,
					    "a message with descriptors: clients send none");
			return;
		}
		if (r == KVPOOL_PEER_IO_E_LONG) {
			kvpool_peer_violate(peer, KVPOOL_VIOLATION_SIZE, KVPOOL_REFUSAL_MESSAGE,
					    "a message of more than %u bytes",
					    KVPOOL_MESSAGE_BYTES_MAX);
			return;
		}
		if (r != 0) {
			kvpool_peer_end(peer);
			return;
		}
		if (!kvpool_peer_message(peer, buffer, bytes))
			return;
	}
}

/* Who connected, by the kernel's word. 0, or a negative errno: no such process any more. */
static int identify(struct kvpool_peer *peer)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	peer->pid = cred.pid;
	peer->uid = cred.uid;
	n = sizeof(peer->pidfd);
	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERPIDFD, &peer->pidfd, &n) == 0)
		return 0;
	/* Kernels before 6.5: the process is there still, or its pid is not in use again so soon.
	 */
	peer->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	return peer->pidfd < 0 ? -errno : 0;
}

static uint32_t pending_of_user(const struct kvpool_server *s, uid_t uid)
{
	struct kvpool_list *node, *spare;
	uint32_t n = 0;

	kvpool_list_each(node, spare, &s->peers)
	{
		const struct kvpool_peer *peer = kvpool_list_entry(node, struct kvpool_peer, link);

		n += peer->state == KVPOOL_PEER_GREETED && peer->uid == uid;
	}
	return n;
}

static int watch(struct kvpool_peer *peer)
{
	struct kvpool_loop *loop = peer->server->loop;
	int r;

	r = kvpool_loop_add_fd(loop, peer->fd, POLLIN, readable, peer, &peer->source);
	if (r == 0)
		r = kvpool_loop_add_fd(loop, peer->pidfd, POLLIN, process_gone, peer, &peer->watch);
	if (r == 0)
		r = kvpool_loop_add_timer(loop, deadline_due, peer, &peer->deadline);
	if (r == 0)
		kvpool_source_set_timer(peer->deadline, kvpool_clock_ns() + HANDSHAKE_NS);
	return r;
}

static int greet(const struct kvpool_peer *peer)
{
	struct kvpool_hello hello = {
		.head = {KVPOOL_MESSAGE_HELLO, sizeof(hello)},
		.magic = KVPOOL_PROTOCOL_MAGIC,
		.version_min = KVPOOL_PROTOCOL_MIN,
		.version_max = KVPOOL_PROTOCOL_MAX,
		.features = kvpool_server_features(peer->server),
		.ring_entries_max = KVPOOL_RING_ENTRIES_MAX,
		.arena_bytes_max = KVPOOL_ARENA_MAX,
		.epoch = peer->server->epoch,
	};

	return kvpool_peer_io_send(peer->fd, &hello, sizeof(hello), NULL, 0);
}

static void turn_away(struct kvpool_server *s, int fd, enum kvpool_refusal reason, const char *text)
{
	s->counters.refused++;
	(void)kvpool_peer_io_refuse(fd, reason, text);
	(void)close(fd);
}

static struct kvpool_peer *peer_new(struct kvpool_server *s, int fd)
{
	struct kvpool_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->server = s;
	peer->fd = fd;
	peer->pidfd = -1;
	peer->state = KVPOOL_PEER_GREETED;
	kvpool_list_init(&peer->member_link);
	kvpool_list_init(&peer->channels);
	kvpool_list_append(&s->peers, &peer->link);
	s->n_pending++;
	return peer;
}

void kvpool_peer_accept(struct kvpool_server *s, int fd, bool starved)
{
	struct kvpool_peer *peer;
	int r;

	s->now_ns = kvpool_clock_ns();
	if (starved) {
		turn_away(s, fd, KVPOOL_REFUSAL_RESOURCES, "the daemon is out of descriptors");
		return;
	}
	if (s->n_pending >= PENDING_MAX) {
		turn_away(s, fd, KVPOOL_REFUSAL_LIMIT, "too many connections are attaching");
		return;
	}
	peer = peer_new(s, fd);
	if (!peer) {
		turn_away(s, fd, KVPOOL_REFUSAL_RESOURCES, "the daemon is out of memory");
		return;
	}
	r = identify(peer);
	if (r == -ESRCH) {
		kvpool_peer_end(peer);
		return;
	}
	if (r == 0 && pending_of_user(s, peer->uid) > PENDING_USER_MAX) {
		kvpool_peer_violate(peer, KVPOOL_VIOLATION_LIMIT, KVPOOL_REFUSAL_LIMIT,
				    "more than %d connections that do not attach",
				    PENDING_USER_MAX);
		return;
	}
	if (r == 0)
		r = watch(peer);
	if (r == 0)
		r = greet(peer);
	if (r != 0)
		kvpool_peer_refuse(peer, KVPOOL_REFUSAL_RESOURCES,
				   "the daemon cannot take the connection: %s", strerror(-r));
}
