/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pool's tests share: waiting for the populating thread, and looking into segments.
 *
 * One pool at a time; the test's thread is the service thread.
 */
#ifndef KVPOOL_TESTS_UNIT_POOL_PROBE_H
#define KVPOOL_TESTS_UNIT_POOL_PROBE_H

#include "daemon/clock.h"
#include "daemon/pool.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB           (UINT64_C(1) << 20)
#define POOL_PATIENCE (UINT64_C(30) * KVPOOL_NS_PER_S)

static inline void pool_probe_ignore(void *cookie, struct kvpool_segment *segment, uint64_t offset,
				     uint64_t bytes)
{
	(void)cookie;
	(void)segment;
	(void)offset;
	(void)bytes;
}

/* Waits for news of the thread, up to the deadline. */
static inline void pool_probe_wait(struct kvpool_pool *pool, uint64_t end_ns)
{
	struct pollfd p = {.fd = kvpool_pool_fd(pool), .events = POLLIN};
	struct kvpool_pool_status status;

	kvpool_pool_status(pool, &status);
	ck_assert_msg(kvpool_clock_ns() < end_ns,
		      "waited in vain: %lu of %lu ready, lent %lu, growing %d, error %s",
		      (unsigned long)status.ready, (unsigned long)status.bytes,
		      (unsigned long)status.lent, status.growing, status.error_text);
	(void)poll(&p, 1, 100);
}

/* Until the thread has done all that it can. */
static inline struct kvpool_pool_status pool_probe_settle(struct kvpool_pool *pool,
							  kvpool_pool_grown_fn fn, void *cookie)
{
	uint64_t end_ns = kvpool_clock_ns() + POOL_PATIENCE;
	struct kvpool_pool_status status;

	for (;;) {
		kvpool_pool_progress(pool, fn, cookie);
		kvpool_pool_status(pool, &status);
		if (!status.growing)
			break;
		pool_probe_wait(pool, end_ns);
	}
	/* What it told between the two looks. */
	kvpool_pool_progress(pool, fn, cookie);
	return status;
}

static inline struct kvpool_segment *pool_probe_acquire(struct kvpool_pool *pool, void *owner,
							kvpool_pool_grown_fn fn, void *cookie)
{
	uint64_t end_ns = kvpool_clock_ns() + POOL_PATIENCE;
	struct kvpool_segment *segment;

	while ((segment = kvpool_pool_acquire(pool, owner, 0)) == NULL) {
		pool_probe_wait(pool, end_ns);
		kvpool_pool_progress(pool, fn, cookie);
	}
	return segment;
}

/* Bytes of real pages behind a descriptor. */
static inline uint64_t pool_probe_resident(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static inline void *pool_probe_map(int fd, uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

/* Releases a segment that is full of bytes, with a mapping kept: it must come to read zeros. */
static inline void pool_probe_release_zeroes(struct kvpool_pool *pool,
					     struct kvpool_segment *segment)
{
	uint64_t end_ns = kvpool_clock_ns() + POOL_PATIENCE;
	uint64_t bytes = segment->bytes;
	int fd = fcntl(segment->fd, F_DUPFD_CLOEXEC, 0);
	unsigned char *at = pool_probe_map(fd, bytes);
	uint32_t id = segment->id;

	memset(at, 0x5a, bytes);
	kvpool_pool_release(pool, segment);
	ck_assert_ptr_null(kvpool_pool_find(pool, id));
	while (pool_probe_resident(fd) != 0) {
		pool_probe_wait(pool, end_ns);
		kvpool_pool_progress(pool, pool_probe_ignore, NULL);
	}
	for (uint64_t i = 0; i < bytes; i += 4096)
		ck_assert_uint_eq(at[i], 0);
	ck_assert_int_eq(munmap(at, bytes), 0);
	ck_assert_int_eq(close(fd), 0);
}

#endif
