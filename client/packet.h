/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message of the handshake socket, as it was received: checked for type, length and number of
 * descriptors before anybody looks at a field.
 *
 * Lives on the stack of whoever holds the socket (an attempt, or a session's gate).
 */
#ifndef KVPOOL_CLIENT_PACKET_H
#define KVPOOL_CLIENT_PACKET_H

#include "client/deadline.h"
#include "shm/handshake.h"

struct kvpool_packet {
	union {
		struct kvpool_message head;
		struct kvpool_hello hello;
		struct kvpool_welcome welcome;
		struct kvpool_refused refused;
		struct kvpool_channel_grant channel;
		struct kvpool_segment_grant segment;
		uint8_t bytes[KVPOOL_MESSAGE_BYTES_MAX];
	};
	int fds[KVPOOL_MESSAGE_FDS_MAX]; /* owned; -1 where there is none */
};

/* Never waits. -EAGAIN: the daemon does not read. -ENOTCONN: it is gone. */
int kvpool_packet_send(int fd, const void *message, uint32_t bytes);

/*
 * Never waits. -EAGAIN: nothing there. -ENOTCONN: the daemon closed the socket. -EPROTO: not a
 * message of this protocol. On failure no descriptor is left open and `out` is untouched.
 */
int kvpool_packet_receive(int fd, struct kvpool_packet *out);

/* Until the socket is readable. 0, or -ETIMEDOUT. */
int kvpool_packet_wait(int fd, struct kvpool_deadline *deadline);

/* Closes the descriptors that nobody took. */
void kvpool_packet_drop(struct kvpool_packet *packet);

/* Takes descriptor i out of the packet. */
int kvpool_packet_take(struct kvpool_packet *packet, uint32_t i);

/* The text of a REFUSED: NUL-terminated, and printable whatever the daemon sent. */
const char *kvpool_packet_refusal(struct kvpool_packet *packet);

#endif
