/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl evict, drain and resume, against a real daemon: what they do, what they print, and
 * their exit codes.
 */
#include "tests/integration/client_rig.h"
#include "tests/integration/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kvpool_harness *daemon_;
static struct kvpool_command command;
static struct kvpool_rig rig;

static void setup(void)
{
	kvpool_rig_begin(&daemon_, &rig);
	kvpool_rig_until_attached(&rig);
}

static void teardown(void)
{
	kvpool_command_clear(&command);
	kvpool_rig_end(daemon_, &rig);
}

/* Runs kvpoolctl on the daemon's admin socket with up to three arguments. */
static void ctl(const char *a, const char *b, const char *c)
{
	const char *const arguments[] = {getenv("KVPOOLCTL"),
					 "--socket",
					 kvpool_harness_admin_socket(daemon_),
					 a,
					 b,
					 c,
					 NULL};

	ck_assert_ptr_nonnull(arguments[0]);
	kvpool_command_clear(&command);
	kvpool_command_run(arguments, &command);
}

static void must_say(int code, const char *where, const char *what)
{
	ck_assert_msg(command.code == code, "exit code %d\n%s%s", command.code, command.out,
		      command.err);
	ck_assert_msg(strstr(where, what) != NULL, "no \"%s\" in:\n%s", what, where);
}

/* What a command printed with --json; the caller owns it. */
static json_t *printed(void)
{
	json_error_t problem;
	json_t *document = json_loads(command.out, 0, &problem);

	ck_assert_msg(document != NULL, "%s in: %s%s", problem.text, command.out, command.err);
	ck_assert_int_eq(kvpool_raw_number(document, "schema_version"), 1);
	return document;
}

START_TEST(should_evict_the_client_that_is_named)
{
	char id[32];
	json_t *document;

	ctl("clients", "--json", NULL);
	document = printed();
	(void)snprintf(id, sizeof(id), "%lld",
		       (long long)kvpool_raw_number(
			       json_array_get(json_object_get(document, "clients"), 0), "id"));
	json_decref(document);
	ctl("evict", "--client", id);
	must_say(0, command.out, "is evicted: 1 processes, 0 leases");
	ctl("evict", "--client", id);
	must_say(4, command.err, "no client");
	ck_assert_str_eq(command.out, "");
	kvpool_rig_until_attached(&rig);
}
END_TEST

START_TEST(should_exit_with_2_where_a_change_is_asked_for_wrongly)
{
	ctl("evict", NULL, NULL);
	must_say(2, command.err, "--client N");
	ctl("evict", "--client", "none");
	must_say(2, command.err, "none: not a number");
	ctl("evict", "--client", "0");
	must_say(2, command.err, "0: not a number of 1 or more");
	ctl("status", "--client", "1");
	must_say(2, command.err, "status takes no such option");
	ctl("evict", "--timeout", "1");
	must_say(2, command.err, "evict takes no such option");
	ctl("drain", "--timeout", NULL);
	must_say(2, command.err, "--timeout needs a value");
}
END_TEST

/* A block that is reserved under this key. */
static struct kvpool_block reserve(uint64_t chain)
{
	struct kvpool_block block;

	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(chain, 0),
					1, KVPOOL_RIG_LONG, &block),
			 1);
	return block;
}

START_TEST(should_say_who_still_writes_where_a_drain_takes_too_long)
{
	struct kvpool_block block = reserve(1);

	ctl("drain", "--timeout", "1");
	must_say(1, command.err, "1 blocks are still being written: 1 by client ");
	must_say(1, command.out, "left: clients 1, leases 0, ready blocks 0");
	ctl("status", NULL, NULL);
	must_say(5, command.err, "draining");
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			 1);
	ctl("drain", NULL, NULL);
	must_say(0, command.out, "left: clients 1, leases 0, ready blocks 1 (4 KiB)");
	ck_assert_str_eq(command.err, "");
	ctl("resume", NULL, NULL);
	must_say(0, command.out, "serving");
}
END_TEST

static int64_t try_to_open(void)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.socket = kvpool_harness_socket(daemon_),
		.flags = KVPOOL_OPEN_REQUIRE,
		.deadline_ns = KVPOOL_RIG_PATIENCE,
	};
	struct kvpool *pool;
	int r = kvpool_open(&options, &pool);

	if (r == 0)
		kvpool_close(pool);
	return r;
}

START_TEST(should_take_no_new_blocks_and_clients_until_it_is_resumed)
{
	struct kvpool_block block;
	struct kvpool_rig member;
	uint8_t token[16];
	json_t *left;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	ctl("drain", "--json", NULL);
	left = printed();
	ck_assert_int_eq(command.code, 0);
	ck_assert(json_is_true(json_object_get(left, "drained")));
	ck_assert_int_eq(kvpool_raw_number(left, "ready_blocks"), 1);
	ck_assert_int_eq(kvpool_raw_number(left, "ready_bytes"), 4096);
	ck_assert_int_eq(kvpool_raw_number(left, "reserved_blocks"), 0);
	json_decref(left);
	ck_assert_int_lt(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(2, 0), 1,
					KVPOOL_RIG_LONG, &block),
			 0);
	ck_assert_int_eq(try_to_open(), -ENOTCONN);
	/* What is there is served, also to a further process of an engine that is. */
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 1);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	kvpool_rig_open(kvpool_harness_socket(daemon_), (struct kvpool_options){.join = token},
			&member);
	ck_assert_int_eq(kvpool_rig_get(&member, 1, 1), 1);
	kvpool_rig_close(&member);
	ctl("resume", "--json", NULL);
	left = printed();
	ck_assert_str_eq(json_string_value(json_object_get(left, "state")), "serving");
	json_decref(left);
	ck_assert_uint_eq(kvpool_rig_put(&rig, 2, 0, 1), 1);
	ck_assert_int_eq(try_to_open(), 0);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("kvpoolctl_change");
	TCase *tcase = tcase_create("change");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_evict_the_client_that_is_named);
	tcase_add_test(tcase, should_exit_with_2_where_a_change_is_asked_for_wrongly);
	tcase_add_test(tcase, should_say_who_still_writes_where_a_drain_takes_too_long);
	tcase_add_test(tcase, should_take_no_new_blocks_and_clients_until_it_is_resumed);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(make_suite());
}
