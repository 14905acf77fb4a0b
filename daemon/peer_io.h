/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets of the handshake: one send with descriptors, one receive without any, never waiting.
 *
 * Stateless helpers of the peer; service thread only.
 */
#ifndef KVPOOL_DAEMON_PEER_IO_H
#define KVPOOL_DAEMON_PEER_IO_H

#include "shm/handshake.h"

#include <stdbool.h>

/* -EAGAIN: the peer does not read. Other negative errno: the connection is over. */
int kvpool_peer_io_send(int fd, const void *message, uint32_t bytes, const int *fds, uint32_t n);

enum {
	KVPOOL_PEER_IO_E_EOF = 1,         /* the other side closed */
	KVPOOL_PEER_IO_E_DESCRIPTORS = 2, /* it sent descriptors; none was received */
	KVPOOL_PEER_IO_E_LONG = 3,        /* longer than any message */
};

/* Reads one packet into `buffer` of KVPOOL_MESSAGE_BYTES_MAX. -EAGAIN: there is none. */
int kvpool_peer_io_receive(int fd, void *buffer, uint32_t *bytes);

/* Sends REFUSED. Negative errno, which matters only where the peer is to stay. */
int kvpool_peer_io_refuse(int fd, enum kvpool_refusal reason, const char *text);

/* Takes what lies unread, so that a close lets the other side read our last words. */
void kvpool_peer_io_drain(int fd);

/*
 * Whether the other end is gone: the last copy of its descriptor was closed, or one that had it
 * said goodbye to all by shutdown(2). The kernel does not tell these apart.
 */
bool kvpool_peer_io_ended(int fd);

#endif
