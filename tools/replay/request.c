/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one process does with one request of a trace: see request.h.
 *
 * One thread.
 */
#include "tools/replay/request.h"

#include "shm/base.h"
#include "tools/replay/stamp.h"

#include <errno.h>
#include <string.h>

/* A prefix that is being computed by another is waited for this often, this long each time. */
#define WAITS_MAX 3
#define WAIT_NS   UINT64_C(10000000000)

static const uint8_t *key_of(const struct kvpool_request_place *place, uint32_t i)
{
	return place->key_bytes + (size_t)i * KVPOOL_KEY_SIZE;
}

static void add_copy(struct kvpool_histogram *histogram, uint64_t ns, uint32_t blocks)
{
	if (blocks > 0)
		kvpool_histogram_add(histogram, ns / blocks, blocks);
}

/* One lookup, timed. Length of the prefix found; 0 and no lease where the call failed. */
static uint32_t look_up(struct kvpool_request_place *place, uint32_t n, struct kvpool_match *match)
{
	uint64_t start = kvpool_engine_now();
	int64_t found = kvpool_match(place->channel, place->layout, place->key_bytes, n, 0,
				     KVPOOL_MATCH_PENDING, 0, place->blocks, n, match);

	kvpool_histogram_add(&place->figures->lookup_ns, kvpool_engine_now() - start, 1);
	if (found >= 0)
		return (uint32_t)found;
	place->figures->failed_calls++;
	memset(match, 0, sizeof(*match));
	return 0;
}

/*
 * The longest prefix that there is, after waiting for what another process is writing right behind
 * it: two engines never compute the same prefix. No block is reserved meanwhile, so two processes
 * never wait for each other.
 */
static uint32_t find(struct kvpool_request_place *place, uint32_t n, struct kvpool_match *match)
{
	uint32_t found = look_up(place, n, match);
	int waits;

	for (waits = 0; match->pending > 0 && waits < WAITS_MAX; waits++) {
		uint32_t last = KVPOOL_MIN(found + match->pending, n) - 1;
		int error;

		kvpool_release(place->channel, match, 0);
		place->figures->waits++;
		error = kvpool_wait(place->channel, place->layout, 0, key_of(place, last), WAIT_NS);
		if (error != 0 && error != -ENOENT && error != -ECANCELED)
			place->figures->failed_calls++;
		found = look_up(place, n, match);
	}
	return found;
}

/* Loads one chunk of leased blocks and checks every word. How many could be loaded. */
static uint32_t load_chunk(struct kvpool_request_place *place, uint32_t first, uint32_t n)
{
	struct kvpool_figures *figures = place->figures;
	uint8_t *chunk = kvpool_engine_next(place->engine);
	uint64_t start = kvpool_engine_now();
	uint64_t sample;
	uint32_t loaded;
	uint32_t i;

	for (loaded = 0; loaded < n; loaded++) {
		struct kvpool_piece piece = {chunk + loaded * place->block_bytes,
					     place->block_bytes};

		if (kvpool_load(place->channel, place->layout, 0, &place->blocks[first + loaded], 0,
				&piece, 1) != 0) {
			figures->failed_calls++;
			break;
		}
	}
	if (loaded == 0)
		return 0;
	add_copy(&figures->load_ns, kvpool_engine_now() - start, loaded);
	for (i = 0; i < loaded; i++)
		figures->wrong_bytes +=
			kvpool_stamp_wrong(key_of(place, first + i), chunk + i * place->block_bytes,
					   place->block_bytes);
	figures->checked_bytes += loaded * place->block_bytes;
	sample = kvpool_engine_sample(place->engine, kvpool_engine_next(place->engine), loaded,
				      false);
	if (sample != 0)
		kvpool_histogram_add(&figures->memcpy_ns, sample, loaded);
	return loaded;
}

static uint32_t load(struct kvpool_request_place *place, uint32_t found)
{
	uint32_t step = kvpool_engine_chunk_blocks(place->engine);
	uint32_t done = 0;

	while (done < found) {
		uint32_t n = KVPOOL_MIN(step, found - done);
		uint32_t loaded = load_chunk(place, done, n);

		done += loaded;
		if (loaded < n)
			break;
	}
	return done;
}

/* Asks for places for keys[first..n); notes which got one, and why the others did not. */
static uint32_t reserve(struct kvpool_request_place *place, uint32_t first, uint32_t n)
{
	struct kvpool_figures *figures = place->figures;
	uint64_t start = kvpool_engine_now();
	int64_t result = kvpool_reserve(place->channel, place->layout, 0,
					first > 0 ? key_of(place, first - 1) : NULL,
					key_of(place, first), n - first, 0, place->blocks + first);
	uint32_t granted = 0;
	uint32_t i;

	kvpool_histogram_add(&figures->reserve_ns, kvpool_engine_now() - start, 1);
	if (result < 0) {
		if (result == -ENOSPC)
			figures->refused_blocks += n - first;
		else
			figures->failed_calls++;
		return 0;
	}
	for (i = first; i < n; i++) {
		if (place->blocks[i].block != 0)
			place->granted[granted++] = i;
		else if (place->blocks[i].generation == KVPOOL_RESERVE_EXISTS)
			figures->exists_blocks++;
		else if (place->blocks[i].generation == KVPOOL_RESERVE_BUSY)
			figures->busy_blocks++;
		else
			figures->refused_blocks++;
	}
	return granted;
}

/* "Computes" a chunk of blocks, that is stamps them, and stores it. Whether it is in the pool. */
static bool store_chunk(struct kvpool_request_place *place, const uint32_t *granted, uint32_t n)
{
	struct kvpool_figures *figures = place->figures;
	uint8_t *chunk = kvpool_engine_next(place->engine);
	struct kvpool_block places[KVPOOL_ENGINE_CHUNK_MAX];
	uint64_t sample;
	uint64_t start;
	int64_t taken;
	uint32_t i;

	for (i = 0; i < n; i++) {
		places[i] = place->blocks[granted[i]];
		kvpool_stamp_fill(key_of(place, granted[i]), chunk + i * place->block_bytes,
				  place->block_bytes);
	}
	start = kvpool_engine_now();
	for (i = 0; i < n; i++) {
		struct kvpool_piece piece = {chunk + i * place->block_bytes, place->block_bytes};

		if (kvpool_store(place->channel, place->layout, 0, &places[i], 0, &piece, 1) != 0) {
			figures->failed_calls++;
			kvpool_abort(place->channel, places, n, 0);
			return false;
		}
	}
	add_copy(&figures->store_ns, kvpool_engine_now() - start, n);
	start = kvpool_engine_now();
	taken = kvpool_commit(place->channel, places, n, KVPOOL_ALL_SHARDS, 0);
	kvpool_histogram_add(&figures->commit_ns, kvpool_engine_now() - start, 1);
	if (taken > 0)
		figures->stored_blocks += (uint64_t)taken;
	if (taken != n)
		figures->failed_calls++;
	sample = kvpool_engine_sample(place->engine, chunk, n, true);
	if (sample != 0)
		kvpool_histogram_add(&figures->memcpy_ns, sample, n);
	return taken == n;
}

/* What is left over after a failure goes back, so that nobody waits for it. */
static void give_back(struct kvpool_request_place *place, const uint32_t *granted, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		kvpool_abort(place->channel, &place->blocks[granted[i]], 1, 0);
}

static void store(struct kvpool_request_place *place, uint32_t first, uint32_t n)
{
	uint32_t step = kvpool_engine_chunk_blocks(place->engine);
	uint32_t granted = reserve(place, first, n);
	uint32_t done = 0;

	while (done < granted) {
		uint32_t chunk = KVPOOL_MIN(step, granted - done);

		if (!store_chunk(place, place->granted + done, chunk)) {
			give_back(place, place->granted + done + chunk, granted - done - chunk);
			return;
		}
		done += chunk;
	}
}

int kvpool_request_serve(struct kvpool_request_place *place,
			 const struct kvpool_trace_request *request)
{
	struct kvpool_figures *figures = place->figures;
	uint32_t n = request->blocks;
	struct kvpool_match match;
	uint32_t hits;

	figures->requests++;
	figures->tokens += request->tokens;
	figures->blocks += n;
	if (n == 0)
		return 0;
	if (kvpool_replay_keys_make(place->keys, place->trace, request, place->key_bytes) != 0)
		return -EIO;
	hits = load(place, find(place, n, &match));
	figures->hit_blocks += hits;
	if (hits < n)
		store(place, hits, n);
	kvpool_release(place->channel, &match, 0);
	return 0;
}
