/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for an inference engine's own KV memory: see engine.h.
 *
 * Two equal mappings: `memory`, which the engine computes in, and `other`, which memcpy is measured
 * with. Both are gone through chunk by chunk, so that a chunk is cold when it is used again. One
 * thread.
 */
#include "tools/replay/engine.h"

#include "shm/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CHUNK_BYTES  (1u << 20) /* what a copy is timed over */
#define MEMORY_BYTES (64u << 20)
#define SAMPLE_EVERY 8u

struct kvpool_engine {
	size_t block_bytes;
	uint32_t chunk_blocks;
	size_t chunks; /* that fit in `bytes` */
	size_t next;   /* chunk of `memory` to give out */
	size_t next_other;
	uint32_t calls;
	size_t bytes;
	uint8_t *memory; /* owned: mapping */
	uint8_t *other;  /* owned: mapping */
};

static uint8_t *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

int kvpool_engine_new(size_t block_bytes, struct kvpool_engine **out)
{
	struct kvpool_engine *engine = calloc(1, sizeof(*engine));
	size_t chunk_bytes;

	if (engine == NULL)
		return -ENOMEM;
	engine->block_bytes = block_bytes;
	engine->chunk_blocks = (uint32_t)KVPOOL_MIN(KVPOOL_MAX(CHUNK_BYTES / block_bytes, 1),
						    KVPOOL_ENGINE_CHUNK_MAX);
	chunk_bytes = engine->chunk_blocks * block_bytes;
	engine->chunks = KVPOOL_MAX(MEMORY_BYTES / chunk_bytes, 2);
	engine->bytes = engine->chunks * chunk_bytes;
	engine->memory = map(engine->bytes);
	engine->other = map(engine->bytes);
	if (engine->memory == NULL || engine->other == NULL) {
		kvpool_engine_free(engine);
		return -ENOMEM;
	}
	*out = engine;
	return 0;
}

void kvpool_engine_free(struct kvpool_engine *engine)
{
	if (engine == NULL)
		return;
	if (engine->memory != NULL)
		munmap(engine->memory, engine->bytes);
	if (engine->other != NULL)
		munmap(engine->other, engine->bytes);
	free(engine);
}

uint32_t kvpool_engine_chunk_blocks(const struct kvpool_engine *engine)
{
	return engine->chunk_blocks;
}

/* Goes round. */
static size_t advance(const struct kvpool_engine *engine, size_t *chunk)
{
	size_t offset = *chunk * engine->chunk_blocks * engine->block_bytes;

	*chunk = *chunk + 1 == engine->chunks ? 0 : *chunk + 1;
	return offset;
}

void *kvpool_engine_next(struct kvpool_engine *engine)
{
	return engine->memory + advance(engine, &engine->next);
}

uint64_t kvpool_engine_sample(struct kvpool_engine *engine, void *chunk, uint32_t n, bool out)
{
	uint8_t *mine = chunk;
	uint8_t *other;
	uint64_t start;
	uint32_t i;

	if (n == 0 || engine->calls++ % SAMPLE_EVERY != 0)
		return 0;
	other = engine->other + advance(engine, &engine->next_other);
	start = kvpool_engine_now();
	for (i = 0; i < n; i++) {
		size_t at = i * engine->block_bytes;

		memcpy(out ? other + at : mine + at, out ? mine + at : other + at,
		       engine->block_bytes);
		/* Each copy is made: none may be merged with the next or left out. */
		__asm__ __volatile__("" ::: "memory");
	}
	return KVPOOL_MAX((kvpool_engine_now() - start) / n, 1);
}

uint64_t kvpool_engine_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
