/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of `copy`: see copy.c for what takes turns with what. A request during which the
 * kernel gave the core to somebody else is counted, and its time thrown away. Main thread.
 */
#include "tools/bench/copy_run.h"

#include "tools/bench/keys.h"
#include "tools/bench/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define REQUEST_BYTES (UINT64_C(16) << 20)
#define VERIFY_BYTES  (UINT64_C(1) << 20)
#define REQUEST_MAX   4096u /* blocks */
#define SINGLES_MAX   256u  /* requests of one block in a round */
#define REQUESTS_MIN  4u    /* in a round, so that no two ways are in the same place */
#define SEED          UINT64_C(20260102)
#define HELD_CHAIN    (UINT64_C(1) << 61)
#define SPACER_CHAIN  (UINT64_C(1) << 60)

int kvpool_copy_open(const struct kvpool_bench_options *options, uint64_t buffer_bytes,
		     struct kvpool_copy *out)
{
	/* A round's blocks and those held, and half as much again: an extent ends before its last
	   block does. */
	uint64_t pool_bytes = KVPOOL_ROUND_UP(buffer_bytes * 3, UINT64_C(64) << 20);
	struct kvpool_copy copy = {
		.buffer_bytes = buffer_bytes, .salt = SEED, .checksum = options->checksum};
	size_t blocks_max = (size_t)(buffer_bytes / KVPOOL_UNIT_BYTES);
	json_t *status = NULL;
	int r = kvpool_bench_session_open(options, pool_bytes, true, &copy.session);

	if (r < 0)
		return r;
	r = kvpool_bench_session_await_full(&copy.session);
	if (r == 0)
		r = kvpool_daemon_run_status(&copy.session.daemon, &status);
	if (r == 0) {
		copy.plain_pages = kvpool_status_pages(status);
		copy.pool_bytes = kvpool_status_pool_number(status, "bytes");
		copy.extent_bytes = kvpool_status_pool_number(status, "extent_bytes");
		json_decref(status);
		copy.keys = malloc((size_t)REQUEST_MAX * KVPOOL_KEY_BYTES);
		copy.found = malloc((size_t)REQUEST_MAX * sizeof(*copy.found));
		copy.held = malloc(2 * blocks_max * sizeof(*copy.held));
		copy.held_bytes = malloc(blocks_max * sizeof(*copy.held_bytes));
		r = copy.keys && copy.found && copy.held && copy.held_bytes ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = kvpool_shape_map(buffer_bytes, &copy.engine_pages, &copy.source_bytes);
	if (r == 0)
		r = kvpool_shape_map(buffer_bytes, &copy.engine_pages, &copy.target_bytes);
	if (r == 0)
		r = kvpool_shape_map(buffer_bytes, &copy.plain_pages, &copy.plain_bytes);
	if (r < 0) {
		kvpool_copy_close(&copy);
		return kvpool_bench_fail(r, "cannot have three buffers of %" PRIu64 " bytes",
					 buffer_bytes);
	}
	*out = copy;
	return 0;
}

void kvpool_copy_close(struct kvpool_copy *copy)
{
	for (int way = 0; way < KVPOOL_COPY_WAYS; way++)
		kvpool_samples_clear(&copy->samples[way]);
	kvpool_shape_unmap(copy->source_bytes, copy->buffer_bytes);
	kvpool_shape_unmap(copy->target_bytes, copy->buffer_bytes);
	kvpool_shape_unmap(copy->plain_bytes, copy->buffer_bytes);
	free(copy->keys);
	free(copy->found);
	free(copy->held);
	free(copy->held_bytes);
	kvpool_bench_session_close(&copy->session);
}

static int fail(struct kvpool_copy *copy, const char *what, int64_t got)
{
	if (got >= 0)
		return kvpool_bench_fail(-EIO, "%s served only %" PRIi64 " blocks", what, got);
	return kvpool_bench_fail((int)got, "%s (%s)", what,
				 kvpool_channel_error(copy->session.channel));
}

/* RESERVE to COMMIT of n blocks, the first one the source's block `at`. */
static int store(struct kvpool_copy *copy, uint64_t at, uint32_t n, bool summed)
{
	struct kvpool_channel *channel = copy->session.channel;
	struct kvpool_piece pieces[KVPOOL_SHAPE_PIECES_MAX];
	int64_t got = kvpool_reserve(channel, copy->layout, 0, NULL, copy->keys, n, 0, copy->found);

	if (got != (int64_t)n)
		return fail(copy, "RESERVE", got);
	for (uint32_t i = 0; i < n; i++) {
		int r;

		kvpool_shape_pieces(&copy->source, at + i, pieces);
		r = kvpool_store(channel, copy->layout, 0, &copy->found[i], 0, pieces,
				 copy->source.pieces);
		if (r < 0)
			return fail(copy, "kvpool_store", r);
	}
	if (summed)
		got = kvpool_commit_checksum(channel, copy->layout, 0, copy->found, n, 0, 0);
	else
		got = kvpool_commit(channel, copy->found, n, 0, 0);
	return got == (int64_t)n ? 0 : fail(copy, "COMMIT", got);
}

/*
 * Compares blocks from `i` on with their checksums, as many as stay in the cache until they are
 * loaded. Returns how many these were.
 */
static int verify(struct kvpool_copy *copy, uint32_t i, uint32_t n)
{
	uint64_t fit = KVPOOL_MAX(VERIFY_BYTES / copy->source.block_bytes, 1);
	uint32_t count = (uint32_t)KVPOOL_MIN(n - i, fit);
	int64_t bad = kvpool_verify(copy->session.channel, copy->layout, 0, &copy->found[i], count,
				    0, NULL);

	if (bad < 0)
		return fail(copy, "kvpool_verify", bad);
	if (bad > 0)
		return kvpool_bench_fail(-EIO, "%" PRIi64 " blocks are not what was stored", bad);
	return (int)count;
}

/* MATCH to RELEASE of n blocks, the first one to the target's block `at`. */
static int load(struct kvpool_copy *copy, uint64_t at, uint32_t n, bool verified)
{
	struct kvpool_channel *channel = copy->session.channel;
	struct kvpool_piece pieces[KVPOOL_SHAPE_PIECES_MAX];
	struct kvpool_match match;
	int64_t got =
		kvpool_match(channel, copy->layout, copy->keys, n, 0, 0, 0, copy->found, n, &match);
	uint32_t good = 0;

	if (got != (int64_t)n)
		return fail(copy, "MATCH", got);
	for (uint32_t i = 0; i < n; i++) {
		int r = verified && i == good ? verify(copy, i, n) : 0;

		if (r < 0)
			return r;
		good += (uint32_t)r;
		kvpool_shape_pieces(&copy->target, at + i, pieces);
		r = kvpool_load(channel, copy->layout, 0, &copy->found[i], 0, pieces,
				copy->target.pieces);
		if (r < 0)
			return fail(copy, "kvpool_load", r);
	}
	kvpool_release(channel, &match, 0);
	return 0;
}

/* Reserves as many blocks as a round stores, in the layout for that, behind `to`. */
static int reserve_all(struct kvpool_copy *copy, uint64_t chain, struct kvpool_block *to)
{
	uint64_t blocks = copy->source.blocks;

	for (uint64_t at = 0; at < blocks; at += REQUEST_MAX) {
		uint32_t n = (uint32_t)KVPOOL_MIN(blocks - at, REQUEST_MAX);
		int64_t got;

		kvpool_bench_keys(chain + at, 0, n, copy->keys);
		got = kvpool_reserve(copy->session.channel, copy->held_layout, 0, NULL, copy->keys,
				     n, 0, to + at);
		if (got != (int64_t)n)
			return fail(copy, "RESERVE", got);
	}
	return 0;
}

static int abort_all(struct kvpool_copy *copy, const struct kvpool_block *of, uint64_t blocks)
{
	int64_t got = 0;

	for (uint64_t at = 0; got >= 0 && at < blocks; at += REQUEST_MAX)
		got = kvpool_abort(copy->session.channel, of + at,
				   (uint32_t)KVPOOL_MIN(blocks - at, REQUEST_MAX), 0);
	return got < 0 ? fail(copy, "ABORT", got) : 0;
}

/*
 * Reserves the blocks that memcpy uses in this round. With `swap`, as many are reserved before
 * them and given back: what is stored then lies where memcpy's blocks lay in another round, so that
 * neither has the better part of the memory.
 */
static int hold(struct kvpool_copy *copy, bool swap)
{
	uint64_t blocks = copy->source.blocks;
	struct kvpool_block *spacer = copy->held + blocks;
	int r = swap ? reserve_all(copy, SPACER_CHAIN, spacer) : 0;

	if (r == 0)
		r = reserve_all(copy, HELD_CHAIN, copy->held);
	if (r == 0 && swap)
		r = abort_all(copy, spacer, blocks);
	for (uint64_t b = 0; r == 0 && b < blocks; b++) {
		void *address = NULL;

		r = kvpool_pointer(copy->session.channel, copy->held_layout, 0, &copy->held[b], 0,
				   &address);
		if (r < 0)
			return fail(copy, "kvpool_pointer", r);
		copy->held_bytes[b] = address;
	}
	return r;
}

/* The same with memcpy, between the source and memory that nobody else uses. */
static void copy_plain(struct kvpool_copy *copy, enum kvpool_copy_way way, uint64_t at, uint32_t n)
{
	const struct kvpool_shape *shape = &copy->source;
	bool held = way == KVPOOL_COPY_GATHER || way == KVPOOL_COPY_SCATTER;

	for (uint64_t b = at; b < at + n; b++) {
		uint8_t *block =
			held ? copy->held_bytes[b] : copy->plain_bytes + b * shape->block_bytes;

		if (way == KVPOOL_COPY_GATHER || way == KVPOOL_COPY_GATHER_PLAIN)
			kvpool_shape_gather(shape, b, block);
		else
			kvpool_shape_scatter(shape, b, block);
	}
}

static int do_request(struct kvpool_copy *copy, enum kvpool_copy_way way, uint64_t at, uint32_t n)
{
	switch (way) {
	case KVPOOL_COPY_STORE:
	case KVPOOL_COPY_STORE_BESIDE:
	case KVPOOL_COPY_STORE_SUMMED:
	case KVPOOL_COPY_STORE_SINGLE:
		return store(copy, at, n, way == KVPOOL_COPY_STORE_SUMMED);
	case KVPOOL_COPY_LOAD:
	case KVPOOL_COPY_LOAD_BESIDE:
	case KVPOOL_COPY_LOAD_VERIFIED:
	case KVPOOL_COPY_LOAD_SINGLE:
		return load(copy, at, n, way == KVPOOL_COPY_LOAD_VERIFIED);
	default:
		copy_plain(copy, way, at, n);
		return 0;
	}
}

/* How often the kernel took the core from this thread. */
static long preemptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Request q of n blocks, timed. The keys of a store or load are made before the clock starts. */
static int request(struct kvpool_copy *copy, enum kvpool_copy_way way, uint64_t q, uint32_t n,
		   bool count)
{
	const struct kvpool_ticks *ticks = &copy->session.ticks;
	uint64_t from;
	uint64_t took;
	long before;
	int r;

	if (way >= KVPOOL_COPY_STORE)
		kvpool_bench_keys(copy->salt + q, 0, n, copy->keys);
	before = preemptions();
	from = kvpool_ticks_now(ticks);
	r = do_request(copy, way, q * n, n);
	took = kvpool_ticks_now(ticks) - from;
	if (r < 0 || !count)
		return r;
	copy->requests++;
	/* One sample there must be, also where the core is never ours for long. */
	if (preemptions() == before || copy->samples[way].n == 0)
		kvpool_samples_add(&copy->samples[way], took);
	else
		copy->discarded++;
	return 0;
}

/*
 * Three ways in turns, each a third of the buffer away from the next, and another one first each
 * time.
 */
static int take_turns(struct kvpool_copy *copy, const enum kvpool_copy_way ways[3],
		      uint64_t requests, bool count)
{
	uint32_t n = (uint32_t)copy->request_blocks;
	int r = 0;

	for (uint64_t q = 0; r == 0 && q < requests; q++) {
		for (uint64_t i = 0; r == 0 && i < 3; i++) {
			uint64_t w = (q + i) % 3;

			r = request(copy, ways[w], (q + w * requests / 3) % requests, n, count);
		}
	}
	return r;
}

static int forget(struct kvpool_copy *copy)
{
	int64_t got = kvpool_forget(copy->session.channel, copy->layout, 0, NULL, 0, 0);

	return got < 0 ? fail(copy, "FORGET", got) : 0;
}

static int check(struct kvpool_copy *copy, uint64_t blocks)
{
	uint64_t wrong = kvpool_shape_wrong(&copy->target, 0, blocks, copy->salt);

	if (wrong != 0)
		return kvpool_bench_fail(-EIO, "%" PRIu64 " pieces came back wrong", wrong);
	return 0;
}

/* Requests of one block, store and load, over a part of the buffers. */
static int run_singles(struct kvpool_copy *copy, bool count)
{
	uint64_t requests = KVPOOL_MIN(copy->source.blocks, SINGLES_MAX);
	int r = 0;

	kvpool_shape_stamp(&copy->source, ++copy->salt);
	for (uint64_t q = 0; r == 0 && q < requests; q++)
		r = request(copy, KVPOOL_COPY_STORE_SINGLE, q, 1, count);
	for (uint64_t q = 0; r == 0 && q < requests; q++)
		r = request(copy, KVPOOL_COPY_LOAD_SINGLE, q, 1, count);
	if (r == 0)
		r = check(copy, requests);
	copy->salt += requests;
	return r == 0 ? forget(copy) : r;
}

/* Every other request with checksums; which ones those are changes from round to round. */
static int run_sums(struct kvpool_copy *copy, uint32_t round)
{
	uint64_t requests = copy->source.blocks / copy->request_blocks;
	uint32_t n = (uint32_t)copy->request_blocks;
	bool count = round > 0;
	int r = 0;

	kvpool_shape_stamp(&copy->source, ++copy->salt);
	for (uint64_t q = 0; r == 0 && q < requests; q++)
		r = request(copy,
			    (q + round) % 2 ? KVPOOL_COPY_STORE_SUMMED : KVPOOL_COPY_STORE_BESIDE,
			    q, n, count);
	for (uint64_t q = 0; r == 0 && q < requests; q++)
		r = request(copy,
			    (q + round) % 2 ? KVPOOL_COPY_LOAD_VERIFIED : KVPOOL_COPY_LOAD_BESIDE,
			    q, n, count);
	if (r == 0)
		r = check(copy, requests * n);
	copy->salt += requests;
	return r == 0 ? forget(copy) : r;
}

/* Round 0 warms up. */
static int run_round(struct kvpool_copy *copy, uint32_t round)
{
	static const enum kvpool_copy_way in[3] = {KVPOOL_COPY_STORE, KVPOOL_COPY_GATHER,
						   KVPOOL_COPY_GATHER_PLAIN};
	static const enum kvpool_copy_way out[3] = {KVPOOL_COPY_LOAD, KVPOOL_COPY_SCATTER,
						    KVPOOL_COPY_SCATTER_PLAIN};
	uint64_t requests = copy->source.blocks / copy->request_blocks;
	bool count = round > 0;
	int r = hold(copy, round % 2 != 0);

	kvpool_shape_stamp(&copy->source, ++copy->salt);
	if (r == 0)
		r = take_turns(copy, in, requests, count);
	if (r == 0)
		r = take_turns(copy, out, requests, count);
	if (r == 0)
		r = check(copy, requests * copy->request_blocks);
	copy->salt += requests;
	if (r == 0)
		r = forget(copy);
	if (r == 0 && copy->checksum)
		r = run_sums(copy, round);
	if (r == 0)
		r = run_singles(copy, count);
	return r == 0 ? abort_all(copy, copy->held, copy->source.blocks) : r;
}

/* Blocks that the buffers hold and that fit in the pool twice; an extent holds whole blocks. */
static uint64_t blocks_of(const struct kvpool_copy *copy, uint64_t block_bytes)
{
	uint64_t extents = copy->extent_bytes ? copy->pool_bytes / copy->extent_bytes : 0;
	uint64_t fit = extents * (copy->extent_bytes / block_bytes);

	return KVPOOL_MIN(copy->buffer_bytes / block_bytes, (fit - fit / 16) / 2);
}

static int prepare(struct kvpool_copy *copy, uint64_t block_bytes, uint32_t pieces, uint32_t rounds)
{
	uint64_t blocks = blocks_of(copy, block_bytes);
	uint64_t request = KVPOOL_MIN(KVPOOL_MAX(REQUEST_BYTES / block_bytes, 1), REQUEST_MAX);
	int r = 0;

	if (blocks < REQUESTS_MIN)
		return kvpool_bench_fail(-EINVAL,
					 "too few blocks of %" PRIu64
					 " bytes fit in extents of %" PRIu64
					 ": give a larger --buffer",
					 block_bytes, copy->extent_bytes);
	copy->request_blocks = KVPOOL_MIN(request, blocks / REQUESTS_MIN);
	copy->source = (struct kvpool_shape){copy->source_bytes, block_bytes, pieces, blocks};
	copy->target = (struct kvpool_shape){copy->target_bytes, block_bytes, pieces, blocks};
	copy->requests = 0;
	copy->discarded = 0;
	for (int way = 0; r == 0 && way < KVPOOL_COPY_WAYS; way++) {
		kvpool_samples_clear(&copy->samples[way]);
		r = kvpool_samples_init(&copy->samples[way], (size_t)(blocks * rounds));
	}
	return r < 0 ? kvpool_bench_fail(r, "copy") : 0;
}

int kvpool_copy_run(struct kvpool_copy *copy, uint64_t block_bytes, uint32_t pieces,
		    uint32_t rounds)
{
	char label[48];
	int r = prepare(copy, block_bytes, pieces, rounds);

	snprintf(label, sizeof(label), "bench-copy-%" PRIu64, block_bytes);
	if (r == 0)
		r = kvpool_bench_session_layout(&copy->session, label, block_bytes, &copy->layout);
	snprintf(label, sizeof(label), "bench-copy-held-%" PRIu64, block_bytes);
	if (r == 0)
		r = kvpool_bench_session_layout(&copy->session, label, block_bytes,
						&copy->held_layout);
	for (uint32_t round = 0; r == 0 && round <= rounds; round++) {
		r = run_round(copy, round);
		if (r == 0)
			r = kvpool_bench_interrupted();
	}
	return r;
}
