/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that reads the bytes of blocks and sums them up, a batch at a time.
 *
 * Owned by a verification (verify.c). One batch goes to and fro: it is the service thread's until
 * kvpool_reader_send(), and again once kvpool_reader_take() says so. All functions are for the
 * service thread.
 *
 * Bytes are read with pread(2), not through a mapping: a page that is not to be had, or that the
 * hardware has lost, is then an error code and never a SIGBUS, and a segment that is given back
 * meanwhile takes no page for being looked at.
 */
#ifndef KVPOOL_DAEMON_VERIFY_READ_H
#define KVPOOL_DAEMON_VERIFY_READ_H

#include "src/cache.h"

#include <stdatomic.h>
#include <stdbool.h>

#define KVPOOL_READER_ITEMS 256u
#define KVPOOL_READER_FILES 16u

struct kvpool_reader;

struct kvpool_reader_item {
	struct kvpool_cache_stored stored;
	uint32_t file;   /* index in the batch's files */
	uint32_t crc32c; /* of all shards together; the thread's answer */
	int error;       /* 0, or the negative errno of reading it */
};

struct kvpool_reader_batch {
	uint32_t n, n_files;
	struct kvpool_reader_item items[KVPOOL_READER_ITEMS];
	struct kvpool_reader_file {
		uint32_t segment;
		int fd; /* owned; -1: closed, because the segment was given back meanwhile */
		/* W: service thread. R: the thread. Relaxed: a wish, seen with the next chunk. */
		atomic_bool over;
	} files[KVPOOL_READER_FILES];
};

/* Starts the thread. -ENOMEM, -EMFILE, -EAGAIN. */
int kvpool_reader_new(struct kvpool_reader **out);

/* Ends it, in the middle of a block if need be. Takes NULL. */
void kvpool_reader_free(struct kvpool_reader *reader);

/* Readable when the batch comes back. */
int kvpool_reader_fd(const struct kvpool_reader *reader);

/* Empty, its files closed. */
struct kvpool_reader_batch *kvpool_reader_begin(struct kvpool_reader *reader);
void kvpool_reader_send(struct kvpool_reader *reader);

/*
 * The segment is being given back: its descriptor is closed within a chunk, since its huge pages
 * are not free before. What was to be read there fails.
 */
void kvpool_reader_segment_over(struct kvpool_reader *reader, uint32_t segment);

/* The batch with its answers; NULL: not yet. */
struct kvpool_reader_batch *kvpool_reader_take(struct kvpool_reader *reader);

#endif
