/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench restart: the daemon is killed and the next life takes over its pool. How long a
 * client that asks all the time has no answer and no hit, how long adoption takes, what is kept.
 *
 * The client asks again as soon as a call has failed, but for a pause that leaves the core to the
 * daemon. Nothing is pinned. One thread.
 */
#include "tools/bench/bench.h"

#include "tools/bench/keys.h"
#include "tools/bench/progress.h"
#include "tools/bench/report.h"
#include "tools/bench/resident.h"
#include "tools/bench/samples.h"
#include "tools/bench/session.h"
#include "tools/bench/status.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS      UINT64_C(100000)
#define ROUNDS      5u
#define CHAIN_KEYS  64u
#define ASKED       1000u /* lookups before the kill, and after the first hit */
#define RETRY_NS    50000
#define PATIENCE_NS UINT64_C(60000000000)
#define POLL_MS     5
/* The supervisor takes a shorter life for a crash and waits before it starts another. */
#define LIFE_MS 1100

struct bench {
	struct kvpool_bench_session session;
	struct kvpool_layout *layout;
	struct kvpool_resident resident;
	uint64_t random;
	struct kvpool_block *blocks; /* owned: CHAIN_KEYS */
	struct kvpool_samples first_hit, adopt, gap;
	double kept_min;
};

/* One death, in nanoseconds. */
struct lap {
	uint64_t first_hit;     /* from the kill */
	uint64_t gap;           /* longest time between two answers */
	uint64_t adopt;         /* as the daemon says */
	uint64_t before, after; /* blocks */
};

static const struct kvpool_column columns[] = {
	{"blocks before", "blocks_before", KVPOOL_COLUMN_COUNT},
	{"after", "blocks_after", KVPOOL_COLUMN_COUNT},
	{"first hit ms", "first_hit_ms", KVPOOL_COLUMN_NUMBER},
	{"adopt ms", "adopt_ms", KVPOOL_COLUMN_NUMBER},
	{"client gap ms", "client_gap_ms", KVPOOL_COLUMN_NUMBER},
};

/* One lookup of a random chain: its hit in keys, or a negative errno. */
static int64_t ask(struct bench *bench)
{
	struct kvpool_bench_session *session = &bench->session;
	uint8_t keys[CHAIN_KEYS * KVPOOL_KEY_BYTES];
	struct kvpool_match match;
	int64_t hit;

	kvpool_resident_pick(&bench->resident, 0, &bench->random, keys);
	hit = kvpool_match(session->channel, bench->layout, keys, CHAIN_KEYS, 0, 0, 0,
			   bench->blocks, CHAIN_KEYS, &match);
	if (hit > 0)
		kvpool_release(session->channel, &match, 0);
	return hit;
}

static uint64_t number(const json_t *status, const char *object, const char *field)
{
	json_int_t value =
		json_integer_value(json_object_get(json_object_get(status, object), field));

	return value > 0 ? (uint64_t)value : 0;
}

/* The daemon's process once it has lived for long enough, and how many blocks it has. */
static int look_before(struct bench *bench, pid_t *pid, struct lap *lap)
{
	struct kvpool_status_cache cache;
	json_t *status;
	int r;

	for (;;) {
		r = kvpool_daemon_run_status(&bench->session.daemon, &status);
		if (r < 0)
			return r;
		if (json_integer_value(json_object_get(status, "uptime_ms")) >= LIFE_MS)
			break;
		json_decref(status);
		if (kvpool_bench_interrupted() < 0)
			return -EINTR;
		kvpool_interrupt_pause(POLL_MS);
	}
	kvpool_status_cache(status, &cache);
	lap->before = cache.ready_blocks;
	*pid = (pid_t)json_integer_value(json_object_get(status, "pid"));
	json_decref(status);
	return 0;
}

static int look_after(struct bench *bench, struct lap *lap)
{
	json_t *status;
	int r = kvpool_daemon_run_status(&bench->session.daemon, &status);

	if (r < 0)
		return r;
	lap->adopt = number(status, "restart", "ns");
	lap->after = number(status, "restart", "blocks");
	json_decref(status);
	return 0;
}

/* Asks until `asked` lookups hit; notes the longest time without an answer, and the first hit. */
static int ask_on(struct bench *bench, uint32_t asked, uint64_t *last, struct lap *lap,
		  uint64_t killed)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	uint64_t until = *last + PATIENCE_NS;
	uint32_t hits = 0;

	while (hits < asked) {
		int64_t hit = ask(bench);
		uint64_t now = kvpool_monotonic_ns();

		if (hit >= 0) {
			lap->gap = KVPOOL_MAX(lap->gap, now - *last);
			*last = now;
		}
		if (hit > 0 && killed != 0 && lap->first_hit == 0)
			lap->first_hit = now - killed;
		hits += hit > 0;
		if (hit > 0)
			continue;
		if (kvpool_bench_interrupted() < 0)
			return -EINTR;
		if (now > until)
			return kvpool_bench_fail(-ETIMEDOUT, "no hit any more (%s)",
						 kvpool_channel_error(bench->session.channel));
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int run_lap(struct bench *bench, struct lap *lap)
{
	uint64_t last, killed;
	pid_t pid = 0;
	int r = look_before(bench, &pid, lap);

	last = kvpool_monotonic_ns();
	if (r == 0)
		r = ask_on(bench, ASKED, &last, lap, 0);
	lap->gap = 0;
	if (r < 0)
		return r;
	killed = kvpool_monotonic_ns();
	if (kill(pid, SIGKILL) != 0)
		return kvpool_bench_fail(-errno, "cannot kill process %d", (int)pid);
	/* What it answered before the signal came is no answer of the next life. */
	r = ask_on(bench, ASKED, &last, lap, killed);
	return r == 0 ? look_after(bench, lap) : r;
}

static int begin(const struct kvpool_bench_options *options, struct bench *bench)
{
	const struct kvpool_bench_list keys = {1, {CHAIN_KEYS}};
	struct kvpool_daemon_spec spec = {
		.options = options, .populate = true, .cpu = -1, .supervise = true};
	int r = kvpool_resident_plan(options->resident ? options->resident : BLOCKS, &keys, false,
				     &bench->resident);

	if (r < 0)
		return r;
	spec.pool_bytes = kvpool_resident_pool_bytes(&bench->resident);
	r = kvpool_daemon_run_start(&spec, &bench->session.daemon);
	if (r == 0)
		r = kvpool_daemon_run_await(&bench->session.daemon);
	if (r == 0)
		r = kvpool_bench_session_attach(&bench->session);
	if (r == 0)
		r = kvpool_bench_session_await_full(&bench->session);
	if (r == 0)
		r = kvpool_bench_session_layout(&bench->session, "bench-restart",
						KVPOOL_RESIDENT_SLOT_BYTES, &bench->layout);
	if (r == 0)
		r = kvpool_resident_fill(&bench->resident, &bench->session, bench->layout);
	return r;
}

static int add_lap(struct bench *bench, const struct lap *lap, struct kvpool_report *report)
{
	double kept = lap->before ? (double)lap->after / (double)lap->before : 0;

	bench->kept_min = KVPOOL_MIN(bench->kept_min, kept);
	kvpool_samples_add(&bench->first_hit, lap->first_hit);
	kvpool_samples_add(&bench->adopt, lap->adopt);
	kvpool_samples_add(&bench->gap, lap->gap);
	return kvpool_report_add(
		report, "laps",
		json_pack("{s:I, s:I, s:f, s:f, s:f}", "blocks_before", (json_int_t)lap->before,
			  "blocks_after", (json_int_t)lap->after, "first_hit_ms",
			  (double)lap->first_hit / 1e6, "adopt_ms", (double)lap->adopt / 1e6,
			  "client_gap_ms", (double)lap->gap / 1e6));
}

static json_t *p50_and_max(struct kvpool_samples *samples)
{
	return json_pack("{s:f, s:f}", "p50", (double)kvpool_samples_percentile(samples, 50) / 1e6,
			 "max", (double)kvpool_samples_percentile(samples, 100) / 1e6);
}

static int report_all(struct bench *bench, uint32_t rounds, struct kvpool_report *report)
{
	int r = kvpool_report_set(report, "blocks",
				  json_integer((json_int_t)bench->resident.blocks));

	if (r == 0)
		r = kvpool_report_set(report, "rounds", json_integer(rounds));
	if (r == 0)
		r = kvpool_report_set(report, "kept_ratio", json_real(bench->kept_min));
	if (r == 0)
		r = kvpool_report_set(report, "first_hit_ms", p50_and_max(&bench->first_hit));
	if (r == 0)
		r = kvpool_report_set(report, "adopt_ms", p50_and_max(&bench->adopt));
	if (r == 0)
		r = kvpool_report_set(report, "client_gap_ms", p50_and_max(&bench->gap));
	kvpool_report_table(report, "laps", columns, KVPOOL_ARRAY_SIZE(columns));
	return r;
}

static int run_laps(struct bench *bench, uint32_t rounds, struct kvpool_report *report)
{
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "restart", rounds);
	for (uint32_t i = 0; r == 0 && i < rounds; i++) {
		struct lap lap = {0};

		r = run_lap(bench, &lap);
		if (r == 0)
			r = add_lap(bench, &lap, report);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r == 0 ? report_all(bench, rounds, report) : r;
}

int kvpool_bench_restart(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	uint32_t rounds = options->rounds ? options->rounds : ROUNDS;
	struct bench bench = {.random = 1, .kept_min = 1};
	int r = kvpool_samples_init(&bench.first_hit, rounds);

	if (r == 0)
		r = kvpool_samples_init(&bench.adopt, rounds);
	if (r == 0)
		r = kvpool_samples_init(&bench.gap, rounds);
	bench.blocks = calloc(CHAIN_KEYS, sizeof(*bench.blocks));
	if (r == 0 && !bench.blocks)
		r = -ENOMEM;
	if (r == 0)
		r = begin(options, &bench);
	if (r == 0)
		r = run_laps(&bench, rounds, report);
	kvpool_bench_session_close(&bench.session);
	kvpool_samples_clear(&bench.first_hit);
	kvpool_samples_clear(&bench.adopt);
	kvpool_samples_clear(&bench.gap);
	free(bench.blocks);
	return r;
}
