/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a replay share among themselves: which request is next, which are done,
 * when to start, when to stop, and the figures of each.
 *
 * One anonymous shared mapping, made by the parent before it forks. Every function may be called
 * from any of the processes, except new, start and free: parent only. A process that dies leaves
 * nothing locked.
 */
#ifndef KVPOOL_TOOLS_REPLAY_BOARD_H
#define KVPOOL_TOOLS_REPLAY_BOARD_H

#include "tools/replay/histogram.h"

#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_BOARD_WORKERS_MAX 64u
#define KVPOOL_BOARD_NONE        UINT32_MAX

/* Written by one worker; read by the parent after that worker has ended. */
struct kvpool_figures {
	uint64_t requests;
	uint64_t tokens;
	uint64_t blocks; /* whole ones that were asked for */
	uint64_t hit_blocks;
	uint64_t stored_blocks;
	uint64_t exists_blocks;  /* not stored: another process had stored it in the meantime */
	uint64_t busy_blocks;    /* not stored: another process was writing it */
	uint64_t refused_blocks; /* not stored: no space, or no parent for want of space */
	uint64_t waits;          /* for a prefix that another process was writing */
	uint64_t failed_calls;
	uint64_t wrong_bytes;
	uint64_t checked_bytes;
	uint64_t ended_ns; /* CLOCK_MONOTONIC when it had nothing more to do */
	struct kvpool_histogram lookup_ns;
	struct kvpool_histogram reserve_ns;
	struct kvpool_histogram commit_ns;
	struct kvpool_histogram store_ns;  /* of one block */
	struct kvpool_histogram load_ns;   /* of one block */
	struct kvpool_histogram memcpy_ns; /* of one block */
};

struct kvpool_board;

/* -ENOMEM. */
int kvpool_board_new(uint32_t workers, uint32_t requests, struct kvpool_board **out);
void kvpool_board_free(struct kvpool_board *board); /* takes NULL */

/* A worker is set up: returns once the parent has called start; false where it called stop. */
bool kvpool_board_gate(struct kvpool_board *board);

/* Workers at the gate so far; and opens it. */
uint32_t kvpool_board_at_gate(const struct kvpool_board *board);
void kvpool_board_start(struct kvpool_board *board);

/* Makes take, gate and await return at once, in every process. */
void kvpool_board_stop(struct kvpool_board *board);

/* The next request in the trace's order, this caller's alone; KVPOOL_BOARD_NONE: no more. */
uint32_t kvpool_board_take(struct kvpool_board *board);
void kvpool_board_done(struct kvpool_board *board, uint32_t request);

/* Until a request that somebody took is done; false where everything was stopped. */
bool kvpool_board_await(struct kvpool_board *board, uint32_t request);

/* How many requests are done, for a progress bar. */
uint32_t kvpool_board_finished(const struct kvpool_board *board);

struct kvpool_figures *kvpool_board_figures(struct kvpool_board *board, uint32_t worker);

#endif
