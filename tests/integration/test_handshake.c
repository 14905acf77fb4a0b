/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching: what a good client gets, and what a bad one gets instead.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kvpool_harness *daemon_;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
}

static void teardown(void)
{
	kvpool_harness_free(daemon_);
}

static const char *path(void)
{
	return kvpool_harness_socket(daemon_);
}

static const char *admin(void)
{
	return kvpool_harness_admin_socket(daemon_);
}

static int64_t violations(const char *kind)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "violations.%s", kind);
	return kvpool_raw_status(admin(), name);
}

/* The daemon still does its work for others. */
static void expect_service(void)
{
	static uint32_t chain = 1000;
	struct kvpool_reply reply;
	struct kvpool_raw good;

	kvpool_raw_attach(path(), "good", 0, NULL, &good);
	kvpool_raw_layout(&good, 4096);
	(void)kvpool_raw_store(&good, ++chain);
	ck_assert_int_eq(kvpool_raw_match(&good, chain, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	kvpool_raw_close(&good);
}

/* A connection that was greeted. */
static int greeted(void)
{
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	int fd = kvpool_raw_connect(path());

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(kvpool_raw_receive(fd, buffer, NULL), sizeof(struct kvpool_hello));
	return fd;
}

/* Sends one message on a fresh connection and expects to be refused and counted. */
static void expect_refused(const void *message, size_t bytes, enum kvpool_refusal reason,
			   const char *kind)
{
	int64_t before = violations(kind);
	int fd = greeted();

	kvpool_raw_send(fd, message, bytes);
	kvpool_raw_expect_refusal(fd, reason);
	(void)close(fd);
	ck_assert_int_eq(violations(kind), before + 1);
	expect_service();
}

START_TEST(should_attach_store_and_find_a_block)
{
	struct kvpool_wire_block stored;
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	kvpool_raw_attach(path(), "one", 0, NULL, &raw);
	/* Nobody keeps this daemon's pool. */
	ck_assert_uint_eq(raw.welcome.features,
			  KVPOOL_FEATURES & ~(KVPOOL_FEATURE_RETIRE | KVPOOL_FEATURE_RESUME));
	ck_assert_uint_eq(raw.welcome.epoch, raw.hello.epoch);
	kvpool_raw_layout(&raw, 4096);
	ck_assert_int_eq(kvpool_raw_match(&raw, 7, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 0);
	stored = kvpool_raw_store(&raw, 7);
	ck_assert_int_eq(kvpool_raw_match(&raw, 7, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	ck_assert_uint_eq(reply.epoch, raw.welcome.epoch);
	ck_assert_uint_ne(reply.lease, 0);
	ck_assert_mem_eq(&reply.block, &stored, sizeof(stored));
	kvpool_raw_release(&raw, reply.lease);
	ck_assert_int_eq(kvpool_raw_reserve(&raw, 7, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.granted, 0);
	ck_assert_uint_eq(reply.block.generation, KVPOOL_STATUS_EXISTS);
	kvpool_raw_close(&raw);
	kvpool_raw_expect_exact(admin());
}
END_TEST

START_TEST(should_let_a_second_member_join_by_token_and_read_the_bytes)
{
	struct kvpool_segment_grant grant;
	struct kvpool_wire_block block;
	struct kvpool_raw first, second;
	struct kvpool_reply reply;
	uint8_t *bytes;
	int fd;

	kvpool_raw_attach(path(), "engine", 0, NULL, &first);
	kvpool_raw_attach(path(), "worker", KVPOOL_ATTACH_JOIN, first.welcome.token, &second);
	ck_assert_uint_eq(second.welcome.client, first.welcome.client);
	ck_assert_uint_ne(second.welcome.member, first.welcome.member);
	kvpool_raw_layout(&first, 4096);
	second.layout = first.layout;
	block = kvpool_raw_store(&first, 1);
	fd = kvpool_raw_segment(&first, block.segment, &grant);
	bytes = mmap(NULL, grant.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	memset(bytes + (uint64_t)block.offset * KVPOOL_UNIT_BYTES, 0x5c, 4096);
	(void)close(fd);
	ck_assert_int_eq(kvpool_raw_match(&second, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	fd = kvpool_raw_segment(&second, reply.block.segment, &grant);
	bytes = mmap(NULL, grant.bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	ck_assert_uint_eq(bytes[(uint64_t)reply.block.offset * KVPOOL_UNIT_BYTES + 4095], 0x5c);
	/* Sealed: nobody can pull the memory from under the others. */
	ck_assert_int_ne(ftruncate(fd, 0), 0);
	kvpool_raw_close(&first);
	/* The client lives on in its second member, with the lease. */
	ck_assert_int_eq(kvpool_raw_match(&second, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	kvpool_raw_close(&second);
}
END_TEST

START_TEST(should_give_a_reader_descriptors_that_cannot_be_written)
{
	struct kvpool_segment_grant grant;
	struct kvpool_raw writer, reader;
	struct kvpool_wire_block block;
	struct kvpool_reply reply;
	int fd;

	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 4096);
	block = kvpool_raw_store(&writer, 1);
	kvpool_raw_attach(path(), "reader", KVPOOL_ATTACH_READ_ONLY, NULL, &reader);
	kvpool_raw_layout(&reader, 4096);
	ck_assert_int_eq(kvpool_raw_match(&reader, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	fd = kvpool_raw_segment(&reader, block.segment, &grant);
	ck_assert_uint_eq(grant.read_only, 1);
	ck_assert_ptr_eq(mmap(NULL, grant.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
			 MAP_FAILED);
	ck_assert_int_ne(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
	ck_assert_int_eq(kvpool_raw_reserve(&reader, 2, &reply), KVPOOL_STATUS_READ_ONLY);
	ck_assert_int_eq(kvpool_raw_commit(&reader, &block), KVPOOL_STATUS_READ_ONLY);
	kvpool_raw_close(&reader);
	kvpool_raw_close(&writer);
}
END_TEST

START_TEST(should_give_further_channels_and_take_them_back)
{
	struct kvpool_channel_get get = {
		.head = {KVPOOL_MESSAGE_CHANNEL_GET, sizeof(get)},
		.ring_entries = 16,
		.arena_bytes = KVPOOL_ARENA_MIN,
	};
	struct kvpool_channel_put put = {.head = {KVPOOL_MESSAGE_CHANNEL_PUT, sizeof(put)}};
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_raw_channel further;
	struct kvpool_channel_grant grant;
	struct kvpool_reply reply;
	struct kvpool_raw raw;
	int fds[3], i;

	kvpool_raw_attach(path(), "many", 0, NULL, &raw);
	kvpool_raw_send(raw.fd, &get, sizeof(get));
	ck_assert_uint_eq(kvpool_raw_receive(raw.fd, buffer, fds), sizeof(grant));
	memcpy(&grant, buffer, sizeof(grant));
	kvpool_raw_channel_map(&grant, fds, &further);
	ck_assert_uint_ne(grant.channel, raw.channel.grant.channel);
	/* More than a lap of the ring. */
	for (i = 0; i < 50; i++)
		ck_assert_int_eq(kvpool_raw_call(&further, &nop, &reply), KVPOOL_STATUS_OK);
	put.channel = grant.channel;
	kvpool_raw_send(raw.fd, &put, sizeof(put));
	kvpool_raw_channel_unmap(&further);
	ck_assert_int_eq(kvpool_raw_call(&raw.channel, &nop, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_refuse_more_channels_than_a_client_may_have_and_keep_it)
{
	struct kvpool_channel_get get = {
		.head = {KVPOOL_MESSAGE_CHANNEL_GET, sizeof(get)},
		.ring_entries = 16,
		.arena_bytes = KVPOOL_ARENA_MAX,
	};
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_refused refused;
	struct kvpool_reply reply;
	struct kvpool_raw raw;
	int fds[3], n = 0;
	uint32_t bytes;

	kvpool_raw_attach(path(), "greedy", 0, NULL, &raw);
	for (;;) {
		kvpool_raw_send(raw.fd, &get, sizeof(get));
		bytes = kvpool_raw_receive(raw.fd, buffer, fds);
		if (bytes != sizeof(struct kvpool_channel_grant))
			break;
		ck_assert_int_lt(n++, 256);
		(void)close(fds[0]);
		(void)close(fds[1]);
		(void)close(fds[2]);
	}
	ck_assert_uint_eq(bytes, sizeof(refused));
	memcpy(&refused, buffer, sizeof(refused));
	ck_assert_uint_eq(refused.reason, KVPOOL_REFUSAL_LIMIT);
	ck_assert_int_eq(kvpool_raw_call(&raw.channel, &nop, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_refuse_a_version_that_it_does_not_speak)
{
	struct kvpool_attach m = kvpool_raw_attach_message("old", 0, NULL);

	m.version = KVPOOL_PROTOCOL_MAX + 1;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_VERSION, "version");
}
END_TEST

START_TEST(should_refuse_a_message_of_the_wrong_size)
{
	struct kvpool_attach m = kvpool_raw_attach_message("short", 0, NULL);
	uint8_t big[KVPOOL_MESSAGE_BYTES_MAX + 100] = {KVPOOL_MESSAGE_ATTACH};
	uint8_t tiny[3] = {1, 2, 3};

	expect_refused(&m, sizeof(m) - 8, KVPOOL_REFUSAL_MESSAGE, "message_size");
	expect_refused(big, sizeof(big), KVPOOL_REFUSAL_MESSAGE, "message_size");
	expect_refused(tiny, sizeof(tiny), KVPOOL_REFUSAL_MESSAGE, "message_size");
	m.head.bytes = 64;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_size");
}
END_TEST

START_TEST(should_refuse_types_that_clients_do_not_send)
{
	static const uint32_t types[] = {0,
					 KVPOOL_MESSAGE_HELLO,
					 KVPOOL_MESSAGE_WELCOME,
					 KVPOOL_MESSAGE_SEGMENT,
					 KVPOOL_MESSAGE_RETIRE_MEMBER + 1,
					 UINT32_MAX};
	size_t i;

	for (i = 0; i < KVPOOL_ARRAY_SIZE(types); i++) {
		struct kvpool_message m = {types[i], sizeof(m)};

		expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_type");
	}
}
END_TEST

START_TEST(should_refuse_messages_out_of_their_turn)
{
	struct kvpool_segment_get get = {.head = {KVPOOL_MESSAGE_SEGMENT_GET, sizeof(get)}};
	struct kvpool_attach again = kvpool_raw_attach_message("twice", 0, NULL);
	struct kvpool_raw raw;

	expect_refused(&get, sizeof(get), KVPOOL_REFUSAL_MESSAGE, "message_state");
	kvpool_raw_attach(path(), "twice", 0, NULL, &raw);
	kvpool_raw_send(raw.fd, &again, sizeof(again));
	kvpool_raw_expect_refusal(raw.fd, KVPOOL_REFUSAL_MESSAGE);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_refuse_fields_out_of_their_bounds)
{
	const struct kvpool_attach good = kvpool_raw_attach_message("fields", 0, NULL);
	struct kvpool_attach m;

	m = good;
	m.flags = 1u << 31;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
	m = good;
	m.flags = KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_RESUME;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
	m = good;
	m.token[3] = 1;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
	m = good;
	m.reserved[11] = 1;
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
	m = good;
	memset(m.name, 'x', sizeof(m.name));
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
	m = good;
	m.name[0] = '\n';
	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_MESSAGE, "message_field");
}
END_TEST

START_TEST(should_refuse_a_first_channel_of_a_wrong_size)
{
	static const struct {
		uint32_t entries;
		uint64_t arena;
	} wrong[] = {
		{0, KVPOOL_ARENA_MIN},
		{63, KVPOOL_ARENA_MIN},
		{2 * KVPOOL_RING_ENTRIES_MAX, KVPOOL_ARENA_MIN},
		{64, 0},
		{64, KVPOOL_ARENA_MIN + 1},
		{64, 2 * KVPOOL_ARENA_MAX},
	};
	_Alignas(8) uint8_t buffer[KVPOOL_MESSAGE_BYTES_MAX];
	struct kvpool_attach m;
	size_t i;
	int fd;

	for (i = 0; i < KVPOOL_ARRAY_SIZE(wrong); i++) {
		m = kvpool_raw_attach_message("size", 0, NULL);
		m.ring_entries = wrong[i].entries;
		m.arena_bytes = wrong[i].arena;
		fd = greeted();
		kvpool_raw_send(fd, &m, sizeof(m));
		ck_assert_uint_eq(kvpool_raw_receive(fd, buffer, NULL),
				  sizeof(struct kvpool_welcome));
		kvpool_raw_expect_refusal(fd, KVPOOL_REFUSAL_MESSAGE);
		(void)close(fd);
	}
	expect_service();
}
END_TEST

START_TEST(should_refuse_a_token_that_nobody_has)
{
	static const uint8_t token[KVPOOL_TOKEN_BYTES] = {1, 2, 3};
	struct kvpool_attach m = kvpool_raw_attach_message("thief", KVPOOL_ATTACH_JOIN, token);

	expect_refused(&m, sizeof(m), KVPOOL_REFUSAL_TOKEN, "token");
}
END_TEST

START_TEST(should_drop_a_client_that_sends_descriptors_without_taking_them)
{
	struct kvpool_attach attach = kvpool_raw_attach_message("fds", 0, NULL);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = &attach, .iov_len = sizeof(attach)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int64_t before = violations("descriptors");
	int ends[2], fd = greeted();
	char byte;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &ends[1], sizeof(int));
	ck_assert_int_eq(sendmsg(fd, &msg, 0), sizeof(attach));
	(void)close(ends[1]);
	kvpool_raw_expect_refusal(fd, KVPOOL_REFUSAL_MESSAGE);
	/* The end of the pipe that we sent is closed: nobody holds it. */
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	(void)close(ends[0]);
	(void)close(fd);
	ck_assert_int_eq(violations("descriptors"), before + 1);
	expect_service();
}
END_TEST

START_TEST(should_drop_a_client_that_asks_and_does_not_read)
{
	struct kvpool_segment_get get = {.head = {KVPOOL_MESSAGE_SEGMENT_GET, sizeof(get)}};
	struct kvpool_wire_block block;
	int64_t before = violations("socket_full");
	struct kvpool_raw raw;
	int i;

	kvpool_raw_attach(path(), "deaf", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	block = kvpool_raw_store(&raw, 1);
	get.segment = block.segment;
	for (i = 0; i < 100000; i++) {
		if (send(raw.fd, &get, sizeof(get), MSG_NOSIGNAL) < 0)
			break;
	}
	ck_assert_int_lt(i, 100000);
	ck_assert_int_eq(violations("socket_full"), before + 1);
	kvpool_raw_close(&raw);
	expect_service();
}
END_TEST

static Suite *handshake_suite(void)
{
	Suite *suite = suite_create("handshake");
	TCase *attach = tcase_create("attach");
	TCase *refused = tcase_create("refused");

	tcase_add_checked_fixture(attach, setup, teardown);
	tcase_set_timeout(attach, 60);
	tcase_add_test(attach, should_attach_store_and_find_a_block);
	tcase_add_test(attach, should_let_a_second_member_join_by_token_and_read_the_bytes);
	tcase_add_test(attach, should_give_a_reader_descriptors_that_cannot_be_written);
	tcase_add_test(attach, should_give_further_channels_and_take_them_back);
	tcase_add_test(attach, should_refuse_more_channels_than_a_client_may_have_and_keep_it);
	suite_add_tcase(suite, attach);
	tcase_add_checked_fixture(refused, setup, teardown);
	tcase_set_timeout(refused, 60);
	tcase_add_test(refused, should_refuse_a_version_that_it_does_not_speak);
	tcase_add_test(refused, should_refuse_a_message_of_the_wrong_size);
	tcase_add_test(refused, should_refuse_types_that_clients_do_not_send);
	tcase_add_test(refused, should_refuse_messages_out_of_their_turn);
	tcase_add_test(refused, should_refuse_fields_out_of_their_bounds);
	tcase_add_test(refused, should_refuse_a_first_channel_of_a_wrong_size);
	tcase_add_test(refused, should_refuse_a_token_that_nobody_has);
	tcase_add_test(refused, should_drop_a_client_that_sends_descriptors_without_taking_them);
	tcase_add_test(refused, should_drop_a_client_that_asks_and_does_not_read);
	suite_add_tcase(suite, refused);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(handshake_suite());
}
