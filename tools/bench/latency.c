/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk through memory in which every step says where the next one goes. Main thread.
 */
#include "tools/bench/latency.h"

#include "shm/base.h"
#include "tools/bench/samples.h"

#include <errno.h>
#include <sys/mman.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define WALKS      2000u
#define STEPS      100u

/*
 * Line i points at line (i * a + c) mod n: with n a power of two, a mod 4 = 1 and c odd that is one
 * cycle through all lines, in an order that no prefetcher follows.
 */
static void link_lines(uint8_t *memory, uint64_t lines)
{
	for (uint64_t i = 0; i < lines; i++)
		*(uint64_t *)(void *)(memory + i * KVPOOL_CACHELINE) =
			(i * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407)) &
			(lines - 1);
}

static uint64_t walk(const uint8_t *memory, uint64_t from)
{
	for (uint32_t i = 0; i < STEPS; i++)
		from = *(const volatile uint64_t *)(const void *)(memory + from * KVPOOL_CACHELINE);
	return from;
}

static int measure(uint64_t bytes, int advice, const struct kvpool_ticks *ticks, uint64_t *out)
{
	uint64_t reserved = bytes + HUGE_BYTES;
	struct kvpool_samples samples;
	uint64_t at = 0;
	uint8_t *memory;
	void *map;
	int r = kvpool_samples_init(&samples, WALKS);

	if (r < 0)
		return r;
	map = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		kvpool_samples_clear(&samples);
		return -ENOMEM;
	}
	memory = (uint8_t *)map + (-(uintptr_t)map & (HUGE_BYTES - 1));
	(void)madvise(memory, bytes, advice); /* refused: the figures will be alike */
	link_lines(memory, bytes / KVPOOL_CACHELINE);
	for (uint32_t i = 0; i < WALKS; i++) {
		uint64_t from = kvpool_ticks_now(ticks);

		at = walk(memory, at);
		kvpool_samples_add(&samples, kvpool_ticks_now(ticks) - from);
	}
	*out = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&samples, 50)) / STEPS;
	kvpool_samples_clear(&samples);
	munmap(map, reserved);
	return 0;
}

int kvpool_latency_measure(uint64_t bytes, const struct kvpool_ticks *ticks,
			   struct kvpool_latency *out)
{
	struct kvpool_latency latency = {.bytes = 1};
	int r;

	while (latency.bytes * 2 <= bytes)
		latency.bytes *= 2;
	r = measure(latency.bytes, MADV_NOHUGEPAGE, ticks, &latency.small_pages);
	if (r == 0)
		r = measure(latency.bytes, MADV_HUGEPAGE, ticks, &latency.huge_pages);
	if (r == 0)
		*out = latency;
	return r;
}
