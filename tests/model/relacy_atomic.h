/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The atomics of shm/atomic.h over Relacy, so that the ring that kvpoold and libkvpool compile is
 * the one that the model checker runs.
 *
 * C++, for ring_relacy.cc only. Payloads are checked variables: reading one while the other end
 * may write it is reported as a race, as is a copy that is older than the word before it promises.
 * MUTANT_* macros weaken one operation each; the test must then fail.
 */
#ifndef KVPOOL_TESTS_RELACY_ATOMIC_H
#define KVPOOL_TESTS_RELACY_ATOMIC_H

#include <relacy/relacy.hpp>

#include <stdint.h>
#include <string.h>

#define _Static_assert static_assert

#ifdef MUTANT_RELAXED_PUBLISH
#define MODEL_PUBLISH rl::mo_relaxed
#else
#define MODEL_PUBLISH rl::mo_release
#endif
#ifdef MUTANT_RELAXED_TAKE
#define MODEL_ACQUIRE rl::mo_relaxed
#else
#define MODEL_ACQUIRE rl::mo_acquire
#endif
#ifdef MUTANT_RELAXED_HEAD
#define MODEL_RELEASE rl::mo_relaxed
#else
#define MODEL_RELEASE rl::mo_release
#endif

#define kvpool_atomic(type)          rl::atomic<type>
#define kvpool_shared_bytes(name, n) struct model_bytes name
#define kvpool_load_acquire(p)       (p)->load(MODEL_ACQUIRE, $)
#define kvpool_load_relaxed(p)       (p)->load(rl::mo_relaxed, $)
#define kvpool_store_release(p, v)   (p)->store(v, MODEL_RELEASE, $)
#define kvpool_store_relaxed(p, v)   (p)->store(v, rl::mo_relaxed, $)
#define kvpool_publish(p, v)         (p)->store(v, MODEL_PUBLISH, $)
#ifdef MUTANT_NO_FENCE
#define kvpool_full_fence() ((void)0)
#else
#define kvpool_full_fence() rl::atomic_thread_fence(rl::mo_seq_cst, $)
#endif

/* Stands for the bytes of a payload: the first and the last word, so that a torn copy shows. */
struct model_bytes {
	rl::var<uint64_t> first;
	rl::var<uint64_t> last;
};

static inline void model_memcpy(struct model_bytes &to, const void *from, size_t n)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	to.first($) = word;
	memcpy(&word, static_cast<const uint8_t *>(from) + n - sizeof(word), sizeof(word));
	to.last($) = word;
}

static inline void model_memcpy(void *to, struct model_bytes &from, size_t n)
{
	uint64_t word = from.first($);

	memcpy(to, &word, sizeof(word));
	word = from.last($);
	memcpy(static_cast<uint8_t *>(to) + n - sizeof(word), &word, sizeof(word));
}

#endif
