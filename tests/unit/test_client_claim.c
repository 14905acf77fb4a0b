/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose daemon dies and comes back with the pool: it resumes, claims exactly what it
 * holds, pays what it owes, and goes on.
 *
 * The daemon is a thread of the test (resume_fixture.h).
 */
#include "tests/unit/resume_fixture.h"

START_TEST(should_claim_exactly_what_it_holds_and_pay_what_it_owes)
{
	struct kvpool_block leased, held, committed, half, all[2];
	struct kvpool_match keeps = take_lease(&leased), owes = take_lease(&leased);
	struct kvpool_match over = take_lease(&leased);
	const struct kvpool_fake_log *log;

	held = take_block();
	half = take_block();
	committed = take_block();
	ck_assert_int_eq(kvpool_commit(channel, &half, 1, 1, LONG_NS), 1);
	ck_assert_int_eq(kvpool_commit(channel, &committed, 1, KVPOOL_ALL_SHARDS, LONG_NS), 1);
	kvpool_release(channel, &over, 0);
	die(resume);
	kvpool_release(channel, &owes, 0);
	until_attached();
	/* F2 <- F1 */
	ck_assert_uint_eq(atomic_load_explicit(&fake.attaches, memory_order_acquire), 2);
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_RESUME);
	ck_assert_mem_eq(fake.attach.token, token, sizeof(token));
	log = read_log();
	ck_assert_uint_eq(log->n_claims, 3);
	ck_assert_uint_eq(log->claim_calls, 1);
	ck_assert_uint_eq(log->last_calls, 1);
	ck_assert_uint_eq(claims_of(log, keeps.lease, NULL), 1);
	ck_assert_uint_eq(claims_of(log, owes.lease, NULL), 0);
	ck_assert_uint_eq(claims_of(log, 0, &held), 1);
	ck_assert_uint_eq(claims_of(log, 0, &half), 1);
	ck_assert_int_eq(call(), 0);
	log = read_log();
	ck_assert(was_released(log, owes.lease));
	ck_assert(!was_released(log, keeps.lease));
	all[0] = held;
	all[1] = half;
	ck_assert_int_eq(kvpool_commit(channel, all, 2, 0, LONG_NS), 2);
	kvpool_release(channel, &keeps, 0);
	ck_assert_int_eq(call(), 0);
	ck_assert(was_released(read_log(), keeps.lease));
	ck_assert_uint_eq(read_log()->n_retired, 0);
}
END_TEST

START_TEST(should_claim_nothing_where_nothing_is_held)
{
	die(resume);
	until_attached();
	ck_assert_uint_eq(read_log()->n_claims, 0);
	ck_assert_uint_eq(read_log()->last_calls, 1);
}
END_TEST

START_TEST(should_claim_in_as_many_batches_as_its_arena_needs)
{
	static struct kvpool_block blocks[5 * MANY];
	const struct kvpool_fake_log *log;

	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, MANY, LONG_NS,
						blocks + (size_t)i * MANY),
				 MANY);
	die(resume);
	until_attached();
	log = read_log();
	ck_assert_uint_eq(log->n_claims, 5 * MANY);
	ck_assert_uint_eq(log->claim_calls, 2);
	ck_assert_uint_eq(log->last_calls, 1);
	for (uint32_t i = 0; i < 5 * MANY; i += 499)
		ck_assert_uint_eq(claims_of(log, 0, &blocks[i]), 1);
}
END_TEST

/* What another thread gives back while the claim is under way. */
static struct kvpool_match given_lease;
static struct kvpool_block given_block;

static void give_back_at_claim(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	number(q, arena, a);
	if (q->op != KVPOOL_OP_CLAIM)
		return;
	kvpool_release(second, &given_lease, 0);
	(void)kvpool_abort(second, &given_block, 1, 1000000);
}

static void resume_with_a_thief(struct kvpool_fake *f)
{
	resume(f);
	f->reply = give_back_at_claim;
}

START_TEST(should_pay_later_what_is_given_back_during_the_claim)
{
	struct kvpool_block block;
	const struct kvpool_fake_log *log;

	given_lease = take_lease(&block);
	given_block = take_block();
	die(resume_with_a_thief);
	until_attached();
	ck_assert_int_eq(call(), 0);
	log = read_log();
	ck_assert_uint_eq(log->n_claims, 2);
	ck_assert(was_released(log, given_lease.lease));
	ck_assert_uint_eq(log->n_aborted, 1);
	ck_assert_uint_eq(log->aborted[0].block, given_block.block);
	ck_assert_uint_eq(log->aborted[0].generation, given_block.generation);
}
END_TEST

START_TEST(should_keep_addresses_good_over_a_resume)
{
	uint8_t bytes[SLOT];
	struct kvpool_piece piece = {bytes, sizeof(bytes)};
	struct kvpool_block leased, reserved;
	struct kvpool_match match = take_lease(&leased);
	uint8_t *address[2], *again;

	reserved = take_block();
	for (uint32_t s = 0; s < 2; s++)
		ck_assert_int_eq(
			kvpool_pointer(channel, layout, 0, &leased, s, (void **)&address[s]), 0);
	address[1][7] = 42;
	die(resume);
	ck_assert_int_eq(kvpool_check(channel, match.epoch), -ESTALE);
	until_attached();
	ck_assert_int_eq(kvpool_check(channel, match.epoch), 0);
	ck_assert_int_eq(kvpool_load(channel, layout, 0, &leased, 1, &piece, 1), 0);
	ck_assert_uint_eq(bytes[7], 42);
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &leased, 1, (void **)&again), 0);
	ck_assert_ptr_eq(again, address[1]);
	ck_assert_int_eq(kvpool_store(channel, layout, 0, &reserved, 0, &piece, 1), 0);
	kvpool_release(channel, &match, 0);
	die(resume);
	ck_assert(is_mapped(address[0]));
	until_attached();
	ck_assert_int_eq(kvpool_abort(channel, &reserved, 1, LONG_NS), 1);
	ck_assert(is_mapped(address[0]));
	die(begin_anew);
	until_attached();
	ck_assert(!is_mapped(address[0]));
	until_retired();
}
END_TEST

START_TEST(should_resume_in_each_further_life)
{
	struct kvpool_block block;
	struct kvpool_match match = take_lease(&block), later;
	uint8_t now[KVPOOL_TOKEN_BYTES];

	for (uint32_t life = 1; life <= 4; life++) {
		die(resume);
		until_attached();
		ck_assert_mem_eq(fake.attach.token, token, sizeof(token));
		ck_assert_int_eq(kvpool_token(pool, now), 0);
		ck_assert_mem_eq(now, token, sizeof(token));
		ck_assert_uint_eq(claims_of(read_log(), match.lease, NULL), life);
		ck_assert_int_eq(kvpool_check(channel, match.epoch), 0);
		later = take_lease(&block);
		ck_assert_uint_eq(later.epoch, match.epoch);
		kvpool_release(channel, &later, 0);
		ck_assert_int_eq(call(), 0);
	}
	ck_assert_uint_eq(read_log()->n_claims, 4);
	ck_assert_uint_eq(read_log()->n_retired, 0);
}
END_TEST

static void die_at_claim(struct kvpool_fake *f)
{
	resume(f);
	f->hang_up_at_claim = true;
}

static void resume_in_the_same_life(struct kvpool_fake *f)
{
	f->hang_up_at_claim = false;
}

START_TEST(should_claim_again_after_a_claim_that_failed)
{
	struct kvpool_block block, reserved;
	struct kvpool_match match = take_lease(&block);

	reserved = take_block();
	die(die_at_claim);
	ck_assert_int_eq(call(), -ENOTCONN);
	ck_assert_int_eq(kvpool_attached(pool), 0);
	kvpool_fake_next_life(&fake, _i == 0 ? resume_in_the_same_life : NULL);
	if (_i == 1) {
		fake.hang_up_at_claim = false;
		kvpool_fake_next_life(&fake, resume);
	}
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_RESUME);
	ck_assert_uint_eq(claims_of(read_log(), match.lease, NULL), 2);
	ck_assert_uint_eq(claims_of(read_log(), 0, &reserved), 2);
	ck_assert_int_eq(kvpool_commit(channel, &reserved, 1, KVPOOL_ALL_SHARDS, LONG_NS), 1);
	kvpool_release(channel, &match, 0);
	ck_assert_int_eq(call(), 0);
	ck_assert_uint_eq(read_log()->n_retired, 0);
}
END_TEST

START_TEST(should_attach_for_a_block_alone_that_outlived_the_daemon)
{
	uint8_t bytes[SLOT];
	struct kvpool_piece piece = {bytes, sizeof(bytes)};
	struct kvpool_block block;
	int r = -1;

	/* Another member's lease: nothing is held here. */
	(void)take_lease(&block);
	ck_assert_int_eq(kvpool_load(channel, layout, 0, &block, 1, &piece, 1), 0);
	kvpool_fake_next_life(&fake, resume);
	for (int i = 0; i < 5000 && r != 0; i++) {
		r = kvpool_load(channel, layout, 0, &block, 1, &piece, 1);
		usleep(1000);
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(read_log()->last_calls, 1);
}
END_TEST

static const struct kvpool_refused not_now = {.head = {KVPOOL_MESSAGE_REFUSED, sizeof(not_now)},
					      .reason = KVPOOL_REFUSAL_DRAINING};

static void hold_on(struct kvpool_fake *f)
{
	f->refuse = &not_now;
}

static void let_in(struct kvpool_fake *f)
{
	f->refuse = NULL;
}

START_TEST(should_give_back_for_another_member_what_no_daemon_heard_of)
{
	struct kvpool_block block;
	struct kvpool_match match = take_lease(&block);
	struct kvpool_block reserved = take_block();

	die(resume);
	/* Of the same life, and never seen here. */
	match.lease = 1000;
	reserved.block = 2000;
	kvpool_release(second, &match, 0);
	kvpool_fake_next_life(&fake, hold_on);
	(void)kvpool_abort(second, &reserved, 1, 1000000);
	kvpool_fake_next_life(&fake, let_in);
	until_attached();
	ck_assert_int_eq(call(), 0);
	ck_assert(was_released(read_log(), 1000));
	ck_assert_uint_eq(read_log()->n_aborted, 1);
	ck_assert_uint_eq(read_log()->aborted[0].block, 2000);
}
END_TEST

START_TEST(should_resume_as_the_member_that_it_was)
{
	open_pool(token);
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_JOIN);
	die(resume);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_RESUME);
	ck_assert_mem_eq(fake.attach.token, token, sizeof(token));
	/* Over in the midst of a life: its client may have other members. */
	kvpool_fake_next_life(&fake, NULL);
	fake.welcome = welcome_first;
	ck_assert_int_eq(call(), -ENOTCONN);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_JOIN);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_claim");
	TCase *t = tcase_create("opened"), *unopened = tcase_create("unopened");

	tcase_add_checked_fixture(t, setup_open, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_claim_exactly_what_it_holds_and_pay_what_it_owes);
	tcase_add_test(t, should_claim_nothing_where_nothing_is_held);
	tcase_add_test(t, should_claim_in_as_many_batches_as_its_arena_needs);
	tcase_add_test(t, should_pay_later_what_is_given_back_during_the_claim);
	tcase_add_test(t, should_keep_addresses_good_over_a_resume);
	tcase_add_test(t, should_resume_in_each_further_life);
	tcase_add_loop_test(t, should_claim_again_after_a_claim_that_failed, 0, 2);
	tcase_add_test(t, should_give_back_for_another_member_what_no_daemon_heard_of);
	tcase_add_test(t, should_attach_for_a_block_alone_that_outlived_the_daemon);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(unopened, setup, teardown);
	tcase_set_timeout(unopened, 60);
	tcase_add_test(unopened, should_resume_as_the_member_that_it_was);
	suite_add_tcase(s, unopened);
	return s;
}

int main(void)
{
	return run(suite());
}
