/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The marks and books of kvpool-torture: a tool that finds nothing must be able to find something.
 *
 * One thread.
 */
#include "tools/torture/books.h"
#include "tools/torture/mark.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 64u

static uint64_t words[WORDS];

START_TEST(should_tell_which_version_a_block_is)
{
	const struct kvpool_mark mark = {.key = 7, .shard = 1, .version = 12345};

	kvpool_mark_fill(&mark, words, sizeof(words));
	ck_assert_uint_eq(kvpool_mark_version(7, 1, words), 12345);
	ck_assert_uint_eq(kvpool_mark_wrong(&mark, words, sizeof(words)), 0);
	ck_assert_uint_ne(kvpool_mark_version(7, 0, words), 12345);
	ck_assert_uint_ne(kvpool_mark_version(8, 1, words), 12345);
}
END_TEST

START_TEST(should_count_every_byte_that_is_not_as_it_was_written)
{
	const struct kvpool_mark mark = {.key = 7, .shard = 0, .version = 1};

	kvpool_mark_fill(&mark, words, sizeof(words));
	((uint8_t *)words)[0] ^= 1;
	((uint8_t *)words)[100] ^= 0x80;
	((uint8_t *)words)[sizeof(words) - 1] ^= 0xff;
	ck_assert_uint_eq(kvpool_mark_wrong(&mark, words, sizeof(words)), 3);
}
END_TEST

START_TEST(should_see_words_of_two_versions_in_one_block)
{
	const struct kvpool_mark old = {.key = 7, .version = 1}, new = {.key = 7, .version = 2};
	uint64_t other[WORDS];

	kvpool_mark_fill(&old, words, sizeof(words));
	kvpool_mark_fill(&new, other, sizeof(other));
	memcpy(words + WORDS / 2, other + WORDS / 2, sizeof(words) / 2);
	ck_assert_uint_gt(kvpool_mark_wrong(&old, words, sizeof(words)), 0);
	ck_assert_uint_gt(kvpool_mark_wrong(&new, words, sizeof(words)), 0);
}
END_TEST

START_TEST(should_let_only_offered_versions_of_the_key_be_found)
{
	struct kvpool_books *books;
	uint32_t version;

	ck_assert_int_eq(kvpool_books_new(&books), 0);
	version = kvpool_books_begin(books, 7);
	ck_assert(!kvpool_books_may_be_found(books, version, 7));
	kvpool_books_set(books, version, KVPOOL_VERSION_OFFERED);
	ck_assert(kvpool_books_may_be_found(books, version, 7));
	ck_assert(!kvpool_books_may_be_found(books, version, 8));
	kvpool_books_set(books, version, KVPOOL_VERSION_DROPPED);
	ck_assert(!kvpool_books_may_be_found(books, version, 7));
	ck_assert(!kvpool_books_may_be_found(books, 0, 7));
	ck_assert(!kvpool_books_may_be_found(books, UINT32_MAX, 7));
	kvpool_books_free(books);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("torture_mark");
	TCase *tc = tcase_create("mark");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, should_tell_which_version_a_block_is);
	tcase_add_test(tc, should_count_every_byte_that_is_not_as_it_was_written);
	tcase_add_test(tc, should_see_words_of_two_versions_in_one_block);
	tcase_add_test(tc, should_let_only_offered_versions_of_the_key_be_found);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
