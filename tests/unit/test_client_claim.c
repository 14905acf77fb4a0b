/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose daemon dies and comes back with the pool: it resumes, claims exactly what it holds
 * and owes, and goes on with it; where it is not let, it begins anew.
 *
 * The daemon is a thread of the test (fake_daemon.h), and remembers nothing: what it should know is
 * what the test says.
 */
#include "client/kvpool.h"
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LONG_NS UINT64_C(10000000000)
#define SLOT    4096u
#define MANY    1000u

static struct kvpool_fake fake;
static struct kvpool *pool;
static struct kvpool_channel *channel, *second;
static struct kvpool_layout *layout;
static const uint8_t keys[MANY * KVPOOL_KEY_SIZE] = {1};
static const uint8_t token[KVPOOL_TOKEN_BYTES] = "the first token";
/* The daemon's thread counts; the test reads after an answer. */
static uint32_t granted;

/* Another lease, or another block, with each answer. */
static void number(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	if (q->op == KVPOOL_OP_MATCH)
		a->lease = ++granted;
	if (q->op != KVPOOL_OP_RESERVE)
		return;
	a->block = (struct kvpool_wire_block){.block = ++granted, .generation = 7, .segment = 1};
	for (uint32_t i = 0; !(q->flags & KVPOOL_REQUEST_INLINE_KEY) && i < q->n; i++) {
		struct kvpool_wire_block block = {
			.block = ++granted, .generation = 7, .segment = 1};

		memcpy((uint8_t *)arena + q->result + i * sizeof(block), &block, sizeof(block));
	}
}

static void welcome_first(struct kvpool_welcome *w)
{
	memcpy(w->token, token, sizeof(w->token));
	w->client = 5;
	w->client_epoch = w->epoch;
}

static void welcome_back(struct kvpool_welcome *w)
{
	welcome_first(w);
	w->client_epoch = 100;
	w->flags = KVPOOL_WELCOME_RESUMED;
}

static void welcome_new(struct kvpool_welcome *w)
{
	welcome_first(w);
	memset(w->token, 0x33, sizeof(w->token));
	w->client = 6;
}

static void resume(struct kvpool_fake *f)
{
	f->epoch++;
	f->welcome = welcome_back;
}

static void begin_anew(struct kvpool_fake *f)
{
	f->epoch++;
	f->welcome = welcome_new;
}

static void open_pool(const uint8_t *join)
{
	struct kvpool_options o = {.size = sizeof(o),
				   .deadline_ns = LONG_NS,
				   .flags = KVPOOL_OPEN_REQUIRE,
				   .join = join};
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = SLOT};
	struct kvpool_layout_spec spec = {.size = sizeof(spec),
					  .block_tokens = 16,
					  .n_shards = 2,
					  .n_groups = 1,
					  .groups = &group};

	fake.epoch = 100;
	fake.reply = number;
	if (!fake.welcome)
		fake.welcome = welcome_first;
	kvpool_fake_start(&fake);
	o.socket = fake.socket;
	ck_assert_int_eq(kvpool_open(&o, &pool), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &channel), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &second), 0);
	ck_assert_int_eq(kvpool_layout(pool, &spec, &layout), 0);
}

static void setup(void)
{
	memset(&fake, 0, sizeof(fake));
	pool = NULL;
	granted = 0;
}

static void setup_open(void)
{
	setup();
	open_pool(NULL);
}

static void teardown(void)
{
	kvpool_close(pool);
	kvpool_fake_stop(&fake);
}

/* As far as the daemon has written it down. */
static struct kvpool_fake_log *read_log(void)
{
	static struct kvpool_fake_log copy;

	pthread_mutex_lock(&fake.lock);
	copy = fake.log;
	pthread_mutex_unlock(&fake.lock);
	return &copy;
}

static int call(void)
{
	return kvpool_wait(channel, layout, 0, keys, LONG_NS);
}

/* The daemon dies; the client finds that out, and no more. */
static void die(void (*change)(struct kvpool_fake *f))
{
	kvpool_fake_next_life(&fake, change);
	ck_assert_int_eq(call(), -ENOTCONN);
}

static void until_attached(void)
{
	for (int i = 0; call() != 0; i++) {
		ck_assert_int_lt(i, 5000);
		usleep(1000);
	}
}

/* Messages on the socket are read when there is nothing in the ring. */
static void until_retired(void)
{
	for (int i = 0; read_log()->n_retired == 0 && i < 5000; i++)
		usleep(1000);
	ck_assert_uint_eq(read_log()->n_retired, 1);
}

static struct kvpool_match take_lease(struct kvpool_block *block)
{
	struct kvpool_match match;

	ck_assert_int_eq(kvpool_match(channel, layout, keys, 1, 0, 0, LONG_NS, block, 1, &match),
			 1);
	return match;
}

static struct kvpool_block take_block(void)
{
	struct kvpool_block block;

	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, 1, LONG_NS, &block), 1);
	return block;
}

static uint32_t claims_of(const struct kvpool_fake_log *log, uint64_t lease,
			  const struct kvpool_block *block)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < log->n_claims; i++)
		n += block ? log->claims[i].lease == 0 && log->claims[i].block == block->block &&
				     log->claims[i].generation == block->generation
			   : log->claims[i].lease == lease;
	return n;
}

static bool was_released(const struct kvpool_fake_log *log, uint64_t lease)
{
	for (uint32_t i = 0; i < log->n_released; i++)
		if (log->released[i] == lease)
			return true;
	return false;
}

/* Does this process map that address? */
static bool is_mapped(const void *address)
{
	unsigned long from, to;
	bool yes = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)address >= from &&
		    (uintptr_t)address < to)
			yes = true;
	fclose(f);
	return yes;
}

START_TEST(should_claim_exactly_what_it_holds_and_owes)
{
	struct kvpool_block leased, held, committed, half, all[2];
	struct kvpool_match keeps = take_lease(&leased), owes = take_lease(&leased);
	struct kvpool_match over = take_lease(&leased);
	struct kvpool_fake_log *log;

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
	ck_assert_uint_eq(log->n_claims, 4);
	ck_assert_uint_eq(log->claim_calls, 1);
	ck_assert_uint_eq(log->last_calls, 1);
	ck_assert_uint_eq(claims_of(log, keeps.lease, NULL), 1);
	ck_assert_uint_eq(claims_of(log, owes.lease, NULL), 1);
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
	struct kvpool_fake_log *log;

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
	struct kvpool_fake_log *log;

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
	Suite *s = suite_create("client_claim");
	TCase *t = tcase_create("claim"), *unopened = tcase_create("unopened");

	tcase_add_checked_fixture(t, setup_open, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_claim_exactly_what_it_holds_and_owes);
	tcase_add_test(t, should_claim_nothing_where_nothing_is_held);
	tcase_add_test(t, should_claim_in_as_many_batches_as_its_arena_needs);
	tcase_add_test(t, should_begin_anew_where_nobody_knows_it);
	tcase_add_loop_test(t, should_not_believe_that_it_is_another_client, 0, 3);
	tcase_add_test(t, should_pay_later_what_is_given_back_during_the_claim);
	tcase_add_test(t, should_keep_addresses_good_over_a_resume);
	tcase_add_test(t, should_resume_in_each_further_life);
	tcase_add_loop_test(t, should_claim_again_after_a_claim_that_failed, 0, 2);
	tcase_add_test(t, should_not_believe_that_more_is_known_than_was_claimed);
	tcase_add_test(t, should_begin_anew_with_a_daemon_that_knows_nothing_of_it);
	tcase_add_test(t, should_attach_for_a_block_alone_that_outlived_the_daemon);
	tcase_add_test(t, should_begin_anew_after_its_token_was_refused);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(unopened, setup, teardown);
	tcase_set_timeout(unopened, 60);
	tcase_add_test(unopened, should_not_believe_that_it_resumed_unasked);
	tcase_add_test(unopened, should_resume_as_the_member_that_it_was);
	suite_add_tcase(s, unopened);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
