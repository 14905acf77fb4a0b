/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench: what every command gets (options, cores) and the commands themselves.
 *
 * A command measures, puts figures into the report and returns. It prints nothing but errors on
 * stderr. Everything here belongs to the main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_BENCH_H
#define KVPOOL_TOOLS_BENCH_BENCH_H

#include "shm/base.h"

#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_BENCH_LIST_MAX 16u

struct kvpool_report;

/* Strings are borrowed from the command line. A list with n 0 and a number that is 0: default. */
struct kvpool_bench_options {
	bool json;
	const char *socket; /* of a daemon that runs already; NULL: start an own one */
	const char *admin_socket;
	const char *daemon; /* path of kvpoold; NULL: look beside this program, then in PATH */
	int client_cpu;     /* -1: choose */
	int daemon_cpu;     /* -1: choose */
	uint32_t rounds;
	uint64_t samples; /* of each figure in a round */
	uint64_t resident;
	uint64_t pool_bytes;
	uint64_t buffer_bytes;
	bool checksum;
	bool kept;
	uint32_t busy;
	uint32_t seconds;
	uint32_t cycles;
	const char *peers;
	struct kvpool_bench_list {
		uint32_t n;
		uint64_t values[KVPOOL_BENCH_LIST_MAX];
	} keys, blocks, pieces, channels;
};

/* Which options a command takes beside the common ones. */
enum kvpool_bench_option {
	KVPOOL_BENCH_TAKES_DAEMON = 1u << 0, /* --socket, --admin-socket, --kept */
	KVPOOL_BENCH_TAKES_RESIDENT = 1u << 1,
	KVPOOL_BENCH_TAKES_KEYS = 1u << 2,
	KVPOOL_BENCH_TAKES_BLOCKS = 1u << 3, /* --blocks, --pieces, --buffer, --checksum */
	KVPOOL_BENCH_TAKES_CHANNELS = 1u << 4,
	KVPOOL_BENCH_TAKES_POOL = 1u << 5,
	KVPOOL_BENCH_TAKES_SECONDS = 1u << 6,
	KVPOOL_BENCH_TAKES_PEERS = 1u << 7,
	KVPOOL_BENCH_TAKES_SAMPLES = 1u << 8,
	KVPOOL_BENCH_TAKES_CYCLES = 1u << 9,
	KVPOOL_BENCH_TAKES_STORED = 1u << 10, /* --blocks as a number */
};

struct kvpool_bench_command {
	const char *name;
	const char *summary;
	uint32_t takes; /* enum kvpool_bench_option */
	/* 0, or a negative errno after it said on stderr what failed. */
	int (*run)(const struct kvpool_bench_options *options, struct kvpool_report *report);
};

int kvpool_bench_pingpong(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_match(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_copy(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_scale(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_start(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_idle(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_death(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_restart(const struct kvpool_bench_options *options, struct kvpool_report *report);
int kvpool_bench_compare(const struct kvpool_bench_options *options, struct kvpool_report *report);

/* Says "kvpool-bench: ..." on stderr and returns `error`, so that a caller may return it. */
int kvpool_bench_fail(int error, const char *format, ...) KVPOOL_PRINTF(2, 3);

/* Whether kvpool_bench_fail() was called: what a server wrote to its log is then of interest. */
bool kvpool_bench_failed(void);

/* 0, or -EINTR once a person has asked for the end: every loop asks between its rounds. */
int kvpool_bench_interrupted(void);

#endif
