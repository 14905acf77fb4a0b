/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of `copy`: see copy.c for what takes turns with what. Main thread.
 */
#include "tools/bench/copy_run.h"

#include "tools/bench/keys.h"
#include "tools/bench/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_BYTES (UINT64_C(16) << 20)
#define REQUEST_MAX   4096u /* blocks */
#define SINGLES_MAX   256u  /* requests of one block in a round */
#define SEED          UINT64_C(20260102)

int kvpool_copy_open(const struct kvpool_bench_options *options, uint64_t buffer_bytes,
		     struct kvpool_copy *out)
{
	/* Half as much again as one round stores: an extent ends before its last block does. */
	uint64_t pool_bytes = KVPOOL_ROUND_UP(buffer_bytes / 2 * 3, UINT64_C(64) << 20);
	struct kvpool_copy copy = {.buffer_bytes = buffer_bytes, .salt = SEED};
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
		r = copy.keys && copy.found ? 0 : -ENOMEM;
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
static int store(struct kvpool_copy *copy, uint64_t at, uint32_t n)
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
	got = kvpool_commit(channel, copy->found, n, 0, 0);
	return got == (int64_t)n ? 0 : fail(copy, "COMMIT", got);
}

/* MATCH to RELEASE of n blocks, the first one to the target's block `at`. */
static int load(struct kvpool_copy *copy, uint64_t at, uint32_t n)
{
	struct kvpool_channel *channel = copy->session.channel;
	struct kvpool_piece pieces[KVPOOL_SHAPE_PIECES_MAX];
	struct kvpool_match match;
	int64_t got =
		kvpool_match(channel, copy->layout, copy->keys, n, 0, 0, 0, copy->found, n, &match);

	if (got != (int64_t)n)
		return fail(copy, "MATCH", got);
	for (uint32_t i = 0; i < n; i++) {
		int r;

		kvpool_shape_pieces(&copy->target, at + i, pieces);
		r = kvpool_load(channel, copy->layout, 0, &copy->found[i], 0, pieces,
				copy->target.pieces);
		if (r < 0)
			return fail(copy, "kvpool_load", r);
	}
	kvpool_release(channel, &match, 0);
	return 0;
}

/* The same with memcpy, between the source and the plain memory. */
static void copy_plain(struct kvpool_copy *copy, enum kvpool_copy_way way, uint64_t at, uint32_t n)
{
	const struct kvpool_shape *shape = &copy->source;

	for (uint64_t b = at; b < at + n; b++) {
		uint8_t *plain = copy->plain_bytes + b * shape->block_bytes;

		if (way == KVPOOL_COPY_GATHER)
			kvpool_shape_gather(shape, b, plain);
		else
			kvpool_shape_scatter(shape, b, plain);
	}
}

/* One request, timed. The keys of a store or load are made before the clock starts. */
static int request(struct kvpool_copy *copy, enum kvpool_copy_way way, uint64_t q, uint32_t n,
		   bool count)
{
	const struct kvpool_ticks *ticks = &copy->session.ticks;
	uint64_t from;
	int r = 0;

	if (way >= KVPOOL_COPY_STORE)
		kvpool_bench_keys(copy->salt + q, 0, n, copy->keys);
	from = kvpool_ticks_now(ticks);
	switch (way) {
	case KVPOOL_COPY_STORE:
	case KVPOOL_COPY_STORE_SINGLE:
		r = store(copy, q * n, n);
		break;
	case KVPOOL_COPY_LOAD:
	case KVPOOL_COPY_LOAD_SINGLE:
		r = load(copy, q * n, n);
		break;
	default:
		copy_plain(copy, way, q * n, n);
	}
	if (r == 0 && count)
		kvpool_samples_add(&copy->samples[way], kvpool_ticks_now(ticks) - from);
	return r;
}

/* memcpy and the pool in turns; memcpy half the buffer away. */
static int take_turns(struct kvpool_copy *copy, enum kvpool_copy_way plain,
		      enum kvpool_copy_way pool, uint64_t requests, bool count)
{
	uint32_t n = (uint32_t)copy->request_blocks;
	int r = 0;

	for (uint64_t q = 0; r == 0 && q < requests; q++) {
		uint64_t away = (q + requests / 2) % requests;

		if (q % 2 == 0)
			r = request(copy, plain, away, n, count);
		if (r == 0)
			r = request(copy, pool, q, n, count);
		if (r == 0 && q % 2 != 0)
			r = request(copy, plain, away, n, count);
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

static int run_round(struct kvpool_copy *copy, bool count)
{
	uint64_t requests = copy->source.blocks / copy->request_blocks;
	int r;

	kvpool_shape_stamp(&copy->source, ++copy->salt);
	r = take_turns(copy, KVPOOL_COPY_GATHER, KVPOOL_COPY_STORE, requests, count);
	if (r == 0)
		r = take_turns(copy, KVPOOL_COPY_SCATTER, KVPOOL_COPY_LOAD, requests, count);
	if (r == 0)
		r = check(copy, requests * copy->request_blocks);
	copy->salt += requests;
	if (r == 0)
		r = forget(copy);
	return r == 0 ? run_singles(copy, count) : r;
}

/* Blocks that the buffers hold and that fit in the pool: an extent holds whole blocks only. */
static uint64_t blocks_of(const struct kvpool_copy *copy, uint64_t block_bytes)
{
	uint64_t extents = copy->extent_bytes ? copy->pool_bytes / copy->extent_bytes : 0;
	uint64_t fit = extents * (copy->extent_bytes / block_bytes);

	return KVPOOL_MIN(copy->buffer_bytes / block_bytes, fit - fit / 16);
}

int kvpool_copy_run(struct kvpool_copy *copy, uint64_t block_bytes, uint32_t pieces,
		    uint32_t rounds)
{
	uint64_t blocks = blocks_of(copy, block_bytes);
	uint64_t request = KVPOOL_MIN(KVPOOL_MAX(REQUEST_BYTES / block_bytes, 1), REQUEST_MAX);
	char label[48];
	int r;

	if (blocks < 2)
		return kvpool_bench_fail(-EINVAL,
					 "blocks of %" PRIu64
					 " bytes do not fit in extents of %" PRIu64
					 ": give a larger --buffer",
					 block_bytes, copy->extent_bytes);
	/* Two requests at least, so that memcpy and the pool are never in the same place. */
	copy->request_blocks = KVPOOL_MIN(request, blocks / 2);
	copy->source = (struct kvpool_shape){copy->source_bytes, block_bytes, pieces, blocks};
	copy->target = (struct kvpool_shape){copy->target_bytes, block_bytes, pieces, blocks};
	for (int way = 0; way < KVPOOL_COPY_WAYS; way++) {
		kvpool_samples_clear(&copy->samples[way]);
		r = kvpool_samples_init(&copy->samples[way], (size_t)(blocks * rounds));
		if (r < 0)
			return kvpool_bench_fail(r, "copy");
	}
	snprintf(label, sizeof(label), "bench-copy-%" PRIu64, block_bytes);
	r = kvpool_bench_session_layout(&copy->session, label, block_bytes, &copy->layout);
	for (uint32_t round = 0; r == 0 && round <= rounds; round++) {
		r = run_round(copy, round > 0);
		if (r == 0)
			r = kvpool_bench_interrupted();
	}
	return r;
}
