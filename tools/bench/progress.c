/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bar. No state of its own; main thread.
 */
#include "tools/bench/progress.h"

#include "tools/bench/bench.h"
#include "tools/bench/ticks.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define QUIET_NS UINT64_C(2000000000)
#define STEP_NS  UINT64_C(100000000)
#define CELLS    32

void kvpool_progress_start(struct kvpool_progress *progress, const char *label, uint64_t total)
{
	*progress = (struct kvpool_progress){
		.label = label,
		.total = total ? total : 1,
		.start_ns = kvpool_monotonic_ns(),
		.terminal = isatty(STDERR_FILENO) == 1,
	};
}

static void draw(const struct kvpool_progress *progress)
{
	uint64_t done = KVPOOL_MIN(progress->done, progress->total);
	int filled = (int)(done * CELLS / progress->total);
	char bar[CELLS + 1];

	for (int i = 0; i < CELLS; i++)
		bar[i] = i < filled ? '#' : '.';
	bar[CELLS] = '\0';
	fprintf(stderr, "\r%-10s [%s] %3" PRIu64 " %%", progress->label, bar,
		done * 100 / progress->total);
	fflush(stderr);
}

int kvpool_progress_step(struct kvpool_progress *progress)
{
	progress->done++;
	if (progress->terminal) {
		uint64_t now = kvpool_monotonic_ns();

		if (now - progress->start_ns > QUIET_NS && now - progress->drawn_ns > STEP_NS) {
			draw(progress);
			progress->drawn_ns = now;
		}
	}
	return kvpool_bench_interrupted();
}

void kvpool_progress_end(struct kvpool_progress *progress)
{
	if (progress->drawn_ns != 0)
		fprintf(stderr, "\r%*s\r", CELLS + 20, "");
	progress->drawn_ns = 0;
}
