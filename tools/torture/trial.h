/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of the torture: the daemon, its clients, what is done to them and what came of it.
 *
 * Owned by main(); main thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_TRIAL_H
#define KVPOOL_TOOLS_TORTURE_TRIAL_H

#include "tools/bench/samples.h"
#include "tools/torture/fleet.h"
#include "tools/torture/options.h"
#include "tools/torture/subject.h"

/* Blocks after a death of the daemon over those before it. */
struct kvpool_kept_ratio {
	uint64_t n;
	double min, sum;
};

struct kvpool_toll {
	uint64_t client_kills, client_stops, client_orders;
	uint64_t daemon_kills;
	struct kvpool_kept_ratio quiet, busy;
	uint64_t torn, misplaced, orphaned, unfinished; /* of all adoptions */
	uint64_t emptied;                               /* lives that gave the pool up */
	struct kvpool_samples lease_return;             /* ns; owned */
	uint64_t leaked_blocks;
	uint64_t rests;     /* times when everybody was there and nothing was held */
	int64_t leaked_fds; /* negative: not to be seen */
	bool exact;         /* the accounting added up at the end */
	uint64_t evicted;
};

struct kvpool_trial {
	const struct kvpool_torture_options *options; /* borrowed */
	struct kvpool_books *books;                   /* owned */
	struct kvpool_subject subject;
	struct kvpool_fleet fleet;
	struct kvpool_toll toll;
	uint64_t random;
	bool broken; /* the daemon does not come back */
};

/*
 * Runs all of it. 0 with the toll, whatever that is; negative errno where it did not come about,
 * said on stderr. kvpool_trial_end() in any case.
 */
int kvpool_trial_run(const struct kvpool_torture_options *options, struct kvpool_trial *trial);
void kvpool_trial_end(struct kvpool_trial *trial, bool show);

/* What is held, by whomever, as a status page says. */
int64_t kvpool_trial_held(const json_t *page);

/* Something bad happens to a client: see blows.c. */
void kvpool_trial_strike_client(struct kvpool_trial *trial);

/* The daemon is killed, and the next life looked at. */
void kvpool_trial_strike_daemon(struct kvpool_trial *trial);

#endif
