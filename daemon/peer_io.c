/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets of the handshake: see peer_io.h.
 */
#include "daemon/peer_io.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define DRAIN_PACKETS 64

int kvpool_peer_io_send(int fd, const void *message, uint32_t bytes, const int *fds, uint32_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(KVPOOL_MESSAGE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t sent;

	assert(n <= KVPOOL_MESSAGE_FDS_MAX);
	if (n > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	do {
		sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int kvpool_peer_io_receive(int fd, void *buffer, uint32_t *bytes)
{
	struct iovec iov = {.iov_base = buffer, .iov_len = KVPOOL_MESSAGE_BYTES_MAX};
	/* Without room for control data the kernel drops descriptors instead of installing them. */
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t got;

	do {
		got = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	if (msg.msg_flags & MSG_CTRUNC)
		return KVPOOL_PEER_IO_E_DESCRIPTORS;
	if (msg.msg_flags & MSG_TRUNC)
		return KVPOOL_PEER_IO_E_LONG;
	if (got == 0)
		return KVPOOL_PEER_IO_E_EOF;
	*bytes = (uint32_t)got;
	return 0;
}

int kvpool_peer_io_refuse(int fd, enum kvpool_refusal reason, const char *text)
{
	struct kvpool_refused refused = {
		.head = {KVPOOL_MESSAGE_REFUSED, sizeof(refused)},
		.reason = reason,
		.version_min = KVPOOL_PROTOCOL_MIN,
		.version_max = KVPOOL_PROTOCOL_MAX,
	};

	(void)snprintf(refused.text, sizeof(refused.text), "%s", text);
	return kvpool_peer_io_send(fd, &refused, sizeof(refused), NULL, 0);
}

void kvpool_peer_io_drain(int fd)
{
	char buffer[KVPOOL_MESSAGE_BYTES_MAX];
	int i;

	for (i = 0; i < DRAIN_PACKETS; i++) {
		if (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) <= 0)
			return;
	}
}

bool kvpool_peer_io_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0;
}
