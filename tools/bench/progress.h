/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bar on stderr for a measurement that takes longer than two seconds; only on a terminal.
 *
 * Drawn between measurements, never inside one. Owned by the command that runs; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_PROGRESS_H
#define KVPOOL_TOOLS_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct kvpool_progress {
	const char *label; /* borrowed, static */
	uint64_t done;
	uint64_t total;
	uint64_t start_ns;
	uint64_t drawn_ns; /* 0: never */
	bool terminal;
};

void kvpool_progress_start(struct kvpool_progress *progress, const char *label, uint64_t total);

/* One more step is done. Returns kvpool_bench_interrupted(). */
int kvpool_progress_step(struct kvpool_progress *progress);

/* Wipes the bar. */
void kvpool_progress_end(struct kvpool_progress *progress);

#endif
