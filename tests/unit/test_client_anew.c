/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose daemon dies and comes back, and that does not get to resume: because nobody knows
 * it, or because what the daemon says of it cannot be. It begins anew, or waits for a daemon that
 * it can believe.
 *
 * The daemon is a thread of the test (resume_fixture.h).
 */
#include "tests/unit/resume_fixture.h"

START_TEST(should_begin_anew_where_nobody_knows_it)
{
	struct kvpool_block leased, reserved;
	struct kvpool_match match = take_lease(&leased);
	void *address;

	reserved = take_block();
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &leased, 0, &address), 0);
	die(begin_anew);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_RESUME);
	ck_assert_uint_eq(read_log()->claim_calls, 0);
	ck_assert_int_eq(kvpool_commit(channel, &reserved, 1, KVPOOL_ALL_SHARDS, LONG_NS), -ESTALE);
	ck_assert_int_eq(kvpool_check(channel, match.epoch), -ESTALE);
	ck_assert(is_mapped(address));
	ck_assert_uint_eq(read_log()->n_retired, 0);
	kvpool_release(channel, &match, 0);
	ck_assert(!is_mapped(address));
	ck_assert_uint_ne(take_lease(&leased).epoch, match.epoch);
	until_retired();
	ck_assert_mem_eq(read_log()->retired[0], token, sizeof(token));
	ck_assert(!was_released(read_log(), match.lease));
}
END_TEST

static void wrong_client(struct kvpool_welcome *w)
{
	welcome_back(w);
	w->client++;
}

static void wrong_token(struct kvpool_welcome *w)
{
	welcome_back(w);
	w->token[15] ^= 1;
}

static void wrong_epoch(struct kvpool_welcome *w)
{
	welcome_back(w);
	w->client_epoch++;
}

static void (*const lies[])(struct kvpool_welcome *) = {wrong_client, wrong_token, wrong_epoch};
static uint32_t lie;

static void tell_a_lie(struct kvpool_fake *f)
{
	f->epoch++;
	f->welcome = lies[lie];
}

START_TEST(should_not_believe_that_it_is_another_client)
{
	struct kvpool_block block;
	struct kvpool_match match = take_lease(&block);

	lie = (uint32_t)_i;
	die(tell_a_lie);
	ck_assert_int_eq(call(), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(kvpool_channel_error(channel), "another one"));
	ck_assert_int_eq(kvpool_attached(pool), 0);
	ck_assert_uint_eq(read_log()->claim_calls, 0);
	/* What it held is still to be had from one that tells the truth. */
	kvpool_fake_next_life(&fake, resume);
	until_attached();
	ck_assert_uint_eq(claims_of(read_log(), match.lease, NULL), 1);
}
END_TEST

START_TEST(should_not_believe_that_it_resumed_unasked)
{
	struct kvpool_options o = {
		.size = sizeof(o), .deadline_ns = LONG_NS, .flags = KVPOOL_OPEN_REQUIRE};

	fake.welcome = welcome_back;
	kvpool_fake_start(&fake);
	o.socket = fake.socket;
	ck_assert_int_eq(kvpool_open(&o, &pool), -EPROTO);
}
END_TEST

static void refuse_claims(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	number(q, arena, a);
	if (q->op == KVPOOL_OP_CLAIM)
		a->granted = q->n + 1;
}

static void know_too_much(struct kvpool_fake *f)
{
	resume(f);
	f->reply = refuse_claims;
}

START_TEST(should_not_believe_that_more_is_known_than_was_claimed)
{
	struct kvpool_block block;
	struct kvpool_match match = take_lease(&block);

	die(know_too_much);
	ck_assert_int_eq(call(), -ENOTCONN);
	ck_assert_int_eq(kvpool_attached(pool), 0);
	kvpool_release(channel, &match, 0);
}
END_TEST

static void without_resume(struct kvpool_hello *hello)
{
	hello->features &= ~(uint32_t)KVPOOL_FEATURE_RESUME;
}

static void welcome_without_resume(struct kvpool_welcome *w)
{
	welcome_new(w);
	w->features &= ~(uint32_t)KVPOOL_FEATURE_RESUME;
	w->client_epoch = 0;
}

static void grow_old(struct kvpool_fake *f)
{
	begin_anew(f);
	f->hello = without_resume;
	f->welcome = welcome_without_resume;
}

static void grow_young(struct kvpool_fake *f)
{
	begin_anew(f);
	f->hello = NULL;
}

START_TEST(should_begin_anew_with_a_daemon_that_knows_nothing_of_it)
{
	struct kvpool_block block;
	struct kvpool_match first = take_lease(&block), match;

	die(grow_old);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, 0);
	ck_assert_uint_eq(fake.attach.token[0], 0);
	ck_assert_int_eq(kvpool_check(channel, first.epoch), -ESTALE);
	kvpool_release(channel, &first, 0);
	match = take_lease(&block);
	/* Nor is there anything to go on with from one. */
	die(grow_young);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, 0);
	ck_assert_int_eq(kvpool_check(channel, match.epoch), -ESTALE);
	ck_assert_uint_eq(read_log()->claim_calls, 0);
}
END_TEST

static void refuse_the_token(struct kvpool_fake *f)
{
	static const struct kvpool_refused refused = {
		.head = {KVPOOL_MESSAGE_REFUSED, sizeof(refused)}, .reason = KVPOOL_REFUSAL_TOKEN};

	begin_anew(f);
	f->refuse = &refused;
	f->refuse_once = true;
}

START_TEST(should_begin_anew_after_its_token_was_refused)
{
	/* A daemon that never answered would not be asked again at once. */
	ck_assert_int_eq(call(), 0);
	die(refuse_the_token);
	ck_assert_int_eq(call(), -ENOTCONN);
	/* F2 <- F1 */
	ck_assert_uint_eq(atomic_load_explicit(&fake.attaches, memory_order_acquire), 2);
	ck_assert_uint_eq(fake.attach.flags, KVPOOL_ATTACH_RESUME);
	until_attached();
	ck_assert_uint_eq(fake.attach.flags, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_anew");
	TCase *t = tcase_create("opened"), *unopened = tcase_create("unopened");

	tcase_add_checked_fixture(t, setup_open, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_begin_anew_where_nobody_knows_it);
	tcase_add_loop_test(t, should_not_believe_that_it_is_another_client, 0, 3);
	tcase_add_test(t, should_not_believe_that_more_is_known_than_was_claimed);
	tcase_add_test(t, should_begin_anew_with_a_daemon_that_knows_nothing_of_it);
	tcase_add_test(t, should_begin_anew_after_its_token_was_refused);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(unopened, setup, teardown);
	tcase_set_timeout(unopened, 60);
	tcase_add_test(unopened, should_not_believe_that_it_resumed_unasked);
	suite_add_tcase(s, unopened);
	return s;
}

int main(void)
{
	return run(suite());
}
