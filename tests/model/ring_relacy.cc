/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm/ring.h itself, compiled over Relacy: every memory order is needed and enough, for one
 * direction with a head, and for requests with replies that have none.
 *
 * Two threads of the model a test, one an end. Rings have two entries and positions start just
 * below 2^64, so that four messages go through the wrap of the ring and of the counter. Sleeping is
 * a wait on a condition variable: a lost wake-up is a deadlock, which Relacy reports.
 */
#define KVPOOL_ATOMIC_MODEL "tests/model/relacy_atomic.h"
#include "shm/atomic.h"

#define memcpy model_memcpy
#include "shm/ring.h"
#undef memcpy

#include <stdio.h>
#include <stdlib.h>

static const uint64_t SIZE = 2, MESSAGES = 4, START = UINT64_MAX - 1;

struct message {
	uint64_t words[7];
};

static struct message message_make(uint64_t n)
{
	struct message m = {};

	m.words[0] = n;
	m.words[6] = ~n;
	return m;
}

static void message_check(const struct message &m, uint64_t n)
{
	RL_ASSERT(m.words[0] == n);
	RL_ASSERT(m.words[6] == ~n);
}

/* An eventfd: a count that waiting takes back to 0. */
struct doorbell {
	rl::mutex mutex;
	rl::condition_variable rung;
	rl::var<int> count;

	void reset()
	{
		count($) = 0;
	}

	void ring()
	{
		mutex.lock($);
		count($) = 1;
		rung.notify_one($);
		mutex.unlock($);
	}

	void wait()
	{
		mutex.lock($);
		while (count($) == 0)
			rung.wait(mutex, $);
		count($) = 0;
		mutex.unlock($);
	}
};

/* One direction: what both ends share, and the private halves, each used by one thread only. */
struct direction {
	struct kvpool_entry entries[SIZE];
	struct kvpool_ring_consumer shared;
	struct kvpool_producer producer;
	struct kvpool_consumer consumer;
	struct doorbell bell;

	/* The entries as the lap before left them. */
	void reset()
	{
		for (uint64_t i = 0; i < SIZE; i++)
			entries[(START + i) & (SIZE - 1)].word.store(START + i + 1 - SIZE,
								     rl::mo_relaxed, $);
		shared.head.store(START, rl::mo_relaxed, $);
		shared.asleep.store(0, rl::mo_relaxed, $);
		kvpool_producer_init(&producer, entries, &shared, SIZE, START);
		kvpool_consumer_init(&consumer, entries, &shared, SIZE, START);
		bell.reset();
	}

	void ring_if_asleep()
	{
		if (kvpool_producer_must_ring(&producer))
			bell.ring();
	}

	void wait_for_room()
	{
		int room = kvpool_producer_room(&producer, 1);

		if (room == KVPOOL_RING_E_FULL)
			ring_if_asleep();
		while (room == KVPOOL_RING_E_FULL) {
			rl::yield(1, $);
			room = kvpool_producer_room(&producer, 1);
		}
		RL_ASSERT(room == 0);
	}

	/* `more`: another push follows, so that the doorbell may wait until then. */
	void push(uint64_t n, bool more)
	{
		struct message m = message_make(n);

		kvpool_producer_push(&producer, &m);
		if (!more || rl::rand(2))
			ring_if_asleep();
	}

	void pop(uint64_t n)
	{
		struct message m;

		while (!kvpool_consumer_pop(&consumer, &m)) {
			if (rl::rand(2)) {
				rl::yield(1, $);
				continue;
			}
			if (!kvpool_consumer_arm(&consumer))
				continue;
			bell.wait();
			kvpool_consumer_disarm(&consumer);
		}
		message_check(m, n);
	}

	void publish_head()
	{
		kvpool_consumer_publish_head(&consumer);
	}
};

/* One direction; the head gives entries back, one by one or two at a time. */
struct one_way : rl::test_suite<one_way, 2> {
	struct direction requests;

	void before()
	{
		requests.reset();
	}

	void thread(unsigned index)
	{
		for (uint64_t n = 0; n < MESSAGES; n++) {
			if (index == 0) {
				requests.wait_for_room();
				requests.push(n, n + 1 < MESSAGES);
			} else {
				requests.pop(n);
				if (n % SIZE == SIZE - 1 || rl::rand(2))
					requests.publish_head();
			}
		}
	}
};

/*
 * Requests and replies. The reply ring has no head: an entry is written again only after a request
 * that the client sent when it had read the reply before.
 */
struct ask_and_answer : rl::test_suite<ask_and_answer, 2> {
	struct direction requests, replies;

	void before()
	{
		requests.reset();
		replies.reset();
	}

	void ask()
	{
		uint64_t sent = 0;

		for (uint64_t back = 0; back < MESSAGES; back++) {
			while (sent < MESSAGES && sent - back < SIZE) {
				requests.wait_for_room();
				requests.push(sent++, false);
			}
			replies.pop(back);
		}
	}

	void answer()
	{
		for (uint64_t n = 0; n < MESSAGES; n++) {
			requests.pop(n);
			requests.publish_head();
			replies.push(n, false);
		}
	}

	void thread(unsigned index)
	{
		if (index == 0)
			ask();
		else
			answer();
	}
};

int main()
{
	rl::test_params random, bound;

	random.iteration_count = 100000;
	random.progress_stream = &std::cerr;
	bound.search_type = rl::sched_bound;
	bound.context_bound = 2;
	bound.iteration_count = 200000;
	bound.progress_stream = &std::cerr;
	if (!rl::simulate<one_way>(random) || !rl::simulate<ask_and_answer>(random) ||
	    !rl::simulate<one_way>(bound))
		return EXIT_FAILURE;
	return EXIT_SUCCESS;
}
