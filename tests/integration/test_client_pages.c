/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks to and from an engine's paged memory: several planes, several tables, and what is refused
 * before a byte moves.
 *
 * One process, but for the daemon.
 */
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 5u
#define PAGES  9u

/* Two tables: blocks lie in other pages of the planes that go by the second one. */
static const uint32_t numbers[2 * BLOCKS] = {3, 0, 8, 1, 5, 2, 7, 4, 0, 6};

static struct kvpool_harness *daemon_;
static struct kvpool_rig rig;

static void setup(void)
{
	kvpool_rig_begin(&daemon_, &rig);
}

static void teardown(void)
{
	kvpool_rig_end(daemon_, &rig);
}

/* An engine's memory: planes of PAGES pages, gaps of `gap` bytes between the pages. */
struct engine {
	struct kvpool_plane *planes; /* owned, with what their bases point to */
	uint32_t n;
};

static uint64_t memory_bytes(const struct kvpool_plane *plane)
{
	return plane->stride * PAGES;
}

static void engine_make(struct engine *engine, uint32_t n, uint64_t bytes, uint64_t gap)
{
	engine->planes = calloc(n, sizeof(*engine->planes));
	engine->n = n;
	ck_assert_ptr_nonnull(engine->planes);
	for (uint32_t p = 0; p < n; p++) {
		struct kvpool_plane *plane = &engine->planes[p];

		plane->bytes = bytes;
		plane->stride = bytes + gap;
		plane->n_pages = PAGES;
		plane->table = p % 2;
		plane->base = calloc(PAGES, plane->stride);
		ck_assert_ptr_nonnull(plane->base);
	}
}

static void engine_free(struct engine *engine)
{
	for (uint32_t p = 0; p < engine->n; p++)
		free(engine->planes[p].base);
	free(engine->planes);
}

/* Each byte tells its plane, its page and its place. */
static uint8_t content(uint32_t p, uint64_t at)
{
	return (uint8_t)((at * 2654435761u + p * 40503u) >> 13);
}

static void engine_fill(struct engine *engine)
{
	for (uint32_t p = 0; p < engine->n; p++)
		for (uint64_t at = 0; at < memory_bytes(&engine->planes[p]); at++)
			((uint8_t *)engine->planes[p].base)[at] = content(p, at);
}

/* Bytes that are not as they should be: pages of the table as filled, all the rest still 0. */
static uint64_t engine_wrong(const struct engine *engine)
{
	uint64_t wrong = 0;

	for (uint32_t p = 0; p < engine->n; p++) {
		const struct kvpool_plane *plane = &engine->planes[p];

		for (uint64_t at = 0; at < memory_bytes(plane); at++) {
			uint64_t page = at / plane->stride;
			bool ours = false;

			for (uint32_t i = 0; i < BLOCKS; i++)
				ours |= numbers[plane->table * BLOCKS + i] == page;
			ours &= at % plane->stride < plane->bytes;
			wrong += ((const uint8_t *)plane->base)[at] != (ours ? content(p, at) : 0);
		}
	}
	return wrong;
}

static void reserve(struct kvpool_layout *layout, uint64_t chain, struct kvpool_block *blocks)
{
	uint8_t keys[BLOCKS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, BLOCKS, keys);
	ck_assert_int_eq(
		kvpool_reserve(rig.channel, layout, 0, NULL, keys, BLOCKS, KVPOOL_RIG_LONG, blocks),
		BLOCKS);
}

static void commit(const struct kvpool_block *blocks)
{
	ck_assert_int_eq(
		kvpool_commit(rig.channel, blocks, BLOCKS, KVPOOL_ALL_SHARDS, KVPOOL_RIG_LONG),
		BLOCKS);
}

static void match(struct kvpool_rig *by, struct kvpool_layout *layout, uint64_t chain,
		  struct kvpool_block *blocks, struct kvpool_match *m)
{
	uint8_t keys[BLOCKS * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(chain, 0, BLOCKS, keys);
	ck_assert_int_eq(kvpool_match(by->channel, layout, keys, BLOCKS, 0, 0, KVPOOL_RIG_LONG,
				      blocks, BLOCKS, m),
			 BLOCKS);
}

static int store(const struct engine *engine, struct kvpool_layout *layout,
		 const struct kvpool_block *blocks)
{
	return kvpool_store_pages(rig.channel, layout, 0, blocks, BLOCKS, 0, engine->planes,
				  engine->n, numbers, 2);
}

static int load(const struct engine *engine, struct kvpool_layout *layout,
		const struct kvpool_block *blocks)
{
	return kvpool_load_pages(rig.channel, layout, 0, blocks, BLOCKS, 0, engine->planes,
				 engine->n, numbers, 2);
}

static const struct {
	uint32_t planes;
	uint64_t bytes, gap;
} shapes[] = {
	{1, 4096, 0},   {2, 100, 28},  {3, 4095, 1},  {63, 512, 0},
	{64, 2048, 64}, {65, 1536, 0}, {200, 333, 7},
};

START_TEST(should_bring_every_page_back_and_touch_nothing_else)
{
	uint32_t n = shapes[_i].planes;
	uint64_t bytes = shapes[_i].bytes, gap = shapes[_i].gap;
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 1, n * bytes);
	struct kvpool_block blocks[BLOCKS];
	struct engine writer, reader;
	struct kvpool_match m;

	engine_make(&writer, n, bytes, gap);
	engine_make(&reader, n, bytes, gap);
	engine_fill(&writer);
	reserve(layout, 1, blocks);
	ck_assert_msg(store(&writer, layout, blocks) == 0, "%s", kvpool_channel_error(rig.channel));
	commit(blocks);
	match(&rig, layout, 1, blocks, &m);
	ck_assert_int_eq(load(&reader, layout, blocks), 0);
	kvpool_release(rig.channel, &m, 0);
	ck_assert_uint_eq(engine_wrong(&reader), 0);
	engine_free(&writer);
	engine_free(&reader);
}
END_TEST

/* What one paged call writes is what pieces in plane order read. */
START_TEST(should_lay_planes_in_order_as_pieces_do)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 2, 3 * 700);
	struct kvpool_block blocks[BLOCKS];
	uint8_t got[3 * 700];
	struct kvpool_piece piece = {got, sizeof(got)};
	struct engine engine;

	engine_make(&engine, 3, 700, 5);
	engine_fill(&engine);
	reserve(layout, 2, blocks);
	ck_assert_int_eq(kvpool_store_pages(rig.channel, layout, 0, blocks, BLOCKS, 1,
					    engine.planes, 3, numbers, 2),
			 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		ck_assert_int_eq(kvpool_load(rig.channel, layout, 0, &blocks[i], 1, &piece, 1), 0);
		for (uint32_t p = 0; p < 3; p++) {
			uint64_t page = numbers[(p % 2) * BLOCKS + i];

			for (uint32_t b = 0; b < 700; b++)
				ck_assert_uint_eq(got[p * 700 + b], content(p, page * 705 + b));
		}
	}
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, BLOCKS, 0), BLOCKS);
	engine_free(&engine);
}
END_TEST

START_TEST(should_skip_a_store_where_no_block_was_granted)
{
	struct kvpool_layout *layout = kvpool_rig_layout(rig.pool, 1, 2 * 512);
	struct kvpool_block blocks[BLOCKS], holes[BLOCKS];
	struct engine engine;

	engine_make(&engine, 2, 512, 0);
	reserve(layout, 3, blocks);
	memcpy(holes, blocks, sizeof(holes));
	holes[1] = (struct kvpool_block){.generation = KVPOOL_RESERVE_EXISTS};
	ck_assert_int_eq(store(&engine, layout, holes), 0);
	ck_assert_int_eq(load(&engine, layout, holes), -EINVAL);
	ck_assert_ptr_nonnull(strstr(kvpool_channel_error(rig.channel), "block 1"));
	ck_assert_int_eq(kvpool_abort(rig.channel, blocks, BLOCKS, 0), BLOCKS);
	engine_free(&engine);
}
END_TEST

/* Tries both directions; what is refused leaves slot and memory as they were. */
static void check_refused(const struct kvpool_plane *planes, uint32_t n, const uint32_t *pages,
			  uint32_t n_tables, const struct kvpool_block *block, const char *why)
{
	uint64_t words[KVPOOL_RIG_BYTES / 8];
	struct kvpool_piece piece = {words, sizeof(words)};

	kvpool_rig_stamp(7, 0, words, KVPOOL_RIG_BYTES / 8);
	ck_assert_int_eq(kvpool_store(rig.channel, rig.layout, 0, block, 0, &piece, 1), 0);
	ck_assert_int_eq(kvpool_store_pages(rig.channel, rig.layout, 0, block, 1, 0, planes, n,
					    pages, n_tables),
			 -EINVAL);
	ck_assert_msg(strstr(kvpool_channel_error(rig.channel), why) != NULL, "%s: %s", why,
		      kvpool_channel_error(rig.channel));
	ck_assert_int_eq(kvpool_load_pages(rig.channel, rig.layout, 0, block, 1, 0, planes, n,
					   pages, n_tables),
			 -EINVAL);
	ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, block, 0, &piece, 1), 0);
	ck_assert_uint_eq(kvpool_rig_wrong(7, 0, words, KVPOOL_RIG_BYTES / 8), 0);
}

START_TEST(should_refuse_before_a_byte_is_copied)
{
	uint8_t memory[PAGES * 2048], still[sizeof(memory)];
	/* The first plane is good, so a copy that began too early would show. */
	struct kvpool_plane good[2] = {{memory, 2048, 2048, PAGES, 0}, {memory, 2048, 2048, 4, 1}};
	struct kvpool_plane bad[2];
	struct kvpool_block block;
	const uint32_t pages[2] = {8, 3}, beyond[2] = {8, 4}, far[2] = {UINT32_MAX, 0};

	memset(memory, 0xa5, sizeof(memory));
	memcpy(still, memory, sizeof(memory));
	ck_assert_int_eq(kvpool_reserve(rig.channel, rig.layout, 0, NULL, kvpool_rig_key(5, 0), 1,
					0, &block),
			 1);
	check_refused(good, 2, beyond, 2, &block, "page 4 of block 0: plane 1 has 4 pages");
	check_refused(good, 2, far, 2, &block, "plane 0 has 9 pages");
	check_refused(good, 2, pages, 1, &block, "plane 1 goes by table 1 of 1");
	check_refused(good, 2, NULL, 2, &block, "nowhere");
	check_refused(NULL, 2, pages, 2, &block, "nowhere");
	memcpy(bad, good, sizeof(bad));
	bad[1].bytes = bad[1].stride = 2049;
	check_refused(bad, 2, pages, 2, &block, "more than a slot");
	bad[1].bytes = UINT64_MAX;
	bad[1].n_pages = 4;
	check_refused(bad, 2, pages, 2, &block, "plane 1");
	bad[1] = good[1];
	bad[1].stride = 2047;
	check_refused(bad, 2, pages, 2, &block, "no sense");
	bad[1].stride = UINT64_MAX / 2;
	check_refused(bad, 2, pages, 2, &block, "no sense");
	bad[1] = good[1];
	bad[1].base = NULL;
	check_refused(bad, 2, pages, 2, &block, "no sense");
	ck_assert_mem_eq(memory, still, sizeof(memory));
	ck_assert_int_eq(
		kvpool_store_pages(rig.channel, rig.layout, 0, &block, 1, 0, good, 2, pages, 2), 0);
	ck_assert_int_eq(kvpool_abort(rig.channel, &block, 1, 0), 1);
}
END_TEST

START_TEST(should_check_a_call_of_no_blocks_all_the_same)
{
	uint8_t memory[64];
	struct kvpool_plane plane = {memory, 64, 64, 1, 0};

	ck_assert_int_eq(
		kvpool_store_pages(rig.channel, rig.layout, 0, NULL, 0, 0, &plane, 1, NULL, 1), 0);
	ck_assert_int_eq(
		kvpool_load_pages(rig.channel, rig.layout, 0, NULL, 0, 0, NULL, 0, NULL, 0), 0);
	ck_assert_int_eq(
		kvpool_load_pages(rig.channel, rig.layout, 1, NULL, 0, 0, NULL, 0, NULL, 0),
		-EINVAL);
	ck_assert_int_eq(
		kvpool_store_pages(rig.channel, rig.layout, 0, NULL, 0, 1, &plane, 1, NULL, 1),
		-EINVAL);
	ck_assert_int_eq(
		kvpool_store_pages(rig.channel, rig.layout, 0, NULL, 0, 0, &plane, 1, NULL, 0),
		-EINVAL);
}
END_TEST

START_TEST(should_refuse_a_stale_block_and_a_write_by_a_reader)
{
	struct kvpool_block blocks[BLOCKS], stale;
	uint8_t memory[PAGES * 64] = {0};
	struct kvpool_plane plane = {memory, 64, 64, PAGES, 0};
	struct kvpool_rig reader;
	struct kvpool_match m;

	ck_assert_uint_eq(kvpool_rig_put(&rig, 6, 0, BLOCKS), BLOCKS);
	kvpool_rig_open(kvpool_harness_socket(daemon_),
			(struct kvpool_options){.flags = KVPOOL_OPEN_READ_ONLY}, &reader);
	match(&reader, reader.layout, 6, blocks, &m);
	ck_assert_int_eq(kvpool_load_pages(reader.channel, reader.layout, 0, blocks, BLOCKS, 0,
					   &plane, 1, numbers, 1),
			 0);
	ck_assert_int_eq(kvpool_store_pages(reader.channel, reader.layout, 0, blocks, BLOCKS, 0,
					    &plane, 1, numbers, 1),
			 -EACCES);
	stale = blocks[0];
	stale.epoch++;
	ck_assert_int_eq(kvpool_load_pages(reader.channel, reader.layout, 0, &stale, 1, 0, &plane,
					   1, numbers, 1),
			 -ESTALE);
	ck_assert_int_eq(
		kvpool_store_pages(rig.channel, rig.layout, 0, &stale, 1, 0, &plane, 1, numbers, 1),
		-ESTALE);
	ck_assert_int_eq(kvpool_store_pages(rig.channel, reader.layout, 0, blocks, 1, 0, &plane, 1,
					    numbers, 1),
			 -EINVAL);
	kvpool_release(reader.channel, &m, 0);
	kvpool_rig_close(&reader);
	ck_assert_int_eq(kvpool_rig_get(&rig, 6, BLOCKS), BLOCKS);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("client_pages");
	TCase *t = tcase_create("pages");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, should_bring_every_page_back_and_touch_nothing_else, 0,
			    sizeof(shapes) / sizeof(shapes[0]));
	tcase_add_test(t, should_lay_planes_in_order_as_pieces_do);
	tcase_add_test(t, should_skip_a_store_where_no_block_was_granted);
	tcase_add_test(t, should_refuse_before_a_byte_is_copied);
	tcase_add_test(t, should_check_a_call_of_no_blocks_all_the_same);
	tcase_add_test(t, should_refuse_a_stale_block_and_a_write_by_a_reader);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return kvpool_harness_run(suite());
}
