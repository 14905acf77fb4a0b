/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C (Castagnoli, as in RFC 3720), by the processor's own instruction where it has one.
 *
 * Pure functions; any thread. No object: the tables of the way without the instruction are made
 * once and never change.
 */
#ifndef KVPOOL_SHM_CRC32C_H
#define KVPOOL_SHM_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes that follow those whose CRC is `crc`; 0 to begin with. */
uint32_t kvpool_crc32c_add(uint32_t crc, const void *bytes, size_t n);

/*
 * What a shard adds to the checksum of its block: the block's is the XOR of this over all shards.
 * By its number, so that two shards that changed places show.
 */
static inline uint32_t kvpool_crc32c_shard(uint32_t crc, uint32_t shard)
{
	return crc << (shard & 31) | crc >> (-shard & 31);
}

enum kvpool_crc32c_path {
	KVPOOL_CRC32C_TABLE = 0, /* everywhere */
	KVPOOL_CRC32C_HARDWARE = 1,
};

typedef uint32_t (*kvpool_crc32c_fn)(uint32_t crc, const void *bytes, size_t n);

/* One way of computing it, for tests. NULL where this machine has it not. */
kvpool_crc32c_fn kvpool_crc32c_by(enum kvpool_crc32c_path path);

#endif
