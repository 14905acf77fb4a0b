/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that is there and does not answer (stopped by SIGSTOP): every call ends by its deadline
 * with a miss; once the daemon goes on, so does the client, and nothing that was granted too late
 * is left behind.
 *
 * That a call ends while the daemon is stopped is the proof; nothing is timed.
 */
#include "tests/integration/client_calls.h"

#include <errno.h>
#include <string.h>

#define SHORT_NS UINT64_C(3000000)

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = SHORT_NS}, &rig);
	kvpool_rig_until_attached(&rig);
}

static void teardown(void)
{
	kvpool_rig_close(&rig);
	kvpool_harness_free(daemon_);
}

static void expect_nothing_held(void)
{
	/* The next call on the channel gives back what came too late. */
	kvpool_rig_until_attached(&rig);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.reserved", 0);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon_));
}

START_TEST(should_end_a_call_of_each_kind_while_the_daemon_is_stopped)
{
	struct kvpool_call call;

	kvpool_call_prepare(&rig, (enum kvpool_call_kind)_i, 0, SHORT_NS, &call);
	kvpool_harness_pause(daemon_);
	kvpool_call_make(&call);
	ck_assert_msg(call.result == -ETIMEDOUT, "%s: %lld (%s)", kvpool_call_name(call.kind),
		      (long long)call.result, kvpool_channel_error(rig.channel));
	kvpool_harness_resume(daemon_);
	kvpool_rig_until_attached(&rig);
	kvpool_call_finish(&call);
	expect_nothing_held();
}
END_TEST

START_TEST(should_end_every_call_though_none_before_it_was_answered)
{
	struct kvpool_call calls[40];
	uint32_t n = 0;

	for (uint32_t seed = 0; seed < 4; seed++)
		for (int kind = 0; kind < KVPOOL_CALL_LAYOUT; kind++)
			kvpool_call_prepare(&rig, (enum kvpool_call_kind)kind, seed, SHORT_NS,
					    &calls[n++]);
	kvpool_harness_pause(daemon_);
	for (uint32_t i = 0; i < n; i++) {
		kvpool_call_make(&calls[i]);
		ck_assert_msg(calls[i].result == -ETIMEDOUT, "%s: %lld (%s)",
			      kvpool_call_name(calls[i].kind), (long long)calls[i].result,
			      kvpool_channel_error(rig.channel));
	}
	kvpool_harness_resume(daemon_);
	kvpool_rig_until_attached(&rig);
	for (uint32_t i = 0; i < n; i++)
		kvpool_call_finish(&calls[i]);
	expect_nothing_held();
}
END_TEST

START_TEST(should_never_wait_in_a_release)
{
	enum {
		N = 300,
	};
	static struct kvpool_match matches[N];
	struct kvpool_block block;
	uint8_t key[KVPOOL_KEY_SIZE];

	ck_assert_uint_eq(kvpool_rig_put(&rig, 1, 0, 1), 1);
	kvpool_rig_keys(1, 0, 1, key);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, key, 1, 0, 0,
					      KVPOOL_RIG_LONG, &block, 1, &matches[i]),
				 1);
	kvpool_rig_until_number(daemon_, "accounting.leases", N);
	kvpool_harness_pause(daemon_);
	/* More than the ring holds. */
	for (uint32_t i = 0; i < N; i++)
		kvpool_release(rig.channel, &matches[i], 0);
	kvpool_harness_resume(daemon_);
	for (uint32_t i = 0; i < 2 * N / 32; i++)
		kvpool_rig_until_attached(&rig);
	expect_nothing_held();
	/* They were given back one by one, not by the end of the client. */
	kvpool_rig_until_number(daemon_, "service.attached_ever", 1);
}
END_TEST

/* The caller gave them up for good: nobody asks again. */
START_TEST(should_tell_later_of_an_abort_that_could_not_be_sent)
{
	uint8_t keys[4 * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[4];
	struct kvpool_match match;

	kvpool_rig_keys(4, 0, 4, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 4, KVPOOL_RIG_LONG, blocks),
		4);
	kvpool_harness_pause(daemon_);
	/* This one has the arena, so the abort cannot even be sent. */
	ck_assert_int_eq(
		kvpool_match(rig.channel, rig.layout, keys, 4, 0, 0, SHORT_NS, NULL, 0, &match),
		-ETIMEDOUT);
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, 4, SHORT_NS), -ETIMEDOUT);
	kvpool_harness_resume(daemon_);
	expect_nothing_held();
}
END_TEST

START_TEST(should_release_for_a_channel_that_stays_idle)
{
	struct kvpool_channel *other;
	uint8_t key[KVPOOL_KEY_SIZE];
	struct kvpool_block block;
	struct kvpool_match match;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 5, 0, 1), 1);
	kvpool_rig_keys(5, 0, 1, key);
	ck_assert_int_eq(kvpool_match(rig.channel, rig.layout, key, 1, 0, 0, KVPOOL_RIG_LONG,
				      &block, 1, &match),
			 1);
	kvpool_harness_pause(daemon_);
	/* It has no way to the daemon yet, so the release is owed. */
	ck_assert_int_eq(kvpool_channel_open(rig.pool, &other), 0);
	kvpool_release(other, &match, 0);
	kvpool_harness_resume(daemon_);
	ck_assert_int_eq(kvpool_wait(other, rig.layout, 0, key, KVPOOL_RIG_LONG), 0);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_channel_close(other);
}
END_TEST

START_TEST(should_be_able_to_wait_after_a_wait_that_was_given_up)
{
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[2];

	kvpool_rig_keys(2, 0, 2, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, rig.layout, 0, NULL, keys, 2, KVPOOL_RIG_LONG, blocks),
		2);
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, keys, 100000), -ETIMEDOUT);
	ck_assert_int_eq(kvpool_commit(rig.channel, blocks, 2, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
			 2);
	ck_assert_int_eq(kvpool_wait(rig.channel, rig.layout, 0, keys, KVPOOL_RIG_LONG), 0);
}
END_TEST

START_TEST(should_close_though_the_daemon_is_stopped)
{
	struct kvpool_rig other;
	uint8_t key[KVPOOL_KEY_SIZE];
	struct kvpool_block block;
	struct kvpool_match match;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 3, 0, 1), 1);
	kvpool_rig_keys(3, 0, 1, key);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = SHORT_NS}, &other);
	ck_assert_int_eq(kvpool_match(other.channel, other.layout, key, 1, 0, 0, KVPOOL_RIG_LONG,
				      &block, 1, &match),
			 1);
	kvpool_harness_pause(daemon_);
	kvpool_rig_close(&other);
	kvpool_harness_resume(daemon_);
	expect_nothing_held();
}
END_TEST

START_TEST(should_not_wait_for_an_attach_again_and_again)
{
	const uint64_t beyond_the_tests_patience = UINT64_C(1000000000000);
	uint8_t key[KVPOOL_KEY_SIZE] = {0};
	struct kvpool_rig other;

	kvpool_harness_pause(daemon_);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.deadline_ns = SHORT_NS}, &other);
	ck_assert_int_eq(kvpool_attached(other.pool), 0);
	for (uint32_t i = 0; i < 1000; i++)
		ck_assert_int_eq(
			kvpool_wait(other.channel, other.layout, 0, key, beyond_the_tests_patience),
			-ENOTCONN);
	kvpool_harness_resume(daemon_);
	kvpool_rig_until_attached(&other);
	kvpool_rig_close(&other);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_deadline");
	TCase *t = tcase_create("deadline");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, should_end_a_call_of_each_kind_while_the_daemon_is_stopped, 0,
			    KVPOOL_CALL_KINDS);
	tcase_add_test(t, should_end_every_call_though_none_before_it_was_answered);
	tcase_add_test(t, should_never_wait_in_a_release);
	tcase_add_test(t, should_tell_later_of_an_abort_that_could_not_be_sent);
	tcase_add_test(t, should_release_for_a_channel_that_stays_idle);
	tcase_add_test(t, should_be_able_to_wait_after_a_wait_that_was_given_up);
	tcase_add_test(t, should_close_though_the_daemon_is_stopped);
	tcase_add_test(t, should_not_wait_for_an_attach_again_and_again);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
