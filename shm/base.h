/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every file of kvpool may assume about the compiler and the machine.
 *
 * Holds macros only: no object, no state, usable from any thread.
 */
#ifndef KVPOOL_SHM_BASE_H
#define KVPOOL_SHM_BASE_H

#include <stddef.h>
#include <stdint.h>

/* Two lines, because the adjacent-line prefetcher pairs them. */
#define KVPOOL_CACHELINE  UINT64_C(64)
#define KVPOOL_WRITER_GAP UINT64_C(128)

#define KVPOOL_ALIGNED(n)         _Alignas(n)
#define KVPOOL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define KVPOOL_NONNULL            __attribute__((nonnull))
#define KVPOOL_MUST_CHECK         __attribute__((warn_unused_result))
#define KVPOOL_LIKELY(x)          __builtin_expect(!!(x), 1)
#define KVPOOL_UNLIKELY(x)        __builtin_expect(!!(x), 0)

#define KVPOOL_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define KVPOOL_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define KVPOOL_ARRAY_SIZE(a)  (sizeof(a) / sizeof((a)[0]))
#define KVPOOL_ROUND_UP(x, a) (((x) + ((a)-1)) & ~((__typeof__(x))(a)-1))
#define KVPOOL_IS_POW2(x)     ((x) != 0 && ((x) & ((x)-1)) == 0)

/*
 * The object was just copied from memory that a peer may change at any time. From here on there is
 * only the copy: the compiler may not read the peer's memory again in its place.
 */
#define KVPOOL_COPIED(object) __asm__ __volatile__("" : "+m"(object))

#define KVPOOL_ASSERT_OFFSET(type, field, at) \
	_Static_assert(offsetof(type, field) == (at), #type "." #field " moved")
#define KVPOOL_ASSERT_SIZE(type, size) \
	_Static_assert(sizeof(type) == (size), #type " changed its size")

#endif
