/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of shm/ring.h with its doorbell, on a machine with store buffers (TSO, as x86 has them):
 * a producer, a consumer, MESSAGES messages through a ring of SIZE entries.
 *
 * A store goes into the writer's own buffer and reaches memory later, in order, at a moment that
 * the drain process chooses; a fence waits for the buffer to be empty. A system call (ringing,
 * sleeping) is no fence here: the kernel promises none.
 *
 * Proven by exhaustive search: every message arrives once, in order and whole (asserts), no entry
 * is overwritten before it was read, and nobody sleeps for ever: a lost wake-up is an invalid end
 * state. The labels are those of ring.h.
 *
 * Variants that must fail, by macro: NO_PRODUCER_FENCE, NO_CONSUMER_FENCE, NO_RECHECK (sleep
 * without D2), EARLY_HEAD (give the entry back before it is copied). run_spin checks all.
 */

#ifndef MESSAGES
#define MESSAGES 4
#endif
#define SIZE 2

/* Memory as everybody sees it. */
byte word[SIZE];    /* position + 1, as in an entry's word */
byte payload[SIZE]; /* stands for the 56 bytes: the message's number + 1 */
byte head;
bit asleep;

byte bell; /* the eventfd: a count that a read takes back to 0 */

/* Store buffers: what to write, where, and what value. */
mtype = { WORD, PAYLOAD, HEAD, ASLEEP };
chan producer_stores = [3] of { mtype, byte, byte };
chan consumer_stores = [3] of { mtype, byte, byte };

/* The whole state of the two ends that the asserts look at. */
byte received;

inline reach_memory(what, where, value)
{
	if
	:: what == WORD -> word[where] = value
	:: what == PAYLOAD -> payload[where] = value
	:: what == HEAD -> head = value
	:: what == ASLEEP -> asleep = value
	fi;
	what = 0;
	where = 0;
	value = 0
}

/* Store buffers drain when they like; at the end there is nothing left to drain. */
proctype drain(chan stores)
{
	mtype what;
	byte where, value;

end:	do
	:: atomic { stores ? what, where, value -> reach_memory(what, where, value) }
	od
}

inline fence(stores)
{
	empty(stores)
}

proctype producer()
{
	byte tail = 0;

	do
	:: tail < MESSAGES ->
		/* kvpool_producer_room(): R4 */
		tail - head < SIZE;
		/* kvpool_producer_push() */
		producer_stores ! PAYLOAD, tail % SIZE, tail + 1;
		producer_stores ! WORD, tail % SIZE, tail + 1; /* R1, P1 */
		tail++;
		if
		:: tail < MESSAGES && tail - head < SIZE /* asks after the next push instead */
		:: true ->
			/* kvpool_producer_must_ring() */
#ifndef NO_PRODUCER_FENCE
			fence(producer_stores);
#endif
			if
			:: asleep -> bell = 1 /* P2; the count saturates at "something" */
			:: else
			fi
		fi
	:: else -> break
	od
}

proctype consumer()
{
	byte position = 0;
	byte copy = 0;

	do
	:: position < MESSAGES ->
		if
		:: word[position % SIZE] == position + 1 -> /* R2 */
			/* kvpool_consumer_pop(), kvpool_consumer_publish_head() */
#ifdef EARLY_HEAD
			consumer_stores ! HEAD, 0, position + 1;
#endif
			copy = payload[position % SIZE];
			assert(copy == position + 1);
			copy = 0;
			position++;
			received = position;
#ifndef EARLY_HEAD
			consumer_stores ! HEAD, 0, position /* R3 */
#endif
		:: else ->
			/* kvpool_consumer_arm() */
			consumer_stores ! ASLEEP, 0, 1; /* D1 */
#ifndef NO_CONSUMER_FENCE
			fence(consumer_stores);
#endif
#ifdef NO_RECHECK
			if
			:: true ->
#else
			if
			:: word[position % SIZE] == position + 1 -> skip /* D2 */
			:: else ->
#endif
				/* Sleeps until the bell rings, and reads it. */
				atomic { bell -> bell = 0 }
			fi;
			/* kvpool_consumer_disarm(): a late ring is a spurious wake-up. */
			consumer_stores ! ASLEEP, 0, 0
		fi
	:: else -> break
	od;
	assert(received == MESSAGES)
}

init {
	atomic {
		run drain(producer_stores);
		run drain(consumer_stores);
		run producer();
		run consumer()
	}
}
