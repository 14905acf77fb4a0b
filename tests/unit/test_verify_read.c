/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that reads blocks for a verification: what it sums up, what it says of what cannot be
 * read, and that it lets go of a segment that is given back.
 *
 * The test's thread is the service thread; the reader has its own.
 */
#include "daemon/verify_read.h"
#include "shm/crc32c.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES (UINT64_C(1) << 20)
#define WAIT_MS    20000

static struct kvpool_reader *reader;
static struct kvpool_reader_batch *batch;
static uint8_t *bytes;
static int file;

static void setup(void)
{
	ck_assert_int_eq(kvpool_reader_new(&reader), 0);
	file = memfd_create("verify", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(ftruncate(file, FILE_BYTES), 0);
	bytes = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	for (uint64_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	batch = kvpool_reader_begin(reader);
}

static void teardown(void)
{
	kvpool_reader_free(reader);
	munmap(bytes, FILE_BYTES);
	close(file);
}

/* A descriptor of the file in the batch; which one it is. */
static uint32_t add_file(uint32_t segment)
{
	struct kvpool_reader_file *f = &batch->files[batch->n_files];

	f->segment = segment;
	f->fd = fcntl(file, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(f->fd, 0);
	atomic_init(&f->over, false);
	return batch->n_files++;
}

static void add(uint32_t f, uint32_t offset, uint64_t slot_bytes, uint64_t stride, uint32_t shards)
{
	batch->items[batch->n++] = (struct kvpool_reader_item){
		.file = f,
		.stored = {.place = {.block = 1, .offset = offset >> KVPOOL_UNIT_SHIFT},
			   .slot_bytes = slot_bytes,
			   .stride = stride,
			   .n_shards = shards},
	};
}

static void read_all(void)
{
	struct pollfd p = {.fd = kvpool_reader_fd(reader), .events = POLLIN};

	kvpool_reader_send(reader);
	ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
	ck_assert_ptr_eq(kvpool_reader_take(reader), batch);
	ck_assert_ptr_null(kvpool_reader_take(reader));
}

START_TEST(should_sum_up_all_shards_of_every_block)
{
	uint32_t f = add_file(1), whole = 0;

	add(f, 0, 1000, 1024, 1);
	add(f, 4096, 300000, 300032, 3);
	read_all();
	ck_assert_int_eq(batch->items[0].error, 0);
	ck_assert_uint_eq(batch->items[0].crc32c, kvpool_crc32c_add(0, bytes, 1000));
	for (uint32_t s = 0; s < 3; s++)
		whole ^= kvpool_crc32c_shard(
			kvpool_crc32c_add(0, bytes + 4096 + (size_t)s * 300032, 300000), s);
	ck_assert_int_eq(batch->items[1].error, 0);
	ck_assert_uint_eq(batch->items[1].crc32c, whole);
}
END_TEST

START_TEST(should_take_one_batch_after_the_other)
{
	for (uint32_t i = 0; i < 5; i++) {
		batch = kvpool_reader_begin(reader);
		ck_assert_uint_eq(batch->n + batch->n_files, 0);
		add(add_file(i), 256 * i, 256, 256, 1);
		read_all();
		ck_assert_uint_eq(batch->items[0].crc32c,
				  kvpool_crc32c_add(0, bytes + (size_t)256 * i, 256));
	}
}
END_TEST

START_TEST(should_say_what_cannot_be_read)
{
	uint32_t f = add_file(1);

	add(f, (uint32_t)FILE_BYTES - 256, 257, 512, 1);
	add(f, 0, 256, 256, 1);
	read_all();
	ck_assert_int_eq(batch->items[0].error, -ENODATA);
	ck_assert_int_eq(batch->items[1].error, 0);
}
END_TEST

START_TEST(should_read_a_hole_as_zeros_without_filling_it)
{
	static const uint8_t zeros[8192];

	ck_assert_int_eq(madvise(bytes, 8192, MADV_REMOVE), 0);
	add(add_file(1), 0, 8192, 8192, 1);
	read_all();
	ck_assert_int_eq(batch->items[0].error, 0);
	ck_assert_uint_eq(batch->items[0].crc32c, kvpool_crc32c_add(0, zeros, sizeof(zeros)));
	ck_assert_int_eq(lseek(file, 0, SEEK_DATA), 8192);
}
END_TEST

START_TEST(should_let_go_of_a_segment_that_is_given_back)
{
	uint32_t gone = add_file(7), other = add_file(8);
	int fd = batch->files[gone].fd;

	add(other, 0, 256, 256, 1);
	add(gone, 0, 256, 256, 1);
	kvpool_reader_segment_over(reader, 7);
	read_all();
	ck_assert_int_eq(batch->items[0].error, 0);
	ck_assert_int_eq(batch->items[1].error, -ECANCELED);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_ge(fcntl(batch->files[other].fd, F_GETFD), 0);
}
END_TEST

START_TEST(should_end_in_the_middle_of_a_batch)
{
	uint32_t f = add_file(1);

	while (batch->n < KVPOOL_READER_ITEMS)
		add(f, 0, FILE_BYTES, FILE_BYTES, 1);
	kvpool_reader_send(reader);
	kvpool_reader_free(reader);
	reader = NULL;
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("verify_read");
	TCase *tcase = tcase_create("reader");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, should_sum_up_all_shards_of_every_block);
	tcase_add_test(tcase, should_take_one_batch_after_the_other);
	tcase_add_test(tcase, should_say_what_cannot_be_read);
	tcase_add_test(tcase, should_read_a_hole_as_zeros_without_filling_it);
	tcase_add_test(tcase, should_let_go_of_a_segment_that_is_given_back);
	tcase_add_test(tcase, should_end_in_the_middle_of_a_batch);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
