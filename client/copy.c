/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between one run of pool memory and the caller's pieces. See copy.h.
 *
 * Pure functions; any thread.
 */
#include "client/copy.h"

#include "shm/base.h"

#include <string.h>

/* Where streaming begins to pay: see copy.h. */
#define PIECE_MIN      1024u
#define LOAD_TOTAL_MIN (UINT64_C(64) << 10)

#if defined(__x86_64__)
#include <immintrin.h>

/* Until `to` starts a line; memcpy does the rest of a line better than masked stores. */
static size_t head_bytes(const uint8_t *to, size_t bytes)
{
	size_t head = -(uintptr_t)to & (KVPOOL_CACHELINE - 1);

	return KVPOOL_MIN(head, bytes);
}

__attribute__((target("avx2"))) static void stream_avx2(uint8_t *to, const uint8_t *from,
							size_t bytes)
{
	size_t head = head_bytes(to, bytes);
	size_t at = head;

	memcpy(to, from, head);
	for (; at + 128 <= bytes; at += 128) {
		const __m256i *f = (const __m256i *)(const void *)(from + at);
		__m256i *t = (__m256i *)(void *)(to + at);
		__m256i a = _mm256_loadu_si256(f), b = _mm256_loadu_si256(f + 1);
		__m256i c = _mm256_loadu_si256(f + 2), d = _mm256_loadu_si256(f + 3);

		_mm256_stream_si256(t, a);
		_mm256_stream_si256(t + 1, b);
		_mm256_stream_si256(t + 2, c);
		_mm256_stream_si256(t + 3, d);
	}
	memcpy(to + at, from + at, bytes - at);
}

static void stream_sse2(uint8_t *to, const uint8_t *from, size_t bytes)
{
	size_t head = head_bytes(to, bytes);
	size_t at = head;

	memcpy(to, from, head);
	for (; at + 64 <= bytes; at += 64) {
		const __m128i *f = (const __m128i *)(const void *)(from + at);
		__m128i *t = (__m128i *)(void *)(to + at);
		__m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
		__m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);

		_mm_stream_si128(t, a);
		_mm_stream_si128(t + 1, b);
		_mm_stream_si128(t + 2, c);
		_mm_stream_si128(t + 3, d);
	}
	memcpy(to + at, from + at, bytes - at);
}

kvpool_copy_stream_fn kvpool_copy_stream(enum kvpool_copy_kind kind)
{
	switch (kind) {
	case KVPOOL_COPY_AVX2:
		return __builtin_cpu_supports("avx2") ? stream_avx2 : NULL;
	case KVPOOL_COPY_SSE2:
		return stream_sse2;
	default:
		return NULL;
	}
}

enum kvpool_copy_kind kvpool_copy_best(void)
{
	return __builtin_cpu_supports("avx2") ? KVPOOL_COPY_AVX2 : KVPOOL_COPY_SSE2;
}

void kvpool_copy_fence(void)
{
	_mm_sfence();
}

#else

kvpool_copy_stream_fn kvpool_copy_stream(enum kvpool_copy_kind kind)
{
	(void)kind;
	return NULL;
}

enum kvpool_copy_kind kvpool_copy_best(void)
{
	return KVPOOL_COPY_PLAIN;
}

void kvpool_copy_fence(void)
{
}

#endif

void kvpool_copy_gather(enum kvpool_copy_kind kind, uint8_t *to, const struct kvpool_piece *pieces,
			uint32_t n)
{
	kvpool_copy_stream_fn stream = kvpool_copy_stream(kind);

	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = pieces[i].bytes;

		if (stream && bytes >= PIECE_MIN)
			stream(to, pieces[i].address, bytes);
		else if (bytes > 0)
			memcpy(to, pieces[i].address, bytes);
		to += bytes;
	}
	if (stream)
		kvpool_copy_fence();
}

void kvpool_copy_scatter(enum kvpool_copy_kind kind, const struct kvpool_piece *pieces, uint32_t n,
			 uint64_t total, const uint8_t *from)
{
	kvpool_copy_stream_fn stream = total >= LOAD_TOTAL_MIN ? kvpool_copy_stream(kind) : NULL;

	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = pieces[i].bytes;

		if (stream && bytes >= PIECE_MIN)
			stream(pieces[i].address, from, bytes);
		else if (bytes > 0)
			memcpy(pieces[i].address, from, bytes);
		from += bytes;
	}
	if (stream)
		kvpool_copy_fence();
}
