/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor under every round trip: a word in shared memory that goes to another process on
 * another core and comes back.
 *
 * Two lines, one writer each, as a request and its reply have. The other process is forked once,
 * early, and sleeps in a read until it is told to play, so that a round can be played beside any
 * other measurement. Owned by the main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_PINGPONG_H
#define KVPOOL_TOOLS_BENCH_PINGPONG_H

#include "tools/bench/cpus.h"
#include "tools/bench/samples.h"
#include "tools/bench/ticks.h"

struct kvpool_pingpong;

/* The partner is pinned to cpus->daemon. Negative errno. */
int kvpool_pingpong_new(const struct kvpool_cpus *cpus, struct kvpool_pingpong **out);
void kvpool_pingpong_free(struct kvpool_pingpong *pingpong); /* takes NULL; ends the partner */

enum kvpool_pingpong_shape {
	KVPOOL_PINGPONG_TWO_LINES = 0, /* a line each way */
	KVPOOL_PINGPONG_ONE_LINE = 1,  /* one line, written by both in turn */
};

/* Plays n times and adds n samples, in ticks. Negative errno where the partner is gone. */
int kvpool_pingpong_play(struct kvpool_pingpong *pingpong, enum kvpool_pingpong_shape shape,
			 uint32_t n, const struct kvpool_ticks *ticks,
			 struct kvpool_samples *samples);

#endif
