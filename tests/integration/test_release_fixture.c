/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that earlier releases left, as tests/release/record wrote it down, comes back to today's
 * kvpoold: whole, with a bit that flipped, and with the version of a release that is none.
 *
 * The supervisor is given the images as socket activation gives sockets, and passes them to the
 * daemon under their names. It must be told that they are its own, which only what runs in its
 * process can: a script that then becomes it. Owned by the test's one thread.
 */
#include "daemon/kept.h"
#include "daemon/state.h"
#include "shm/header.h"
#include "src/catalog.h"
#include "tests/integration/client_rig.h"
#include "tests/release/stamps.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGES_MAX 8u
#define FIRST      100 /* descriptor; all are below those that Check and the harness make */
#define PAGE       4096u
#define POOL       (4 << 20)

static const char *const releases[] = {"0.1.0", "0.2.0"};

/* Bits under a record's check, and the check. */
#define RECORD_BITS (59u * 8)

struct image {
	char name[KVPOOL_STORE_NAME_BYTES];
	uint64_t bytes;
	int fd;
};

static struct image images[IMAGES_MAX];
static uint32_t n_images;
static char folder[] = "/tmp/kvpool-fixture-XXXXXX";
static struct kvpool_harness *daemon_;
static struct kvpool *pool;
static struct kvpool_channel *channel;
static struct kvpool_layout *layout;

/* Pages of zeroes are left out, so that the memory is as sparse as it was. */
static void unpack(const char *release, const struct image *image)
{
	static const uint8_t zeroes[PAGE];
	char command[512];
	uint8_t page[PAGE];
	off_t at = 0;
	FILE *from;
	size_t n;

	(void)snprintf(command, sizeof(command), "xz -dc %s/%s/%s.xz", KVPOOL_FIXTURES, release,
		       image->name);
	from = popen(command, "r"); /* NOLINT(cert-env33-c) */
	ck_assert_ptr_nonnull(from);
	while ((n = fread(page, 1, sizeof(page), from)) > 0) {
		if (memcmp(page, zeroes, n) != 0)
			ck_assert_int_eq(pwrite(image->fd, page, n, at), (ssize_t)n);
		at += (off_t)n;
	}
	ck_assert_msg(pclose(from) == 0, "%s", command);
	ck_assert_int_gt(at, 0);
}

static void make(const char *release, struct image *image)
{
	int fd = memfd_create(image->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)image->bytes), 0);
	/* Not closed at exec: the script finds it there. */
	image->fd = dup2(fd, FIRST + (int)n_images);
	ck_assert_int_ge(image->fd, 0);
	(void)close(fd);
	unpack(release, image);
	ck_assert_int_eq(fcntl(image->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 0);
}

static struct image *find(const char *prefix)
{
	for (uint32_t i = 0; i < n_images; i++) {
		if (strncmp(images[i].name, prefix, strlen(prefix)) == 0)
			return &images[i];
	}
	ck_abort_msg("there is no %s", prefix);
}

/* The blocks are of whoever recorded them: now they are ours. */
static void take_over(void)
{
	struct kvpool_state_segment entry;
	struct kvpool_state *state;
	const char *fault = "";

	ck_assert_msg(kvpool_state_adopt(dup(find("kvpool-state")->fd), &fault, &state) == 0, "%s",
		      fault);
	for (uint32_t i = 0; i < state->n_segments; i++) {
		if (!kvpool_state_segment_get(state, i, &entry))
			continue;
		entry.uid = (uint32_t)getuid();
		kvpool_state_segment_set(state, i, &entry);
	}
	kvpool_state_free(state);
	for (uint32_t i = 0; i < n_images; i++) {
		if (strncmp(images[i].name, "kvpool-catalog-", 15) == 0)
			kvpool_kept_catalog_name(getuid(), images[i].name);
		if (strncmp(images[i].name, "kvpool-leases-", 14) == 0)
			kvpool_kept_notes_name(getuid(), images[i].name);
	}
}

static void load(const char *release)
{
	char path[256];
	FILE *contents;

	(void)snprintf(path, sizeof(path), "%s/%s/contents", KVPOOL_FIXTURES, release);
	contents = fopen(path, "re");
	ck_assert_msg(contents != NULL, "%s", path);
	while (n_images < IMAGES_MAX && fscanf(contents, "%31s %" SCNu64, images[n_images].name,
					       &images[n_images].bytes) == 2) {
		make(release, &images[n_images]);
		n_images++;
	}
	(void)fclose(contents);
	take_over();
}

/* Changes what the daemon is going to find. */
static void *map(struct image *image)
{
	void *at = mmap(NULL, image->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, image->fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

/* The script that becomes the supervisor. */
static void write_script(const char *path)
{
	FILE *script = fopen(path, "we");

	ck_assert_ptr_nonnull(script);
	(void)fprintf(script,
		      "#!/bin/bash\nexport LISTEN_PID=$$ LISTEN_FDS=%u LISTEN_FDNAMES=", n_images);
	for (uint32_t i = 0; i < n_images; i++)
		(void)fprintf(script, "%s%s", i ? ":" : "", images[i].name);
	(void)fprintf(script, "\nexec");
	for (uint32_t i = 0; i < n_images; i++)
		(void)fprintf(script, " %u<&%d %d<&-", 3 + i, images[i].fd, images[i].fd);
	(void)fprintf(script, "\nexec %s \"$@\"\n", getenv("KVPOOLD"));
	(void)fclose(script);
	ck_assert_int_eq(chmod(path, 0700), 0);
}

static void begin(void)
{
	static const char *const args[] = {"--supervise", "--size", "4M", NULL};
	struct kvpool_options options = {.size = sizeof(options), .deadline_ns = KVPOOL_RIG_LONG};
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/kvpoold", folder);
	write_script(path);
	ck_assert_int_eq(setenv("KVPOOLD", path, 1), 0);
	ck_assert_int_eq(kvpool_harness_new(args, &daemon_), 0);
	kvpool_rig_until_number(daemon_, "pool.ready_bytes", POOL);
	options.socket = kvpool_harness_socket(daemon_);
	ck_assert_int_eq(kvpool_open(&options, &pool), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &channel), 0);
	ck_assert_int_eq(stamps_layout(pool, &layout), 0);
}

static void end(void)
{
	kvpool_channel_close(channel);
	kvpool_close(pool);
	kvpool_rig_until_number(daemon_, "accounting.leases", 0);
	kvpool_rig_until_number(daemon_, "accounting.blocks.quarantined", 0);
	kvpool_raw_expect_exact(kvpool_harness_admin_socket(daemon_));
	kvpool_harness_free(daemon_);
}

/* Made by a test's own process; the descriptors end with it. */
static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/kvpoold", folder);
	(void)unlink(path);
	(void)rmdir(folder);
}

static int64_t number(const char *path)
{
	return kvpool_raw_status(kvpool_harness_admin_socket(daemon_), path);
}

/* Blocks of the chain that are found, every one with the right bytes. */
static uint32_t get(uint64_t chain, uint32_t n)
{
	uint8_t keys[STAMPS_KEYS * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[STAMPS_KEYS];
	uint64_t words[STAMPS_WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_match match;
	int64_t hit;

	stamps_keys(chain, 0, n, keys);
	hit = kvpool_match(channel, layout, keys, n, 0, 0, KVPOOL_RIG_LONG, blocks, n, &match);
	ck_assert_int_ge(hit, 0);
	for (uint32_t i = 0; i < hit; i++) {
		ck_assert_int_eq(kvpool_load(channel, layout, 0, &blocks[i], 0, &piece, 1), 0);
		ck_assert_msg(stamps_right(chain, i, words), "chain %u, block %u",
			      (unsigned int)chain, i);
	}
	kvpool_release(channel, &match, 0);
	return (uint32_t)hit;
}

static void put(uint64_t chain, uint32_t n)
{
	uint8_t keys[STAMPS_KEYS * KVPOOL_KEY_SIZE];
	struct kvpool_block blocks[STAMPS_KEYS];
	uint64_t words[STAMPS_WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	stamps_keys(chain, 0, n, keys);
	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, n, KVPOOL_RIG_LONG, blocks),
			 n);
	for (uint32_t i = 0; i < n; i++) {
		stamps_write(chain, i, words);
		ck_assert_int_eq(kvpool_store(channel, layout, 0, &blocks[i], 0, &piece, 1), 0);
	}
	ck_assert_int_eq(kvpool_commit(channel, blocks, n, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG), n);
}

static void expect_all(void)
{
	for (uint32_t c = 0; c < STAMPS_CHAINS; c++)
		ck_assert_uint_eq(get(c + 1, stamps_lengths[c]), stamps_lengths[c]);
	ck_assert_int_eq(number("restart.blocks"), 12);
	ck_assert_int_eq(number("restart.torn") + number("restart.misplaced") +
				 number("restart.orphaned"),
			 0);
}

static void expect_to_serve(void)
{
	put(77, 20);
	ck_assert_uint_eq(get(77, 20), 20);
}

START_TEST(should_find_every_block_that_a_release_left)
{
	load(releases[_i]);
	begin();
	expect_all();
	expect_to_serve();
	end();
}
END_TEST

/* The n-th record that is in use. */
static struct kvpool_record *record_of(unsigned char *catalog, uint32_t n)
{
	const struct kvpool_header *header = (const void *)catalog;
	struct kvpool_record *records = (void *)(catalog + header->regions[1].offset);

	for (uint32_t i = 1;; i++) {
		ck_assert_uint_lt(i, header->regions[1].bytes / sizeof(*records));
		if (records[i].state == KVPOOL_BLOCK_READY && n-- == 0)
			return &records[i];
	}
}

/* Its chain ends there; the bit is another one in each record. */
START_TEST(should_find_all_but_a_record_in_which_a_bit_flipped)
{
	uint32_t bit = (uint32_t)_i * 41 % RECORD_BITS;
	struct kvpool_record *record;
	uint64_t chain, place;

	load(releases[0]);
	record = record_of(map(find("kvpool-catalog-")), (uint32_t)_i);
	memcpy(&chain, record->key, sizeof(chain));
	memcpy(&place, record->key + 8, sizeof(place));
	((uint8_t *)record)[bit / 8] ^= (uint8_t)(1u << bit % 8);
	begin();
	for (uint32_t c = 0; c < STAMPS_CHAINS; c++)
		ck_assert_uint_eq(get(c + 1, stamps_lengths[c]),
				  c + 1 == chain ? place : stamps_lengths[c]);
	expect_to_serve();
	end();
}
END_TEST

static void change_version(const char *prefix, uint16_t major, uint16_t minor)
{
	struct image *image = find(prefix);
	struct kvpool_header *header = map(image);

	header->format_major = (uint16_t)(header->format_major + major);
	header->format_minor = (uint16_t)(header->format_minor + minor);
	header->may_features |= minor ? 1u << 31 : 0;
	(void)munmap(header, image->bytes);
}

START_TEST(should_keep_what_a_newer_minor_left)
{
	load("0.2.0");
	change_version("kvpool-state", 0, 1);
	change_version("kvpool-catalog-", 0, 1);
	change_version("kvpool-leases-", 0, 1);
	begin();
	expect_all();
	expect_to_serve();
	end();
}
END_TEST

static bool says(const char *text)
{
	return strstr(kvpool_harness_stderr(daemon_), text) != NULL;
}

START_TEST(should_start_empty_and_say_so_where_the_state_has_another_major)
{
	const char *why = "its state: it has the format of another major version";
	json_t *page;

	load(releases[_i]);
	change_version("kvpool-state", 1, 0);
	begin();
	ck_assert_uint_eq(get(1, 6), 0);
	ck_assert(says(why));
	page = kvpool_raw_get(kvpool_harness_admin_socket(daemon_), "/v1/status");
	ck_assert_str_eq(
		json_string_value(json_object_get(json_object_get(page, "restart"), "fault")), why);
	json_decref(page);
	expect_to_serve();
	end();
}
END_TEST

START_TEST(should_start_a_domain_empty_and_say_so_where_its_catalog_has_another_major)
{
	load(releases[_i]);
	change_version("kvpool-catalog-", 1, 0);
	begin();
	ck_assert_uint_eq(get(1, 6), 0);
	ck_assert(says("starts empty: its catalog: it has the format of another major version"));
	ck_assert_int_eq(number("restart.domains_empty"), 1);
	expect_to_serve();
	end();
}
END_TEST

START_TEST(should_keep_blocks_and_say_so_where_notes_of_leases_have_another_major)
{
	load("0.2.0");
	change_version("kvpool-leases-", 1, 0);
	begin();
	expect_all();
	ck_assert(says("its leases are not known: they have the format of another major version"));
	expect_to_serve();
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("release_fixture");
	TCase *tc = tcase_create("release_fixture");
	const int n = (int)KVPOOL_ARRAY_SIZE(releases);

	if (system("xz --version >/dev/null 2>&1") != 0) { /* NOLINT(cert-env33-c) */
		printf("skipped: there is no xz to unpack the images with\n");
		return 77;
	}
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, should_find_every_block_that_a_release_left, 0, n);
	tcase_add_loop_test(tc, should_find_all_but_a_record_in_which_a_bit_flipped, 0, 12);
	tcase_add_test(tc, should_keep_what_a_newer_minor_left);
	tcase_add_loop_test(tc, should_start_empty_and_say_so_where_the_state_has_another_major, 0,
			    n);
	tcase_add_loop_test(
		tc, should_start_a_domain_empty_and_say_so_where_its_catalog_has_another_major, 0,
		n);
	tcase_add_test(tc, should_keep_blocks_and_say_so_where_notes_of_leases_have_another_major);
	suite_add_tcase(suite, tc);
	return kvpool_harness_run(suite);
}
