/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message of the handshake socket. See packet.h.
 *
 * Lives on the stack of whoever holds the socket.
 */
#include "client/packet.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
	uint32_t bytes; /* 0: the daemon does not send it */
	uint32_t n_fds;
} types[] = {
	[KVPOOL_MESSAGE_HELLO] = {sizeof(struct kvpool_hello), 0},
	[KVPOOL_MESSAGE_WELCOME] = {sizeof(struct kvpool_welcome), 0},
	[KVPOOL_MESSAGE_REFUSED] = {sizeof(struct kvpool_refused), 0},
	[KVPOOL_MESSAGE_CHANNEL] = {sizeof(struct kvpool_channel_grant), 3},
	[KVPOOL_MESSAGE_SEGMENT] = {sizeof(struct kvpool_segment_grant), 1},
};

int kvpool_packet_send(int fd, const void *message, uint32_t bytes)
{
	ssize_t n;

	do
		n = send(fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)bytes)
		return 0;
	return n < 0 && (errno == EAGAIN || errno == ENOBUFS) ? -EAGAIN : -ENOTCONN;
}

/* Every descriptor that came is in *out, also those of a message that is refused. */
static uint32_t collect(struct msghdr *msg, struct kvpool_packet *out)
{
	uint32_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes && n < KVPOOL_MESSAGE_FDS_MAX;
		     at += sizeof(int))
			memcpy(&out->fds[n++], CMSG_DATA(c) + at, sizeof(int));
	}
	return n;
}

static bool is_whole(const struct kvpool_packet *p, size_t bytes, uint32_t n_fds, int flags)
{
	uint32_t type = p->head.type;

	return !(flags & (MSG_TRUNC | MSG_CTRUNC)) && bytes >= sizeof(p->head) &&
	       p->head.bytes == bytes && type < KVPOOL_ARRAY_SIZE(types) &&
	       types[type].bytes == bytes && types[type].n_fds == n_fds;
}

int kvpool_packet_receive(int fd, struct kvpool_packet *out)
{
	struct kvpool_packet p = {.fds = {-1, -1, -1}};
	struct iovec iov = {.iov_base = p.bytes, .iov_len = sizeof(p.bytes)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(KVPOOL_MESSAGE_FDS_MAX * sizeof(int))];
	} control;
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	uint32_t n_fds;
	ssize_t n;

	do
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : -ENOTCONN;
	n_fds = collect(&msg, &p);
	if (n == 0 && n_fds == 0)
		return -ENOTCONN;
	if (!is_whole(&p, (size_t)n, n_fds, msg.msg_flags)) {
		kvpool_packet_drop(&p);
		return -EPROTO;
	}
	*out = p;
	return 0;
}

int kvpool_packet_wait(int fd, struct kvpool_deadline *deadline)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (;;) {
		uint64_t now = kvpool_clock_ns();
		uint64_t end = kvpool_deadline_fix(deadline, now);
		struct timespec left = kvpool_deadline_left(deadline, now);

		if (ppoll(&p, 1, &left, NULL) > 0)
			return 0;
		if (now >= end)
			return -ETIMEDOUT;
	}
}

void kvpool_packet_drop(struct kvpool_packet *packet)
{
	for (uint32_t i = 0; i < KVPOOL_MESSAGE_FDS_MAX; i++)
		if (packet->fds[i] >= 0)
			close(kvpool_packet_take(packet, i));
}

int kvpool_packet_take(struct kvpool_packet *packet, uint32_t i)
{
	int fd = packet->fds[i];

	packet->fds[i] = -1;
	return fd;
}

const char *kvpool_packet_refusal(struct kvpool_packet *packet)
{
	char *text = packet->refused.text;

	text[sizeof(packet->refused.text) - 1] = '\0';
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return text;
}
