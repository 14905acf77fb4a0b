/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C: see crc32c.h.
 *
 * The instruction takes three cycles and a new one can begin in each, so three runs of bytes are
 * summed side by side and put together afterwards: what a register becomes when so many zero bytes
 * follow is a multiplication modulo the polynomial. "Register" is a CRC without the inversions
 * before and after.
 */
#include "shm/crc32c.h"

#include "shm/base.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* bit-reversed */

/* ---- by tables, eight bytes a step ---- */

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t reg = i;

		for (int bit = 0; bit < 8; bit++)
			reg = reg >> 1 ^ (POLYNOMIAL & -(reg & 1));
		tables[0][i] = reg;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

static uint64_t load_8(const uint8_t *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	return word;
}

static uint32_t by_table(uint32_t crc, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint32_t reg = ~crc;

	(void)pthread_once(&tables_once, make_tables);
	for (; n >= 8; n -= 8, at += 8) {
		uint64_t word = load_8(at) ^ reg;

		reg = 0;
		for (int t = 0; t < 8; t++)
			reg ^= tables[7 - t][word >> 8 * t & 0xff];
	}
	for (; n > 0; n--)
		reg = reg >> 8 ^ tables[0][(reg ^ *at++) & 0xff];
	return ~reg;
}

/* ---- by the instruction ---- */

#if defined(__x86_64__)
#include <nmmintrin.h>

#define HARDWARE __attribute__((target("sse4.2")))

static bool hardware_there(void)
{
	return __builtin_cpu_supports("sse4.2");
}

HARDWARE static inline uint32_t step_8(uint32_t reg, uint64_t word)
{
	return (uint32_t)_mm_crc32_u64(reg, word);
}

HARDWARE static inline uint32_t step_1(uint32_t reg, uint8_t byte)
{
	return _mm_crc32_u8(reg, byte);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

#define HARDWARE
#define HAS_CRC32 (1ul << 7) /* HWCAP_CRC32 */

static bool hardware_there(void)
{
	return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}

static inline uint32_t step_8(uint32_t reg, uint64_t word)
{
	__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(reg) : "r"(word));
	return reg;
}

static inline uint32_t step_1(uint32_t reg, uint8_t byte)
{
	__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(reg) : "r"((uint32_t)byte));
	return reg;
}

#endif

#if defined(HARDWARE)

/* Three runs of so many bytes, and what a run and two of them multiply a register by. */
struct runs {
	size_t bytes;   /* of one run; a multiple of 8 */
	uint32_t one;   /* x^(8 * bytes) modulo the polynomial, bit-reversed */
	uint32_t after; /* the same for two runs */
};

/* The shorter they are, the more putting them together costs: below the second it does not pay. */
static const struct runs plans[] = {
	{8192, 0x28461564u, 0xbf455269u},
	{1024, 0xe4172b16u, 0x0d65762au},
};

/* a * b modulo the polynomial. Without a branch, so that two of them overlap. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int bit = 31; bit >= 0; bit--) {
		product ^= b & -(a >> bit & 1);
		b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
	}
	return product;
}

HARDWARE static uint32_t three_runs(const struct runs *runs, uint32_t reg, const uint8_t *at)
{
	const uint8_t *second = at + runs->bytes, *third = second + runs->bytes;
	uint32_t reg2 = 0, reg3 = 0;

	for (size_t i = 0; i < runs->bytes; i += 8) {
		reg = step_8(reg, load_8(at + i));
		reg2 = step_8(reg2, load_8(second + i));
		reg3 = step_8(reg3, load_8(third + i));
	}
	return multiply(runs->after, reg) ^ multiply(runs->one, reg2) ^ reg3;
}

HARDWARE static uint32_t by_hardware(uint32_t crc, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint32_t reg = ~crc;

	for (size_t p = 0; p < KVPOOL_ARRAY_SIZE(plans); p++) {
		size_t together = 3 * plans[p].bytes;

		for (; n >= together; n -= together, at += together)
			reg = three_runs(&plans[p], reg, at);
	}
	for (; n >= 8; n -= 8, at += 8)
		reg = step_8(reg, load_8(at));
	for (; n > 0; n--)
		reg = step_1(reg, *at++);
	return ~reg;
}

#endif

kvpool_crc32c_fn kvpool_crc32c_by(enum kvpool_crc32c_path path)
{
#if defined(HARDWARE)
	if (path == KVPOOL_CRC32C_HARDWARE)
		return hardware_there() ? by_hardware : NULL;
#endif
	return path == KVPOOL_CRC32C_TABLE ? by_table : NULL;
}

uint32_t kvpool_crc32c_add(uint32_t crc, const void *bytes, size_t n)
{
	kvpool_crc32c_fn fn = kvpool_crc32c_by(KVPOOL_CRC32C_HARDWARE);

	return (fn ? fn : by_table)(crc, bytes, n);
}
