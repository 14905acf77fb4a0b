/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shape of block, stored, loaded and copied by memcpy in turns. Owned by `copy`; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_COPY_RUN_H
#define KVPOOL_TOOLS_BENCH_COPY_RUN_H

#include "tools/bench/samples.h"
#include "tools/bench/session.h"
#include "tools/bench/shape.h"

enum kvpool_copy_way {
	KVPOOL_COPY_GATHER = 0,       /* memcpy: pieces to a block of the pool */
	KVPOOL_COPY_SCATTER = 1,      /* memcpy: a block of the pool to pieces */
	KVPOOL_COPY_GATHER_PLAIN = 2, /* memcpy: pieces to memory of the bench's own */
	KVPOOL_COPY_SCATTER_PLAIN = 3,
	KVPOOL_COPY_STORE = 4,
	KVPOOL_COPY_LOAD = 5,
	KVPOOL_COPY_STORE_BESIDE = 6, /* in turns with the one below */
	KVPOOL_COPY_STORE_SUMMED = 7, /* with checksums at COMMIT */
	KVPOOL_COPY_LOAD_BESIDE = 8,
	KVPOOL_COPY_LOAD_VERIFIED = 9, /* every block is compared with its checksum first */
	KVPOOL_COPY_STORE_SINGLE = 10, /* requests of one block */
	KVPOOL_COPY_LOAD_SINGLE = 11,
	KVPOOL_COPY_WAYS = 12,
};

struct kvpool_copy {
	struct kvpool_bench_session session;
	uint64_t buffer_bytes; /* of each of the three */
	uint8_t *source_bytes; /* owned: the engine's memory that is stored */
	uint8_t *target_bytes; /* owned: the engine's memory that is loaded into */
	uint8_t *plain_bytes;  /* owned: what memcpy has in the pool's stead */
	uint8_t **held_bytes;  /* owned array: addresses of the blocks of `held` */
	enum kvpool_shape_pages engine_pages;
	enum kvpool_shape_pages plain_pages;
	uint64_t pool_bytes;        /* as the daemon says */
	uint64_t extent_bytes;      /* likewise */
	uint8_t *keys;              /* owned: of a request */
	struct kvpool_block *found; /* owned: of a request */
	struct kvpool_block *held;  /* owned: reserved, so that memcpy may have their memory */
	bool checksum;              /* measure what checksums cost as well */
	uint64_t salt;              /* of the round: of its stamps and its chains */

	/* Of the shape that runs, or ran last. */
	struct kvpool_shape source;
	struct kvpool_shape target;
	struct kvpool_layout *layout;      /* borrowed: the handle's */
	struct kvpool_layout *held_layout; /* borrowed: likewise; of `held` */
	uint64_t request_blocks;
	struct kvpool_samples samples[KVPOOL_COPY_WAYS]; /* ticks of a request */
	uint64_t requests;
	uint64_t discarded; /* requests during which the kernel took the core away */
};

/* Daemon, handle, buffers of so many bytes. Says on stderr what fails. */
int kvpool_copy_open(const struct kvpool_bench_options *options, uint64_t buffer_bytes,
		     struct kvpool_copy *out);
void kvpool_copy_close(struct kvpool_copy *copy);

/* One round that does not count, then `rounds` that do. Says on stderr what fails. */
int kvpool_copy_run(struct kvpool_copy *copy, uint64_t block_bytes, uint32_t pieces,
		    uint32_t rounds);

#endif
