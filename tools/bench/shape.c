/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks in pieces, and memcpy over them. No state; main thread.
 */
#include "tools/bench/shape.h"

#include "tools/bench/keys.h"

#include <errno.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t piece_bytes(const struct kvpool_shape *shape)
{
	return shape->block_bytes / shape->pieces;
}

static uint8_t *piece_at(const struct kvpool_shape *shape, uint64_t block, uint32_t piece)
{
	return shape->buffer + (piece * shape->blocks + block) * piece_bytes(shape);
}

void kvpool_shape_pieces(const struct kvpool_shape *shape, uint64_t block, struct kvpool_piece *out)
{
	for (uint32_t p = 0; p < shape->pieces; p++)
		out[p] = (struct kvpool_piece){piece_at(shape, block, p), piece_bytes(shape)};
}

void kvpool_shape_gather(const struct kvpool_shape *shape, uint64_t block, uint8_t *to)
{
	uint64_t bytes = piece_bytes(shape);

	for (uint32_t p = 0; p < shape->pieces; p++)
		memcpy(to + p * bytes, piece_at(shape, block, p), bytes);
}

void kvpool_shape_scatter(const struct kvpool_shape *shape, uint64_t block, const uint8_t *from)
{
	uint64_t bytes = piece_bytes(shape);

	for (uint32_t p = 0; p < shape->pieces; p++)
		memcpy(piece_at(shape, block, p), from + p * bytes, bytes);
}

static uint64_t stamp_of(uint64_t block, uint32_t piece, uint64_t salt)
{
	return kvpool_mix(salt ^ kvpool_mix(block * KVPOOL_SHAPE_PIECES_MAX + piece + 1));
}

void kvpool_shape_stamp(const struct kvpool_shape *shape, uint64_t salt)
{
	for (uint64_t b = 0; b < shape->blocks; b++) {
		for (uint32_t p = 0; p < shape->pieces; p++) {
			uint64_t stamp = stamp_of(b, p, salt);
			uint8_t *at = piece_at(shape, b, p);

			memcpy(at, &stamp, sizeof(stamp));
			memcpy(at + piece_bytes(shape) - sizeof(stamp), &stamp, sizeof(stamp));
		}
	}
}

uint64_t kvpool_shape_wrong(const struct kvpool_shape *shape, uint64_t first, uint64_t n,
			    uint64_t salt)
{
	uint64_t wrong = 0;

	for (uint64_t b = first; b < first + n; b++) {
		for (uint32_t p = 0; p < shape->pieces; p++) {
			uint64_t stamp = stamp_of(b, p, salt);
			const uint8_t *at = piece_at(shape, b, p);

			if (memcmp(at, &stamp, sizeof(stamp)) != 0 ||
			    memcmp(at + piece_bytes(shape) - sizeof(stamp), &stamp,
				   sizeof(stamp)) != 0)
				wrong++;
		}
	}
	return wrong;
}

static int map_private(uint64_t bytes, uint8_t **out)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	*out = memory;
	return 0;
}

static int map_shared(uint64_t bytes, enum kvpool_shape_pages pages, uint8_t **out)
{
	unsigned int flags = pages == KVPOOL_SHAPE_SHARED_2M ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
	int fd = memfd_create("kvpool-bench", MFD_CLOEXEC | flags);
	void *memory = MAP_FAILED;
	int error;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) == 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = errno;
	close(fd);
	if (memory == MAP_FAILED)
		return -error;
	*out = memory;
	return 0;
}

/* Writes a word to every page, where the kernel is too old to populate. */
static void populate(uint8_t *memory, uint64_t bytes)
{
	if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
		return;
	for (uint64_t at = 0; at < bytes; at += 4096)
		*(volatile uint8_t *)(memory + at) = 0;
}

int kvpool_shape_map(uint64_t bytes, enum kvpool_shape_pages *pages, uint8_t **out)
{
	uint8_t *memory = NULL;
	int r = 0;

	if (*pages == KVPOOL_SHAPE_PRIVATE) {
		r = map_private(bytes, &memory);
	} else {
		r = map_shared(bytes, *pages, &memory);
		if (r < 0 && *pages == KVPOOL_SHAPE_SHARED_2M) {
			*pages = KVPOOL_SHAPE_SHARED;
			r = map_shared(bytes, *pages, &memory);
		}
	}
	if (r < 0 || !memory)
		return r;
	if (*pages == KVPOOL_SHAPE_SHARED_THP)
		madvise(memory, bytes, MADV_HUGEPAGE);
	populate(memory, bytes);
	*out = memory;
	return 0;
}

void kvpool_shape_unmap(uint8_t *memory, uint64_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}
