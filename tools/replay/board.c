/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a replay share among themselves: see board.h.
 *
 * No lock: words are atomics, and whoever has to wait sleeps on one of them by futex(2).
 */
#include "tools/replay/board.h"

#include "shm/base.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	GATE_SHUT = 0,
	GATE_OPEN = 1,
	GATE_STOPPED = 2
};

struct kvpool_board {
	uint32_t requests;  /* W: parent, before it forks */
	uint32_t workers;   /* W: parent, before it forks */
	size_t map_bytes;   /* W: parent, before it forks */
	size_t done_offset; /* W: parent, before it forks; of one byte a request */
	/* W: parent. Opening it orders nothing that was not there before the fork. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) _Atomic(uint32_t) gate;
	_Atomic(uint32_t) at_gate; /* W: workers, counts up; read for the parent's patience only */
	/* W: workers, counts up; a request belongs to who counted it. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) _Atomic(uint64_t) next;
	/* W: workers, counts up after a done byte was set: edge B1. */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) _Atomic(uint32_t) finished;
	_Atomic(uint32_t) sleepers; /* W: workers; how many wait for `finished` to change */
	KVPOOL_ALIGNED(KVPOOL_WRITER_GAP) struct kvpool_figures figures[];
	/* then the done bytes */
};

static _Atomic(uint8_t) *done_byte(struct kvpool_board *board, uint32_t request)
{
	return (_Atomic(uint8_t) *)((uint8_t *)board + board->done_offset + request);
}

/* Sleeps while the word has this value; wakes for no reason now and then. */
static void sleep_on(_Atomic(uint32_t) *word, uint32_t value)
{
	static const struct timespec longest = {0, 100000000};

	syscall(SYS_futex, word, FUTEX_WAIT, value, &longest, NULL, 0);
}

static void wake_all(_Atomic(uint32_t) *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int kvpool_board_new(uint32_t workers, uint32_t requests, struct kvpool_board **out)
{
	size_t done_offset = sizeof(struct kvpool_board) + workers * sizeof(struct kvpool_figures);
	size_t bytes = done_offset + requests;
	struct kvpool_board *board =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (board == MAP_FAILED)
		return -ENOMEM;
	board->requests = requests;
	board->workers = workers;
	board->map_bytes = bytes;
	board->done_offset = done_offset;
	*out = board;
	return 0;
}

void kvpool_board_free(struct kvpool_board *board)
{
	if (board != NULL)
		munmap(board, board->map_bytes);
}

bool kvpool_board_gate(struct kvpool_board *board)
{
	uint32_t state;

	/* Relaxed: a count that the parent waits for, with no data behind it. */
	atomic_fetch_add_explicit(&board->at_gate, 1, memory_order_relaxed);
	for (;;) {
		/* Relaxed: the parent published everything by forking. */
		state = atomic_load_explicit(&board->gate, memory_order_relaxed);
		if (state != GATE_SHUT)
			return state == GATE_OPEN;
		sleep_on(&board->gate, GATE_SHUT);
	}
}

uint32_t kvpool_board_at_gate(const struct kvpool_board *board)
{
	/* Relaxed: see kvpool_board_gate(). */
	return atomic_load_explicit(&board->at_gate, memory_order_relaxed);
}

void kvpool_board_start(struct kvpool_board *board)
{
	uint32_t shut = GATE_SHUT;

	/* Relaxed: see kvpool_board_gate(). A board that was stopped stays so. */
	atomic_compare_exchange_strong_explicit(&board->gate, &shut, GATE_OPEN,
						memory_order_relaxed, memory_order_relaxed);
	wake_all(&board->gate);
}

void kvpool_board_stop(struct kvpool_board *board)
{
	/* Relaxed: it only has to be seen at last. */
	atomic_store_explicit(&board->gate, GATE_STOPPED, memory_order_relaxed);
	wake_all(&board->gate);
	wake_all(&board->finished);
}

static bool stopped(const struct kvpool_board *board)
{
	/* Relaxed: see kvpool_board_stop(). */
	return atomic_load_explicit(&board->gate, memory_order_relaxed) == GATE_STOPPED;
}

uint32_t kvpool_board_take(struct kvpool_board *board)
{
	uint64_t mine;

	if (stopped(board))
		return KVPOOL_BOARD_NONE;
	/* Relaxed: the counting itself makes the request one caller's. */
	mine = atomic_fetch_add_explicit(&board->next, 1, memory_order_relaxed);
	return mine < board->requests ? (uint32_t)mine : KVPOOL_BOARD_NONE;
}

void kvpool_board_done(struct kvpool_board *board, uint32_t request)
{
	/* B1 -> B2: whoever sees the byte sees what its request left in the pool. */
	atomic_store_explicit(done_byte(board, request), 1, memory_order_release);
	/* Sequentially consistent with `sleepers` below: one of the two sees the other. */
	atomic_fetch_add_explicit(&board->finished, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&board->sleepers, memory_order_seq_cst) != 0)
		wake_all(&board->finished);
}

bool kvpool_board_await(struct kvpool_board *board, uint32_t request)
{
	/* B2 <- B1 */
	while (atomic_load_explicit(done_byte(board, request), memory_order_acquire) == 0) {
		uint32_t seen;

		if (stopped(board))
			return false;
		/* Sequentially consistent with `finished` in kvpool_board_done(). */
		atomic_fetch_add_explicit(&board->sleepers, 1, memory_order_seq_cst);
		seen = atomic_load_explicit(&board->finished, memory_order_seq_cst);
		/* B2 <- B1 */
		if (atomic_load_explicit(done_byte(board, request), memory_order_acquire) == 0)
			sleep_on(&board->finished, seen);
		/* Relaxed: too many sleepers cost a needless wake at most. */
		atomic_fetch_sub_explicit(&board->sleepers, 1, memory_order_relaxed);
	}
	return true;
}

uint32_t kvpool_board_finished(const struct kvpool_board *board)
{
	/* Relaxed: a figure for people. */
	return atomic_load_explicit(&board->finished, memory_order_relaxed);
}

struct kvpool_figures *kvpool_board_figures(struct kvpool_board *board, uint32_t worker)
{
	return worker < board->workers ? &board->figures[worker] : NULL;
}
