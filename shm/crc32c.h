/* SPDX-License-Identifier: Apache-2.0 */
/* placeholder until the merge */
#ifndef KVPOOL_SHM_CRC32C_H
#define KVPOOL_SHM_CRC32C_H
#include <stddef.h>
#include <stdint.h>
static inline uint32_t kvpool_crc32c(uint32_t crc, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	crc = ~crc;
	while (n-- > 0) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & (0 - (crc & 1)));
	}
	return ~crc;
}
#endif
