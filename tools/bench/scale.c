/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench scale: many channels attached, a few of them busy with lookups of one key, the
 * others silent. All channels belong to this process; a busy one has a thread and, as far as there
 * are cores, a core of its own.
 *
 * The numbers of channels take turns in rounds. The main thread opens and closes channels and
 * starts the threads; each thread alone touches its channel while it runs.
 */
#include "tools/bench/bench.h"

#include "tools/bench/keys.h"
#include "tools/bench/report.h"
#include "tools/bench/resident.h"
#include "tools/bench/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#define ROUNDS       5u
#define SAMPLES      20000u
#define SAMPLES_MAX  1000000u
#define BUSY_MAX     4u
#define CHANNELS_MAX KVPOOL_CLIENT_CHANNELS_MAX
#define RESIDENT     UINT64_C(4096) /* few, so that the memory does not hide the channels */
#define WARM_UP      1000u
#define SEED         UINT64_C(20260103)
#define GOAL_RATIO   1.05

struct scale;

/* One busy channel in one round. */
struct worker {
	struct scale *scale;            /* borrowed */
	struct kvpool_channel *channel; /* borrowed */
	int cpu;
	uint64_t random;
	struct kvpool_samples samples; /* of this round; owned by the thread while it runs */
	uint64_t ns;                   /* the whole round */
	int error;
};

struct figure {
	uint32_t channels;
	uint32_t busy;
	struct kvpool_samples samples;
	double requests_per_second; /* sum over rounds */
	uint32_t rounds;
};

struct scale {
	struct kvpool_bench_session session;
	struct kvpool_layout *layout; /* borrowed: the handle's */
	struct kvpool_resident resident;
	/* Owned, but [0], which is the session's. */
	struct kvpool_channel *channels[CHANNELS_MAX];
	uint32_t n_channels;
	uint32_t samples;
	/* W: the main thread, release S1. R: workers, acquire S2. S1 -> S2: all are ready. */
	_Atomic uint32_t go;
	/* W: workers, release S3. R: the main thread, acquire S4. */
	_Atomic uint32_t ready;
	struct worker workers[BUSY_MAX];
	struct figure figures[KVPOOL_BENCH_LIST_MAX];
	uint32_t n_figures;
};

static const struct kvpool_column columns[] = {
	{"channels", "n", KVPOOL_COLUMN_COUNT},
	{"busy", "busy", KVPOOL_COLUMN_COUNT},
	{"requests/s", "requests_per_second", KVPOOL_COLUMN_COUNT},
	{"p50", "p50_ns", KVPOOL_COLUMN_NS},
	{"p99", "p99_ns", KVPOOL_COLUMN_NS},
	{"p50 of the first", "p50_ratio", KVPOOL_COLUMN_NUMBER},
	{"goal", "goal", KVPOOL_COLUMN_TEXT},
	{"", "met", KVPOOL_COLUMN_MET},
};

static int look_up(struct worker *worker, struct kvpool_samples *samples)
{
	struct scale *scale = worker->scale;
	const struct kvpool_ticks *ticks = &scale->session.ticks;
	uint8_t key[KVPOOL_KEY_BYTES];
	struct kvpool_match match;
	struct kvpool_block block;
	uint64_t from;
	int64_t got;

	kvpool_resident_pick(&scale->resident, 0, &worker->random, key);
	from = kvpool_ticks_now(ticks);
	got = kvpool_match(worker->channel, scale->layout, key, 1, 0, 0, 0, &block, 1, &match);
	if (samples)
		kvpool_samples_add(samples, kvpool_ticks_now(ticks) - from);
	if (got != 1)
		return got < 0 ? (int)got : -EIO;
	kvpool_release(worker->channel, &match, 0);
	return 0;
}

static void *work(void *cookie)
{
	struct worker *worker = cookie;
	struct scale *scale = worker->scale;
	uint64_t from;
	int r = kvpool_cpus_pin(worker->cpu);

	for (uint32_t i = 0; r == 0 && i < WARM_UP; i++)
		r = look_up(worker, NULL);
	atomic_fetch_add_explicit(&scale->ready, 1, memory_order_release);  /* S3 -> S4 */
	while (atomic_load_explicit(&scale->go, memory_order_acquire) == 0) /* S2 <- S1 */
		sched_yield();
	from = kvpool_monotonic_ns();
	for (uint32_t i = 0; r == 0 && i < scale->samples; i++)
		r = look_up(worker, &worker->samples);
	worker->ns = kvpool_monotonic_ns() - from;
	worker->error = r;
	return NULL;
}

/* Channels in use are the first n: opens what is missing, closes what is too much. */
static int attach(struct scale *scale, uint32_t n)
{
	while (scale->n_channels < n) {
		int r = kvpool_channel_open(scale->session.pool,
					    &scale->channels[scale->n_channels]);

		if (r < 0)
			return kvpool_bench_fail(r, "cannot open channel %" PRIu32 " (%s)",
						 scale->n_channels + 1,
						 kvpool_error(scale->session.pool));
		scale->n_channels++;
	}
	while (scale->n_channels > n)
		kvpool_channel_close(scale->channels[--scale->n_channels]);
	return 0;
}

static int run_workers(struct scale *scale, uint32_t busy)
{
	pthread_t threads[BUSY_MAX];
	uint32_t started = 0;
	int r = 0;

	atomic_store_explicit(&scale->go, 0, memory_order_relaxed); /* no thread runs */
	atomic_store_explicit(&scale->ready, 0, memory_order_relaxed);
	while (started < busy && r == 0) {
		struct worker *worker = &scale->workers[started];

		/* Spread over the channels, so that busy ones are not the first of the daemon. */
		worker->channel = scale->channels[started * scale->n_channels / busy];
		worker->samples.n = 0;
		r = -pthread_create(&threads[started], NULL, work, worker);
		if (r == 0)
			started++;
	}
	while (atomic_load_explicit(&scale->ready, memory_order_acquire) < started) /* S4 <- S3 */
		sched_yield();
	atomic_store_explicit(&scale->go, 1, memory_order_release); /* S1 -> S2 */
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; r == 0 && i < started; i++)
		r = scale->workers[i].error;
	return r < 0 ? kvpool_bench_fail(r, "a lookup") : 0;
}

static int run_figure(struct scale *scale, struct figure *figure)
{
	uint64_t longest = 1;
	int r = attach(scale, figure->channels);

	if (r == 0)
		r = run_workers(scale, figure->busy);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < figure->busy; i++) {
		kvpool_samples_join(&figure->samples, &scale->workers[i].samples);
		longest = KVPOOL_MAX(longest, scale->workers[i].ns);
	}
	figure->requests_per_second +=
		(double)figure->busy * scale->samples * 1e9 / (double)longest;
	figure->rounds++;
	return 0;
}

static int run_rounds(struct scale *scale, uint32_t rounds)
{
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "scale", (uint64_t)rounds * scale->n_figures);
	for (uint32_t round = 0; r == 0 && round < rounds; round++) {
		for (uint32_t i = 0; r == 0 && i < scale->n_figures; i++) {
			r = run_figure(scale, &scale->figures[i]);
			if (r == 0)
				r = kvpool_progress_step(&progress);
		}
	}
	kvpool_progress_end(&progress);
	return r;
}

/* A core of its own for each busy channel, unless told otherwise. */
static int plan(const struct kvpool_bench_options *options, struct scale *scale, uint32_t rounds)
{
	static const struct kvpool_bench_list usual = {5, {1, 2, 8, 64, 256}};
	const struct kvpool_bench_list *list = options->channels.n ? &options->channels : &usual;
	const struct kvpool_cpus *cpus = &scale->session.cpus;
	uint32_t limit = KVPOOL_MIN(options->busy ? options->busy : 1 + cpus->n_others, BUSY_MAX);
	int r = 0;

	scale->samples = (uint32_t)(options->samples ? options->samples : SAMPLES);
	for (uint32_t i = 0; r == 0 && i < BUSY_MAX; i++) {
		struct worker *worker = &scale->workers[i];

		worker->scale = scale;
		worker->random = SEED + i;
		worker->cpu = i == 0 || cpus->n_others == 0
				      ? cpus->client
				      : cpus->others[(i - 1) % cpus->n_others];
		if (i < limit)
			r = kvpool_samples_init(&worker->samples, scale->samples);
	}
	for (uint32_t i = 0; r == 0 && i < list->n; i++) {
		struct figure *figure = &scale->figures[scale->n_figures++];

		if (list->values[i] > CHANNELS_MAX)
			return kvpool_bench_fail(-EINVAL, "--channels: a client has at most %u",
						 CHANNELS_MAX);
		figure->channels = (uint32_t)list->values[i];
		figure->busy = KVPOOL_MIN(limit, figure->channels);
		r = kvpool_samples_init(&figure->samples,
					(size_t)figure->busy * scale->samples * rounds);
	}
	return r;
}

static int report_figure(struct scale *scale, struct figure *figure, struct kvpool_report *report,
			 uint64_t *first)
{
	const struct kvpool_ticks *ticks = &scale->session.ticks;
	uint64_t p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&figure->samples, 50));
	uint64_t p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(&figure->samples, 99));
	json_t *row = json_pack("{s:I, s:I, s:f, s:I, s:I}", "n", (json_int_t)figure->channels,
				"busy", (json_int_t)figure->busy, "requests_per_second",
				figure->requests_per_second / figure->rounds, "p50_ns",
				(json_int_t)p50, "p99_ns", (json_int_t)p99);

	if (*first == 0)
		*first = p50;
	/* Only equal numbers of busy channels can be compared. */
	if (row && figure->busy == scale->figures[0].busy) {
		double ratio = (double)p50 / (double)*first;

		json_object_set_new(row, "p50_ratio", json_real(ratio));
		json_object_set_new(row, "goal", json_string("idle ones add under 5 %"));
		json_object_set_new(row, "met", json_boolean(ratio < GOAL_RATIO));
	}
	return kvpool_report_add(report, "channels", row);
}

static int report_all(struct scale *scale, struct kvpool_report *report)
{
	uint32_t cores = 1 + scale->session.cpus.n_others;
	uint64_t first = 0;
	int r = kvpool_bench_session_describe(&scale->session, report);

	if (r == 0)
		r = kvpool_report_set(report, "cores_for_busy", json_integer((json_int_t)cores));
	if (r == 0)
		r = kvpool_report_set(report, "resident",
				      json_integer((json_int_t)scale->resident.blocks));
	if (r == 0 && cores < BUSY_MAX)
		r = kvpool_report_set(report, "busy_limited_by",
				      json_string("cores: one is the daemon's"));
	for (uint32_t i = 0; r == 0 && i < scale->n_figures; i++)
		r = report_figure(scale, &scale->figures[i], report, &first);
	kvpool_report_table(report, "channels", columns, KVPOOL_ARRAY_SIZE(columns));
	return r;
}

/* A channel is three descriptors on each side; the daemon inherits the limit. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void clear(struct scale *scale)
{
	while (scale->n_channels > 1)
		kvpool_channel_close(scale->channels[--scale->n_channels]);
	for (uint32_t i = 0; i < BUSY_MAX; i++)
		kvpool_samples_clear(&scale->workers[i].samples);
	for (uint32_t i = 0; i < scale->n_figures; i++)
		kvpool_samples_clear(&scale->figures[i].samples);
	kvpool_bench_session_close(&scale->session);
	free(scale);
}

int kvpool_bench_scale(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	static const struct kvpool_bench_list one = {1, {1}};
	uint32_t rounds = options->rounds ? options->rounds : ROUNDS;
	struct scale *scale;
	int r;

	if (options->samples > SAMPLES_MAX || options->busy > BUSY_MAX)
		return kvpool_bench_fail(-EINVAL, "at most %u samples and %u busy channels",
					 SAMPLES_MAX, BUSY_MAX);
	scale = calloc(1, sizeof(*scale));
	if (!scale)
		return kvpool_bench_fail(-ENOMEM, "scale");
	raise_descriptors();
	r = kvpool_resident_plan(RESIDENT, &one, false, &scale->resident);
	if (r == 0)
		r = kvpool_bench_session_open(options, kvpool_resident_pool_bytes(&scale->resident),
					      false, &scale->session);
	if (r < 0) {
		free(scale);
		return r;
	}
	scale->channels[0] = scale->session.channel;
	scale->n_channels = 1;
	r = plan(options, scale, rounds);
	if (r == 0)
		r = kvpool_bench_session_layout(&scale->session, "bench-scale",
						KVPOOL_RESIDENT_SLOT_BYTES, &scale->layout);
	if (r == 0)
		r = kvpool_resident_fill(&scale->resident, &scale->session, scale->layout);
	if (r == 0)
		r = run_rounds(scale, rounds);
	if (r == 0)
		r = report_all(scale, report);
	clear(scale);
	return r;
}
