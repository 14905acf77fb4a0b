/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol by hand: what a client library does, without its manners, so that tests can be rude
 * at any point of it.
 *
 * Owned by the test that made it; one thread. Functions without a result fail the test by
 * themselves.
 */
#ifndef KVPOOL_TESTS_RAW_CLIENT_H
#define KVPOOL_TESTS_RAW_CLIENT_H

#include "shm/channel.h"
#include "shm/handshake.h"
#include "shm/wire.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define KVPOOL_RAW_MS 10000 /* how long anything may take before a test fails */

struct kvpool_raw_channel {
	struct kvpool_channel_grant grant;
	struct kvpool_channel_geometry geometry;
	struct kvpool_producer requests;
	struct kvpool_consumer replies;
	uint8_t *memory; /* owned mapping */
	uint8_t *arena;  /* borrowed: in `memory` */
	int memory_fd;   /* owned */
	int bell_daemon; /* owned: rung by us */
	int bell_client; /* owned: rung by the daemon */
	uint32_t next_id;
};

struct kvpool_raw {
	int fd; /* owned */
	struct kvpool_hello hello;
	struct kvpool_welcome welcome;
	struct kvpool_raw_channel channel;
	uint16_t layout; /* of kvpool_raw_layout() */
};

/* A connection, nothing said. Negative errno. */
int kvpool_raw_connect(const char *path);

/*
 * One packet into `buffer` of KVPOOL_MESSAGE_BYTES_MAX, with up to three descriptors (-1 where
 * there is none; `fds` may be NULL where none may come). Its length; 0: the daemon closed.
 */
uint32_t kvpool_raw_receive(int fd, void *buffer, int fds[KVPOOL_MESSAGE_FDS_MAX]);

void kvpool_raw_send(int fd, const void *message, size_t bytes);

/* Receives REFUSED with this reason, and then the end of the connection. */
void kvpool_raw_expect_refusal(int fd, enum kvpool_refusal reason);

/* An ATTACH as a good client would send it. */
struct kvpool_attach kvpool_raw_attach_message(const char *name, uint32_t flags,
					       const uint8_t *token);

/* HELLO, ATTACH, WELCOME, CHANNEL. `token` may be NULL. */
void kvpool_raw_attach(const char *path, const char *name, uint32_t flags, const uint8_t *token,
		       struct kvpool_raw *out);

/* Maps a CHANNEL message with its descriptors. */
void kvpool_raw_channel_map(const struct kvpool_channel_grant *grant, const int fds[3],
			    struct kvpool_raw_channel *out);
void kvpool_raw_channel_unmap(struct kvpool_raw_channel *channel);

/* Closes everything: for the daemon, the member's end. */
void kvpool_raw_close(struct kvpool_raw *raw);

/* Publishes a request with a fresh id, which it returns, and rings if the daemon sleeps. */
uint32_t kvpool_raw_push(struct kvpool_raw_channel *channel, struct kvpool_request *request);

/* The next reply; false: none came within `ms`. */
bool kvpool_raw_pop(struct kvpool_raw_channel *channel, int ms, struct kvpool_reply *reply);

/* Both, and the reply is the request's. Returns its status. */
enum kvpool_status kvpool_raw_call(struct kvpool_raw_channel *channel,
				   struct kvpool_request *request, struct kvpool_reply *reply);

/* Registers a layout of one FULL group and one shard, 16 tokens a block. */
void kvpool_raw_layout(struct kvpool_raw *raw, uint64_t slot_bytes);

/* The i-th key of chain `chain`. */
void kvpool_raw_key(uint32_t chain, uint32_t i, uint8_t key[KVPOOL_KEY_BYTES]);

/* One block that starts a chain, with the key in the entry. They return the reply's status. */
enum kvpool_status kvpool_raw_reserve(struct kvpool_raw *raw, uint32_t chain,
				      struct kvpool_reply *reply);
enum kvpool_status kvpool_raw_commit(struct kvpool_raw *raw, const struct kvpool_wire_block *block);
enum kvpool_status kvpool_raw_match(struct kvpool_raw *raw, uint32_t chain, uint8_t flags,
				    struct kvpool_reply *reply);
void kvpool_raw_release(struct kvpool_raw *raw, uint64_t lease);

/* reserve and commit; the block. */
struct kvpool_wire_block kvpool_raw_store(struct kvpool_raw *raw, uint32_t chain);

/* Asks for a segment; its descriptor, or -1 where it was refused as UNKNOWN. */
int kvpool_raw_segment(struct kvpool_raw *raw, uint32_t segment,
		       struct kvpool_segment_grant *grant);

/* HTTP on the admin socket: the body, NULL where there is none; the code in *code. */
json_t *kvpool_raw_http(const char *admin_socket, const char *method, const char *url, int *code);

/* GET, which must succeed. */
json_t *kvpool_raw_get(const char *admin_socket, const char *url);

/* A number at "a.b.c" of a page; the path must be there. */
int64_t kvpool_raw_number(const json_t *page, const char *path);

/* Whether a daemon is there and its status page has this number. */
bool kvpool_raw_is(const char *admin_socket, const char *path, int64_t value);

/* A number of /v1/status, now; and: polls until it is `value`, or fails the test. */
int64_t kvpool_raw_status(const char *admin_socket, const char *path);
void kvpool_raw_await(const char *admin_socket, const char *path, int64_t value);

/* free + ready + reserved + leased-only + quarantined + slack == total, in sum and by domain. */
void kvpool_raw_expect_exact(const char *admin_socket);

#endif
