/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench death: from the SIGKILL of a client that holds leases until another client has the
 * memory that these held.
 *
 * One chain of blocks fills the pool, and the dying client leases all of it, so a RESERVE finds no
 * space until its leases are back. Awake: the other client asks for space again and again, which
 * keeps the daemon awake; the sample ends with the RESERVE that is granted. Asleep: it WAITs for a
 * block that the dying client reserved, and is woken with ABANDONED in the same step that ends the
 * leases; nothing runs meanwhile. Each life is a process of its own, and may run on any core. One
 * thread, and a timer's signal that does the killing while this side waits.
 */
#include "tools/bench/bench.h"

#include "tools/bench/keys.h"
#include "tools/bench/progress.h"
#include "tools/bench/report.h"
#include "tools/bench/samples.h"
#include "tools/bench/session.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CYCLES      200u
#define CYCLES_MAX  100000u
#define POOL_BYTES  (UINT64_C(64) << 20)
#define BLOCK_BYTES (UINT64_C(256) << 10)
#define KEYS_MAX    512u /* more than the pool holds */
#define LEASES      64u
#define TRIES       100u
#define SETTLE_US   20000 /* after which a daemon that nobody asks sleeps */
#define PATIENCE_NS UINT64_C(10000000000)
#define SEED        UINT64_C(20260106)
#define GOAL_MS     10.0

static const char method[] =
	"the dying client leases every block of the pool; awake: time from kill() until a RESERVE "
	"of another client, repeated without a pause, is granted; asleep: until another client's "
	"WAIT for a block that the dying one reserved is answered";

struct death {
	struct kvpool_bench_session session;
	struct kvpool_layout *layout;              /* borrowed: the handle's */
	uint8_t keys[KEYS_MAX * KVPOOL_KEY_BYTES]; /* of the chain that fills the pool */
	struct kvpool_block blocks[KEYS_MAX];
	uint32_t n;                          /* blocks of the chain */
	uint8_t reserved[KVPOOL_KEY_BYTES];  /* by the dying client */
	uint8_t wanted[KVPOOL_KEY_BYTES];    /* by the other */
	cpu_set_t anywhere;                  /* where this process may run */
	struct kvpool_samples awake, asleep; /* ns */
};

/* For the signal handler, which runs while the main thread waits. */
static volatile sig_atomic_t victim;
static volatile uint64_t killed_ns;

static void kill_victim(int signal)
{
	(void)signal;
	killed_ns = kvpool_monotonic_ns();
	(void)kill((pid_t)victim, SIGKILL);
}

/* Stores what of the chain is not there. */
static int fill(struct death *death)
{
	struct kvpool_channel *channel = death->session.channel;
	uint32_t n = death->n != 0 ? death->n : KEYS_MAX;
	int64_t got =
		kvpool_reserve(channel, death->layout, 0, NULL, death->keys, n, 0, death->blocks);
	int64_t done = got;

	if (got > 0)
		done = kvpool_commit(channel, death->blocks, n, KVPOOL_ALL_SHARDS, 0);
	if (got < 0 || done != got)
		return kvpool_bench_fail(done < 0 ? (int)done : -EIO, "cannot fill the pool (%s)",
					 kvpool_channel_error(channel));
	if (death->n == 0)
		death->n = (uint32_t)got;
	return 0;
}

/* Until the whole chain is there: what the last life left behind may still be in quarantine. */
static int refill(struct death *death)
{
	uint64_t until = kvpool_monotonic_ns() + PATIENCE_NS;
	struct kvpool_match match;
	int r;

	for (;;) {
		int64_t found;

		r = fill(death);
		if (r < 0)
			return r;
		found = kvpool_match(death->session.channel, death->layout, death->keys, death->n,
				     0, KVPOOL_MATCH_NO_LEASE, 0, NULL, 0, &match);
		if (found == (int64_t)death->n)
			return 0;
		r = found < 0 ? (int)found : kvpool_bench_interrupted();
		if (r < 0)
			return r;
		if (kvpool_monotonic_ns() > until)
			return kvpool_bench_fail(-ETIMEDOUT, "the pool cannot be filled again");
	}
}

/* One block that this client writes for ever. */
static int reserve_one(struct kvpool_bench_session *session, struct kvpool_layout *layout,
		       const uint8_t *key, struct kvpool_block *block)
{
	int64_t got = kvpool_reserve(session->channel, layout, 0, NULL, key, 1, 0, block);

	return got == 1 ? 0 : got < 0 ? (int)got : -ENOSPC;
}

/* In the child: takes leases on all that is there, says so, and waits for its death. */
static int live(struct death *death, bool reserves, int ready)
{
	struct kvpool_bench_session own = {.daemon = death->session.daemon};
	struct kvpool_layout *layout = NULL;
	struct kvpool_match match;
	struct kvpool_block block;
	int r;

	kvpool_close(death->session.pool);
	(void)sched_setaffinity(0, sizeof(death->anywhere), &death->anywhere);
	r = kvpool_bench_session_attach(&own);
	if (r == 0)
		r = kvpool_bench_session_layout(&own, "bench-death", BLOCK_BYTES, &layout);
	if (r == 0 && reserves)
		r = reserve_one(&own, layout, death->reserved, &block);
	for (uint32_t i = 0; r == 0 && i < LEASES; i++) {
		int64_t found = kvpool_match(own.channel, layout, death->keys, death->n, 0, 0, 0,
					     death->blocks, KEYS_MAX, &match);

		r = found < 0 ? (int)found : match.lease == 0 ? -ENODATA : 0;
	}
	if (r < 0)
		return kvpool_bench_fail(r, "the client that is to die");
	if (write(ready, "r", 1) != 1)
		return -EIO;
	for (;;)
		pause();
}

/* The process, once it holds everything; or a negative errno. */
static pid_t begin_life(struct death *death, bool reserves)
{
	int ends[2];
	ssize_t n;
	char byte;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		kvpool_interrupt_forget();
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		_exit(live(death, reserves, ends[1]) == 0 ? 0 : 1);
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return -errno;
	}
	do
		n = read(ends[0], &byte, 1);
	while (n < 0 && errno == EINTR);
	close(ends[0]);
	if (n == 1)
		return pid;
	(void)waitpid(pid, NULL, 0);
	return kvpool_bench_fail(-ECHILD, "the client that is to die did not get there");
}

static int die_awake(struct death *death, pid_t pid)
{
	struct kvpool_bench_session *session = &death->session;
	struct kvpool_block block;
	uint64_t from, now;
	int r = reserve_one(session, death->layout, death->wanted, &block);

	if (r != -ENOSPC)
		return kvpool_bench_fail(r < 0 ? r : -EIO, "there is space though all is leased");
	from = kvpool_monotonic_ns();
	(void)kill(pid, SIGKILL);
	do {
		r = reserve_one(session, death->layout, death->wanted, &block);
		now = kvpool_monotonic_ns();
	} while (r == -ENOSPC && now - from < PATIENCE_NS);
	kvpool_samples_add(&death->awake, now - from);
	if (r < 0)
		return kvpool_bench_fail(r, "the leases of the dead do not come back (%s)",
					 kvpool_no_space_text(session->channel));
	return kvpool_abort(session->channel, &block, 1, 0) == 1 ? 0 : -EIO;
}

/* Without a sample where this side was so late that the other was dead before the WAIT came. */
static int die_asleep(struct death *death, pid_t pid)
{
	const struct itimerval alarm = {.it_value = {.tv_usec = SETTLE_US}};
	struct kvpool_bench_session *session = &death->session;
	struct kvpool_block block;
	int r;

	victim = pid;
	if (setitimer(ITIMER_REAL, &alarm, NULL) != 0)
		return -errno;
	r = kvpool_wait(session->channel, death->layout, 0, death->reserved, PATIENCE_NS);
	if (r == -ENOENT)
		return 0;
	if (r != -ECANCELED)
		return kvpool_bench_fail(r < 0 ? r : -EIO, "WAIT (%s)",
					 kvpool_channel_error(session->channel));
	kvpool_samples_add(&death->asleep, kvpool_monotonic_ns() - killed_ns);
	r = reserve_one(session, death->layout, death->wanted, &block);
	if (r < 0)
		return kvpool_bench_fail(r, "the leases of the dead are not back with the WAIT");
	return kvpool_abort(session->channel, &block, 1, 0) == 1 ? 0 : -EIO;
}

static int one_life(struct death *death, bool asleep)
{
	pid_t pid = begin_life(death, asleep);
	int r;

	if (pid < 0)
		return (int)pid;
	r = asleep ? die_asleep(death, pid) : die_awake(death, pid);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r == 0 ? refill(death) : r;
}

static int one_life_asleep(struct death *death)
{
	size_t n = death->asleep.n;
	uint32_t tries = 0;
	int r = 0;

	while (r == 0 && death->asleep.n == n) {
		if (tries++ == TRIES)
			return kvpool_bench_fail(-EBUSY, "this side never gets to WAIT in time");
		r = one_life(death, true);
	}
	return r;
}

static int measure(struct death *death, uint32_t cycles)
{
	struct sigaction action = {.sa_handler = kill_victim};
	struct kvpool_progress progress;
	int r = 0;

	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, NULL);
	kvpool_progress_start(&progress, "death", cycles);
	for (uint32_t i = 0; r == 0 && i < cycles; i++) {
		r = one_life(death, false);
		if (r == 0)
			r = one_life_asleep(death);
		if (r == 0)
			r = kvpool_progress_step(&progress);
	}
	kvpool_progress_end(&progress);
	return r;
}

static double ms(struct kvpool_samples *samples, double percent)
{
	return (double)kvpool_samples_percentile(samples, percent) / 1e6;
}

static json_t *percentiles_ms(struct kvpool_samples *samples)
{
	return json_pack("{s:f, s:f, s:f}", "p50", ms(samples, 50), "p99", ms(samples, 99), "max",
			 ms(samples, 100));
}

static int report_all(struct death *death, uint32_t cycles, struct kvpool_report *report)
{
	int r = kvpool_bench_session_describe(&death->session, report);

	if (r == 0)
		r = kvpool_report_set(report, "cycles", json_integer((json_int_t)cycles));
	if (r == 0)
		r = kvpool_report_set(report, "leases", json_integer(LEASES));
	if (r == 0)
		r = kvpool_report_set(report, "leased_blocks", json_integer((json_int_t)death->n));
	if (r == 0)
		r = kvpool_report_set(report, "lease_return_ms", percentiles_ms(&death->awake));
	if (r == 0)
		r = kvpool_report_set(report, "lease_return_asleep_ms",
				      percentiles_ms(&death->asleep));
	if (r == 0)
		r = kvpool_report_set(report, "method", json_string(method));
	if (r == 0)
		r = kvpool_report_set(report, "goal", json_string("lease_return_ms.p99 < 10"));
	if (r == 0)
		r = kvpool_report_set(report, "met", json_boolean(ms(&death->awake, 99) < GOAL_MS));
	return r;
}

static int prepare(const struct kvpool_bench_options *options, uint32_t cycles, struct death *death)
{
	int r;

	kvpool_bench_keys(SEED, 0, KEYS_MAX, death->keys);
	kvpool_bench_keys(SEED + 1, 0, 1, death->reserved);
	kvpool_bench_keys(SEED + 2, 0, 1, death->wanted);
	if (sched_getaffinity(0, sizeof(death->anywhere), &death->anywhere) != 0)
		return -errno;
	r = kvpool_samples_init(&death->awake, cycles);
	if (r == 0)
		r = kvpool_samples_init(&death->asleep, cycles);
	if (r == 0)
		r = kvpool_bench_session_open(options, POOL_BYTES, true, &death->session);
	if (r == 0)
		r = kvpool_bench_session_await_full(&death->session);
	if (r == 0)
		r = kvpool_bench_session_layout(&death->session, "bench-death", BLOCK_BYTES,
						&death->layout);
	return r == 0 ? refill(death) : r;
}

int kvpool_bench_death(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	uint32_t cycles = options->cycles ? options->cycles : CYCLES;
	struct death *death;
	int r;

	if (cycles > CYCLES_MAX)
		return kvpool_bench_fail(-EINVAL, "at most %u cycles", CYCLES_MAX);
	death = calloc(1, sizeof(*death));
	if (!death)
		return -ENOMEM;
	r = prepare(options, cycles, death);
	if (r == 0)
		r = measure(death, cycles);
	if (r == 0)
		r = report_all(death, cycles, report);
	kvpool_samples_clear(&death->awake);
	kvpool_samples_clear(&death->asleep);
	kvpool_bench_session_close(&death->session);
	free(death);
	return r;
}
