/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few atomic operations that the ring uses, under one name each, so that the same ring code
 * compiles for the machine, for ThreadSanitizer and for the Relacy model in tests/model.
 *
 * Holds macros only. Every use names its edge in a comment: "X1 -> X2".
 */
#ifndef KVPOOL_SHM_ATOMIC_H
#define KVPOOL_SHM_ATOMIC_H

#ifdef KVPOOL_ATOMIC_MODEL
#include KVPOOL_ATOMIC_MODEL
#else

#include <stdatomic.h>
#include <stdint.h>

/* These carry no edge of their own: the caller's comment names it. */
#define kvpool_atomic(type)           _Atomic(type)
#define kvpool_shared_bytes(name, n)  uint8_t name[n]
#define kvpool_load_acquire(p)        atomic_load_explicit(p, memory_order_acquire)
#define kvpool_load_relaxed(p)        atomic_load_explicit(p, memory_order_relaxed)
#define kvpool_store_release(p, v)    atomic_store_explicit(p, v, memory_order_release)
#define kvpool_store_relaxed(p, v)    atomic_store_explicit(p, v, memory_order_relaxed)
#define kvpool_exchange_seq_cst(p, v) atomic_exchange_explicit(p, v, memory_order_seq_cst)

/*
 * Publish `v` and order it before the load that follows, with everything written earlier visible to
 * whoever acquires `v`. A release store and a full fence where the machine is real; a sequentially
 * consistent exchange under ThreadSanitizer, which does not follow fences.
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVPOOL_ATOMIC_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define KVPOOL_ATOMIC_TSAN 1
#endif

#ifdef KVPOOL_ATOMIC_TSAN
#define kvpool_publish(p, v) ((void)kvpool_exchange_seq_cst(p, v))
#define kvpool_full_fence()  ((void)0)
#else
#define kvpool_publish(p, v) kvpool_store_release(p, v)
#define kvpool_full_fence()  atomic_thread_fence(memory_order_seq_cst)
#endif

#endif

#if defined(__x86_64__) || defined(__i386__)
#define kvpool_cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define kvpool_cpu_relax() __asm__ __volatile__("isb" ::: "memory")
#else
#define kvpool_cpu_relax() ((void)0)
#endif

#endif
