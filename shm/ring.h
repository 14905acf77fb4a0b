/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a channel: a single-producer, single-consumer ring of 64-byte entries.
 *
 * An entry carries its own publication: its first word is the position of the entry plus one,
 * stored with release after the payload. The consumer at position p looks only at entry p mod size,
 * and takes it when that word says p + 1. So a message moves one cache line between the
 * cores, not an entry and an index (a round trip takes 0.7 of the time, measured on two cores of
 * one socket), and there is no index from the peer that could lie: a wrong word is just "nothing
 * here yet".
 *
 * Positions are free-running 64-bit numbers in the private memory of each side. Space is known from
 * `head`, which the consumer publishes and the producer reads only when its own copy says full; a
 * head outside [tail - size, tail] is a lie (positive return). The reply ring has no head: the
 * client never has more requests unanswered than the ring has entries, and only the client suffers
 * where it breaks that rule.
 *
 * Doorbell. The side that goes to sleep sets its word, then looks once more; the side that has
 * published rings if it sees the word set. A full fence stands between the two steps on both sides:
 * without it each may miss the other (tests/model/doorbell.pml finds that in a few states).
 *
 *	producer                          consumer
 *	P1 store entry word (release)     D1 store asleep = 1
 *	   full fence                        full fence
 *	P2 load asleep -> ring            D2 load entry word -> don't sleep
 *
 * Owned by the two ends of a channel; one thread an end.
 */
#ifndef KVPOOL_SHM_RING_H
#define KVPOOL_SHM_RING_H

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/wire.h"

#include <string.h>

struct kvpool_entry {
	/* W: producer, release R1. R: consumer, acquire R2. R1 -> R2: the payload is whole. */
	kvpool_atomic(uint64_t) word;
	/* W: producer before R1. R: consumer after R2. */
	kvpool_shared_bytes(payload, KVPOOL_PAYLOAD_BYTES);
};

#ifndef KVPOOL_ATOMIC_MODEL
KVPOOL_ASSERT_SIZE(struct kvpool_entry, KVPOOL_CACHELINE);
#endif

/*
 * The shared words of one ring's consumer, which only the consumer writes. They lie on lines of
 * their own, because the producer reads `asleep` after every message and `head` almost never.
 */
struct kvpool_ring_consumer {
	/* W: consumer, release R3. R: producer, acquire R4. R3 -> R4: the entries are copied out.
	 */
	kvpool_atomic(uint64_t) head;
	uint8_t gap_head[KVPOOL_WRITER_GAP - sizeof(uint64_t)];
	/* W: consumer, D1 and back to 0. R: producer, P2. See "Doorbell" above. */
	kvpool_atomic(uint32_t) asleep;
	uint8_t gap_asleep[KVPOOL_WRITER_GAP - sizeof(uint32_t)];
};

#ifndef KVPOOL_ATOMIC_MODEL
KVPOOL_ASSERT_OFFSET(struct kvpool_ring_consumer, asleep, KVPOOL_WRITER_GAP);
KVPOOL_ASSERT_SIZE(struct kvpool_ring_consumer, 2 * KVPOOL_WRITER_GAP);
#endif

/* Private to the producer. */
struct kvpool_producer {
	struct kvpool_entry *entries;          /* borrowed: the channel's mapping */
	struct kvpool_ring_consumer *consumer; /* borrowed: the channel's mapping */
	uint64_t tail;                         /* the next position to write */
	uint64_t head;                         /* the last head that was read and believed */
	uint64_t mask;
};

/* Private to the consumer. */
struct kvpool_consumer {
	struct kvpool_entry *entries;        /* borrowed: the channel's mapping */
	struct kvpool_ring_consumer *shared; /* borrowed: the channel's mapping */
	uint64_t head;                       /* the next position to read */
	uint64_t mask;
};

enum {
	KVPOOL_RING_E_FULL = 1, /* no entry is free */
	KVPOOL_RING_E_LIE = 2,  /* the peer's head cannot be true */
};

/*
 * A position other than 0 is for entries that an earlier lap of the ring wrote: fresh memory would
 * look published at position 2^64 - 1.
 */
static inline void kvpool_producer_init(struct kvpool_producer *p, struct kvpool_entry *entries,
					struct kvpool_ring_consumer *consumer, uint64_t size,
					uint64_t position)
{
	*p = (struct kvpool_producer){
		.entries = entries,
		.consumer = consumer,
		.tail = position,
		.head = position,
		.mask = size - 1,
	};
}

static inline void kvpool_consumer_init(struct kvpool_consumer *c, struct kvpool_entry *entries,
					struct kvpool_ring_consumer *shared, uint64_t size,
					uint64_t position)
{
	*c = (struct kvpool_consumer){
		.entries = entries,
		.shared = shared,
		.head = position,
		.mask = size - 1,
	};
}

/* Is there room for `n` more entries? 0, KVPOOL_RING_E_FULL or KVPOOL_RING_E_LIE. */
static inline int kvpool_producer_room(struct kvpool_producer *p, uint64_t n)
{
	uint64_t head;

	if (KVPOOL_LIKELY(p->tail - p->head + n <= p->mask + 1))
		return 0;
	head = kvpool_load_acquire(&p->consumer->head); /* R4 <- R3 */
	if (p->tail - head > p->mask + 1 || head - p->head > p->mask + 1)
		return KVPOOL_RING_E_LIE;
	p->head = head;
	return p->tail - head + n <= p->mask + 1 ? 0 : KVPOOL_RING_E_FULL;
}

/*
 * Writes one entry and publishes it. The caller has asked kvpool_producer_room(), or knows that
 * there is room. Orders the publication before kvpool_producer_must_ring().
 */
static inline void kvpool_producer_push(struct kvpool_producer *p, const void *payload)
{
	struct kvpool_entry *e = &p->entries[p->tail & p->mask];

	memcpy(e->payload, payload, KVPOOL_PAYLOAD_BYTES);
	p->tail++;
	kvpool_publish(&e->word, p->tail); /* R1 -> R2; P1 */
}

/* After one or more pushes: does the consumer sleep, so that its doorbell must be rung? */
static inline int kvpool_producer_must_ring(const struct kvpool_producer *p)
{
	kvpool_full_fence();                                   /* P1 before P2 */
	return kvpool_load_relaxed(&p->consumer->asleep) != 0; /* P2 */
}

/* Is there an entry? Copies its payload once, to private memory, and steps on. */
static inline int kvpool_consumer_pop(struct kvpool_consumer *c, void *payload)
{
	struct kvpool_entry *e = &c->entries[c->head & c->mask];

	if (kvpool_load_acquire(&e->word) != c->head + 1) /* R2 <- R1 */
		return 0;
	memcpy(payload, e->payload, KVPOOL_PAYLOAD_BYTES);
	KVPOOL_COPIED(*(uint8_t(*)[KVPOOL_PAYLOAD_BYTES])payload);
	c->head++;
	return 1;
}

static inline int kvpool_consumer_ready(const struct kvpool_consumer *c)
{
	const struct kvpool_entry *e = &c->entries[c->head & c->mask];

	return kvpool_load_acquire(&e->word) == c->head + 1; /* R2 <- R1 */
}

/* Gives the entries that were popped back to the producer. Not for the reply ring. */
static inline void kvpool_consumer_publish_head(struct kvpool_consumer *c)
{
	kvpool_store_release(&c->shared->head, c->head); /* R3 -> R4 */
}

/*
 * Says "ring me". Returns 1 when the caller may sleep, 0 when an entry came meanwhile (the word is
 * taken back).
 */
static inline int kvpool_consumer_arm(struct kvpool_consumer *c)
{
	kvpool_publish(&c->shared->asleep, 1); /* D1 */
	kvpool_full_fence();                   /* D1 before D2 */
	if (!kvpool_consumer_ready(c))         /* D2 */
		return 1;
	kvpool_store_relaxed(&c->shared->asleep, 0); /* a late ring is only a spurious wake-up */
	return 0;
}

static inline void kvpool_consumer_disarm(struct kvpool_consumer *c)
{
	kvpool_store_relaxed(&c->shared->asleep, 0); /* a late ring is only a spurious wake-up */
}

#endif
