/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes back from the descriptor store: taken where it is what it should be, dropped where it
 * is missing, foreign, cut off or changed; never believed, never a crash.
 *
 * The store is a datagram socket of the test's own, which takes what is put and keeps nothing.
 * Owned by the test's only thread.
 */
#include "daemon/kept.h"
#include "daemon/segment.h"
#include "shm/header.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define SEGMENT (UINT64_C(1) << 20)

static const struct kvpool_state_sizes sizes = {
	.pool_bytes = 4 * SEGMENT,
	.segment_bytes = SEGMENT,
	.extent_bytes = 65536,
	.step_bytes = 65536,
};

static int store = -1;
static struct kvpool_state *state;
static struct kvpool_store_list list;
static struct kvpool_kept kept;

static void setup(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char name[64];

	(void)snprintf(name, sizeof(name), "@kvpool-test-kept-%d", (int)getpid());
	memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
	store = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(store, 0);
	ck_assert_int_eq(bind(store, (const struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	ck_assert_int_eq(setenv("FDSTORE", "100", 1), 0);
	ck_assert_int_eq(kvpool_state_new(&sizes, &state), 0);
}

/* Nobody reads the store, so that it must not fill up. */
static void drain(void)
{
	char text[4096];

	while (recv(store, text, sizeof(text), 0) > 0)
		;
}

static int segment_make(void)
{
	const char *step;
	int fd;

	ck_assert_int_eq(kvpool_segment_make(KVPOOL_PAGES_4K, SEGMENT, &step, &fd), 0);
	return fd;
}

static void add(const char *name, int fd)
{
	drain();
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(kvpool_store_list_add(&list, name, fd), 0);
}

static void add_state(void)
{
	add(KVPOOL_STATE_NAME, dup(state->memory.fd));
}

static void note_segment(uint32_t place, uint32_t id)
{
	const struct kvpool_state_segment entry = {
		.id = id, .uid = 7, .flags = KVPOOL_STATE_LENT, .pages = 4, .made = SEGMENT};

	kvpool_state_segment_set(state, place, &entry);
}

static void sort(void)
{
	drain();
	ck_assert_int_eq(kvpool_kept_sort(&list, &kept), 0);
	ck_assert_ptr_null(list.fds);
}

static void finish(void)
{
	drain();
	kvpool_kept_finish(&kept);
	kvpool_state_free(kept.state);
	kvpool_state_free(state);
	(void)close(store);
}

START_TEST(should_find_nothing_where_nothing_came_back)
{
	sort();
	ck_assert_ptr_null(kept.state);
	ck_assert_str_eq(kept.text, "");
	finish();
}
END_TEST

START_TEST(should_take_what_an_earlier_life_left)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	note_segment(0, 1);
	note_segment(2, 5);
	add("kvpool-segment-5", segment_make());
	add("kvpool-member-a-0", pidfd);
	add("kvpool-catalog-1000", segment_make());
	add_state();
	add("kvpool-segment-1", segment_make());
	sort();
	ck_assert_ptr_nonnull(kept.state);
	ck_assert_uint_eq(kept.n_segments, 2);
	ck_assert_uint_eq(kept.segments[0].entry.id, 5);
	ck_assert_uint_eq(kept.segments[0].place, 2);
	ck_assert_uint_eq(kept.n_catalogs, 1);
	ck_assert_uint_eq(kept.catalogs[0].uid, 1000);
	ck_assert_uint_eq(kept.n_processes, 1);
	ck_assert_uint_eq(kept.processes[0].client, 10);
	ck_assert_int_eq(kept.processes[0].pid, getpid());
	ck_assert_uint_eq(kept.dropped, 0);
	ck_assert_uint_eq(kept.state->control->crashes, 1);
	finish();
}
END_TEST

START_TEST(should_drop_what_the_state_does_not_know_or_what_is_something_else)
{
	int pipes[2], unsealed = memfd_create("x", MFD_CLOEXEC);

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_eq(ftruncate(unsealed, (off_t)SEGMENT), 0);
	for (uint32_t i = 0; i < 4; i++)
		note_segment(i, i + 1);
	add_state();
	add("kvpool-segment-99", segment_make());
	add("kvpool-segment-1", pipes[0]);
	add("kvpool-segment-2", unsealed);
	add("kvpool-segment-3", dup(state->memory.fd)); /* of another size */
	add("kvpool-segment-04", segment_make());
	add("kvpool-catalog-1", pipes[1]);
	add("kvpool-catalog-x", segment_make());
	add("kvpool-member-1-1", segment_make());
	add("kvpool-member-1", segment_make());
	add("kvpool-something", segment_make());
	sort();
	ck_assert_ptr_nonnull(kept.state);
	ck_assert_uint_eq(kept.n_segments + kept.n_catalogs + kept.n_processes, 0);
	ck_assert_uint_eq(kept.dropped, 10);
	finish();
}
END_TEST

START_TEST(should_start_empty_where_the_state_is_missing)
{
	add("kvpool-segment-1", segment_make());
	sort();
	ck_assert_ptr_null(kept.state);
	ck_assert_str_ne(kept.text, "");
	finish();
}
END_TEST

START_TEST(should_start_empty_where_the_state_is_no_state)
{
	int wrong;

	switch (_i) {
	case 0:
		wrong = open("/dev/null", O_RDWR | O_CLOEXEC);
		break;
	case 1:
		wrong = socket(AF_UNIX, SOCK_STREAM, 0);
		break;
	case 2:
		wrong = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		break;
	case 3:
		wrong = segment_make();
		break; /* zeroes */
	default:
		wrong = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		break;
	}
	add(KVPOOL_STATE_NAME, wrong);
	add("kvpool-segment-1", segment_make());
	sort();
	ck_assert_ptr_null(kept.state);
	ck_assert_str_ne(kept.text, "");
	finish();
}
END_TEST

/* Every byte of the header and of the sizes, changed one at a time. */
START_TEST(should_not_believe_a_state_that_changed)
{
	uint8_t *bytes = state->memory.address;
	size_t end = 4096 + sizeof(struct kvpool_state_sizes) + sizeof(uint32_t);

	for (size_t at = 0; at < end; at++) {
		bool matters = at < 10 || (at >= 12 && at < 28) || (at >= 32 && at < 36) ||
			       (at >= 4088 && at < 4092) || at >= 4096;

		bytes[at] ^= 0x10;
		add_state();
		sort();
		ck_assert_msg(!kept.state == matters, "byte %zu: %s", at, kept.text);
		drain();
		kvpool_kept_finish(&kept);
		kvpool_state_free(kept.state);
		state->control->crashes = 0;
		bytes[at] ^= 0x10;
	}
	kept = (struct kvpool_kept){.state = NULL};
	finish();
}
END_TEST

START_TEST(should_not_believe_an_entry_that_changed)
{
	struct kvpool_state_segment entry;
	uint8_t *bytes = (uint8_t *)&state->segments[1];

	note_segment(1, 8);
	ck_assert(kvpool_state_segment_get(state, 1, &entry));
	for (size_t bit = 0; bit < 8 * sizeof(entry); bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_msg(!kvpool_state_segment_get(state, 1, &entry), "bit %zu", bit);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert(kvpool_state_segment_get(state, 1, &entry));
	finish();
}
END_TEST

START_TEST(should_give_the_pool_up_after_lives_that_did_not_last)
{
	for (uint32_t life = 0; life <= KVPOOL_STATE_CRASHES_MAX; life++) {
		add_state();
		sort();
		ck_assert_msg(!kept.state == (life == KVPOOL_STATE_CRASHES_MAX), "life %u", life);
		drain();
		kvpool_kept_finish(&kept);
		kvpool_state_free(kept.state);
	}
	ck_assert_str_ne(kept.text, "");
	kept = (struct kvpool_kept){.state = NULL};
	finish();
}
END_TEST

START_TEST(should_know_a_client_until_it_is_removed)
{
	struct kvpool_state_client entry = {.id = 3, .uid = 7, .token = {1, 2, 3}}, *at;

	ck_assert(!kvpool_state_client_valid(&state->clients[0]));
	ck_assert_int_eq(kvpool_state_client_add(state, &entry, &at), 0);
	ck_assert_ptr_eq(at, &state->clients[0]);
	ck_assert(kvpool_state_client_valid(at));
	kvpool_state_client_flag(at, KVPOOL_STATE_GPU);
	ck_assert(kvpool_state_client_valid(at));
	ck_assert_uint_eq(at->flags, KVPOOL_STATE_GPU);
	at->token[5] ^= 1;
	ck_assert(!kvpool_state_client_valid(at));
	at->token[5] ^= 1;
	kvpool_state_client_remove(at);
	ck_assert(!kvpool_state_client_valid(at));
	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		entry.id = i + 1;
		ck_assert_int_eq(kvpool_state_client_add(state, &entry, &at), 0);
	}
	ck_assert_int_eq(kvpool_state_client_add(state, &entry, &at), KVPOOL_STATE_E_FULL);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kept");
	TCase *tc = tcase_create("kept");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, should_find_nothing_where_nothing_came_back);
	tcase_add_test(tc, should_take_what_an_earlier_life_left);
	tcase_add_test(tc, should_drop_what_the_state_does_not_know_or_what_is_something_else);
	tcase_add_test(tc, should_start_empty_where_the_state_is_missing);
	tcase_add_loop_test(tc, should_start_empty_where_the_state_is_no_state, 0, 5);
	tcase_add_test(tc, should_not_believe_a_state_that_changed);
	tcase_add_test(tc, should_not_believe_an_entry_that_changed);
	tcase_add_test(tc, should_give_the_pool_up_after_lives_that_did_not_last);
	tcase_add_test(tc, should_know_a_client_until_it_is_removed);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
