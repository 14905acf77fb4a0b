/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that lie in their rings, die in the middle, or take all there is: they alone suffer.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

static int64_t status_number(const char *name)
{
	return kvpool_raw_status(admin(), name);
}

static void await(const char *name, int64_t value)
{
	kvpool_raw_await(admin(), name, value);
}

static void setup_whole(void)
{
	setup();
	await("pool.ready_bytes", 64 << 20);
}

/* A client in a process of its own, so that it can be killed; it speaks through a pipe. */
struct victim {
	pid_t pid;
	int from;
};

static struct victim victim_begin(void (*body)(int to))
{
	struct victim v;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	v.pid = fork();
	ck_assert_int_ge(v.pid, 0);
	if (v.pid == 0) {
		(void)close(ends[0]);
		body(ends[1]);
		(void)pause();
		_exit(0);
	}
	(void)close(ends[1]);
	v.from = ends[0];
	return v;
}

/* Until it says that it is where it wants to be. */
static void victim_await(const struct victim *v)
{
	struct pollfd p = {.fd = v->from, .events = POLLIN};
	char byte;

	ck_assert_int_eq(poll(&p, 1, KVPOOL_RAW_MS), 1);
	ck_assert_int_eq(read(v->from, &byte, 1), 1);
}

static void victim_kill(struct victim *v)
{
	int status;

	ck_assert_int_eq(kill(v->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(v->pid, &status, 0), v->pid);
	(void)close(v->from);
}

/* Sends the request; the answer is INVALID, and the channel works on. */
static void expect_invalid(struct kvpool_raw *raw, struct kvpool_request request)
{
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_reply reply;

	ck_assert_msg(kvpool_raw_call(&raw->channel, &request, &reply) == KVPOOL_STATUS_INVALID,
		      "operation %u flags %x n %u keys %u result %u: status %u", request.op,
		      request.flags, request.n, request.keys, request.result, reply.status);
	ck_assert_int_eq(kvpool_raw_call(&raw->channel, &nop, &reply), KVPOOL_STATUS_OK);
}

START_TEST(should_answer_garbage_with_invalid)
{
	struct kvpool_raw raw;
	uint32_t op;

	kvpool_raw_attach(path(), "garbage", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	for (op = KVPOOL_OP_COUNT; op < 256; op++)
		expect_invalid(&raw, (struct kvpool_request){.op = (uint8_t)op});
	for (op = 0; op < KVPOOL_OP_COUNT; op++) {
		/* Nobody waits for the answer to a RELEASE. */
		if (op != KVPOOL_OP_RELEASE)
			expect_invalid(&raw, (struct kvpool_request){.op = (uint8_t)op,
								     .flags = 0xff,
								     .layout = raw.layout});
	}
	ck_assert_int_eq(status_number("service.requests.unknown"), 256 - KVPOOL_OP_COUNT);
	ck_assert_int_ge(status_number("violations.request"), 256 - 1);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_refuse_offsets_beyond_the_arena)
{
	static const struct {
		uint32_t n, keys, result;
	} wrong[] = {
		{1, UINT32_MAX, 0},      {1, 1 << 20, 0},
		{1, (1 << 20) - 16, 0},  {1, 8, 0},
		{KVPOOL_KEYS_MAX, 0, 0}, {KVPOOL_KEYS_MAX + 1, 0, 0},
		{UINT32_MAX, 0, 0},      {0x08000000, 0, 0},
		{1, 0, UINT32_MAX},      {1, 0, 1 << 20},
		{1, 0, (1 << 20) - 8},   {1, 0, 4},
		{32768, 16, 0},          {0, 0, 0},
	};
	static const uint8_t ops[] = {KVPOOL_OP_MATCH, KVPOOL_OP_RESERVE};
	struct kvpool_raw raw;
	size_t i, k;

	kvpool_raw_attach(path(), "beyond", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(wrong); i++) {
		for (k = 0; k < KVPOOL_ARRAY_SIZE(ops); k++) {
			struct kvpool_request request = {
				.op = ops[k],
				.layout = raw.layout,
				.n = wrong[i].n,
				.keys = wrong[i].keys,
				.result = wrong[i].result,
			};

			if (ops[k] == KVPOOL_OP_MATCH)
				request.match.result_blocks = 1;
			expect_invalid(&raw, request);
		}
	}
	kvpool_raw_close(&raw);
	kvpool_raw_expect_exact(admin());
}
END_TEST

START_TEST(should_refuse_counts_and_indices_out_of_their_bounds)
{
	struct kvpool_raw raw;

	kvpool_raw_attach(path(), "counts", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_MATCH,
						     .layout = raw.layout,
						     .n = 1,
						     .match.result_blocks = UINT32_MAX});
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_MATCH,
						     .layout = raw.layout,
						     .n = 1,
						     .skip = 2,
						     .result = 64,
						     .match.result_blocks = 1});
	expect_invalid(&raw,
		       (struct kvpool_request){.op = KVPOOL_OP_COMMIT, .n = 70000, .keys = 0});
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_COMMIT,
						     .flags = KVPOOL_REQUEST_INLINE_KEY,
						     .n = 1,
						     .shard = KVPOOL_SHARDS_MAX});
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_ABORT,
						     .flags = KVPOOL_REQUEST_INLINE_KEY,
						     .n = 2});
	expect_invalid(&raw, (struct kvpool_request){
				     .op = KVPOOL_OP_LAYOUT, .keys = (1 << 20) - 352, .result = 0});
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_WAIT, .n = 1});
	expect_invalid(&raw, (struct kvpool_request){.op = KVPOOL_OP_FORGET,
						     .flags = KVPOOL_REQUEST_WHOLE_LAYOUT,
						     .layout = raw.layout,
						     .n = 1});
	kvpool_raw_close(&raw);
	kvpool_raw_expect_exact(admin());
}
END_TEST

START_TEST(should_refuse_a_layout_that_was_not_registered)
{
	struct kvpool_request request = {.op = KVPOOL_OP_MATCH, .n = 1, .result = 64};
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	kvpool_raw_attach(path(), "nolayout", 0, NULL, &raw);
	for (request.layout = 0; request.layout < 5000; request.layout += 7)
		ck_assert_int_eq(kvpool_raw_call(&raw.channel, &request, &reply),
				 KVPOOL_STATUS_NO_LAYOUT);
	request.layout = UINT16_MAX;
	ck_assert_int_eq(kvpool_raw_call(&raw.channel, &request, &reply), KVPOOL_STATUS_NO_LAYOUT);
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_not_be_moved_by_heads_and_words_that_lie)
{
	struct kvpool_channel_control *control;
	struct kvpool_entry *entries;
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_raw liar, good;
	struct kvpool_reply reply;
	uint32_t i;

	kvpool_raw_attach(path(), "good", 0, NULL, &good);
	kvpool_raw_attach(path(), "liar", 0, NULL, &liar);
	control = (void *)(liar.channel.memory + liar.channel.geometry.control);
	entries = (void *)(liar.channel.memory + liar.channel.geometry.requests);
	ck_assert_int_eq(kvpool_raw_call(&liar.channel, &nop, &reply), KVPOOL_STATUS_OK);
	kvpool_store_release(&control->requests.head, UINT64_MAX - 3);
	kvpool_store_release(&control->replies.head, UINT64_MAX / 2);
	for (i = 0; i < liar.channel.geometry.entries; i++) {
		if (i != (liar.channel.requests.tail & liar.channel.requests.mask))
			kvpool_store_release(&entries[i].word, UINT64_MAX - i);
	}
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(kvpool_raw_call(&good.channel, &nop, &reply), KVPOOL_STATUS_OK);
	ck_assert_int_eq(kvpool_raw_call(&liar.channel, &nop, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_close(&liar);
	kvpool_raw_close(&good);
}
END_TEST

START_TEST(should_serve_others_while_one_client_floods_its_ring)
{
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_raw flood, good;
	struct kvpool_reply reply;
	uint32_t i, k;

	kvpool_raw_attach(path(), "flood", 0, NULL, &flood);
	kvpool_raw_attach(path(), "good", 0, NULL, &good);
	for (i = 0; i < 200; i++) {
		/* It never reads an answer: it overwrites only what is its own. */
		for (k = 0; k < 64; k++)
			(void)kvpool_raw_push(&flood.channel, &nop);
		ck_assert_int_eq(kvpool_raw_call(&good.channel, &nop, &reply), KVPOOL_STATUS_OK);
	}
	kvpool_raw_close(&flood);
	kvpool_raw_close(&good);
}
END_TEST

/* Truncating is sealed off, but a hole can be punched: the daemon reads zeros there, and lives. */
START_TEST(should_survive_a_client_that_punches_holes_in_its_channel)
{
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_raw hole, good;
	struct kvpool_reply reply;

	kvpool_raw_attach(path(), "good", 0, NULL, &good);
	kvpool_raw_attach(path(), "hole", 0, NULL, &hole);
	ck_assert_int_ne(ftruncate(hole.channel.memory_fd, 0), 0);
	ck_assert_int_eq(fallocate(hole.channel.memory_fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)hole.channel.geometry.total),
			 0);
	(void)kvpool_raw_push(&hole.channel, &nop);
	ck_assert_int_eq(kvpool_raw_call(&good.channel, &nop, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_close(&hole);
	kvpool_raw_close(&good);
}
END_TEST

static void reserve_many(int to)
{
	struct kvpool_reply reply;
	struct kvpool_raw raw;
	uint32_t i;

	kvpool_raw_attach(path(), "victim", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 1 << 20);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(kvpool_raw_reserve(&raw, 100 + i, &reply), KVPOOL_STATUS_OK);
	ck_assert_int_eq(write(to, "x", 1), 1);
}

START_TEST(should_get_the_space_back_of_a_client_that_is_killed_while_it_writes)
{
	struct victim v = victim_begin(reserve_many);
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	victim_await(&v);
	kvpool_raw_attach(path(), "heir", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 1 << 20);
	ck_assert_int_eq(kvpool_raw_reserve(&raw, 100, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.block.generation, KVPOOL_STATUS_BUSY);
	ck_assert_int_eq(status_number("accounting.blocks.reserved"), 10);
	victim_kill(&v);
	await("accounting.blocks.reserved", 0);
	await("accounting.blocks.quarantined", 0);
	await("clients.attached_or_quarantined", 1);
	ck_assert_int_eq(kvpool_raw_reserve(&raw, 100, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.granted, 1);
	kvpool_raw_expect_exact(admin());
	kvpool_raw_close(&raw);
}
END_TEST

static void reserve_and_hang_up(int to)
{
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	kvpool_raw_attach(path(), "lingers", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 1 << 20);
	ck_assert_int_eq(kvpool_raw_reserve(&raw, 7, &reply), KVPOOL_STATUS_OK);
	kvpool_raw_close(&raw);
	ck_assert_int_eq(write(to, "x", 1), 1);
}

START_TEST(should_not_reuse_a_half_written_block_while_its_writer_may_still_write)
{
	struct victim v = victim_begin(reserve_and_hang_up);
	json_t *page;
	const json_t *client;

	victim_await(&v);
	await("accounting.blocks.quarantined", 1);
	page = kvpool_raw_get(admin(), "/v1/clients");
	client = json_array_get(json_object_get(page, "clients"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(client, "state")), "gone-quarantined");
	json_decref(page);
	kvpool_raw_expect_exact(admin());
	victim_kill(&v);
	await("accounting.blocks.quarantined", 0);
	await("clients.attached_or_quarantined", 0);
}
END_TEST

START_TEST(should_say_who_holds_a_pool_that_is_full_of_leases)
{
	struct kvpool_raw reader, writer;
	struct kvpool_reply reply;
	uint32_t i, stored = 0;

	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 1 << 20);
	kvpool_raw_attach(path(), "reader", 0, NULL, &reader);
	kvpool_raw_layout(&reader, 1 << 20);
	for (i = 0; i < 1000; i++) {
		ck_assert_int_eq(kvpool_raw_reserve(&writer, i, &reply), KVPOOL_STATUS_OK);
		if (reply.granted == 0)
			break;
		ck_assert_int_eq(kvpool_raw_commit(&writer, &reply.block), KVPOOL_STATUS_OK);
		ck_assert_int_eq(kvpool_raw_match(&reader, i, 0, &reply), KVPOOL_STATUS_OK);
		ck_assert_uint_eq(reply.blocks, 1);
		stored++;
	}
	ck_assert_uint_eq(stored, 64);
	ck_assert_uint_eq(reply.block.generation, KVPOOL_STATUS_NO_SPACE);
	ck_assert_uint_eq(reply.detail, KVPOOL_NO_SPACE_LEASED);
	ck_assert_uint_eq(reply.holder, reader.welcome.client);
	/* With the reader gone there is space again. */
	kvpool_raw_close(&reader);
	await("accounting.leases", 0);
	ck_assert_int_eq(kvpool_raw_reserve(&writer, 5000, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.granted, 1);
	kvpool_raw_close(&writer);
	kvpool_raw_expect_exact(admin());
}
END_TEST

static void wait_for(struct kvpool_raw *raw, uint32_t chain, uint64_t timeout_ns)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_WAIT,
		.flags = KVPOOL_REQUEST_INLINE_KEY,
		.layout = raw->layout,
		.n = 1,
	};

	kvpool_request_set_timeout_ns(&request, timeout_ns);
	kvpool_raw_key(chain, 0, request.key);
	(void)kvpool_raw_push(&raw->channel, &request);
}

START_TEST(should_wake_who_waits_for_a_block_when_it_is_ready_given_up_or_late)
{
	struct kvpool_request abort_request = {
		.op = KVPOOL_OP_ABORT,
		.flags = KVPOOL_REQUEST_INLINE_KEY,
		.n = 1,
	};
	struct kvpool_raw writer, reader;
	struct kvpool_reply reply, one;

	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 4096);
	kvpool_raw_attach(path(), "reader", 0, NULL, &reader);
	kvpool_raw_layout(&reader, 4096);
	wait_for(&reader, 1, 1000000000);
	ck_assert(kvpool_raw_pop(&reader.channel, KVPOOL_RAW_MS, &reply));
	ck_assert_uint_eq(reply.status, KVPOOL_STATUS_NOT_FOUND);

	ck_assert_int_eq(kvpool_raw_reserve(&writer, 1, &one), KVPOOL_STATUS_OK);
	wait_for(&reader, 1, 60000000000);
	await("service.waits", 1);
	ck_assert_int_eq(kvpool_raw_commit(&writer, &one.block), KVPOOL_STATUS_OK);
	ck_assert(kvpool_raw_pop(&reader.channel, KVPOOL_RAW_MS, &reply));
	ck_assert_uint_eq(reply.status, KVPOOL_STATUS_OK);

	ck_assert_int_eq(kvpool_raw_reserve(&writer, 2, &one), KVPOOL_STATUS_OK);
	wait_for(&reader, 2, 60000000000);
	await("service.waits", 1);
	abort_request.handle.block = one.block.block;
	abort_request.handle.generation = one.block.generation;
	ck_assert_int_eq(kvpool_raw_call(&writer.channel, &abort_request, &reply),
			 KVPOOL_STATUS_OK);
	ck_assert(kvpool_raw_pop(&reader.channel, KVPOOL_RAW_MS, &reply));
	ck_assert_uint_eq(reply.status, KVPOOL_STATUS_ABANDONED);

	ck_assert_int_eq(kvpool_raw_reserve(&writer, 3, &one), KVPOOL_STATUS_OK);
	wait_for(&reader, 3, 20000000);
	ck_assert(kvpool_raw_pop(&reader.channel, KVPOOL_RAW_MS, &reply));
	ck_assert_uint_eq(reply.status, KVPOOL_STATUS_TIMEOUT);

	/* The writer goes while somebody waits; and a waiter goes while it waits. */
	wait_for(&reader, 3, 60000000000);
	await("service.waits", 1);
	kvpool_raw_close(&writer);
	ck_assert(kvpool_raw_pop(&reader.channel, KVPOOL_RAW_MS, &reply));
	ck_assert_uint_eq(reply.status, KVPOOL_STATUS_ABANDONED);
	ck_assert_int_eq(status_number("service.waits"), 0);
	kvpool_raw_close(&reader);
}
END_TEST

START_TEST(should_forget_the_waits_of_a_client_that_left)
{
	struct kvpool_raw writer, reader;
	struct kvpool_reply one;

	kvpool_raw_attach(path(), "writer", 0, NULL, &writer);
	kvpool_raw_layout(&writer, 4096);
	kvpool_raw_attach(path(), "reader", 0, NULL, &reader);
	kvpool_raw_layout(&reader, 4096);
	ck_assert_int_eq(kvpool_raw_reserve(&writer, 1, &one), KVPOOL_STATUS_OK);
	wait_for(&reader, 1, 60000000000);
	await("service.waits", 1);
	kvpool_raw_close(&reader);
	await("service.waits", 0);
	ck_assert_int_eq(kvpool_raw_commit(&writer, &one.block), KVPOOL_STATUS_OK);
	kvpool_raw_close(&writer);
}
END_TEST

static Suite *hostile_suite(void)
{
	Suite *suite = suite_create("hostile");
	TCase *ring = tcase_create("ring");
	TCase *death = tcase_create("death");
	TCase *waits = tcase_create("waits");

	tcase_add_checked_fixture(ring, setup, teardown);
	tcase_set_timeout(ring, 60);
	tcase_add_test(ring, should_answer_garbage_with_invalid);
	tcase_add_test(ring, should_refuse_offsets_beyond_the_arena);
	tcase_add_test(ring, should_refuse_counts_and_indices_out_of_their_bounds);
	tcase_add_test(ring, should_refuse_a_layout_that_was_not_registered);
	tcase_add_test(ring, should_not_be_moved_by_heads_and_words_that_lie);
	tcase_add_test(ring, should_serve_others_while_one_client_floods_its_ring);
	tcase_add_test(ring, should_survive_a_client_that_punches_holes_in_its_channel);
	suite_add_tcase(suite, ring);
	tcase_add_checked_fixture(death, setup_whole, teardown);
	tcase_set_timeout(death, 60);
	tcase_add_test(death, should_get_the_space_back_of_a_client_that_is_killed_while_it_writes);
	tcase_add_test(death,
		       should_not_reuse_a_half_written_block_while_its_writer_may_still_write);
	tcase_add_test(death, should_say_who_holds_a_pool_that_is_full_of_leases);
	suite_add_tcase(suite, death);
	tcase_add_checked_fixture(waits, setup, teardown);
	tcase_set_timeout(waits, 60);
	tcase_add_test(waits, should_wake_who_waits_for_a_block_when_it_is_ready_given_up_or_late);
	tcase_add_test(waits, should_forget_the_waits_of_a_client_that_left);
	suite_add_tcase(suite, waits);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(hostile_suite());
}
