/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What most commands stand on: cores, clock, a daemon, a handle of libkvpool with one channel.
 *
 * Owned by the command that runs; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_SESSION_H
#define KVPOOL_TOOLS_BENCH_SESSION_H

#include "client/kvpool.h"
#include "shm/limits.h"
#include "tools/bench/cpus.h"
#include "tools/bench/daemon_run.h"
#include "tools/bench/ticks.h"

#include <jansson.h>

/* Long enough for a host that takes the core away for a while: a miss would spoil the figure. */
#define KVPOOL_BENCH_SESSION_DEADLINE_NS UINT64_C(5000000000)
/* How long a call of the client spins before it sleeps: longer than any lookup here. */
#define KVPOOL_BENCH_SESSION_SPIN_NS UINT64_C(3000000)
/* 32768 keys, one parent and their answers. */
#define KVPOOL_BENCH_SESSION_ARENA_BYTES (UINT64_C(2) << 20)

struct kvpool_report;

struct kvpool_bench_session {
	struct kvpool_cpus cpus;
	struct kvpool_ticks ticks;
	struct kvpool_daemon_run daemon;
	struct kvpool *pool;            /* owned */
	struct kvpool_channel *channel; /* owned */
};

/*
 * Pins this thread, starts the daemon (or finds the one that is named), attaches. Says on stderr
 * what fails; nothing is left behind then. Negative errno.
 */
int kvpool_bench_session_open(const struct kvpool_bench_options *options, uint64_t pool_bytes,
			      bool populate, struct kvpool_bench_session *out);

/* The two halves, for a command that does something between them. */
int kvpool_bench_session_prepare(const struct kvpool_bench_options *options,
				 struct kvpool_bench_session *out);
int kvpool_bench_session_attach(struct kvpool_bench_session *session);

/* Closes the handle and stops the daemon. A zeroed one is fine. */
void kvpool_bench_session_close(struct kvpool_bench_session *session);

/* A layout of one FULL group and one shard. Owned by the handle. */
int kvpool_bench_session_layout(struct kvpool_bench_session *session, const char *label,
				uint64_t slot_bytes, struct kvpool_layout **out);

/* Until the daemon has populated all that it means to; at most five minutes. */
int kvpool_bench_session_await_full(struct kvpool_bench_session *session);

/* Sets `clock`, `cpus`, `client_spin_ns` and `pool` (as the daemon sees it) in the report. */
int kvpool_bench_session_describe(struct kvpool_bench_session *session,
				  struct kvpool_report *report);

#endif
