/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes of leases: what the next life of the daemon must know to go on with them.
 *
 *	+--------+---------+-------+
 *	| header | control | notes |
 *	| 4 KiB  | 4 KiB   |       |
 *	+--------+---------+-------+
 *
 * A note lies under its lease's index. It is written before the client hears of the lease, and
 * empty again before anything that the lease holds may go. The memory is sparse and touched as it
 * is used; nobody but the cache maps it. It outlives its daemon, which may die at any instruction:
 * a note has two halves, each sealed by its check, the last store of every change, so that one of
 * them always tells what was true before or after. Written by the cache's one thread.
 */
#ifndef KVPOOL_SRC_NOTES_H
#define KVPOOL_SRC_NOTES_H

#include "shm/base.h"
#include "shm/header.h"

enum kvpool_note_flag {
	KVPOOL_NOTE_INEXACT = 1u << 0, /* `block` alone does not tell what the lease holds */
};

struct kvpool_note_half {
	uint32_t check;      /* CRC32C of the rest, never 0; 0: empty */
	uint32_t turn;       /* of two halves that count, the later */
	uint32_t client;     /* holder's id */
	uint32_t generation; /* of the lease */
	uint32_t keys;       /* of the prefix that it holds */
	uint32_t block;      /* of the last of these keys, in the layout's first FULL group */
	uint32_t block_generation;
	uint16_t layout;
	uint16_t flags; /* enum kvpool_note_flag */
};

KVPOOL_ASSERT_SIZE(struct kvpool_note_half, 32);

struct kvpool_note {
	KVPOOL_ALIGNED(KVPOOL_CACHELINE) struct kvpool_note_half half[2];
};

KVPOOL_ASSERT_SIZE(struct kvpool_note, 64);

struct kvpool_notes_control {
	uint32_t fresh; /* notes above this number were never used */
	uint8_t reserved[60];
};

KVPOOL_ASSERT_SIZE(struct kvpool_notes_control, 64);

/* As the cache uses them; pointers borrowed from the memory. All zero: nobody keeps notes. */
struct kvpool_notes {
	struct kvpool_header *header;
	struct kvpool_notes_control *control;
	struct kvpool_note *notes; /* by the lease's index; 0 is not used */
	uint32_t max;
};

enum kvpool_note_state {
	KVPOOL_NOTE_EMPTY = 0,
	KVPOOL_NOTE_SOUND = 1,
	KVPOOL_NOTE_ROTTEN = 2, /* neither empty nor as it was written */
};

uint64_t kvpool_notes_bytes(uint32_t max);

/* Places the parts in the memory, which is not looked at. */
void kvpool_notes_place(struct kvpool_notes *notes, void *memory, uint32_t max);

/* All are empty, and the header says whose they are. */
void kvpool_notes_begin(struct kvpool_notes *notes, uint64_t epoch);

/* What keeps the memory from being the notes of that life; NULL: nothing. */
const char *kvpool_notes_fault(const struct kvpool_notes *notes, uint64_t epoch);

/* `check` and `turn` are filled in. */
void kvpool_note_write(struct kvpool_notes *notes, uint32_t index,
		       const struct kvpool_note_half *note);
void kvpool_note_clear(struct kvpool_notes *notes, uint32_t index);

/* `out` where it is sound. */
enum kvpool_note_state kvpool_note_read(const struct kvpool_notes *notes, uint32_t index,
					struct kvpool_note_half *out);

/* Where a change was cut short after its seal, the half that it replaced is emptied. */
void kvpool_note_tidy(struct kvpool_notes *notes, uint32_t index);

/* The highest generation that a lease of this index had. */
uint32_t kvpool_note_generation(const struct kvpool_notes *notes, uint32_t index);

#endif
