/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what a peer can send on its socket: an input is a series of connections and packets, most
 * of them messages that are right but for some bytes, in any order, with descriptors now and then.
 *
 * Whatever the daemon answers must be a message of its own; nobody may get more than one WELCOME;
 * an honest client that was there before is served to the end.
 */
#include "tests/fuzz/host.h"
#include "tests/fuzz/input.h"

#include <sys/socket.h>
#include <unistd.h>

#define PEERS     6u
#define STEPS_MAX 200u

struct hostile {
	int fd; /* owned; -1: not connected */
	uint32_t hellos, welcomes, channels, refusals;
};

struct run {
	struct kvpool_server *server;
	struct input in;
	struct fuzz_client honest;
	struct hostile peers[PEERS];
	uint8_t token[KVPOOL_TOKEN_BYTES]; /* of the last client that was welcomed */
};

/* The size that each of the daemon's messages has; 0: not one that it sends. */
static size_t size_of_type(uint32_t type)
{
	switch (type) {
	case KVPOOL_MESSAGE_HELLO:
		return sizeof(struct kvpool_hello);
	case KVPOOL_MESSAGE_WELCOME:
		return sizeof(struct kvpool_welcome);
	case KVPOOL_MESSAGE_REFUSED:
		return sizeof(struct kvpool_refused);
	case KVPOOL_MESSAGE_CHANNEL:
		return sizeof(struct kvpool_channel_grant);
	case KVPOOL_MESSAGE_SEGMENT:
		return sizeof(struct kvpool_segment_grant);
	default:
		return 0;
	}
}

static void note(struct run *r, struct hostile *peer, uint32_t type, const void *packet)
{
	struct kvpool_refused refused;
	struct kvpool_welcome welcome;

	switch (type) {
	case KVPOOL_MESSAGE_HELLO:
		FUZZ_EXPECT(peer->hellos++ == 0);
		break;
	case KVPOOL_MESSAGE_WELCOME:
		FUZZ_EXPECT(peer->welcomes++ == 0);
		memcpy(&welcome, packet, sizeof(welcome));
		memcpy(r->token, welcome.token, sizeof(r->token));
		break;
	case KVPOOL_MESSAGE_CHANNEL:
		FUZZ_EXPECT(peer->welcomes == 1);
		peer->channels++;
		break;
	case KVPOOL_MESSAGE_REFUSED:
		memcpy(&refused, packet, sizeof(refused));
		FUZZ_EXPECT(refused.reason != 0 && refused.reason <= KVPOOL_REFUSAL_UNKNOWN);
		FUZZ_EXPECT(memchr(refused.text, 0, sizeof(refused.text)) != NULL);
		peer->refusals++;
		break;
	default:
		FUZZ_EXPECT(peer->welcomes == 1);
		break;
	}
}

/* Takes what the daemon sent; forgets a connection that it closed. */
static void drain(struct run *r, struct hostile *peer)
{
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_message head;
	int fds[KVPOOL_MESSAGE_FDS_MAX], n;

	while (peer->fd >= 0 && (n = fuzz_receive(peer->fd, buffer, sizeof(buffer), fds)) >= 0) {
		if (n == 0) {
			close(peer->fd);
			peer->fd = -1;
			return;
		}
		FUZZ_EXPECT((size_t)n >= sizeof(head));
		memcpy(&head, buffer, sizeof(head));
		FUZZ_EXPECT((uint32_t)n == head.bytes && (size_t)n == size_of_type(head.type));
		note(r, peer, head.type, buffer);
		for (uint32_t i = 0; i < KVPOOL_MESSAGE_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

/* A good message of some type; how long it is. */
static size_t make_message(struct run *r, void *out)
{
	struct kvpool_attach attach = {
		.head = {KVPOOL_MESSAGE_ATTACH, sizeof(attach)},
		.version = KVPOOL_PROTOCOL_MAX,
		.features = KVPOOL_FEATURES,
		.ring_entries = KVPOOL_RING_ENTRIES_MIN,
		.arena_bytes = KVPOOL_ARENA_MIN,
		.name = "hostile",
	};
	struct kvpool_channel_get channel = {
		.head = {KVPOOL_MESSAGE_CHANNEL_GET, sizeof(channel)},
		.ring_entries = KVPOOL_RING_ENTRIES_MIN,
		.arena_bytes = KVPOOL_ARENA_MIN,
	};
	struct kvpool_segment_get segment = {.head = {KVPOOL_MESSAGE_SEGMENT_GET, sizeof(segment)},
					     .segment = 1};
	struct kvpool_channel_put put = {.head = {KVPOOL_MESSAGE_CHANNEL_PUT, sizeof(put)}};
	uint8_t kind = input_u8(&r->in);

	switch (kind % 5) {
	case 0:
		if (kind & 0x80) {
			attach.flags = KVPOOL_ATTACH_JOIN;
			memcpy(attach.token, r->token, sizeof(attach.token));
		}
		memcpy(out, &attach, sizeof(attach));
		return sizeof(attach);
	case 1:
		memcpy(out, &channel, sizeof(channel));
		return sizeof(channel);
	case 2:
		memcpy(out, &segment, sizeof(segment));
		return sizeof(segment);
	case 3:
		memcpy(out, &put, sizeof(put));
		return sizeof(put);
	default:
		input_bytes(&r->in, out, kind);
		return kind;
	}
}

static void send_packet(const struct hostile *peer, void *packet, size_t bytes,
			bool with_descriptor)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec part = {.iov_base = packet, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (with_descriptor) {
		struct cmsghdr *c;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &peer->fd, sizeof(int));
	}
	(void)!sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A message with some bytes changed, of another length, or with a descriptor. */
static void step_message(struct run *r, struct hostile *peer)
{
	_Alignas(8) uint8_t packet[KVPOOL_MESSAGE_BYTES_MAX + 256] = {0};
	size_t bytes = make_message(r, packet);
	uint8_t how = input_u8(&r->in);

	for (uint32_t i = 0; i < how % 4u && bytes > 0; i++) {
		size_t at = input_u8(&r->in) % bytes;

		packet[at] = input_u8(&r->in);
	}
	if ((how & 0x70) == 0x70)
		bytes = input_u32(&r->in) % sizeof(packet);
	send_packet(peer, packet, bytes, (how & 0x8c) == 0x8c);
}

static void step(struct run *r)
{
	uint8_t what = input_u8(&r->in);
	struct hostile *peer = &r->peers[what % PEERS];

	if (peer->fd < 0) {
		*peer = (struct hostile){.fd = fuzz_host_connect(r->server)};
		return;
	}
	if (what >= 0xf0) {
		close(peer->fd);
		peer->fd = -1;
	} else {
		step_message(r, peer);
	}
	/* Sometimes several packets lie there before the daemon looks. */
	if ((what & 0x18) != 0) {
		fuzz_host_look(r->server);
		drain(r, peer);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run r = {.in = {data, size}};
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_reply reply;
	uint32_t steps = 0;

	r.server = fuzz_host_begin();
	fuzz_client_attach(r.server, &r.honest);
	for (uint32_t i = 0; i < PEERS; i++)
		r.peers[i].fd = -1;
	while (input_more(&r.in) && steps++ < STEPS_MAX)
		step(&r);
	for (uint32_t i = 0; i < PEERS; i++) {
		fuzz_host_look(r.server);
		drain(&r, &r.peers[i]);
		if (r.peers[i].fd >= 0)
			close(r.peers[i].fd);
	}
	fuzz_host_look(r.server);
	FUZZ_EXPECT(fuzz_client_call(&r.honest, &nop, &reply) == KVPOOL_STATUS_OK);
	fuzz_host_check(r.server);
	fuzz_client_detach(r.server, &r.honest);
	fuzz_host_end();
	return 0;
}
