/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of a wrong version, or one that has gone mad: whatever it says, the client answers with
 * an error, touches nothing outside of what it mapped, and leaks no descriptor.
 *
 * The daemon is a thread of the test (fake_daemon.h).
 */
#include "client/kvpool.h"
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#define LONG_NS UINT64_C(10000000000)

static struct kvpool_fake fake;
static struct kvpool *pool;
static struct kvpool_channel *channel;
static struct kvpool_layout *layout;
static const uint8_t keys[3 * KVPOOL_KEY_SIZE] = {1};

static void setup(void)
{
	memset(&fake, 0, sizeof(fake));
	pool = NULL;
}

static int attach(void)
{
	struct kvpool_options o = {
		.size = sizeof(o), .deadline_ns = LONG_NS, .flags = KVPOOL_OPEN_REQUIRE};

	kvpool_fake_start(&fake);
	o.socket = fake.socket;
	return kvpool_open(&o, &pool);
}

static void attach_and_open(void)
{
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = 4096};
	struct kvpool_layout_spec spec = {.size = sizeof(spec),
					  .block_tokens = 16,
					  .n_shards = 2,
					  .n_groups = 1,
					  .groups = &group};

	ck_assert_int_eq(attach(), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &channel), 0);
	ck_assert_int_eq(kvpool_layout(pool, &spec, &layout), 0);
}

static void teardown(void)
{
	kvpool_close(pool);
	kvpool_fake_stop(&fake);
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void bad_magic(struct kvpool_hello *hello)
{
	hello->magic++;
}

static void too_new(struct kvpool_hello *hello)
{
	hello->version_min = KVPOOL_PROTOCOL_MAX + 1;
	hello->version_max = KVPOOL_PROTOCOL_MAX + 5;
}

static void too_old(struct kvpool_hello *hello)
{
	hello->version_min = 0;
	hello->version_max = 0;
}

static void newer(struct kvpool_hello *hello)
{
	hello->version_max = KVPOOL_PROTOCOL_MAX + 5;
	hello->features |= UINT32_C(1) << 31;
}

static void expect_no_attach(int error)
{
	int before = count_fds();

	ck_assert_int_eq(attach(), error);
	ck_assert_ptr_null(pool);
	kvpool_fake_stop(&fake);
	ck_assert_int_eq(count_fds(), before);
}

START_TEST(should_refuse_a_wrong_hello)
{
	static void (*const lies[])(struct kvpool_hello *) = {bad_magic, too_new, too_old};

	fake.hello = lies[_i];
	expect_no_attach(-EPROTO);
}
END_TEST

START_TEST(should_refuse_a_message_of_a_wrong_shape)
{
	if (_i == 0)
		fake.hello_bytes = sizeof(struct kvpool_hello) - 8;
	else if (_i == 1)
		fake.hello_bytes = 3;
	else if (_i == 2)
		fake.hello_with_fd = true;
	else
		fake.no_welcome = true;
	expect_no_attach(-EPROTO);
}
END_TEST

START_TEST(should_agree_with_a_newer_daemon_on_what_both_know)
{
	fake.hello = newer;
	ck_assert_int_eq(attach(), 0);
	/* F2 <- F1 */
	ck_assert_uint_eq(atomic_load_explicit(&fake.attaches, memory_order_acquire), 1);
	ck_assert_uint_eq(fake.attach.version, KVPOOL_PROTOCOL_MAX);
	ck_assert_uint_eq(fake.attach.features, KVPOOL_FEATURES);
	ck_assert_uint_eq(fake.attach.arena_bytes, 65536);
}
END_TEST

START_TEST(should_refuse_channel_memory_that_is_not_as_it_should_be)
{
	static const enum kvpool_fake_memory lies[] = {KVPOOL_FAKE_UNSEALED, KVPOOL_FAKE_SHORT,
						       KVPOOL_FAKE_NO_MEMFD, KVPOOL_FAKE_GARBAGE,
						       KVPOOL_FAKE_ONE_FD_LESS};

	fake.channel = lies[_i];
	ck_assert_int_eq(attach(), -EPROTO);
	ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(should_keep_the_sentence_of_a_refusal)
{
	static struct kvpool_refused refused = {.head = {KVPOOL_MESSAGE_REFUSED, sizeof(refused)},
						.reason = KVPOOL_REFUSAL_LIMIT};
	struct kvpool_options o = {.size = sizeof(o), .deadline_ns = LONG_NS};

	memset(refused.text, '\n', sizeof(refused.text));
	memcpy(refused.text, "full up", 7);
	fake.refuse = &refused;
	kvpool_fake_start(&fake);
	o.socket = fake.socket;
	ck_assert_int_eq(kvpool_open(&o, &pool), 0);
	ck_assert_int_eq(kvpool_attached(pool), 0);
	ck_assert_ptr_nonnull(strstr(kvpool_error(pool), "full up??"));
}
END_TEST

START_TEST(should_refuse_a_segment_that_is_not_as_it_should_be)
{
	static const struct {
		enum kvpool_fake_memory lie;
		int error;
	} lies[] = {
		{KVPOOL_FAKE_UNSEALED, -EPROTO},        {KVPOOL_FAKE_SHORT, -EPROTO},
		{KVPOOL_FAKE_NO_MEMFD, -EPROTO},        {KVPOOL_FAKE_ONE_FD_LESS, -EPROTO},
		{KVPOOL_FAKE_WRONG_NUMBER, -EPROTO},    {KVPOOL_FAKE_WRONG_PAGES, -EPROTO},
		{KVPOOL_FAKE_REFUSED_UNKNOWN, -ESTALE}, {KVPOOL_FAKE_OUT_OF_TURN, -EPROTO},
	};
	struct kvpool_block block;
	struct kvpool_match match;
	void *address = NULL;
	int r;

	fake.segment = lies[_i].lie;
	attach_and_open();
	ck_assert_int_eq(kvpool_match(channel, layout, keys, 1, 0, 0, 0, &block, 1, &match), 1);
	r = kvpool_pointer(channel, layout, 0, &block, 0, &address);
	ck_assert_msg(r == lies[_i].error || (lies[_i].error == -EPROTO && r == -ENOTCONN),
		      "%d: %s", r, kvpool_channel_error(channel));
	ck_assert_ptr_null(address);
	ck_assert_int_eq(kvpool_attached(pool), lies[_i].error == -ESTALE);
}
END_TEST

START_TEST(should_find_a_block_in_a_good_segment)
{
	struct kvpool_block block;
	struct kvpool_match match;
	void *address = NULL;

	attach_and_open();
	ck_assert_int_eq(kvpool_match(channel, layout, keys, 1, 0, 0, 0, &block, 1, &match), 1);
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &block, 1, &address), 0);
	ck_assert_ptr_nonnull(address);
	block.offset = 4096 - 15;
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &block, 0, &address), -EINVAL);
	block.offset = 4096 - 16;
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &block, 0, &address), 0);
	ck_assert_int_eq(kvpool_pointer(channel, layout, 0, &block, 1, &address), -EINVAL);
	kvpool_release(channel, &match, 0);
}
END_TEST

/* ---- answers that cannot be ---- */

static void unknown_id(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_MATCH)
		a->id += 1000;
}

static void more_than_asked(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_MATCH)
		a->blocks = q->n + 1;
}

static void more_than_room(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_MATCH)
		a->reported = 4000000;
}

static void range_beyond(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	const struct kvpool_wire_range range = {.first = UINT32_MAX, .count = 1};

	(void)a;
	if (q->op == KVPOOL_OP_MATCH)
		memcpy((uint8_t *)arena + q->result, &range, sizeof(range));
}

static void range_too_short(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	const struct kvpool_wire_range range = {0};

	(void)a;
	if (q->op == KVPOOL_OP_MATCH)
		memcpy((uint8_t *)arena + q->result, &range, sizeof(range));
}

static void pending_beyond(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_MATCH)
		a->pending = UINT32_MAX;
}

static void status_unheard(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_MATCH)
		a->status = 999;
}

static void shards_overlap(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)a;
	if (q->op == KVPOOL_OP_LAYOUT)
		memcpy((uint8_t *)arena + q->result, &(uint64_t){16}, 8);
}

static void stride_huge(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)a;
	if (q->op == KVPOOL_OP_LAYOUT)
		memcpy((uint8_t *)arena + q->result, &(uint64_t){UINT64_MAX}, 8);
}

static void layout_beyond(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_LAYOUT)
		a->layout = 1u << 20;
}

START_TEST(should_believe_no_answer_that_cannot_be)
{
	static void (*const lies[])(const struct kvpool_request *, void *,
				    struct kvpool_reply *) = {
		unknown_id,     more_than_asked, more_than_room, range_beyond, range_too_short,
		pending_beyond, status_unheard,  shards_overlap, stride_huge,  layout_beyond,
	};
	struct kvpool_block blocks[3], untouched[3];
	struct kvpool_match match;

	memset(blocks, 0x5a, sizeof(blocks));
	memcpy(untouched, blocks, sizeof(blocks));
	fake.reply = lies[_i];
	attach_and_open();
	ck_assert_int_eq(kvpool_match(channel, layout, keys, 3, 0, 0, LONG_NS, blocks, 3, &match),
			 -EPROTO);
	ck_assert_mem_eq(blocks, untouched, sizeof(blocks));
	ck_assert_str_ne(kvpool_channel_error(channel), "no error");
}
END_TEST

static void too_many_done(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	(void)arena;
	if (q->op == KVPOOL_OP_COMMIT || q->op == KVPOOL_OP_ABORT)
		a->granted = q->n + 1;
}

START_TEST(should_count_no_more_blocks_than_it_gave)
{
	struct kvpool_block block;

	fake.reply = too_many_done;
	attach_and_open();
	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, 1, LONG_NS, &block), 1);
	ck_assert_int_eq(kvpool_commit(channel, &block, 1, 0, LONG_NS), -EPROTO);
	ck_assert_int_eq(kvpool_attached(pool), 0);
}
END_TEST

START_TEST(should_attach_again_to_a_daemon_that_was_not_believed)
{
	struct kvpool_block block;

	fake.reply = too_many_done;
	attach_and_open();
	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, 1, LONG_NS, &block), 1);
	ck_assert_int_eq(kvpool_commit(channel, &block, 1, 0, LONG_NS), -EPROTO);
	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, 1, LONG_NS, &block), 1);
	/* F2 <- F1 */
	ck_assert_uint_eq(atomic_load_explicit(&fake.attaches, memory_order_acquire), 2);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_distrust");
	TCase *t = tcase_create("distrust");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, should_refuse_a_wrong_hello, 0, 3);
	tcase_add_loop_test(t, should_refuse_a_message_of_a_wrong_shape, 0, 4);
	tcase_add_test(t, should_agree_with_a_newer_daemon_on_what_both_know);
	tcase_add_loop_test(t, should_refuse_channel_memory_that_is_not_as_it_should_be, 0, 5);
	tcase_add_test(t, should_keep_the_sentence_of_a_refusal);
	tcase_add_loop_test(t, should_refuse_a_segment_that_is_not_as_it_should_be, 0, 8);
	tcase_add_test(t, should_find_a_block_in_a_good_segment);
	tcase_add_loop_test(t, should_believe_no_answer_that_cannot_be, 0, 10);
	tcase_add_test(t, should_count_no_more_blocks_than_it_gave);
	tcase_add_test(t, should_attach_again_to_a_daemon_that_was_not_believed);
	suite_add_tcase(s, t);
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
