/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of `compare`. Owned by it; main thread.
 */
#include "tools/bench/contest.h"

#include "tools/bench/keys.h"
#include "tools/bench/report.h"
#include "tools/bench/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED         UINT64_C(20260106)
#define VALUE_BYTES  16u /* of a key that is only looked up: as long as kvpool's answer */
#define SAMPLES      2000u
#define SAMPLES_MAX  UINT64_C(100000)
#define KEYS_A_ROUND 200000u
#define COPY_BYTES   (KVPOOL_CONTEST_BLOCKS * KVPOOL_CONTEST_BLOCK_BYTES)
#define COPY_CHAIN   (UINT64_C(1) << 62)

static int make_buffers(struct kvpool_contest *contest)
{
	enum kvpool_shape_pages pages = KVPOOL_SHAPE_PRIVATE;
	int r = kvpool_shape_map(COPY_BYTES, &pages, &contest->source);

	if (r == 0)
		r = kvpool_shape_map(COPY_BYTES, &pages, &contest->target);
	if (r < 0)
		return r;
	memset(contest->source, 0x5a, COPY_BYTES);
	contest->keys = malloc((size_t)KVPOOL_RESIDENT_KEYS_MAX * KVPOOL_KEY_BYTES);
	contest->found = malloc((size_t)KVPOOL_RESIDENT_KEYS_MAX * sizeof(*contest->found));
	return contest->keys && contest->found ? 0 : -ENOMEM;
}

int kvpool_contest_open(struct kvpool_contest *contest, const struct kvpool_bench_options *options)
{
	uint64_t bytes = kvpool_resident_pool_bytes(&contest->resident) + COPY_BYTES * 2;
	struct kvpool_bench_session *session = &contest->session;
	int r = kvpool_bench_session_open(options, bytes, true, session);

	if (r < 0)
		return r;
	contest->random = SEED;
	r = kvpool_bench_session_await_full(session);
	if (r == 0)
		r = kvpool_bench_session_layout(session, "bench-compare-lookup",
						KVPOOL_RESIDENT_SLOT_BYTES, &contest->small);
	if (r == 0)
		r = kvpool_bench_session_layout(session, "bench-compare-copy",
						KVPOOL_CONTEST_BLOCK_BYTES, &contest->large);
	if (r == 0)
		r = make_buffers(contest);
	if (r == 0)
		r = kvpool_folder_make(&contest->folder);
	if (r < 0)
		kvpool_bench_fail(r, "compare");
	else
		r = kvpool_resident_fill(&contest->resident, session, contest->small);
	if (r < 0)
		kvpool_contest_close(contest);
	return r;
}

static void clear_contender(struct kvpool_contender *contender)
{
	for (uint32_t c = 0; c < KVPOOL_BENCH_LIST_MAX; c++)
		kvpool_samples_clear(&contender->lookups[c]);
	for (int way = 0; way < 2; way++)
		kvpool_samples_clear(&contender->copies[way]);
	if (contender->peer)
		contender->peer->stop(contender->state);
}

void kvpool_contest_close(struct kvpool_contest *contest)
{
	for (uint32_t i = 0; i < contest->n; i++)
		clear_contender(&contest->contenders[i]);
	clear_contender(&contest->own);
	kvpool_folder_remove(&contest->folder);
	kvpool_shape_unmap(contest->source, COPY_BYTES);
	kvpool_shape_unmap(contest->target, COPY_BYTES);
	free(contest->keys);
	free(contest->found);
	kvpool_bench_session_close(&contest->session);
}

/* Gives a peer every key of the resident set. */
static int fill_peer(struct kvpool_contest *contest, struct kvpool_contender *contender)
{
	const struct kvpool_resident *resident = &contest->resident;
	static const uint8_t value[VALUE_BYTES];
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, contender->peer->name, resident->blocks);
	for (uint32_t c = 0; r == 0 && c < resident->n_classes; c++) {
		const struct kvpool_resident_class *class = &resident->classes[c];

		for (uint64_t j = 0; r == 0 && j < class->chains; j++) {
			kvpool_resident_keys(resident, c, j, contest->keys);
			for (uint32_t i = 0; r == 0 && i < class->keys; i++) {
				r = contender->peer->set(contender->state,
							 contest->keys +
								 (size_t)i * KVPOOL_KEY_BYTES,
							 value, sizeof(value));
				if (r == 0)
					r = kvpool_progress_step(&progress);
			}
		}
	}
	kvpool_progress_end(&progress);
	return r;
}

static int report_peer(const struct kvpool_contender *contender, struct kvpool_report *report)
{
	const struct kvpool_peer *peer = contender->peer;
	char version[64];
	int r = peer->version(contender->state, version, sizeof(version));

	if (r < 0)
		return kvpool_bench_fail(r, "%s does not tell its version", peer->name);
	return kvpool_report_add(report, "peers",
				 json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", peer->name,
					   "present", 1, "version", version, "lookup", peer->lookup,
					   "copy", peer->copy));
}

int kvpool_contest_add(struct kvpool_contest *contest, const struct kvpool_peer *peer,
		       struct kvpool_report *report)
{
	struct kvpool_contender *contender = &contest->contenders[contest->n];
	uint64_t bytes = 2 * COPY_BYTES + contest->resident.blocks * 256;
	int r;

	if (contest->n == KVPOOL_CONTEST_PEERS_MAX)
		return kvpool_bench_fail(-EINVAL, "at most %u peers", KVPOOL_CONTEST_PEERS_MAX);
	r = peer->start(&contest->folder, contest->session.cpus.daemon, bytes, &contender->state);
	if (r == KVPOOL_PEER_E_ABSENT) {
		fprintf(stderr, "kvpool-bench: %s is not installed here: left out\n", peer->name);
		return kvpool_report_add(report, "peers",
					 json_pack("{s:s, s:b}", "name", peer->name, "present", 0));
	}
	if (r < 0)
		return kvpool_bench_fail(r, "cannot start %s", peer->name);
	contender->peer = peer;
	contest->n++;
	r = report_peer(contender, report);
	if (r == 0) {
		r = fill_peer(contest, contender);
		if (r < 0)
			kvpool_bench_fail(r, "cannot fill %s", peer->name);
	}
	return r;
}

/* One lookup of the keys in contest->keys, timed. */
static int look_up(struct kvpool_contest *contest, struct kvpool_contender *contender, uint32_t c,
		   bool count)
{
	const struct kvpool_ticks *ticks = &contest->session.ticks;
	struct kvpool_channel *channel = contest->session.channel;
	uint32_t n = contest->resident.classes[c].keys;
	struct kvpool_match match = {0};
	uint32_t found = 0;
	uint64_t from;
	uint64_t to;
	int64_t got = 0;

	if (contender->peer) {
		int r = contender->peer->prepare(contender->state, contest->keys, n);

		if (r < 0)
			return kvpool_bench_fail(r, "%s", contender->peer->name);
		from = kvpool_ticks_now(ticks);
		got = contender->peer->ask(contender->state, &found);
		to = kvpool_ticks_now(ticks);
	} else {
		from = kvpool_ticks_now(ticks);
		got = kvpool_match(channel, contest->small, contest->keys, n, 0, 0, 0,
				   contest->found, n, &match);
		to = kvpool_ticks_now(ticks);
		if (got >= 0)
			found = (uint32_t)got;
		kvpool_release(channel, &match, 0);
	}
	if (got < 0 || found != n)
		return kvpool_bench_fail(
			got < 0 ? (int)got : -EIO, "%s found %" PRIu32 " of %" PRIu32 " keys",
			contender->peer ? contender->peer->name : "kvpool", found, n);
	if (count)
		kvpool_samples_add(&contender->lookups[c], to - from);
	return 0;
}

static int run_lookups(struct kvpool_contest *contest, struct kvpool_contender *contender,
		       uint32_t c, uint32_t samples)
{
	uint32_t warm = samples / 10 + 1;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < warm + samples; i++) {
		kvpool_resident_pick(&contest->resident, c, &contest->random, contest->keys);
		r = look_up(contest, contender, c, i >= warm);
	}
	return r;
}

static int store_own(struct kvpool_contest *contest, const uint8_t *key,
		     const struct kvpool_piece *piece)
{
	struct kvpool_channel *channel = contest->session.channel;
	struct kvpool_block block;
	int64_t got = kvpool_reserve(channel, contest->large, 0, NULL, key, 1, 0, &block);

	if (got == 1)
		got = kvpool_store(channel, contest->large, 0, &block, 0, piece, 1);
	if (got == 0)
		got = kvpool_commit(channel, &block, 1, 0, 0);
	return got < 0 ? (int)got : got == 1 ? 0 : -ENOSPC;
}

static int load_own(struct kvpool_contest *contest, const uint8_t *key,
		    const struct kvpool_piece *piece)
{
	struct kvpool_channel *channel = contest->session.channel;
	struct kvpool_match match = {0};
	struct kvpool_block block;
	int64_t got = kvpool_match(channel, contest->large, key, 1, 0, 0, 0, &block, 1, &match);

	if (got == 1)
		got = kvpool_load(channel, contest->large, 0, &block, 0, piece, 1);
	else if (got == 0)
		got = -ENOENT;
	kvpool_release(channel, &match, 0);
	return (int)got;
}

/* One block, timed; `way` 0 stores, 1 loads. */
static int copy_block(struct kvpool_contest *contest, struct kvpool_contender *contender, int way,
		      uint32_t i, bool count)
{
	const struct kvpool_ticks *ticks = &contest->session.ticks;
	uint8_t *from_or_to = way == 0 ? contest->source : contest->target;
	const struct kvpool_piece piece = {from_or_to + i * KVPOOL_CONTEST_BLOCK_BYTES,
					   KVPOOL_CONTEST_BLOCK_BYTES};
	const struct kvpool_peer *peer = contender->peer;
	uint8_t key[KVPOOL_KEY_BYTES];
	uint64_t from;
	int r;

	kvpool_bench_keys(COPY_CHAIN + i, 0, 1, key);
	from = kvpool_ticks_now(ticks);
	if (way == 0)
		r = peer ? peer->set(contender->state, key, piece.address, piece.bytes)
			 : store_own(contest, key, &piece);
	else
		r = peer ? peer->get(contender->state, key, piece.address, piece.bytes)
			 : load_own(contest, key, &piece);
	if (r < 0)
		return kvpool_bench_fail(r, "%s: a block of %" PRIu64 " bytes",
					 peer ? peer->name : "kvpool", KVPOOL_CONTEST_BLOCK_BYTES);
	if (count)
		kvpool_samples_add(&contender->copies[way], kvpool_ticks_now(ticks) - from);
	return 0;
}

static int run_copies(struct kvpool_contest *contest, struct kvpool_contender *contender,
		      bool count)
{
	int64_t r = 0;

	for (int way = 0; r == 0 && way < 2; way++) {
		if (way == 1)
			memset(contest->target, 0, COPY_BYTES);
		for (uint32_t i = 0; r == 0 && i < KVPOOL_CONTEST_BLOCKS; i++)
			r = copy_block(contest, contender, way, i, count);
	}
	if (r == 0 && memcmp(contest->source, contest->target, COPY_BYTES) != 0)
		return kvpool_bench_fail(-EIO, "%s: blocks came back wrong",
					 contender->peer ? contender->peer->name : "kvpool");
	if (r == 0 && !contender->peer) {
		r = kvpool_forget(contest->session.channel, contest->large, 0, NULL, 0, 0);
		if (r < 0)
			kvpool_bench_fail((int)r, "FORGET");
	}
	return r < 0 ? (int)r : 0;
}

/* So many of each lookup, fewer where one is long. */
static uint32_t samples_of(const struct kvpool_contest *contest, uint32_t c, uint64_t samples)
{
	uint64_t usual = samples ? KVPOOL_MIN(samples, SAMPLES_MAX) : SAMPLES;

	return (uint32_t)KVPOOL_MAX(
		KVPOOL_MIN(usual, KEYS_A_ROUND / contest->resident.classes[c].keys), UINT64_C(1));
}

static int make_room(struct kvpool_contest *contest, struct kvpool_contender *contender,
		     uint32_t rounds, uint64_t samples)
{
	int r = 0;

	for (uint32_t c = 0; r == 0 && c < contest->resident.n_classes; c++)
		r = kvpool_samples_init(&contender->lookups[c],
					(size_t)samples_of(contest, c, samples) * rounds);
	for (int way = 0; r == 0 && way < 2; way++)
		r = kvpool_samples_init(&contender->copies[way],
					(size_t)KVPOOL_CONTEST_BLOCKS * rounds);
	return r < 0 ? kvpool_bench_fail(r, "compare") : 0;
}

static struct kvpool_contender *contender_at(struct kvpool_contest *contest, uint32_t i)
{
	return i < contest->n ? &contest->contenders[i] : &contest->own;
}

int kvpool_contest_run(struct kvpool_contest *contest, uint32_t rounds, uint64_t samples)
{
	struct kvpool_progress progress;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i <= contest->n; i++)
		r = make_room(contest, contender_at(contest, i), rounds, samples);
	/* Round 0 of the copies warms up; pages of the pool come into this process then. */
	for (uint32_t i = 0; r == 0 && i <= contest->n; i++)
		r = run_copies(contest, contender_at(contest, i), false);
	kvpool_progress_start(&progress, "compare", rounds);
	for (uint32_t round = 0; r == 0 && round < rounds; round++) {
		for (uint32_t c = 0; r == 0 && c < contest->resident.n_classes; c++) {
			for (uint32_t i = 0; r == 0 && i <= contest->n; i++)
				r = run_lookups(contest, contender_at(contest, i), c,
						samples_of(contest, c, samples));
		}
		for (uint32_t i = 0; r == 0 && i <= contest->n; i++)
			r = run_copies(contest, contender_at(contest, i), true);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r;
}
