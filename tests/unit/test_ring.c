/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every boundary of the ring with both ends in one thread: empty, full, wrap, first positions at
 * the ends of 32 and 64 bits, stale entry words, heads that lie, the doorbell words.
 *
 * What needs two threads or two processes is in test_ring_peers.c.
 */
#include "shm/ring.h"

#include <check.h>
#include <stdlib.h>

#define SIZE         16u
#define SIZE_LARGEST 64u

static struct kvpool_entry entries[SIZE_LARGEST];
static struct kvpool_ring_consumer shared;
static struct kvpool_producer producer;
static struct kvpool_consumer consumer;

/* First positions around the places where a counter could wrap. */
static const uint64_t starts[] = {
	0,
	1,
	SIZE - 1,
	SIZE,
	(UINT64_C(1) << 32) - 2 * SIZE,
	(UINT64_C(1) << 32) - SIZE - 1,
	(UINT64_C(1) << 32) - SIZE,
	(UINT64_C(1) << 32) - 1,
	UINT64_C(1) << 32,
	(UINT64_C(1) << 63) - 1,
	0 - (uint64_t)2 * SIZE,
	0 - (uint64_t)SIZE - 1,
	0 - (uint64_t)SIZE,
	0 - (uint64_t)SIZE + 1,
	UINT64_MAX - 1,
	UINT64_MAX,
};

/* Both ends at `position`, the entries as the lap before left them. */
static void make_ring(uint64_t size, uint64_t position)
{
	memset(entries, 0, sizeof(entries));
	memset(&shared, 0, sizeof(shared));
	for (uint64_t i = 0; i < size && position != 0; i++)
		kvpool_store_relaxed(&entries[(position + i) & (size - 1)].word,
				     position + i + 1 - size);
	kvpool_store_relaxed(&shared.head, position);
	kvpool_producer_init(&producer, entries, &shared, size, position);
	kvpool_consumer_init(&consumer, entries, &shared, size, position);
}

static void setup(void)
{
	make_ring(SIZE, 0);
}

static void fill_payload(uint8_t payload[KVPOOL_PAYLOAD_BYTES], uint64_t n)
{
	for (size_t i = 0; i < KVPOOL_PAYLOAD_BYTES; i++)
		payload[i] = (uint8_t)(n * 31 + i * 7);
}

static void push(uint64_t n)
{
	uint8_t payload[KVPOOL_PAYLOAD_BYTES];

	fill_payload(payload, n);
	kvpool_producer_push(&producer, payload);
}

/* Takes one entry and checks every byte of it. */
static void pop(uint64_t n)
{
	uint8_t expected[KVPOOL_PAYLOAD_BYTES], payload[KVPOOL_PAYLOAD_BYTES];

	fill_payload(expected, n);
	memset(payload, 0, sizeof(payload));
	ck_assert_int_eq(kvpool_consumer_pop(&consumer, payload), 1);
	ck_assert_mem_eq(payload, expected, sizeof(payload));
}

static void assert_empty(void)
{
	uint8_t payload[KVPOOL_PAYLOAD_BYTES], before[KVPOOL_PAYLOAD_BYTES];

	memset(payload, 0xa5, sizeof(payload));
	memcpy(before, payload, sizeof(before));
	ck_assert_int_eq(kvpool_consumer_ready(&consumer), 0);
	ck_assert_int_eq(kvpool_consumer_pop(&consumer, payload), 0);
	ck_assert_mem_eq(payload, before, sizeof(payload));
}

/* A batch of `n`, at most as many as the ring takes, from a fresh ring at `position`. */
static void hand_over(uint64_t size, uint64_t position, uint64_t n)
{
	n = KVPOOL_MIN(n, size);
	make_ring(size, position);
	ck_assert_int_eq(kvpool_producer_room(&producer, n), 0);
	for (uint64_t i = 0; i < n; i++)
		push(i);
	for (uint64_t i = 0; i < n; i++)
		pop(i);
	assert_empty();
}

START_TEST(should_be_empty_when_fresh)
{
	make_ring(SIZE, starts[_i]);
	assert_empty();
	ck_assert_int_eq(kvpool_producer_room(&producer, SIZE), 0);
}
END_TEST

START_TEST(should_be_full_after_as_many_entries_as_it_has)
{
	make_ring(SIZE, starts[_i]);
	for (uint64_t i = 0; i < SIZE; i++) {
		ck_assert_int_eq(kvpool_producer_room(&producer, SIZE - i), 0);
		ck_assert_int_eq(kvpool_producer_room(&producer, SIZE - i + 1), KVPOOL_RING_E_FULL);
		push(i);
	}
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), KVPOOL_RING_E_FULL);
	ck_assert_int_eq(kvpool_producer_room(&producer, 0), 0);
	for (uint64_t i = 0; i < SIZE; i++)
		pop(i);
	assert_empty();
}
END_TEST

START_TEST(should_have_room_again_only_when_the_head_is_published)
{
	make_ring(SIZE, starts[_i]);
	for (uint64_t i = 0; i < SIZE; i++)
		push(i);
	pop(0);
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), KVPOOL_RING_E_FULL);
	kvpool_consumer_publish_head(&consumer);
	ck_assert_int_eq(kvpool_producer_room(&producer, 2), KVPOOL_RING_E_FULL);
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), 0);
	push(SIZE);
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), KVPOOL_RING_E_FULL);
}
END_TEST

START_TEST(should_keep_order_and_bytes_over_several_laps)
{
	uint64_t n = 0;

	make_ring(SIZE, starts[_i]);
	while (n < 4 * SIZE) {
		ck_assert_int_eq(kvpool_consumer_ready(&consumer), 0);
		push(n);
		ck_assert_int_eq(kvpool_consumer_ready(&consumer), 1);
		pop(n++);
		kvpool_consumer_publish_head(&consumer);
		ck_assert_int_eq(kvpool_producer_room(&producer, SIZE), 0);
	}
	assert_empty();
}
END_TEST

/* Batches that end one entry before the wrap, at it, one after it, and one lap later. */
START_TEST(should_hand_over_batches_around_the_wrap)
{
	for (uint64_t size = 16; size <= SIZE_LARGEST; size *= 2) {
		for (uint64_t at = 0; at < size; at++) {
			uint64_t to_wrap = size - ((starts[_i] + at) & (size - 1));
			const uint64_t lengths[] = {1, to_wrap - 1, to_wrap, to_wrap + 1, size};

			for (size_t k = 0; k < KVPOOL_ARRAY_SIZE(lengths); k++)
				hand_over(size, starts[_i] + at, lengths[k]);
		}
	}
}
END_TEST

START_TEST(should_give_a_copy_that_later_writes_do_not_change)
{
	uint8_t payload[KVPOOL_PAYLOAD_BYTES], expected[KVPOOL_PAYLOAD_BYTES];

	push(7);
	ck_assert_int_eq(kvpool_consumer_pop(&consumer, payload), 1);
	memset(entries[0].payload, 0xff, KVPOOL_PAYLOAD_BYTES);
	fill_payload(expected, 7);
	ck_assert_mem_eq(payload, expected, sizeof(payload));
}
END_TEST

/* Whatever a peer writes into the word of the next entry: only its position plus one counts. */
START_TEST(should_take_no_entry_whose_word_is_not_its_position)
{
	uint64_t at = starts[_i];
	const uint64_t words[] = {
		at,                           /* the entry before */
		at + 2,                       /* the entry after */
		at + 1 - SIZE,                /* the lap before */
		at + 1 + SIZE,                /* the lap after */
		at + 1 + (UINT64_C(1) << 32), /* equal in the lower half only */
		(at + 1) ^ (UINT64_C(1) << 63),
		~(at + 1),
	};

	make_ring(SIZE, at);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(words); i++) {
		kvpool_store_relaxed(&entries[at & (SIZE - 1)].word, words[i]);
		assert_empty();
		ck_assert_uint_eq(consumer.head, at);
	}
	kvpool_store_relaxed(&entries[at & (SIZE - 1)].word, at + 1);
	ck_assert_int_eq(kvpool_consumer_ready(&consumer), 1);
}
END_TEST

START_TEST(should_not_take_an_entry_twice)
{
	push(1);
	pop(1);
	assert_empty();
	/* Once round: the word of the entry just taken is now a lap old. */
	for (uint64_t i = 0; i < SIZE - 1; i++) {
		push(i);
		pop(i);
	}
	assert_empty();
}
END_TEST

START_TEST(should_refuse_a_head_that_cannot_be_true)
{
	uint64_t at = starts[_i], tail = at + SIZE;
	const uint64_t lies[] = {
		tail + 1, /* ahead of what was written */
		tail + SIZE,
		at - 1, /* behind what was believed */
		at - SIZE,
		tail + (UINT64_C(1) << 63),
		tail + (UINT64_C(1) << 32), /* true in the lower half only */
		at - (UINT64_C(1) << 32),
	};

	make_ring(SIZE, at);
	for (uint64_t i = 0; i < SIZE; i++)
		push(i);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(lies); i++) {
		kvpool_store_relaxed(&shared.head, lies[i]);
		ck_assert_int_eq(kvpool_producer_room(&producer, 1), KVPOOL_RING_E_LIE);
		ck_assert_uint_eq(producer.head, at);
		ck_assert_uint_eq(producer.tail, tail);
	}
	kvpool_store_relaxed(&shared.head, at + 1);
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), 0);
}
END_TEST

START_TEST(should_believe_every_head_between_the_last_one_and_the_tail)
{
	for (uint64_t back = 0; back <= SIZE; back++) {
		make_ring(SIZE, starts[_i]);
		for (uint64_t i = 0; i < SIZE; i++)
			push(i);
		kvpool_store_relaxed(&shared.head, producer.tail - back);
		ck_assert_int_eq(kvpool_producer_room(&producer, SIZE - back), 0);
		ck_assert_int_eq(kvpool_producer_room(&producer, SIZE - back + 1),
				 KVPOOL_RING_E_FULL);
	}
}
END_TEST

START_TEST(should_refuse_a_head_that_goes_back)
{
	make_ring(SIZE, starts[_i]);
	for (uint64_t i = 0; i < SIZE; i++)
		push(i);
	kvpool_store_relaxed(&shared.head, starts[_i] + 4);
	ck_assert_int_eq(kvpool_producer_room(&producer, 4), 0);
	kvpool_store_relaxed(&shared.head, starts[_i] + 3);
	ck_assert_int_eq(kvpool_producer_room(&producer, 5), KVPOOL_RING_E_LIE);
}
END_TEST

START_TEST(should_not_read_the_head_while_its_own_copy_says_there_is_room)
{
	kvpool_store_relaxed(&shared.head, UINT64_C(0xdead));
	for (uint64_t i = 0; i < SIZE; i++) {
		ck_assert_int_eq(kvpool_producer_room(&producer, 1), 0);
		push(i);
	}
	ck_assert_int_eq(kvpool_producer_room(&producer, 1), KVPOOL_RING_E_LIE);
}
END_TEST

START_TEST(should_ask_for_the_doorbell_only_while_armed)
{
	ck_assert_int_eq(kvpool_producer_must_ring(&producer), 0);
	ck_assert_int_eq(kvpool_consumer_arm(&consumer), 1);
	ck_assert_int_ne(kvpool_producer_must_ring(&producer), 0);
	push(0);
	ck_assert_int_ne(kvpool_producer_must_ring(&producer), 0);
	kvpool_consumer_disarm(&consumer);
	ck_assert_int_eq(kvpool_producer_must_ring(&producer), 0);
	pop(0);
}
END_TEST

START_TEST(should_not_arm_when_an_entry_is_there)
{
	make_ring(SIZE, starts[_i]);
	push(0);
	ck_assert_int_eq(kvpool_consumer_arm(&consumer), 0);
	ck_assert_int_eq(kvpool_producer_must_ring(&producer), 0);
	pop(0);
	ck_assert_int_eq(kvpool_consumer_arm(&consumer), 1);
	ck_assert_int_ne(kvpool_producer_must_ring(&producer), 0);
}
END_TEST

START_TEST(should_arm_and_disarm_as_often_as_wanted)
{
	for (uint64_t i = 0; i < 3 * SIZE; i++) {
		ck_assert_int_eq(kvpool_consumer_arm(&consumer), 1);
		ck_assert_int_eq(kvpool_consumer_arm(&consumer), 1);
		push(i);
		ck_assert_int_eq(kvpool_consumer_arm(&consumer), 0);
		pop(i);
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("ring");
	TCase *ring = tcase_create("ring"), *lies = tcase_create("lies");
	TCase *doorbell = tcase_create("doorbell");
	int n = (int)KVPOOL_ARRAY_SIZE(starts);

	tcase_set_timeout(ring, 60);
	suite_add_tcase(suite, ring);
	tcase_add_checked_fixture(ring, setup, NULL);
	tcase_add_loop_test(ring, should_be_empty_when_fresh, 0, n);
	tcase_add_loop_test(ring, should_be_full_after_as_many_entries_as_it_has, 0, n);
	tcase_add_loop_test(ring, should_have_room_again_only_when_the_head_is_published, 0, n);
	tcase_add_loop_test(ring, should_keep_order_and_bytes_over_several_laps, 0, n);
	tcase_add_loop_test(ring, should_hand_over_batches_around_the_wrap, 0, n);
	tcase_add_test(ring, should_give_a_copy_that_later_writes_do_not_change);
	suite_add_tcase(suite, lies);
	tcase_add_checked_fixture(lies, setup, NULL);
	tcase_add_loop_test(lies, should_take_no_entry_whose_word_is_not_its_position, 0, n);
	tcase_add_test(lies, should_not_take_an_entry_twice);
	tcase_add_loop_test(lies, should_refuse_a_head_that_cannot_be_true, 0, n);
	tcase_add_loop_test(lies, should_believe_every_head_between_the_last_one_and_the_tail, 0,
			    n);
	tcase_add_loop_test(lies, should_refuse_a_head_that_goes_back, 0, n);
	tcase_add_test(lies, should_not_read_the_head_while_its_own_copy_says_there_is_room);
	suite_add_tcase(suite, doorbell);
	tcase_add_checked_fixture(doorbell, setup, NULL);
	tcase_add_test(doorbell, should_ask_for_the_doorbell_only_while_armed);
	tcase_add_loop_test(doorbell, should_not_arm_when_an_entry_is_there, 0, n);
	tcase_add_test(doorbell, should_arm_and_disarm_as_often_as_wanted);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
