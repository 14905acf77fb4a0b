/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon under measurement: started here on a socket of its own, pinned to its core, and
 * stopped again; or one that runs already, when the options name its socket.
 *
 * Owned by the command that runs; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_DAEMON_RUN_H
#define KVPOOL_TOOLS_BENCH_DAEMON_RUN_H

#include "tools/bench/bench.h"
#include "tools/folder.h"
#include "tools/process.h"

#include <jansson.h>

#define KVPOOL_DAEMON_PATH_BYTES 108

struct kvpool_daemon_run {
	struct kvpool_folder folder;   /* of the socket and the log; empty for a foreign daemon */
	struct kvpool_process process; /* zero for a foreign daemon */
	char socket[KVPOOL_DAEMON_PATH_BYTES];
	char admin[KVPOOL_DAEMON_PATH_BYTES];
	uint64_t spawned_ns; /* CLOCK_MONOTONIC, just before the fork */
	bool foreign;
};

struct kvpool_daemon_spec {
	const struct kvpool_bench_options *options; /* borrowed for the call */
	uint64_t pool_bytes;                        /* 0: what it chooses itself */
	bool populate;                              /* false: pages come as they are touched */
	int cpu;                                    /* -1: not pinned */
	bool supervise; /* started again when it dies, with what it held, as often as it does */
};

/*
 * Starts kvpoold and returns at once; or takes the foreign one. On failure it has said on stderr
 * what is wrong, and nothing is left behind. Negative errno.
 */
int kvpool_daemon_run_start(const struct kvpool_daemon_spec *spec, struct kvpool_daemon_run *out);

/* Until the daemon's HELLO comes, at most ten seconds. Says on stderr why it does not. */
int kvpool_daemon_run_await(struct kvpool_daemon_run *run);

/* Stops what was started. A zeroed one is fine. */
void kvpool_daemon_run_stop(struct kvpool_daemon_run *run);

/* The status document of its admin socket, owned by the caller. Says on stderr what fails. */
int kvpool_daemon_run_status(const struct kvpool_daemon_run *run, json_t **out);

/* The daemon's process, also of a foreign one (as the socket names it). -ESRCH. */
pid_t kvpool_daemon_run_pid(const struct kvpool_daemon_run *run);

#endif
