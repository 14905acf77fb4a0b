/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench idle: the processor time and the wake-ups of a daemon with an attached client that
 * says nothing, and how long the first lookup takes that finds it asleep.
 *
 * Time comes from the scheduler's own accounts in /proc (nanoseconds), over all threads of the
 * daemon. One thread.
 */
#include "tools/bench/bench.h"

#include "tools/bench/report.h"
#include "tools/bench/resident.h"
#include "tools/bench/samples.h"
#include "tools/bench/tasks.h"
#include "tools/interrupt.h"

#include <errno.h>

#define SECONDS      10u
#define SECONDS_MAX  3600u
#define SAMPLES      300u
#define SAMPLES_MAX  100000u
#define RESIDENT     UINT64_C(4096)
#define SEED         UINT64_C(20260105)
#define QUIET_MS     20    /* asleep and without a switch for so long: it sleeps */
#define QUIET_MAX_MS 10000 /* a daemon that does not sleep within this never will */
#define GOAL_CPU_MS  1.0

struct idle {
	struct kvpool_bench_session session;
	struct kvpool_layout *layout; /* borrowed: the handle's */
	struct kvpool_resident resident;
	struct kvpool_samples asleep; /* ticks of a lookup that wakes the daemon */
	struct kvpool_samples awake;  /* ticks of the lookup right after it */
	uint64_t random;
	pid_t pid;
};

static int look_up(struct idle *idle, struct kvpool_samples *samples)
{
	const struct kvpool_ticks *ticks = &idle->session.ticks;
	struct kvpool_channel *channel = idle->session.channel;
	uint8_t key[KVPOOL_KEY_BYTES];
	struct kvpool_match match;
	struct kvpool_block block;
	uint64_t from;
	int64_t got;

	kvpool_resident_pick(&idle->resident, 0, &idle->random, key);
	from = kvpool_ticks_now(ticks);
	got = kvpool_match(channel, idle->layout, key, 1, 0, 0, 0, &block, 1, &match);
	kvpool_samples_add(samples, kvpool_ticks_now(ticks) - from);
	if (got != 1)
		return kvpool_bench_fail(got < 0 ? (int)got : -EIO, "MATCH (%s)",
					 kvpool_channel_error(channel));
	kvpool_release(channel, &match, 0);
	return 0;
}

/* Until no thread of the daemon has run for a while. */
static int await_sleep(struct idle *idle)
{
	struct kvpool_tasks before;
	struct kvpool_tasks after;
	int r = kvpool_tasks_read(idle->pid, &before);

	for (int waited = 0; r == 0; waited += QUIET_MS) {
		kvpool_interrupt_pause(QUIET_MS);
		r = kvpool_tasks_read(idle->pid, &after);
		if (r == 0)
			r = kvpool_bench_interrupted();
		if (r == 0 && after.cpu_ns == before.cpu_ns && after.sleeping == after.threads)
			return 0;
		if (waited > QUIET_MAX_MS)
			return kvpool_bench_fail(-EBUSY, "the daemon does not sleep");
		before = after;
	}
	return r;
}

static int measure_wake(struct idle *idle, uint32_t samples)
{
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "wake", samples);
	for (uint32_t i = 0; r == 0 && i < samples; i++) {
		r = await_sleep(idle);
		if (r == 0)
			r = look_up(idle, &idle->asleep);
		if (r == 0)
			r = look_up(idle, &idle->awake);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r;
}

/* Sits still for so many seconds; `spent` is what the daemon did meanwhile. */
static int measure_idle(struct idle *idle, uint32_t seconds, struct kvpool_tasks *spent)
{
	struct kvpool_progress progress;
	struct kvpool_tasks before = {0};
	struct kvpool_tasks after = {0};
	int r = await_sleep(idle);

	if (r == 0)
		r = kvpool_tasks_read(idle->pid, &before);
	kvpool_progress_start(&progress, "idle", seconds);
	for (uint32_t i = 0; r == 0 && i < seconds; i++) {
		kvpool_interrupt_pause(1000);
		r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	if (r == 0)
		r = kvpool_tasks_read(idle->pid, &after);
	if (r < 0)
		return r;
	spent->cpu_ns = after.cpu_ns - before.cpu_ns;
	spent->switches = after.switches - before.switches;
	return 0;
}

/* p50 and p99 in microseconds. */
static json_t *percentiles_us(struct kvpool_samples *samples, const struct kvpool_ticks *ticks)
{
	uint64_t p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(samples, 50));
	uint64_t p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(samples, 99));

	return json_pack("{s:f, s:f}", "p50", (double)p50 / 1e3, "p99", (double)p99 / 1e3);
}

static int report_all(struct idle *idle, uint32_t seconds, const struct kvpool_tasks *spent,
		      struct kvpool_report *report)
{
	const struct kvpool_ticks *ticks = &idle->session.ticks;
	double cpu_ms = (double)spent->cpu_ns / 1e6 * 10 / seconds;
	int r = kvpool_bench_session_describe(&idle->session, report);

	if (r == 0)
		r = kvpool_report_set(report, "seconds", json_integer((json_int_t)seconds));
	if (r == 0)
		r = kvpool_report_set(report, "cpu_ms_per_10s", json_real(cpu_ms));
	if (r == 0)
		r = kvpool_report_set(report, "wakeups_per_10s",
				      json_real((double)spent->switches * 10 / seconds));
	if (r == 0)
		r = kvpool_report_set(report, "sleep_wake_us",
				      percentiles_us(&idle->asleep, ticks));
	if (r == 0)
		r = kvpool_report_set(report, "awake_us", percentiles_us(&idle->awake, ticks));
	if (r == 0)
		r = kvpool_report_set(report, "goal", json_string("cpu_ms_per_10s < 1"));
	if (r == 0)
		r = kvpool_report_set(report, "met", json_boolean(cpu_ms < GOAL_CPU_MS));
	return r;
}

static int measure(const struct kvpool_bench_options *options, struct idle *idle,
		   struct kvpool_report *report)
{
	uint32_t samples = (uint32_t)(options->samples ? options->samples : SAMPLES);
	uint32_t seconds = options->seconds ? options->seconds : SECONDS;
	struct kvpool_tasks spent = {0};
	int r = kvpool_bench_session_open(options, kvpool_resident_pool_bytes(&idle->resident),
					  false, &idle->session);

	if (r < 0)
		return r;
	idle->pid = kvpool_daemon_run_pid(&idle->session.daemon);
	r = idle->pid < 0 ? kvpool_bench_fail((int)idle->pid, "no process of the daemon") : 0;
	if (r == 0)
		r = kvpool_samples_init(&idle->asleep, samples);
	if (r == 0)
		r = kvpool_samples_init(&idle->awake, samples);
	if (r == 0)
		r = kvpool_bench_session_layout(&idle->session, "bench-idle",
						KVPOOL_RESIDENT_SLOT_BYTES, &idle->layout);
	if (r == 0)
		r = kvpool_resident_fill(&idle->resident, &idle->session, idle->layout);
	if (r == 0)
		r = measure_wake(idle, samples);
	if (r == 0)
		r = measure_idle(idle, seconds, &spent);
	return r == 0 ? report_all(idle, seconds, &spent, report) : r;
}

int kvpool_bench_idle(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	static const struct kvpool_bench_list one = {1, {1}};
	struct idle idle = {.random = SEED};
	int r;

	if (options->samples > SAMPLES_MAX || options->seconds > SECONDS_MAX)
		return kvpool_bench_fail(-EINVAL, "at most %u samples and %u seconds", SAMPLES_MAX,
					 SECONDS_MAX);
	r = kvpool_resident_plan(RESIDENT, &one, false, &idle.resident);
	if (r == 0)
		r = measure(options, &idle, report);
	kvpool_samples_clear(&idle.asleep);
	kvpool_samples_clear(&idle.awake);
	kvpool_bench_session_close(&idle.session);
	return r;
}
