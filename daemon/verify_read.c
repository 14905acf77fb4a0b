/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading thread of a verification: see verify_read.h.
 */
#include "daemon/verify_read.h"

#include "shm/crc32c.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* Read at a time: stays in the core's own cache, so that memory is read once. */
#define CHUNK_BYTES (UINT64_C(128) << 10)

/* Those who serve and compute come first. */
#define NICE 10

struct kvpool_reader {
	pthread_t thread; /* service thread */
	int event_fd;     /* owned */
	/* W: service thread. R: the thread. Relaxed: nothing follows from it but the end. */
	atomic_bool stop;
	uint8_t *chunk; /* owned; the thread's */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool sent; /* lock: the batch is the thread's */

	struct kvpool_reader_batch batch; /* whose `sent` says */
};

static bool stopped(struct kvpool_reader *reader)
{
	/* No edge: it says only when to end. */
	return atomic_load_explicit(&reader->stop, memory_order_relaxed);
}

static void close_file(struct kvpool_reader_file *file)
{
	if (file->fd >= 0)
		(void)close(file->fd);
	file->fd = -1;
}

/* Closes what was given back. Whether reading may go on. */
static bool look(struct kvpool_reader *reader, const struct kvpool_reader_file *file)
{
	struct kvpool_reader_batch *batch = &reader->batch;

	for (uint32_t f = 0; f < batch->n_files; f++)
		/* No edge: it says only that nobody wants these bytes. */
		if (atomic_load_explicit(&batch->files[f].over, memory_order_relaxed))
			close_file(&batch->files[f]);
	return !stopped(reader) && file->fd >= 0;
}

/* The CRC of a range of the file. Negative errno; -ECANCELED where the end was asked for. */
static int sum_range(struct kvpool_reader *reader, const struct kvpool_reader_file *file,
		     uint64_t at, uint64_t bytes, uint32_t *out)
{
	uint32_t crc = 0;

	while (bytes > 0) {
		ssize_t got;

		if (!look(reader, file))
			return -ECANCELED;
		got = pread(file->fd, reader->chunk, KVPOOL_MIN(bytes, CHUNK_BYTES), (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		crc = kvpool_crc32c_add(crc, reader->chunk, (size_t)got);
		at += (uint64_t)got;
		bytes -= (uint64_t)got;
	}
	*out = crc;
	return 0;
}

static void sum_item(struct kvpool_reader *reader, struct kvpool_reader_item *item)
{
	const struct kvpool_cache_stored *stored = &item->stored;
	uint64_t at = (uint64_t)stored->place.offset << KVPOOL_UNIT_SHIFT;
	const struct kvpool_reader_file *file = &reader->batch.files[item->file];

	item->crc32c = 0;
	item->error = 0;
	for (uint32_t s = 0; item->error == 0 && s < stored->n_shards; s++) {
		uint32_t crc = 0;

		item->error =
			sum_range(reader, file, at + s * stored->stride, stored->slot_bytes, &crc);
		item->crc32c ^= kvpool_crc32c_shard(crc, s);
	}
}

static void *read_main(void *argument)
{
	const uint64_t one = 1;
	struct kvpool_reader *reader = argument;

	/* Of this thread alone, on Linux. */
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	(void)pthread_mutex_lock(&reader->lock);
	while (!stopped(reader)) {
		if (!reader->sent) {
			(void)pthread_cond_wait(&reader->changed, &reader->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&reader->lock);
		for (uint32_t i = 0; i < reader->batch.n; i++)
			sum_item(reader, &reader->batch.items[i]);
		(void)pthread_mutex_lock(&reader->lock);
		reader->sent = false;
		(void)!write(reader->event_fd, &one, sizeof(one));
	}
	(void)pthread_mutex_unlock(&reader->lock);
	return NULL;
}

static void close_files(struct kvpool_reader_batch *batch)
{
	for (uint32_t f = 0; f < batch->n_files; f++)
		close_file(&batch->files[f]);
	batch->n_files = 0;
}

static void destroy(struct kvpool_reader *reader)
{
	close_files(&reader->batch);
	(void)pthread_cond_destroy(&reader->changed);
	(void)pthread_mutex_destroy(&reader->lock);
	if (reader->event_fd >= 0)
		(void)close(reader->event_fd);
	free(reader->chunk);
	free(reader);
}

int kvpool_reader_new(struct kvpool_reader **out)
{
	struct kvpool_reader *reader = calloc(1, sizeof(*reader));
	int r = 0;

	if (!reader)
		return -ENOMEM;
	atomic_init(&reader->stop, false);
	(void)pthread_mutex_init(&reader->lock, NULL);
	(void)pthread_cond_init(&reader->changed, NULL);
	reader->chunk = aligned_alloc(4096, CHUNK_BYTES);
	reader->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!reader->chunk)
		r = -ENOMEM;
	else if (reader->event_fd < 0)
		r = -errno;
	else
		r = -pthread_create(&reader->thread, NULL, read_main, reader);
	if (r != 0) {
		destroy(reader);
		return r;
	}
	*out = reader;
	return 0;
}

void kvpool_reader_free(struct kvpool_reader *reader)
{
	if (!reader)
		return;
	(void)pthread_mutex_lock(&reader->lock);
	/* No edge: the lock orders what matters. */
	atomic_store_explicit(&reader->stop, true, memory_order_relaxed);
	(void)pthread_cond_signal(&reader->changed);
	(void)pthread_mutex_unlock(&reader->lock);
	(void)pthread_join(reader->thread, NULL);
	destroy(reader);
}

int kvpool_reader_fd(const struct kvpool_reader *reader)
{
	return reader->event_fd;
}

struct kvpool_reader_batch *kvpool_reader_begin(struct kvpool_reader *reader)
{
	/* Nobody else has it: it was taken, or never sent. */
	close_files(&reader->batch);
	reader->batch.n = 0;
	return &reader->batch;
}

void kvpool_reader_send(struct kvpool_reader *reader)
{
	(void)pthread_mutex_lock(&reader->lock);
	assert(!reader->sent);
	reader->sent = true;
	(void)pthread_cond_signal(&reader->changed);
	(void)pthread_mutex_unlock(&reader->lock);
}

struct kvpool_reader_batch *kvpool_reader_take(struct kvpool_reader *reader)
{
	uint64_t told;
	bool here;

	if (read(reader->event_fd, &told, sizeof(told)) != sizeof(told))
		return NULL;
	(void)pthread_mutex_lock(&reader->lock);
	here = !reader->sent;
	(void)pthread_mutex_unlock(&reader->lock);
	return here ? &reader->batch : NULL;
}

void kvpool_reader_segment_over(struct kvpool_reader *reader, uint32_t segment)
{
	struct kvpool_reader_batch *batch = &reader->batch;

	/* Neither changes while the batch is out; while it is here, it is closed soon anyway. */
	for (uint32_t f = 0; f < batch->n_files; f++)
		if (batch->files[f].segment == segment)
			atomic_store_explicit(&batch->files[f].over, true, memory_order_relaxed);
}
