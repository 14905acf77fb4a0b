/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol by hand: see raw_client.h. HTTP and JSON are in raw_http.c.
 */
#include "tests/integration/raw_client.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int kvpool_raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	(void)strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	r = -errno;
	(void)close(fd);
	return r;
}

static bool wait_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;

	do {
		r = poll(&p, 1, ms);
	} while (r < 0 && errno == EINTR);
	return r == 1;
}

uint32_t kvpool_raw_receive(int fd, void *buffer, int fds[KVPOOL_MESSAGE_FDS_MAX])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(KVPOOL_MESSAGE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buffer, .iov_len = KVPOOL_MESSAGE_BYTES_MAX};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = fds ? &control : NULL,
		.msg_controllen = fds ? sizeof(control) : 0,
	};
	struct cmsghdr *c;
	ssize_t n;

	ck_assert_msg(wait_readable(fd, KVPOOL_RAW_MS), "nothing came from the daemon");
	n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0 && errno == ECONNRESET)
		n = 0;
	ck_assert_msg(n >= 0, "recvmsg: %s", strerror(errno));
	ck_assert_int_eq(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
	if (!fds)
		return (uint32_t)n;
	fds[0] = fds[1] = fds[2] = -1;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return (uint32_t)n;
}

void kvpool_raw_send(int fd, const void *message, size_t bytes)
{
	ck_assert_int_eq(send(fd, message, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

void kvpool_raw_expect_refusal(int fd, enum kvpool_refusal reason)
{
	union {
		struct kvpool_message head;
		struct kvpool_refused refused;
		uint8_t bytes[KVPOOL_MESSAGE_BYTES_MAX];
	} m;

	ck_assert_uint_eq(kvpool_raw_receive(fd, &m, NULL), sizeof(m.refused));
	ck_assert_uint_eq(m.head.type, KVPOOL_MESSAGE_REFUSED);
	ck_assert_uint_eq(m.head.bytes, sizeof(m.refused));
	ck_assert_msg(m.refused.reason == reason, "refused with %u: %s", m.refused.reason,
		      m.refused.text);
	ck_assert_uint_gt(strnlen(m.refused.text, sizeof(m.refused.text)), 0);
	ck_assert_uint_eq(kvpool_raw_receive(fd, &m, NULL), 0);
}

struct kvpool_attach kvpool_raw_attach_message(const char *name, uint32_t flags,
					       const uint8_t *token)
{
	struct kvpool_attach m = {
		.head = {KVPOOL_MESSAGE_ATTACH, sizeof(m)},
		.version = KVPOOL_PROTOCOL_MAX,
		.features = KVPOOL_FEATURES,
		.flags = flags,
		.ring_entries = 64,
		.arena_bytes = UINT64_C(1) << 20,
	};

	(void)strncpy(m.name, name, sizeof(m.name) - 1);
	if (token)
		memcpy(m.token, token, sizeof(m.token));
	return m;
}

void kvpool_raw_channel_map(const struct kvpool_channel_grant *grant, const int fds[3],
			    struct kvpool_raw_channel *out)
{
	struct kvpool_raw_channel ch = {
		.grant = *grant,
		.memory_fd = fds[0],
		.bell_daemon = fds[1],
		.bell_client = fds[2],
	};
	struct kvpool_channel_control *control;

	ck_assert_int_ge(fds[2], 0);
	ch.memory = mmap(NULL, grant->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	ck_assert_ptr_ne(ch.memory, MAP_FAILED);
	ck_assert_int_eq(kvpool_channel_header_read((const struct kvpool_header *)ch.memory,
						    grant->total_bytes, &ch.geometry),
			 0);
	control = (struct kvpool_channel_control *)(void *)(ch.memory + ch.geometry.control);
	kvpool_producer_init(&ch.requests, (void *)(ch.memory + ch.geometry.requests),
			     &control->requests, ch.geometry.entries, 0);
	kvpool_consumer_init(&ch.replies, (void *)(ch.memory + ch.geometry.replies),
			     &control->replies, ch.geometry.entries, 0);
	ch.arena = ch.memory + ch.geometry.arena;
	*out = ch;
}

void kvpool_raw_channel_unmap(struct kvpool_raw_channel *ch)
{
	(void)munmap(ch->memory, ch->geometry.total);
	(void)close(ch->memory_fd);
	(void)close(ch->bell_daemon);
	(void)close(ch->bell_client);
}

void kvpool_raw_attach(const char *path, const char *name, uint32_t flags, const uint8_t *token,
		       struct kvpool_raw *out)
{
	struct kvpool_attach attach = kvpool_raw_attach_message(name, flags, token);
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_channel_grant grant;
	int fds[KVPOOL_MESSAGE_FDS_MAX];

	memset(out, 0, sizeof(*out));
	out->fd = kvpool_raw_connect(path);
	ck_assert_msg(out->fd >= 0, "connect %s: %s", path, strerror(-out->fd));
	ck_assert_uint_eq(kvpool_raw_receive(out->fd, buffer, NULL), sizeof(out->hello));
	memcpy(&out->hello, buffer, sizeof(out->hello));
	ck_assert_uint_eq(out->hello.magic, KVPOOL_PROTOCOL_MAGIC);
	kvpool_raw_send(out->fd, &attach, sizeof(attach));
	ck_assert_uint_eq(kvpool_raw_receive(out->fd, buffer, NULL), sizeof(out->welcome));
	memcpy(&out->welcome, buffer, sizeof(out->welcome));
	ck_assert_uint_eq(out->welcome.head.type, KVPOOL_MESSAGE_WELCOME);
	ck_assert_uint_eq(kvpool_raw_receive(out->fd, buffer, fds), sizeof(grant));
	memcpy(&grant, buffer, sizeof(grant));
	ck_assert_uint_eq(grant.head.type, KVPOOL_MESSAGE_CHANNEL);
	kvpool_raw_channel_map(&grant, fds, &out->channel);
}

void kvpool_raw_close(struct kvpool_raw *raw)
{
	kvpool_raw_channel_unmap(&raw->channel);
	(void)close(raw->fd);
}

uint32_t kvpool_raw_push(struct kvpool_raw_channel *ch, struct kvpool_request *request)
{
	static const uint64_t one = 1;

	request->id = ++ch->next_id;
	kvpool_producer_push(&ch->requests, request);
	if (kvpool_producer_must_ring(&ch->requests))
		ck_assert_int_eq(write(ch->bell_daemon, &one, sizeof(one)), sizeof(one));
	return request->id;
}

bool kvpool_raw_pop(struct kvpool_raw_channel *ch, int ms, struct kvpool_reply *reply)
{
	uint64_t count;

	for (;;) {
		if (kvpool_consumer_pop(&ch->replies, reply))
			return true;
		if (!kvpool_consumer_arm(&ch->replies))
			continue;
		if (!wait_readable(ch->bell_client, ms)) {
			kvpool_consumer_disarm(&ch->replies);
			return kvpool_consumer_pop(&ch->replies, reply);
		}
		(void)!read(ch->bell_client, &count, sizeof(count));
		kvpool_consumer_disarm(&ch->replies);
	}
}

enum kvpool_status kvpool_raw_call(struct kvpool_raw_channel *ch, struct kvpool_request *request,
				   struct kvpool_reply *reply)
{
	uint32_t id = kvpool_raw_push(ch, request);

	ck_assert_msg(kvpool_raw_pop(ch, KVPOOL_RAW_MS, reply), "no reply to operation %u",
		      request->op);
	ck_assert_uint_eq(reply->id, id);
	return (enum kvpool_status)reply->status;
}

void kvpool_raw_layout(struct kvpool_raw *raw, uint64_t slot_bytes)
{
	struct kvpool_wire_layout wire = {
		.fingerprint = "a layout of the raw client",
		.block_tokens = 16,
		.n_groups = 1,
		.n_shards = 1,
		.label = "raw",
		.groups = {{.kind = KVPOOL_GROUP_FULL, .slot_bytes = slot_bytes}},
	};
	struct kvpool_request request = {.op = KVPOOL_OP_LAYOUT, .keys = 0, .result = 1024};
	struct kvpool_reply reply;

	wire.fingerprint[31] = (uint8_t)(slot_bytes >> 10);
	memcpy(raw->channel.arena, &wire, sizeof(wire));
	ck_assert_int_eq(kvpool_raw_call(&raw->channel, &request, &reply), KVPOOL_STATUS_OK);
	raw->layout = (uint16_t)reply.layout;
}

void kvpool_raw_key(uint32_t chain, uint32_t i, uint8_t key[KVPOOL_KEY_BYTES])
{
	memset(key, 0xa5, KVPOOL_KEY_BYTES);
	memcpy(key, &chain, sizeof(chain));
	memcpy(key + sizeof(chain), &i, sizeof(i));
}

enum kvpool_status kvpool_raw_reserve(struct kvpool_raw *raw, uint32_t chain,
				      struct kvpool_reply *reply)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_RESERVE,
		.flags = KVPOOL_REQUEST_INLINE_KEY,
		.layout = raw->layout,
		.n = 1,
	};

	kvpool_raw_key(chain, 0, request.key);
	return kvpool_raw_call(&raw->channel, &request, reply);
}

enum kvpool_status kvpool_raw_commit(struct kvpool_raw *raw, const struct kvpool_wire_block *block)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_COMMIT,
		.flags = KVPOOL_REQUEST_INLINE_KEY | KVPOOL_REQUEST_ALL_SHARDS,
		.layout = raw->layout,
		.n = 1,
		.handle = {.block = block->block, .generation = block->generation},
	};
	struct kvpool_reply reply;

	return kvpool_raw_call(&raw->channel, &request, &reply);
}

enum kvpool_status kvpool_raw_match(struct kvpool_raw *raw, uint32_t chain, uint8_t flags,
				    struct kvpool_reply *reply)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_MATCH,
		.flags = (uint8_t)(KVPOOL_REQUEST_INLINE_KEY | flags),
		.layout = raw->layout,
		.n = 1,
	};

	kvpool_raw_key(chain, 0, request.key);
	return kvpool_raw_call(&raw->channel, &request, reply);
}

void kvpool_raw_release(struct kvpool_raw *raw, uint64_t lease)
{
	struct kvpool_request request = {.op = KVPOOL_OP_RELEASE, .lease = lease};

	(void)kvpool_raw_push(&raw->channel, &request);
}

struct kvpool_wire_block kvpool_raw_store(struct kvpool_raw *raw, uint32_t chain)
{
	struct kvpool_reply reply;

	ck_assert_int_eq(kvpool_raw_reserve(raw, chain, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.granted, 1);
	ck_assert_uint_ne(reply.block.block, 0);
	ck_assert_int_eq(kvpool_raw_commit(raw, &reply.block), KVPOOL_STATUS_OK);
	return reply.block;
}

int kvpool_raw_segment(struct kvpool_raw *raw, uint32_t segment, struct kvpool_segment_grant *grant)
{
	struct kvpool_segment_get get = {
		.head = {KVPOOL_MESSAGE_SEGMENT_GET, sizeof(get)},
		.segment = segment,
	};
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_refused refused;
	int fds[KVPOOL_MESSAGE_FDS_MAX];
	uint32_t n;

	kvpool_raw_send(raw->fd, &get, sizeof(get));
	n = kvpool_raw_receive(raw->fd, buffer, fds);
	if (n == sizeof(refused)) {
		memcpy(&refused, buffer, sizeof(refused));
		ck_assert_uint_eq(refused.reason, KVPOOL_REFUSAL_UNKNOWN);
		return -1;
	}
	ck_assert_uint_eq(n, sizeof(*grant));
	memcpy(grant, buffer, sizeof(*grant));
	ck_assert_uint_eq(grant->head.type, KVPOOL_MESSAGE_SEGMENT);
	ck_assert_int_ge(fds[0], 0);
	return fds[0];
}
