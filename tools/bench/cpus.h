/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which core measures and which serves. Chosen once; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_CPUS_H
#define KVPOOL_TOOLS_BENCH_CPUS_H

#include "tools/bench/bench.h"

struct kvpool_cpus {
	int client;
	int daemon;
	/* Further cores of this process beside both, for more threads. */
	int others[16];
	uint32_t n_others;
	bool apart; /* two cores, not two threads of one and not one */
};

/*
 * Takes what the options say, else two allowed cores of one package, the first core left to the
 * kernel's own work where there are four or more. -EINVAL where a core is not allowed.
 */
int kvpool_cpus_choose(const struct kvpool_bench_options *options, struct kvpool_cpus *out);

/* Pins the calling thread. Negative errno. */
int kvpool_cpus_pin(int cpu);

#endif
