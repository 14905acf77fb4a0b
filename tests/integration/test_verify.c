/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit rot: blocks stored with checksums, a bit of them flipped in the pool, and who finds it: the
 * daemon when kvpoolctl asks it to verify, and a client that asks for itself.
 *
 * One process, but for the daemon and kvpoolctl.
 */
#include "tests/integration/client_rig.h"
#include "tests/integration/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS  (KVPOOL_RIG_BYTES / 8)
#define BLOCKS 4u

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;
static struct kvpool_command command;
static struct kvpool_block blocks[BLOCKS];

static void setup(void)
{
	kvpool_rig_begin(&daemon_, &rig);
}

static void teardown(void)
{
	kvpool_command_clear(&command);
	kvpool_rig_end(daemon_, &rig);
}

static void flip_in(struct kvpool_layout *layout, const struct kvpool_block *block, uint32_t shard,
		    uint32_t byte)
{
	void *address;

	ck_assert_int_eq(kvpool_pointer(rig.channel, layout, 0, block, shard, &address), 0);
	((uint8_t *)address)[byte] ^= 4;
}

static void flip(const struct kvpool_block *block, uint32_t byte)
{
	flip_in(rig.layout, block, 0, byte);
}

static void reserve(struct kvpool_layout *layout, uint64_t chain, uint32_t n)
{
	uint8_t keys[BLOCKS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, n, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, layout, 0, NULL, keys, n, KVPOOL_RIG_LONG, blocks), n);
}

/* n stamped blocks of a chain, left in `blocks`; with checksums, where these are wanted. */
static void put(uint64_t chain, uint32_t n, bool checksums)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	reserve(rig.layout, chain, n);
	for (uint32_t i = 0; i < n; i++) {
		kvpool_rig_stamp(chain, i, words, WORDS);
		ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &blocks[i], 0, &piece, 1),
				 0);
	}
	if (checksums)
		ck_assert_int_eq(kvpool_commit_checksum(rig.channel, rig.layout, 0, blocks, n,
							KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
				 n);
	else
		ck_assert_int_eq(kvpool_commit(rig.channel, blocks, n, 0, KVPOOL_RIG_LONG), n);
}

/* Runs `kvpoolctl verify --json`, which must end so. */
static json_t *verify(int code)
{
	const char *const arguments[] = {getenv("KVPOOLCTL"),
					 "--json",
					 "--socket",
					 kvpool_harness_admin_socket(daemon_),
					 "verify",
					 NULL};
	json_t *page;

	ck_assert_ptr_nonnull(arguments[0]);
	kvpool_command_clear(&command);
	kvpool_command_run(arguments, &command);
	ck_assert_msg(command.code == code, "exit code %d\n%s%s", command.code, command.out,
		      command.err);
	page = json_loads(command.out, 0, NULL);
	ck_assert_ptr_nonnull(page);
	ck_assert(json_is_false(json_object_get(page, "running")));
	ck_assert_str_eq(json_string_value(json_object_get(page, "structure")), "sound");
	return page;
}

static void must_find(int code, int64_t checked, int64_t corrupt, int64_t dropped)
{
	json_t *page = verify(code);

	ck_assert_int_eq(kvpool_raw_number(page, "checked"), checked);
	ck_assert_int_eq(kvpool_raw_number(page, "corrupt"), corrupt);
	ck_assert_int_eq(kvpool_raw_number(page, "dropped"), dropped);
	ck_assert_int_eq(kvpool_raw_number(page, "skipped"), 0);
	ck_assert_int_eq(kvpool_raw_number(page, "bytes"), checked * KVPOOL_RIG_BYTES);
	json_decref(page);
}

START_TEST(should_find_a_flipped_bit_and_drop_that_block_alone)
{
	for (uint64_t chain = 1; chain <= 3; chain++) {
		put(chain, 1, true);
		if (chain == 2)
			flip(&blocks[0], 1234);
	}
	must_find(5, 3, 1, 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 2, 1), 0);
	ck_assert_int_eq(kvpool_rig_get(&rig, 3, 1), 1);
	kvpool_rig_until_number(daemon_, "counters.corrupt", 1);
	ck_assert_ptr_nonnull(strstr(kvpool_harness_stderr(daemon_), "not what was stored"));
	must_find(0, 2, 0, 0);
	/* It can be stored again. */
	put(2, 1, true);
	must_find(0, 3, 0, 0);
}
END_TEST

START_TEST(should_drop_what_hangs_on_a_bad_block)
{
	put(1, BLOCKS, true);
	flip(&blocks[1], 0);
	flip(&blocks[1], KVPOOL_RIG_BYTES - 1);
	must_find(5, 4, 1, 3);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, BLOCKS), 1);
}
END_TEST

START_TEST(should_count_and_leave_alone_what_has_no_checksum)
{
	json_t *page;

	put(1, 2, false);
	flip(&blocks[0], 5);
	page = verify(0);
	ck_assert_int_eq(kvpool_raw_number(page, "without_checksum"), 2);
	ck_assert_int_eq(kvpool_raw_number(page, "checked"), 0);
	json_decref(page);
	flip(&blocks[0], 5);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 2), 2);
}
END_TEST

static void match(struct kvpool_rig *by, uint64_t chain, uint32_t n, struct kvpool_match *m)
{
	uint8_t keys[BLOCKS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, n, keys);
	ck_assert_int_eq(kvpool_match(by->channel, by->layout, keys, n, 0, 0, KVPOOL_RIG_LONG,
				      blocks, BLOCKS, m),
			 n);
}

START_TEST(should_leave_a_bad_block_to_those_who_lease_it)
{
	struct kvpool_match m;

	put(1, 1, true);
	match(&rig, 1, 1, &m);
	flip(&blocks[0], 77);
	must_find(5, 1, 1, 1);
	kvpool_rig_until_number(daemon_, "accounting.blocks.leased_only", 1);
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, 1), 0);
	kvpool_release(rig.channel, &m, 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.leased_only", 0);
}
END_TEST

START_TEST(should_find_a_block_whose_pages_were_punched_out)
{
	void *address;

	put(1, 1, true);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &blocks[0], 0, &address), 0);
	ck_assert_int_eq(madvise(address, KVPOOL_RIG_BYTES, MADV_REMOVE), 0);
	must_find(5, 1, 1, 1);
}
END_TEST

START_TEST(should_verify_every_shard)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 3, 1000);
	uint8_t bytes[1000];
	struct kvpool_piece piece = {bytes, sizeof(bytes)};
	uint8_t verdicts[2];

	reserve(layout, 1, 2);
	for (uint32_t s = 0; s < 3; s++) {
		for (uint32_t i = 0; i < 2; i++) {
			memset(bytes, (int)(10 * s + i), sizeof(bytes));
			ck_assert_int_eq(
				kvpool_store(rig.channel, layout, 0, &blocks[i], s, &piece, 1), 0);
		}
		ck_assert_int_eq(kvpool_commit_checksum(rig.channel, layout, 0, blocks, 2, s, 0),
				 2);
	}
	ck_assert_int_eq(kvpool_verify(rig.channel, layout, 0, blocks, 2, 0, verdicts), 0);
	ck_assert_int_eq(verdicts[0], KVPOOL_VERDICT_GOOD);
	json_decref(verify(0));
	flip_in(layout, &blocks[1], 2, 999);
	json_decref(verify(5));
	ck_assert_int_eq(kvpool_verify(rig.channel, layout, 0, blocks, 2, 0, verdicts), 0);
	ck_assert_int_eq(verdicts[0], KVPOOL_VERDICT_GOOD);
	ck_assert_int_eq(verdicts[1], KVPOOL_VERDICT_GONE);
}
END_TEST

START_TEST(should_let_a_client_find_a_flipped_bit_by_itself)
{
	uint8_t verdicts[BLOCKS];
	struct kvpool_match m;

	put(1, BLOCKS, true);
	match(&rig, 1, BLOCKS, &m);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, blocks, BLOCKS, 0, verdicts), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		ck_assert_int_eq(verdicts[i], KVPOOL_VERDICT_GOOD);
	flip(&blocks[2], 4000);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, blocks, BLOCKS, 0, verdicts), 1);
	ck_assert_int_eq(verdicts[1], KVPOOL_VERDICT_GOOD);
	ck_assert_int_eq(verdicts[2], KVPOOL_VERDICT_BAD);
	ck_assert_int_eq(verdicts[3], KVPOOL_VERDICT_GOOD);
	/* Nobody else finds it, or what hangs on it. */
	ck_assert_int_eq(kvpool_rig_get(&rig, 1, BLOCKS), 2);
	kvpool_rig_until_number(daemon_, "counters.corrupt", 1);
	kvpool_release(rig.channel, &m, 0);
}
END_TEST

START_TEST(should_let_a_reader_find_it_without_dropping_it)
{
	uint8_t verdicts[1];
	struct kvpool_rig reader;
	struct kvpool_match m;

	put(1, 1, true);
	flip(&blocks[0], 9);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.flags = KVPOOL_OPEN_READ_ONLY}, &reader);
	match(&reader, 1, 1, &m);
	ck_assert_int_eq(kvpool_verify(reader.channel, reader.layout, 0, blocks, 1, 0, verdicts),
			 1);
	ck_assert_int_eq(verdicts[0], KVPOOL_VERDICT_BAD);
	kvpool_release(reader.channel, &m, 0);
	kvpool_rig_close(&reader);
	kvpool_rig_until_number(daemon_, "counters.corrupt", 0);
	must_find(5, 1, 1, 1);
}
END_TEST

START_TEST(should_take_a_checksum_that_the_writer_made)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_block bad;
	uint8_t verdicts[BLOCKS];
	uint32_t crc[2];

	reserve(rig.layout, 1, 2);
	for (uint32_t i = 0; i < 2; i++) {
		kvpool_rig_stamp(1, i, words, WORDS);
		ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, &blocks[i], 0, &piece, 1),
				 0);
		crc[i] = kvpool_crc32c(kvpool_crc32c(0, words, 100), (uint8_t *)words + 100,
				       sizeof(words) - 100);
	}
	crc[1] ^= 1;
	ck_assert_int_eq(kvpool_commit_crc(rig.channel, blocks, crc, 2, 0, 0), 2);
	bad = blocks[1];
	blocks[1] = (struct kvpool_block){0};
	blocks[2] = bad;
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, blocks, 3, 0, verdicts), 1);
	ck_assert_int_eq(verdicts[0], KVPOOL_VERDICT_GOOD);
	ck_assert_int_eq(verdicts[1], KVPOOL_VERDICT_NONE);
	ck_assert_int_eq(verdicts[2], KVPOOL_VERDICT_BAD);
}
END_TEST

START_TEST(should_know_nothing_of_blocks_of_another_life)
{
	uint8_t verdicts[1];

	put(1, 1, true);
	kvpool_harness_kill(daemon_);
	ck_assert_int_eq(kvpool_harness_restart(daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", 64 << 20);
	kvpool_rig_until_attached(&rig);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, blocks, 1, 0, verdicts), 0);
	ck_assert_int_eq(verdicts[0], KVPOOL_VERDICT_GONE);
	ck_assert_int_eq(kvpool_commit_checksum(rig.channel, rig.layout, 0, blocks, 1, 0, 0),
			 -ESTALE);
}
END_TEST

START_TEST(should_refuse_arguments_that_make_no_sense)
{
	uint32_t crc;

	put(1, 1, true);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 1, blocks, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, NULL, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(kvpool_verify(rig.channel, rig.layout, 0, NULL, 0, 0, NULL), 0);
	ck_assert_int_eq(kvpool_commit_checksum(rig.channel, rig.layout, 0, blocks, 1, 1, 0),
			 -EINVAL);
	ck_assert_int_eq(kvpool_commit_checksum(rig.channel, rig.layout, 0, NULL, 1, 0, 0),
			 -EINVAL);
	ck_assert_int_eq(kvpool_checksum(rig.channel, rig.layout, 0, blocks, 7, &crc), -EINVAL);
}
END_TEST

/* Runs kvpoolctl with these behind --socket, and looks for a text in what it says. */
static void ctl(const char *a, const char *b, const char *c, int code, const char *what)
{
	const char *const arguments[] = {getenv("KVPOOLCTL"),
					 "--socket",
					 kvpool_harness_admin_socket(daemon_),
					 a,
					 b,
					 c,
					 NULL};

	kvpool_command_clear(&command);
	kvpool_command_run(arguments, &command);
	ck_assert_msg(
		command.code == code && (strstr(command.out, what) || strstr(command.err, what)),
		"exit code %d, no \"%s\" in\n%s%s", command.code, what, command.out, command.err);
}

START_TEST(should_verify_the_domain_that_is_named)
{
	char name[32];

	put(1, 2, true);
	snprintf(name, sizeof(name), "uid-%u", (unsigned int)getuid());
	ctl("verify", "--domain", name, 0, "2 blocks");
	ctl("verify", "--domain", "uid-12345678", 4, "no such domain");
	ctl("verify", "--domain", "a b", 2, "no domain's name");
	ctl("status", "--domain", name, 2, "takes no such option");
	ctl("verify", "--structure", NULL, 0, "tables: sound");
}
END_TEST

START_TEST(should_write_no_key_into_its_log)
{
	char key[2 * KVPOOL_KEY_SIZE + 1];
	const uint8_t *bytes = kvpool_rig_key(0x1234567890abcdef, 0);

	put(0x1234567890abcdef, 1, true);
	flip(&blocks[0], 8);
	must_find(5, 1, 1, 1);
	for (uint32_t i = 0; i < KVPOOL_KEY_SIZE; i++)
		snprintf(key + 2 * (size_t)i, 3, "%02x", bytes[i]);
	key[16] = '\0';
	ck_assert_ptr_null(strstr(kvpool_harness_stderr(daemon_), key));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("verify");
	TCase *t = tcase_create("verify");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, should_find_a_flipped_bit_and_drop_that_block_alone);
	tcase_add_test(t, should_drop_what_hangs_on_a_bad_block);
	tcase_add_test(t, should_count_and_leave_alone_what_has_no_checksum);
	tcase_add_test(t, should_leave_a_bad_block_to_those_who_lease_it);
	tcase_add_test(t, should_find_a_block_whose_pages_were_punched_out);
	tcase_add_test(t, should_verify_every_shard);
	tcase_add_test(t, should_let_a_client_find_a_flipped_bit_by_itself);
	tcase_add_test(t, should_let_a_reader_find_it_without_dropping_it);
	tcase_add_test(t, should_take_a_checksum_that_the_writer_made);
	tcase_add_test(t, should_know_nothing_of_blocks_of_another_life);
	tcase_add_test(t, should_refuse_arguments_that_make_no_sense);
	tcase_add_test(t, should_verify_the_domain_that_is_named);
	tcase_add_test(t, should_write_no_key_into_its_log);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
