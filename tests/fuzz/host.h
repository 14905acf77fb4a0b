/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's service layer in this process, without a listening socket and without its turn: a
 * fuzz target connects to it by socketpair and says when it serves.
 *
 * Every check here aborts: to a fuzzer that is a finding. One thread, besides the pool's own; one
 * server at a time.
 */
#ifndef KVPOOL_TESTS_FUZZ_HOST_H
#define KVPOOL_TESTS_FUZZ_HOST_H

#include "daemon/channel.h"
#include "daemon/server.h"
#include "shm/channel.h"
#include "shm/handshake.h"

#include <stdbool.h>

#define FUZZ_EXPECT(condition)                                           \
	do {                                                             \
		if (!(condition))                                        \
			fuzz_host_abort(__FILE__, __LINE__, #condition); \
	} while (0)

void fuzz_host_abort(const char *file, int line, const char *condition) __attribute__((noreturn));

/*
 * A server with a small pool, wholly populated, and one client that keeps its domain. The same one
 * serves several inputs, each of which finds it empty.
 */
struct kvpool_server *fuzz_host_begin(void);

/* Every other client is gone: the cache gives back all it has, and nothing may be missing. */
void fuzz_host_end(void);

/* Looks at the sockets, as a turn would, until there is nothing to do. */
void fuzz_host_look(struct kvpool_server *server);

/* Checks every cache and its accounting. */
void fuzz_host_check(struct kvpool_server *server);

/* A connected client's end of a socketpair whose other end the server has accepted. */
int fuzz_host_connect(struct kvpool_server *server);

/*
 * One packet, if there is one: its length, 0 where the daemon closed, -1 where there is none.
 * Descriptors that come with it are stored, -1 elsewhere.
 */
int fuzz_receive(int fd, void *buffer, size_t bytes, int fds[KVPOOL_MESSAGE_FDS_MAX]);

/* A client with its first channel, seen from both ends. */
struct fuzz_client {
	int fd;
	struct kvpool_peer *peer;       /* borrowed: the server's */
	struct kvpool_channel *channel; /* borrowed: the server's */
	struct kvpool_channel_geometry geometry;
	uint8_t *memory; /* owned mapping */
	uint8_t *arena;  /* borrowed: in `memory` */
	struct kvpool_producer requests;
	struct kvpool_consumer replies;
	uint32_t next_id;
};

void fuzz_client_attach(struct kvpool_server *server, struct fuzz_client *client);
/* Unmaps and closes; the server sees the end, of the process too. */
void fuzz_client_detach(struct kvpool_server *server, struct fuzz_client *client);

/* Publishes an entry as it is. */
void fuzz_client_push(struct fuzz_client *client, const struct kvpool_request *request);
/* Lets the daemon take all that is in the ring. */
void fuzz_client_serve(struct fuzz_client *client);
bool fuzz_client_pop(struct fuzz_client *client, struct kvpool_reply *reply);

/* Push, serve, pop: the reply must come and be the request's. Returns its status. */
enum kvpool_status fuzz_client_call(struct fuzz_client *client, struct kvpool_request *request,
				    struct kvpool_reply *reply);

/* Where a block's bytes lie in this process. */
uint8_t *fuzz_host_bytes(struct kvpool_server *server, const struct kvpool_wire_block *block);

#endif
