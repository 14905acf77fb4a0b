/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ping-pong and its command. The main thread serves; a forked process returns.
 */
#include "tools/bench/pingpong.h"

#include "shm/atomic.h"
#include "tools/bench/progress.h"
#include "tools/bench/report.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_UP      1000u
#define ROUNDS       5u
#define SAMPLES      100000u
#define SAMPLES_MAX  10000000u
#define GIVE_UP_SPIN (UINT64_C(1) << 31)

struct table {
	/* W: the server, release B1. R: the partner, acquire B2. B1 -> B2. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) _Atomic uint64_t there;
	/* W: the partner, release B3. R: the server, acquire B4. B3 -> B4. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) _Atomic uint64_t back;
	/* With one line, `there` carries both: odd numbers go, even ones return. */
};

/* What the partner is told to do. */
struct order {
	uint64_t first; /* number of the first ball, odd */
	uint32_t n;
	uint32_t shape; /* enum kvpool_pingpong_shape */
};

struct kvpool_pingpong {
	struct table *table; /* owned: shared mapping */
	pid_t partner;
	int orders;    /* owned: our end of a socket pair; its end is the partner's end */
	uint64_t next; /* number of the next ball */
};

/* Returns whether the ball came; gives up so that no process spins for ever. */
static inline int await(_Atomic uint64_t *word, uint64_t ball)
{
	for (uint64_t i = 0; i < GIVE_UP_SPIN; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) == ball) /* B2, B4 */
			return 1;
		kvpool_cpu_relax();
	}
	return 0;
}

/* The partner: in its own process, never returns. */
static void play_back(struct table *table, int orders)
{
	struct order order;

	while (read(orders, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		_Atomic uint64_t *answer =
			order.shape == KVPOOL_PINGPONG_ONE_LINE ? &table->there : &table->back;

		for (uint32_t i = 0; i < order.n; i++) {
			uint64_t ball = order.first + 2 * (uint64_t)i;

			if (!await(&table->there, ball))
				_exit(1);
			atomic_store_explicit(answer, ball + 1, memory_order_release); /* B3 */
		}
	}
	_exit(0);
}

static int fork_partner(struct kvpool_pingpong *pingpong, int cpu)
{
	pid_t parent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	pingpong->partner = fork();
	if (pingpong->partner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_IGN); /* the server ends it */
		close(ends[0]);
		if (getppid() != parent || kvpool_cpus_pin(cpu) < 0)
			_exit(1);
		play_back(pingpong->table, ends[1]);
	}
	close(ends[1]);
	pingpong->orders = ends[0];
	return pingpong->partner < 0 ? -errno : 0;
}

int kvpool_pingpong_new(const struct kvpool_cpus *cpus, struct kvpool_pingpong **out)
{
	struct kvpool_pingpong *pingpong = calloc(1, sizeof(*pingpong));
	int r;

	if (!pingpong)
		return -ENOMEM;
	pingpong->orders = -1;
	pingpong->next = 1;
	pingpong->table = mmap(NULL, sizeof(*pingpong->table), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r = pingpong->table == MAP_FAILED ? -errno : fork_partner(pingpong, cpus->daemon);
	if (r < 0) {
		kvpool_pingpong_free(pingpong);
		return r;
	}
	*out = pingpong;
	return 0;
}

void kvpool_pingpong_free(struct kvpool_pingpong *pingpong)
{
	if (!pingpong)
		return;
	if (pingpong->orders >= 0)
		close(pingpong->orders);
	if (pingpong->partner > 0)
		waitpid(pingpong->partner, NULL, 0);
	if (pingpong->table != MAP_FAILED)
		munmap(pingpong->table, sizeof(*pingpong->table));
	free(pingpong);
}

int kvpool_pingpong_play(struct kvpool_pingpong *pingpong, enum kvpool_pingpong_shape shape,
			 uint32_t n, const struct kvpool_ticks *ticks,
			 struct kvpool_samples *samples)
{
	struct table *table = pingpong->table;
	_Atomic uint64_t *answer = shape == KVPOOL_PINGPONG_ONE_LINE ? &table->there : &table->back;
	struct order order = {.first = pingpong->next, .n = n + WARM_UP, .shape = shape};

	if (send(pingpong->orders, &order, sizeof(order), MSG_NOSIGNAL) != (ssize_t)sizeof(order))
		return -EPIPE;
	pingpong->next += 2 * (uint64_t)order.n;
	for (uint32_t i = 0; i < order.n; i++) {
		uint64_t ball = order.first + 2 * (uint64_t)i;
		uint64_t from = kvpool_ticks_now(ticks);

		atomic_store_explicit(&table->there, ball, memory_order_release); /* B1 */
		if (!await(answer, ball + 1))
			return -EPIPE;
		if (i >= WARM_UP)
			kvpool_samples_add(samples, kvpool_ticks_now(ticks) - from);
	}
	return 0;
}

static int measure(const struct kvpool_bench_options *options, struct kvpool_pingpong *pingpong,
		   const struct kvpool_ticks *ticks, struct kvpool_samples samples[2])
{
	uint32_t rounds = options->rounds ? options->rounds : ROUNDS;
	uint32_t n = (uint32_t)(options->samples ? options->samples : SAMPLES);
	struct kvpool_progress progress;
	int r = 0;

	for (int shape = 0; shape < 2 && r == 0; shape++)
		r = kvpool_samples_init(&samples[shape], (size_t)n * rounds);
	kvpool_progress_start(&progress, "pingpong", rounds);
	for (uint32_t i = 0; i < rounds && r == 0; i++) {
		for (int shape = 0; shape < 2 && r == 0; shape++)
			r = kvpool_pingpong_play(pingpong, (enum kvpool_pingpong_shape)shape, n,
						 ticks, &samples[shape]);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r;
}

static int report_figures(struct kvpool_report *report, const struct kvpool_cpus *cpus,
			  const struct kvpool_ticks *ticks, struct kvpool_samples samples[2])
{
	int r = kvpool_report_clock(report, ticks);

	if (r == 0)
		r = kvpool_report_set(report, "cpus",
				      json_pack("{s:i, s:i, s:b}", "client", cpus->client, "daemon",
						cpus->daemon, "apart", cpus->apart));
	if (r == 0)
		r = kvpool_report_set(report, "samples", json_integer((json_int_t)samples[0].n));
	if (r == 0)
		r = kvpool_report_set(report, "pingpong_ns",
				      kvpool_report_percentiles(&samples[0], ticks));
	if (r == 0)
		r = kvpool_report_set(report, "one_line_ns",
				      kvpool_report_percentiles(&samples[1], ticks));
	return r;
}

int kvpool_bench_pingpong(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	struct kvpool_samples samples[2] = {{0}};
	struct kvpool_pingpong *pingpong = NULL;
	struct kvpool_ticks ticks;
	struct kvpool_cpus cpus;
	int r;

	if (options->samples > SAMPLES_MAX)
		return kvpool_bench_fail(-EINVAL, "--samples: at most %u", SAMPLES_MAX);
	r = kvpool_cpus_choose(options, &cpus);
	if (r < 0)
		return r;
	if (!cpus.apart)
		return kvpool_bench_fail(-EINVAL, "a ping-pong needs two cores");
	r = kvpool_cpus_pin(cpus.client);
	if (r == 0)
		r = kvpool_pingpong_new(&cpus, &pingpong);
	if (r == 0) {
		kvpool_ticks_init(&ticks);
		r = measure(options, pingpong, &ticks, samples);
	}
	if (r == 0)
		r = report_figures(report, &cpus, &ticks, samples);
	else
		kvpool_bench_fail(r, "pingpong");
	for (int shape = 0; shape < 2; shape++)
		kvpool_samples_clear(&samples[shape]);
	kvpool_pingpong_free(pingpong);
	return r;
}
