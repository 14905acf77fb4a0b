/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anonymous memory that can be handed over by descriptor: channels and catalogs.
 *
 * A memfd, sealed against another size and against further seals, mapped read-write into the
 * daemon and kept out of core files. Stateless; usable from any thread.
 */
#ifndef KVPOOL_DAEMON_MEMORY_H
#define KVPOOL_DAEMON_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct kvpool_memory {
	int fd;        /* owned; -1: closed, or private: the mapping stands alone */
	void *address; /* owned mapping of `bytes` */
	uint64_t bytes;
};

/* Zeroed; pages come as they are touched. Negative errno. */
int kvpool_memory_new(uint64_t bytes, struct kvpool_memory *out);

/* The same without a descriptor: it can have huge pages where shared memory cannot. */
int kvpool_memory_new_private(uint64_t bytes, struct kvpool_memory *out);

/* Whether `fd` is memory that cannot change its size (sealed: SHRINK, GROW), and how long it is. */
bool kvpool_memory_sealed(int fd, uint64_t *bytes);

/* Maps what an earlier life made; takes `fd` on success. Negative errno. */
int kvpool_memory_adopt(int fd, uint64_t bytes, struct kvpool_memory *out);

/* Once the descriptor has been sent and is not needed any more. */
void kvpool_memory_close_fd(struct kvpool_memory *memory);

/* Unmaps and closes; an object that was never made (address NULL) is left alone. */
void kvpool_memory_free(struct kvpool_memory *memory);

#endif
