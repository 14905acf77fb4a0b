/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool and other stores asked the same questions in turns. Owned by `compare`; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_CONTEST_H
#define KVPOOL_TOOLS_BENCH_CONTEST_H

#include "tools/bench/peer.h"
#include "tools/bench/resident.h"
#include "tools/bench/samples.h"
#include "tools/bench/session.h"

#define KVPOOL_CONTEST_PEERS_MAX   4u
#define KVPOOL_CONTEST_BLOCK_BYTES (UINT64_C(2) << 20)
#define KVPOOL_CONTEST_BLOCKS      64u

struct kvpool_report;

/* One store's samples, in ticks: lookups for each class of the resident set; store and load. */
struct kvpool_contender {
	const struct kvpool_peer *peer; /* static; NULL: kvpool itself */
	void *state;                    /* owned: the peer's */
	struct kvpool_samples lookups[KVPOOL_BENCH_LIST_MAX];
	struct kvpool_samples copies[2];
};

struct kvpool_contest {
	struct kvpool_bench_session session;
	struct kvpool_resident resident; /* set by the caller before the rest */
	struct kvpool_folder folder;     /* of the peers' sockets */
	struct kvpool_layout *small;     /* borrowed: the handle's; of the lookups */
	struct kvpool_layout *large;     /* borrowed: the handle's; of the copies */
	struct kvpool_contender own;
	struct kvpool_contender contenders[KVPOOL_CONTEST_PEERS_MAX];
	uint32_t n;
	uint8_t *keys;              /* owned: of one lookup */
	struct kvpool_block *found; /* owned: of one lookup */
	uint8_t *source;            /* owned: KVPOOL_CONTEST_BLOCKS blocks */
	uint8_t *target;            /* owned: likewise */
	uint64_t random;
};

/* Starts kvpoold, attaches and fills. Says on stderr what fails; leaves nothing behind then. */
int kvpool_contest_open(struct kvpool_contest *contest, const struct kvpool_bench_options *options);
void kvpool_contest_close(struct kvpool_contest *contest);

/*
 * Starts a peer and gives it the same keys; puts what it is into `peers` of the report. One whose
 * server is not installed is said on stderr, reported as absent and left out.
 */
int kvpool_contest_add(struct kvpool_contest *contest, const struct kvpool_peer *peer,
		       struct kvpool_report *report);

/* All lookups and copies, `rounds` times; `samples` of each lookup a round, 0: the usual. */
int kvpool_contest_run(struct kvpool_contest *contest, uint32_t rounds, uint64_t samples);

#endif
