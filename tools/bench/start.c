/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench start: from the fork of kvpoold until its socket answers, until a block has been
 * stored and found again, until all of the pool is populated.
 *
 * Nothing is pinned here: the daemon's populating thread works beside its service thread, as it
 * does for a person. One thread.
 */
#include "tools/bench/bench.h"

#include "tools/bench/keys.h"
#include "tools/bench/progress.h"
#include "tools/bench/report.h"
#include "tools/bench/session.h"
#include "tools/bench/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS      3u
#define ROUNDS_MAX  100u
#define BLOCK_BYTES (UINT64_C(2) << 20)
#define PATIENCE_NS UINT64_C(60000000000)
#define RETRY_NS    100000
#define SEED        UINT64_C(20260104)
#define GOAL_MS     1000.0

/* One start, in nanoseconds from the fork. */
struct lap {
	uint64_t ready;
	uint64_t first_hit;
	uint64_t full;
	uint64_t pool_bytes;
};

static const struct kvpool_column columns[] = {
	{"pool", "pool_bytes", KVPOOL_COLUMN_BYTES},
	{"ready ms", "ready_ms", KVPOOL_COLUMN_NUMBER},
	{"first hit ms", "first_hit_ms", KVPOOL_COLUMN_NUMBER},
	{"full ms", "full_ms", KVPOOL_COLUMN_NUMBER},
};

/* One block, as soon as there is a place for it. */
static int reserve_first(struct kvpool_bench_session *session, struct kvpool_layout *layout,
			 const uint8_t *key, struct kvpool_block *block)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	uint64_t until = kvpool_monotonic_ns() + PATIENCE_NS;

	for (;;) {
		int64_t got = kvpool_reserve(session->channel, layout, 0, NULL, key, 1, 0, block);

		if (got == 1)
			return 0;
		if (got < 0 && got != -ENOSPC)
			return kvpool_bench_fail((int)got, "RESERVE (%s)",
						 kvpool_channel_error(session->channel));
		if (kvpool_monotonic_ns() > until)
			return kvpool_bench_fail(-ENOSPC, "no place for a block (%s)",
						 kvpool_no_space_text(session->channel));
		nanosleep(&pause, NULL);
	}
}

/* Stores a block of the handle's, finds it and reads it back. */
static int hit_first(struct kvpool_bench_session *session)
{
	struct kvpool_layout *layout;
	struct kvpool_piece piece = {.bytes = BLOCK_BYTES};
	uint8_t key[KVPOOL_KEY_BYTES];
	struct kvpool_block block;
	struct kvpool_match match;
	int64_t got = 0;
	int r = kvpool_bench_session_layout(session, "bench-start", BLOCK_BYTES, &layout);

	if (r < 0)
		return r;
	piece.address = malloc(BLOCK_BYTES);
	if (!piece.address)
		return -ENOMEM;
	memset(piece.address, 0x5a, BLOCK_BYTES);
	kvpool_bench_keys(SEED, 0, 1, key);
	r = reserve_first(session, layout, key, &block);
	if (r == 0)
		r = kvpool_store(session->channel, layout, 0, &block, 0, &piece, 1);
	if (r == 0)
		got = kvpool_commit(session->channel, &block, 1, 0, 0);
	if (got == 1)
		got = kvpool_match(session->channel, layout, key, 1, 0, 0, 0, &block, 1, &match);
	if (r == 0 && got == 1)
		kvpool_release(session->channel, &match, 0);
	else if (r == 0)
		r = kvpool_bench_fail(got < 0 ? (int)got : -EIO,
				      "the first block is not found (%s)",
				      kvpool_channel_error(session->channel));
	free(piece.address);
	return r;
}

static int run_lap(const struct kvpool_bench_options *options, struct lap *out)
{
	const struct kvpool_daemon_spec spec = {
		.options = options,
		.pool_bytes = options->pool_bytes,
		.populate = true,
		.cpu = -1,
	};
	struct kvpool_bench_session session = {0};
	struct lap lap = {0};
	json_t *status;
	int r = kvpool_daemon_run_start(&spec, &session.daemon);

	if (r < 0)
		return r;
	r = kvpool_daemon_run_await(&session.daemon);
	lap.ready = kvpool_monotonic_ns() - session.daemon.spawned_ns;
	if (r == 0)
		r = kvpool_bench_session_attach(&session);
	if (r == 0)
		r = hit_first(&session);
	lap.first_hit = kvpool_monotonic_ns() - session.daemon.spawned_ns;
	if (r == 0)
		r = kvpool_bench_session_await_full(&session);
	lap.full = kvpool_monotonic_ns() - session.daemon.spawned_ns;
	if (r == 0)
		r = kvpool_daemon_run_status(&session.daemon, &status);
	if (r == 0) {
		lap.pool_bytes = kvpool_status_pool_number(status, "bytes");
		json_decref(status);
		*out = lap;
	}
	kvpool_bench_session_close(&session);
	return r;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The median of a field over all laps, in milliseconds. */
static double median_ms(const struct lap *laps, uint32_t n, size_t field)
{
	uint64_t values[ROUNDS_MAX] = {0};
	uint32_t middle = n / 2;

	for (uint32_t i = 0; i < n; i++)
		memcpy(&values[i], (const char *)&laps[i] + field, sizeof(values[i]));
	qsort(values, n, sizeof(values[0]), compare);
	return (double)values[middle] / 1e6;
}

static int report_laps(const struct lap *laps, uint32_t n, struct kvpool_report *report)
{
	double first_hit = median_ms(laps, n, offsetof(struct lap, first_hit));
	int r = kvpool_report_set(report, "pool_bytes",
				  json_integer((json_int_t)laps[0].pool_bytes));

	if (r == 0)
		r = kvpool_report_set(report, "ready_ms",
				      json_real(median_ms(laps, n, offsetof(struct lap, ready))));
	if (r == 0)
		r = kvpool_report_set(report, "first_hit_ms", json_real(first_hit));
	if (r == 0)
		r = kvpool_report_set(report, "full_ms",
				      json_real(median_ms(laps, n, offsetof(struct lap, full))));
	if (r == 0)
		r = kvpool_report_set(report, "goal", json_string("first_hit_ms < 1000"));
	if (r == 0)
		r = kvpool_report_set(report, "met", json_boolean(first_hit < GOAL_MS));
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = kvpool_report_add(report, "laps",
				      json_pack("{s:I, s:f, s:f, s:f}", "pool_bytes",
						(json_int_t)laps[i].pool_bytes, "ready_ms",
						(double)laps[i].ready / 1e6, "first_hit_ms",
						(double)laps[i].first_hit / 1e6, "full_ms",
						(double)laps[i].full / 1e6));
	kvpool_report_table(report, "laps", columns, KVPOOL_ARRAY_SIZE(columns));
	return r;
}

int kvpool_bench_start(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	uint32_t rounds = KVPOOL_MIN(options->rounds ? options->rounds : ROUNDS, ROUNDS_MAX);
	struct lap laps[ROUNDS_MAX];
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "start", rounds);
	for (uint32_t i = 0; r == 0 && i < rounds; i++) {
		r = run_lap(options, &laps[i]);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r == 0 ? report_laps(laps, rounds, report) : r;
}
