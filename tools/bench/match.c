/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench match: from the call with n keys to the answer in hand, with a lease; its RELEASE
 * is posted before the next call, which follows at once, so that the daemon does that work inside
 * the loop too. `paced_p50_ns` leaves 5 us between RELEASE and the next call, as an engine that
 * does something with its blocks would: the difference is the daemon's work after the reply.
 * `warm_p50_ns` asks for the same few chains only, `memory_ns` says what one load costs in a table
 * as large as the daemon's: together they part the time of the code from that of the memory.
 *
 * Keys are made in private memory before the clock starts, as an engine has them. A hit is a whole
 * random chain of the resident set; a miss is a chain of which nothing is there. Ping-pong and all
 * lookups take turns in rounds. One thread.
 */
#include "tools/bench/bench.h"

#include "shm/atomic.h"
#include "tools/bench/keys.h"
#include "tools/bench/latency.h"
#include "tools/bench/pingpong.h"
#include "tools/bench/report.h"
#include "tools/bench/resident.h"
#include "tools/bench/samples.h"
#include "tools/bench/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define RESIDENT     UINT64_C(8000000)
#define ROUNDS       5u
#define PINGS        20000u
#define SAMPLES      50000u /* of one key in a round; fewer of many */
#define SAMPLES_MAX  1000000u
#define KEYS_A_ROUND UINT64_C(2000000)
#define KEYS_A_BATCH KVPOOL_RESIDENT_KEYS_MAX
#define PACE_NS      5000u
#define WARM_CHAINS  64u
#define WARM_KEYS    64u /* in a chain at most: longer ones do not stay in a cache */
#define MEMORY_MIN   (UINT64_C(1) << 20)
#define SEED         UINT64_C(20260101)

#define GOAL_PINGPONG_RATIO 2.0
#define GOAL_P99_NS         3000u
#define GOAL_1024_NS        30000u
#define GOAL_32768_NS       1000000u

enum pass {
	PASS_WARM_UP,
	PASS_COUNT,
	PASS_PACED,
	PASS_WARM, /* hits on the first WARM_CHAINS chains */
};

/* One row of the result: lookups of one length, all hits or all misses. */
struct figure {
	uint32_t class; /* of the resident set */
	uint32_t keys;
	bool hit;
	uint32_t samples_a_round;
	struct kvpool_samples match; /* call to answer, ticks */
	struct kvpool_samples paced; /* the same, of calls that do not follow at once */
	struct kvpool_samples warm;  /* the same, of the same few chains */
	uint64_t cycle_ticks;        /* sum of call to next call */
	uint64_t cycles;
};

struct bench {
	struct kvpool_bench_session session;
	struct kvpool_layout *layout;     /* borrowed: the handle's */
	struct kvpool_pingpong *pingpong; /* owned */
	struct kvpool_resident resident;
	struct kvpool_samples pings;
	uint8_t *keys;               /* owned: of one batch of lookups */
	struct kvpool_block *blocks; /* owned: answers of one lookup */
	uint64_t random;
	uint32_t rounds;
	uint32_t n_figures;
	struct figure figures[2 * KVPOOL_BENCH_LIST_MAX];
};

static const struct kvpool_column columns[] = {
	{"keys", "keys", KVPOOL_COLUMN_COUNT},
	{"hit", "hit", KVPOOL_COLUMN_TEXT},
	{"p50", "p50_ns", KVPOOL_COLUMN_NS},
	{"p99", "p99_ns", KVPOOL_COLUMN_NS},
	{"paced p50", "paced_p50_ns", KVPOOL_COLUMN_NS},
	{"warm p50", "warm_p50_ns", KVPOOL_COLUMN_NS},
	{"cycle", "cycle_ns", KVPOOL_COLUMN_NS},
	{"keys/s", "keys_per_second", KVPOOL_COLUMN_COUNT},
	{"of pingpong", "pingpong_ratio", KVPOOL_COLUMN_NUMBER},
	{"goal", "goal", KVPOOL_COLUMN_TEXT},
	{"", "met", KVPOOL_COLUMN_MET},
};

/* One lookup, timed, and its release. */
static int look_up(struct bench *bench, const struct figure *figure, const uint8_t *keys,
		   uint64_t *took)
{
	const struct kvpool_ticks *ticks = &bench->session.ticks;
	struct kvpool_channel *channel = bench->session.channel;
	int64_t want = figure->hit ? figure->keys : 0;
	struct kvpool_match match;
	uint64_t from = kvpool_ticks_now(ticks);
	int64_t got = kvpool_match(channel, bench->layout, keys, figure->keys, 0, 0, 0,
				   bench->blocks, figure->keys, &match);

	*took = kvpool_ticks_now(ticks) - from;
	if (got < 0)
		return kvpool_bench_fail((int)got, "MATCH (%s)", kvpool_channel_error(channel));
	if (got != want || (want != 0 && match.lease == 0))
		return kvpool_bench_fail(
			-EIO, "MATCH of %" PRIu32 " keys found %" PRIi64 ", not %" PRIi64,
			figure->keys, got, want);
	kvpool_release(channel, &match, 0);
	return 0;
}

static void pause_for(const struct kvpool_ticks *ticks, uint64_t ns)
{
	uint64_t from = kvpool_ticks_now(ticks);

	while (kvpool_ticks_to_ns(ticks, kvpool_ticks_now(ticks) - from) < ns)
		kvpool_cpu_relax();
}

/* Lookups of keys that were made before. */
static int run_batch(struct bench *bench, struct figure *figure, uint32_t n, enum pass pass)
{
	const struct kvpool_ticks *ticks = &bench->session.ticks;
	uint64_t first = kvpool_ticks_now(ticks);

	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *keys = bench->keys + (size_t)i * figure->keys * KVPOOL_KEY_BYTES;
		uint64_t took;
		int r = look_up(bench, figure, keys, &took);

		if (r < 0)
			return r;
		if (pass == PASS_COUNT)
			kvpool_samples_add(&figure->match, took);
		if (pass == PASS_WARM)
			kvpool_samples_add(&figure->warm, took);
		if (pass == PASS_PACED) {
			kvpool_samples_add(&figure->paced, took);
			pause_for(ticks, PACE_NS);
		}
	}
	if (pass == PASS_COUNT) {
		figure->cycle_ticks += kvpool_ticks_now(ticks) - first;
		figure->cycles += n;
	}
	return 0;
}

static void pick(struct bench *bench, const struct figure *figure, enum pass pass, uint8_t *keys)
{
	uint64_t chains = bench->resident.classes[figure->class].chains;

	if (!figure->hit)
		kvpool_resident_pick_missing(figure->keys, &bench->random, keys);
	else if (pass == PASS_WARM)
		kvpool_resident_keys(
			&bench->resident, figure->class,
			kvpool_random_below(&bench->random, KVPOOL_MIN(chains, WARM_CHAINS)), keys);
	else
		kvpool_resident_pick(&bench->resident, figure->class, &bench->random, keys);
}

static int run_figure(struct bench *bench, struct figure *figure, uint32_t samples, enum pass pass)
{
	uint32_t batch = KVPOOL_MIN(KEYS_A_BATCH / figure->keys, 1024u);
	int r = 0;

	for (uint32_t done = 0; r == 0 && done < samples;) {
		uint32_t n = KVPOOL_MIN(batch, samples - done);

		for (uint32_t i = 0; i < n; i++)
			pick(bench, figure, pass,
			     bench->keys + (size_t)i * figure->keys * KVPOOL_KEY_BYTES);
		r = run_batch(bench, figure, n, pass);
		done += n;
	}
	return r;
}

static bool has_warm(const struct figure *figure)
{
	return figure->hit && figure->keys <= WARM_KEYS;
}

/* A tenth to warm up, all back to back, a tenth with pauses, a tenth on few chains. */
static int run_passes(struct bench *bench, struct figure *figure)
{
	uint32_t tenth = figure->samples_a_round / 10 + 1;
	int r = run_figure(bench, figure, tenth, PASS_WARM_UP);

	if (r == 0)
		r = run_figure(bench, figure, figure->samples_a_round, PASS_COUNT);
	if (r == 0)
		r = run_figure(bench, figure, tenth, PASS_PACED);
	if (r == 0 && has_warm(figure))
		r = run_figure(bench, figure, tenth, PASS_WARM);
	return r;
}

static int run_rounds(struct bench *bench)
{
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "match", (uint64_t)bench->rounds * bench->n_figures);
	for (uint32_t round = 0; r == 0 && round < bench->rounds; round++) {
		if (bench->pingpong)
			r = kvpool_pingpong_play(bench->pingpong, KVPOOL_PINGPONG_TWO_LINES, PINGS,
						 &bench->session.ticks, &bench->pings);
		for (uint32_t i = 0; r == 0 && i < bench->n_figures; i++) {
			r = run_passes(bench, &bench->figures[i]);
			if (r == 0)
				r = kvpool_progress_step(&progress);
		}
	}
	kvpool_progress_end(&progress);
	return r;
}

static int make_figure(const struct kvpool_bench_options *options, struct bench *bench, uint32_t c,
		       bool hit)
{
	uint64_t samples = options->samples ? options->samples : SAMPLES;
	struct figure *figure = &bench->figures[bench->n_figures++];
	size_t tenths;
	int r;

	figure->class = c;
	figure->keys = bench->resident.classes[c].keys;
	figure->hit = hit;
	figure->samples_a_round =
		(uint32_t)KVPOOL_MAX(KVPOOL_MIN(samples, KEYS_A_ROUND / figure->keys), UINT64_C(1));
	tenths = (size_t)(figure->samples_a_round / 10 + 1) * bench->rounds;
	r = kvpool_samples_init(&figure->match, (size_t)figure->samples_a_round * bench->rounds);
	if (r == 0)
		r = kvpool_samples_init(&figure->paced, tenths);
	if (r == 0 && has_warm(figure))
		r = kvpool_samples_init(&figure->warm, tenths);
	return r;
}

static int plan_figures(const struct kvpool_bench_options *options, struct bench *bench)
{
	int r = 0;

	bench->rounds = options->rounds ? options->rounds : ROUNDS;
	for (uint32_t c = 0; r == 0 && c < bench->resident.n_classes; c++) {
		r = make_figure(options, bench, c, true);
		if (r == 0)
			r = make_figure(options, bench, c, false);
	}
	if (r < 0)
		return r;
	bench->keys = malloc((size_t)KEYS_A_BATCH * KVPOOL_KEY_BYTES);
	bench->blocks = malloc((size_t)KEYS_A_BATCH * sizeof(*bench->blocks));
	bench->random = SEED;
	if (!bench->keys || !bench->blocks)
		return -ENOMEM;
	return kvpool_samples_init(&bench->pings, (size_t)PINGS * bench->rounds);
}

/* Sets the goal of a row, and whether it is met. */
static void judge(json_t *row, const struct figure *figure, uint64_t p50, uint64_t p99,
		  uint64_t pingpong)
{
	const char *goal = NULL;
	bool met = false;

	if (figure->keys == 1 && pingpong != 0) {
		goal = "p50 <= 2x pingpong, p99 < 3 us";
		met = (double)p50 <= GOAL_PINGPONG_RATIO * (double)pingpong && p99 < GOAL_P99_NS;
	} else if (figure->keys == 1024) {
		goal = "p50 <= 30 us";
		met = p50 <= GOAL_1024_NS;
	} else if (figure->keys == 32768) {
		goal = "p50 <= 1 ms";
		met = p50 <= GOAL_32768_NS;
	}
	if (goal) {
		json_object_set_new(row, "goal", json_string(goal));
		json_object_set_new(row, "met", json_boolean(met));
	}
}

static int report_figure(struct bench *bench, struct figure *figure, struct kvpool_report *report,
			 uint64_t pingpong)
{
	const struct kvpool_ticks *ticks = &bench->session.ticks;
	uint64_t p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&figure->match, 50));
	uint64_t p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&figure->match, 99));
	double cycle = (double)figure->cycle_ticks * ticks->ns_per_tick / (double)figure->cycles;
	uint64_t paced = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&figure->paced, 50));
	json_t *row = json_pack(
		"{s:I, s:b, s:I, s:I, s:I, s:f, s:f, s:I, s:I}", "keys", (json_int_t)figure->keys,
		"hit", figure->hit, "p50_ns", (json_int_t)p50, "p99_ns", (json_int_t)p99,
		"paced_p50_ns", (json_int_t)paced, "cycle_ns", cycle, "keys_per_second",
		(double)figure->keys * 1e9 / cycle, "samples", (json_int_t)figure->match.n,
		"chains", (json_int_t)bench->resident.classes[figure->class].chains);

	if (!row)
		return -ENOMEM;
	if (pingpong != 0)
		json_object_set_new(row, "pingpong_ratio",
				    json_real((double)p50 / (double)pingpong));
	if (has_warm(figure))
		json_object_set_new(row, "warm_p50_ns",
				    json_integer((json_int_t)kvpool_ticks_to_ns(
					    ticks, kvpool_samples_percentile(&figure->warm, 50))));
	judge(row, figure, p50, p99, pingpong);
	return kvpool_report_add(report, "results", row);
}

/* What one load costs in a table as large as the daemon's. */
static int report_memory(const struct bench *bench, struct kvpool_report *report, uint64_t bytes)
{
	struct kvpool_latency latency;
	int r;

	if (bytes < MEMORY_MIN)
		return 0;
	r = kvpool_latency_measure(bytes, &bench->session.ticks, &latency);
	if (r < 0)
		return kvpool_bench_fail(r, "no memory to measure");
	return kvpool_report_set(report, "memory_ns",
				 json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)latency.bytes,
					   "small_pages", (json_int_t)latency.small_pages,
					   "huge_pages", (json_int_t)latency.huge_pages));
}

/* What the daemon says of its own metadata, over the blocks that are there. */
static int report_metadata(struct bench *bench, struct kvpool_report *report)
{
	struct kvpool_status_cache cache;
	json_t *status;
	int r = kvpool_daemon_run_status(&bench->session.daemon, &status);

	if (r < 0)
		return r;
	kvpool_status_cache(status, &cache);
	json_decref(status);
	r = kvpool_report_set(report, "resident", json_integer((json_int_t)cache.ready_blocks));
	if (r == 0)
		r = kvpool_report_set(report, "evicted", json_integer((json_int_t)cache.evicted));
	if (r == 0 && cache.ready_blocks != 0)
		r = kvpool_report_set(
			report, "metadata_bytes_per_block",
			json_real((double)cache.metadata_bytes / (double)cache.ready_blocks));
	return r == 0 ? report_memory(bench, report, cache.metadata_bytes) : r;
}

static int report_all(struct bench *bench, struct kvpool_report *report)
{
	uint64_t pingpong = kvpool_ticks_to_ns(&bench->session.ticks,
					       kvpool_samples_percentile(&bench->pings, 50));
	int r = kvpool_bench_session_describe(&bench->session, report);

	if (r == 0 && bench->pingpong)
		r = kvpool_report_set(
			report, "pingpong_ns",
			kvpool_report_percentiles(&bench->pings, &bench->session.ticks));
	if (r == 0)
		r = report_metadata(bench, report);
	if (r == 0)
		r = kvpool_report_set(
			report, "keys_chosen",
			json_string("whole chains of the resident set, at random; each "
				    "length has an equal share of the blocks"));
	for (uint32_t i = 0; r == 0 && i < bench->n_figures; i++)
		r = report_figure(bench, &bench->figures[i], report, pingpong);
	kvpool_report_table(report, "results", columns, KVPOOL_ARRAY_SIZE(columns));
	return r;
}

static void clear(struct bench *bench)
{
	for (uint32_t i = 0; i < bench->n_figures; i++) {
		kvpool_samples_clear(&bench->figures[i].match);
		kvpool_samples_clear(&bench->figures[i].paced);
		kvpool_samples_clear(&bench->figures[i].warm);
	}
	kvpool_samples_clear(&bench->pings);
	free(bench->keys);
	free(bench->blocks);
	kvpool_pingpong_free(bench->pingpong);
	kvpool_bench_session_close(&bench->session);
}

static int measure(const struct kvpool_bench_options *options, struct bench *bench,
		   struct kvpool_report *report)
{
	int r = kvpool_bench_session_open(options, kvpool_resident_pool_bytes(&bench->resident),
					  false, &bench->session);

	if (r < 0)
		return r;
	r = plan_figures(options, bench);
	/* Without a second core there is no ping-pong to be measured against. */
	if (r == 0 && bench->session.cpus.apart)
		r = kvpool_pingpong_new(&bench->session.cpus, &bench->pingpong);
	if (r < 0)
		return kvpool_bench_fail(r, "match");
	r = kvpool_bench_session_layout(&bench->session, "bench-match", KVPOOL_RESIDENT_SLOT_BYTES,
					&bench->layout);
	if (r == 0)
		r = kvpool_resident_fill(&bench->resident, &bench->session, bench->layout);
	if (r == 0)
		r = run_rounds(bench);
	return r == 0 ? report_all(bench, report) : r;
}

int kvpool_bench_match(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	static const struct kvpool_bench_list usual = {4, {1, 32, 1024, 32768}};
	const struct kvpool_bench_list *keys = options->keys.n ? &options->keys : &usual;
	struct bench bench = {0};
	int r;

	if (options->samples > SAMPLES_MAX)
		return kvpool_bench_fail(-EINVAL, "--samples: at most %u", SAMPLES_MAX);
	r = kvpool_resident_plan(options->resident ? options->resident : RESIDENT, keys,
				 keys == &usual, &bench.resident);
	if (r == 0)
		r = measure(options, &bench, report);
	clear(&bench);
	return r;
}
