/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's service layer in this process: see host.h.
 */
#include "tests/fuzz/host.h"

#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/log.h"
#include "daemon/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define POOL_BYTES    (UINT64_C(1) << 20)
#define SEGMENT_BYTES (UINT64_C(256) << 10)
#define EXTENT_BYTES  (UINT64_C(64) << 10)
#define SEGMENTS      64u /* ids that one server may see */
#define ROUNDS        64u /* looks before a server that never comes to rest is a finding */

#define INPUTS 64u /* that one server is for, so that a finding does not hang on thousands */

static struct kvpool_server *host; /* owned; NULL before the first input */
static struct fuzz_client keeper;  /* of the host's domain */
static uint8_t *mapped[SEGMENTS];  /* owned: the host's segments */
static uint32_t inputs;            /* that the host has seen */

void fuzz_host_abort(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
	abort();
}

static struct kvpool_server *host_new(void)
{
	const struct kvpool_server_config config = {
		.loop = KVPOOL_LOOP_EPOLL,
		.pool =
			{
				.bytes = POOL_BYTES,
				.segment_bytes = SEGMENT_BYTES,
				.step_bytes = EXTENT_BYTES,
				.pages = KVPOOL_PAGES_4K,
				.populate = false,
				.numa = false,
			},
		.extent_bytes = EXTENT_BYTES,
		.blocks_max = 512,
		.clients_max = 8,
		.leases_max = 16,
	};
	struct kvpool_pool_status status;
	struct kvpool_server *server;

	kvpool_log_start(KVPOOL_LOG_ERROR);
	FUZZ_EXPECT(kvpool_server_new(&config, &server) == 0);
	do {
		struct pollfd p = {.fd = kvpool_pool_fd(server->pool), .events = POLLIN};
		int r;

		/* libFuzzer's own timer may interrupt it. */
		do
			r = poll(&p, 1, 10000);
		while (r < 0 && errno == EINTR);
		FUZZ_EXPECT(r == 1);
		kvpool_domain_pool_progress(server);
		kvpool_pool_status(server->pool, &status);
		FUZZ_EXPECT(status.error == 0);
	} while (status.growing);
	return server;
}

struct kvpool_server *fuzz_host_begin(void)
{
	if (!host) {
		host = host_new();
		fuzz_client_attach(host, &keeper);
		inputs = 0;
	}
	return host;
}

static void expect_empty(struct kvpool_cache *cache)
{
	struct kvpool_cache_usage u;

	kvpool_cache_usage(cache, &u);
	FUZZ_EXPECT(u.total_bytes == u.free_bytes);
	FUZZ_EXPECT(u.ready_blocks + u.reserved_blocks + u.leased_only_blocks == 0);
	FUZZ_EXPECT(u.quarantined_blocks == 0 && u.leases == 0);
}

static void host_free(void)
{
	fuzz_client_detach(host, &keeper);
	for (uint32_t i = 0; i < SEGMENTS; i++)
		if (mapped[i]) {
			munmap(mapped[i], SEGMENT_BYTES);
			mapped[i] = NULL;
		}
	kvpool_server_free(host);
	host = NULL;
}

void fuzz_host_end(void)
{
	FUZZ_EXPECT(host->n_clients == 1 && host->n_channels == 1 && host->n_pending == 0);
	FUZZ_EXPECT(host->waits.n == 0);
	(void)kvpool_cache_flush(keeper.channel->cache);
	expect_empty(keeper.channel->cache);
	fuzz_host_check(host);
	if (++inputs == INPUTS)
		host_free();
}

void fuzz_host_look(struct kvpool_server *server)
{
	uint32_t round = 0;

	do {
		FUZZ_EXPECT(round++ < ROUNDS);
		server->now_ns = kvpool_clock_ns();
	} while (kvpool_loop_poll(server->loop, server->now_ns) > 0);
}

void fuzz_host_check(struct kvpool_server *server)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &server->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);
		struct kvpool_cache_usage u;
		char fault[256] = "";

		if (kvpool_cache_check(domain->cache, fault, sizeof(fault)) != 0)
			fuzz_host_abort(__FILE__, __LINE__, fault);
		kvpool_cache_usage(domain->cache, &u);
		FUZZ_EXPECT(u.total_bytes == u.free_bytes + u.ready_bytes + u.reserved_bytes +
						     u.leased_only_bytes + u.quarantined_bytes +
						     u.slack_bytes);
	}
}

int fuzz_host_connect(struct kvpool_server *server)
{
	int ends[2];

	FUZZ_EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
		    0);
	kvpool_peer_accept(server, ends[0], false);
	return ends[1];
}

int fuzz_receive(int fd, void *buffer, size_t bytes, int fds[KVPOOL_MESSAGE_FDS_MAX])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(KVPOOL_MESSAGE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = buffer, .iov_len = bytes};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

	for (uint32_t i = 0; i < KVPOOL_MESSAGE_FDS_MAX; i++)
		fds[i] = -1;
	if (n < 0) {
		/* A daemon that closed with our packets unread resets the connection. */
		FUZZ_EXPECT(errno == EAGAIN || errno == ECONNRESET);
		return errno == EAGAIN ? -1 : 0;
	}
	FUZZ_EXPECT((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0);
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return (int)n;
}

static void expect_message(int fd, uint32_t type, void *out, size_t bytes, int fds[3])
{
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_message head;

	FUZZ_EXPECT(fuzz_receive(fd, buffer, sizeof(buffer), fds) == (int)bytes);
	memcpy(&head, buffer, sizeof(head));
	FUZZ_EXPECT(head.type == type && head.bytes == bytes);
	memcpy(out, buffer, bytes);
}

static void map_channel(struct fuzz_client *c, const struct kvpool_channel_grant *grant,
			const int fds[3])
{
	struct kvpool_channel_control *control;
	struct kvpool_entry *requests, *replies;

	c->memory = mmap(NULL, grant->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	FUZZ_EXPECT(c->memory != MAP_FAILED);
	FUZZ_EXPECT(kvpool_channel_header_read((const struct kvpool_header *)(void *)c->memory,
					       grant->total_bytes, &c->geometry) == 0);
	for (uint32_t i = 0; i < 3; i++)
		(void)close(fds[i]);
	control = (struct kvpool_channel_control *)(void *)(c->memory + c->geometry.control);
	requests = (struct kvpool_entry *)(void *)(c->memory + c->geometry.requests);
	replies = (struct kvpool_entry *)(void *)(c->memory + c->geometry.replies);
	kvpool_producer_init(&c->requests, requests, &control->requests, c->geometry.entries, 0);
	kvpool_consumer_init(&c->replies, replies, &control->replies, c->geometry.entries, 0);
	c->arena = c->memory + c->geometry.arena;
}

void fuzz_client_attach(struct kvpool_server *server, struct fuzz_client *client)
{
	struct kvpool_attach attach = {
		.head = {KVPOOL_MESSAGE_ATTACH, sizeof(attach)},
		.version = KVPOOL_PROTOCOL_MAX,
		.features = KVPOOL_FEATURES,
		.ring_entries = KVPOOL_RING_ENTRIES_MIN,
		.arena_bytes = KVPOOL_ARENA_MIN,
		.name = "fuzz",
	};
	struct kvpool_channel_grant grant;
	struct kvpool_welcome welcome;
	struct kvpool_hello hello;
	int fds[KVPOOL_MESSAGE_FDS_MAX];

	memset(client, 0, sizeof(*client));
	client->fd = fuzz_host_connect(server);
	expect_message(client->fd, KVPOOL_MESSAGE_HELLO, &hello, sizeof(hello), fds);
	FUZZ_EXPECT(send(client->fd, &attach, sizeof(attach), MSG_NOSIGNAL) == sizeof(attach));
	fuzz_host_look(server);
	expect_message(client->fd, KVPOOL_MESSAGE_WELCOME, &welcome, sizeof(welcome), fds);
	expect_message(client->fd, KVPOOL_MESSAGE_CHANNEL, &grant, sizeof(grant), fds);
	map_channel(client, &grant, fds);
	client->peer = kvpool_list_entry(server->peers.prev, struct kvpool_peer, link);
	client->channel =
		kvpool_list_entry(client->peer->channels.next, struct kvpool_channel, link);
}

void fuzz_client_detach(struct kvpool_server *server, struct fuzz_client *client)
{
	munmap(client->memory, client->geometry.total);
	client->peer->gone = true;
	(void)close(client->fd);
	fuzz_host_look(server);
	memset(client, 0, sizeof(*client));
}

void fuzz_client_push(struct fuzz_client *client, const struct kvpool_request *request)
{
	kvpool_producer_push(&client->requests, request);
}

void fuzz_client_serve(struct fuzz_client *client)
{
	/* A ring holds so much and no more: whatever its owner writes, this ends. */
	for (uint32_t round = 0; kvpool_channel_serve(client->channel); round++)
		FUZZ_EXPECT(round <= client->geometry.entries);
}

bool fuzz_client_pop(struct fuzz_client *client, struct kvpool_reply *reply)
{
	return kvpool_consumer_pop(&client->replies, reply);
}

enum kvpool_status fuzz_client_call(struct fuzz_client *client, struct kvpool_request *request,
				    struct kvpool_reply *reply)
{
	request->id = ++client->next_id;
	fuzz_client_push(client, request);
	fuzz_client_serve(client);
	FUZZ_EXPECT(fuzz_client_pop(client, reply));
	FUZZ_EXPECT(reply->id == request->id);
	return reply->status;
}

uint8_t *fuzz_host_bytes(struct kvpool_server *server, const struct kvpool_wire_block *block)
{
	const struct kvpool_segment *segment = kvpool_pool_find(server->pool, block->segment);

	FUZZ_EXPECT(segment && block->segment < SEGMENTS);
	FUZZ_EXPECT((uint64_t)block->offset * KVPOOL_UNIT_BYTES < segment->bytes);
	if (!mapped[block->segment]) {
		mapped[block->segment] = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE,
					      MAP_SHARED, segment->fd, 0);
		FUZZ_EXPECT(mapped[block->segment] != MAP_FAILED);
	}
	return mapped[block->segment] + (uint64_t)block->offset * KVPOOL_UNIT_BYTES;
}
