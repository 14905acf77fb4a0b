/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes of leases: see notes.h.
 *
 * Owned by a cache; its one thread uses it.
 */
#include "src/notes.h"

#include "shm/crc32c.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define CONTROL_OFFSET KVPOOL_HEADER_BYTES
#define NOTES_OFFSET   (CONTROL_OFFSET + 4096u)

uint64_t kvpool_notes_bytes(uint32_t max)
{
	return NOTES_OFFSET +
	       KVPOOL_ROUND_UP(((uint64_t)max + 1) * sizeof(struct kvpool_note), (uint64_t)4096);
}

void kvpool_notes_place(struct kvpool_notes *notes, void *memory, uint32_t max)
{
	unsigned char *base = memory;

	notes->header = memory;
	notes->control = (struct kvpool_notes_control *)(void *)(base + CONTROL_OFFSET);
	notes->notes = (struct kvpool_note *)(void *)(base + NOTES_OFFSET);
	notes->max = max;
}

void kvpool_notes_begin(struct kvpool_notes *notes, uint64_t epoch)
{
	struct kvpool_header *h = notes->header;
	uint64_t bytes = kvpool_notes_bytes(notes->max);

	/* Gives the memory back where it is shared; private memory is not, and so is written. */
	if (madvise(h, bytes, MADV_REMOVE) != 0)
		memset(h, 0, bytes);
	memcpy(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic));
	h->format_major = KVPOOL_NOTES_MAJOR;
	h->header_bytes = KVPOOL_HEADER_BYTES;
	h->total_bytes = bytes;
	h->kind = KVPOOL_HEADER_NOTES;
	h->epoch = epoch;
	/* H1 -> H2 */
	atomic_store_explicit(&h->state, KVPOOL_HEADER_READY, memory_order_release);
}

const char *kvpool_notes_fault(const struct kvpool_notes *notes, uint64_t epoch)
{
	const struct kvpool_header *h = notes->header;

	/* H2 <- H1 */
	if (atomic_load_explicit(&h->state, memory_order_acquire) != KVPOOL_HEADER_READY)
		return "their header was never finished";
	if (memcmp(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic)) != 0 ||
	    h->kind != KVPOOL_HEADER_NOTES || h->header_bytes != KVPOOL_HEADER_BYTES)
		return "they are no notes";
	if (h->format_major != KVPOOL_NOTES_MAJOR || h->must_features != 0)
		return "they have the format of another major version";
	if (h->total_bytes != kvpool_notes_bytes(notes->max))
		return "they are not as long as they say";
	if (h->epoch != epoch)
		return "they are of another life than the catalog";
	return NULL;
}

static uint32_t sum(const struct kvpool_note_half *half)
{
	uint32_t sum = kvpool_crc32c_add(0, &half->turn, sizeof(*half) - sizeof(half->check));

	return sum ? sum : 1;
}

/* The later of two that both count. */
static unsigned int later(const struct kvpool_note_half *half)
{
	return (int32_t)(half[1].turn - half[0].turn) > 0;
}

/* The last store of a change: the compiler may not move the others behind it. */
static void seal(struct kvpool_note_half *half, uint32_t check)
{
	atomic_signal_fence(memory_order_seq_cst);
	*(volatile uint32_t *)&half->check = check;
	atomic_signal_fence(memory_order_seq_cst);
}

void kvpool_note_write(struct kvpool_notes *notes, uint32_t index,
		       const struct kvpool_note_half *note)
{
	struct kvpool_note *n = &notes->notes[index];
	struct kvpool_note_half *from = &n->half[n->half[0].check == 0];
	struct kvpool_note_half *to = &n->half[n->half[0].check != 0];

	if (index > notes->control->fresh)
		notes->control->fresh = index;
	/* `to` is empty, and stays so until it is sealed. */
	to->turn = from->turn + 1;
	to->client = note->client;
	to->generation = note->generation;
	to->keys = note->keys;
	to->block = note->block;
	to->block_generation = note->block_generation;
	to->layout = note->layout;
	to->flags = note->flags;
	seal(to, sum(to));
	if (from->check)
		seal(from, 0);
}

void kvpool_note_clear(struct kvpool_notes *notes, uint32_t index)
{
	struct kvpool_note *n = &notes->notes[index];

	for (unsigned int i = 0; i < 2; i++) {
		if (n->half[i].check)
			seal(&n->half[i], 0);
	}
}

enum kvpool_note_state kvpool_note_read(const struct kvpool_notes *notes, uint32_t index,
					struct kvpool_note_half *out)
{
	const struct kvpool_note_half *half = notes->notes[index].half;
	bool sound[2];

	for (unsigned int i = 0; i < 2; i++) {
		sound[i] = half[i].check && half[i].check == sum(&half[i]);
		if (half[i].check && !sound[i])
			return KVPOOL_NOTE_ROTTEN;
	}
	if (!sound[0] && !sound[1])
		return KVPOOL_NOTE_EMPTY;
	/* Both, where a change was cut short after it was sealed. */
	if (sound[0] && sound[1])
		*out = half[later(half)];
	else
		*out = half[sound[1]];
	return KVPOOL_NOTE_SOUND;
}

void kvpool_note_tidy(struct kvpool_notes *notes, uint32_t index)
{
	struct kvpool_note_half *half = notes->notes[index].half;

	if (half[0].check && half[1].check)
		seal(&half[!later(half)], 0);
}

uint32_t kvpool_note_generation(const struct kvpool_notes *notes, uint32_t index)
{
	const struct kvpool_note_half *half = notes->notes[index].half;

	return KVPOOL_MAX(half[0].generation, half[1].generation);
}
