/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next life of the daemon must know: see state.h.
 */
#include "daemon/state.h"

#include "daemon/kill_point.h"
#include "daemon/store.h"
#include "shm/crc32c.h"
#include "shm/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_OFFSET  KVPOOL_HEADER_BYTES
#define SEGMENTS_OFFSET (CONTROL_OFFSET + 4096u)

static uint64_t clients_offset(uint64_t n_segments)
{
	return SEGMENTS_OFFSET +
	       KVPOOL_ROUND_UP(n_segments * sizeof(struct kvpool_state_segment), (uint64_t)4096);
}

static uint64_t bytes_of(uint64_t n_segments)
{
	return clients_offset(n_segments) +
	       KVPOOL_STATE_CLIENTS_MAX * sizeof(struct kvpool_state_client);
}

static uint64_t segments_of(const struct kvpool_state_sizes *sizes)
{
	return sizes->pool_bytes / sizes->segment_bytes;
}

static void place(struct kvpool_state *state)
{
	unsigned char *base = state->memory.address;

	state->control = (struct kvpool_state_control *)(void *)(base + CONTROL_OFFSET);
	state->segments = (struct kvpool_state_segment *)(void *)(base + SEGMENTS_OFFSET);
	state->clients =
		(struct kvpool_state_client *)(void *)(base + clients_offset(state->n_segments));
}

/* The last store of a change: the compiler may not move the others behind it. */
static void store_last(uint32_t *at, uint32_t value)
{
	atomic_signal_fence(memory_order_seq_cst);
	*(volatile uint32_t *)at = value;
}

int kvpool_state_new(const struct kvpool_state_sizes *sizes, struct kvpool_state **out)
{
	struct kvpool_state *state = calloc(1, sizeof(*state));
	struct kvpool_header *header;
	int r;

	if (!state)
		return -ENOMEM;
	state->n_segments = (uint32_t)segments_of(sizes);
	r = kvpool_memory_new(bytes_of(state->n_segments), &state->memory);
	if (r != 0) {
		free(state);
		return r;
	}
	place(state);
	state->control->sizes = *sizes;
	state->control->next_segment = 1;
	state->control->sizes_check = kvpool_crc32c_add(0, sizes, sizeof(*sizes));
	header = state->memory.address;
	memcpy(header->magic, KVPOOL_HEADER_MAGIC, sizeof(header->magic));
	header->format_major = KVPOOL_STATE_MAJOR;
	header->format_minor = KVPOOL_STATE_MINOR;
	header->header_bytes = KVPOOL_HEADER_BYTES;
	header->total_bytes = state->memory.bytes;
	header->kind = KVPOOL_HEADER_STATE;
	/* H1 -> H2 */
	atomic_store_explicit(&header->state, KVPOOL_HEADER_READY, memory_order_release);
	kvpool_kill_point(KVPOOL_KILL_STATE_MADE);
	r = kvpool_store_put(KVPOOL_STATE_NAME, state->memory.fd);
	kvpool_kill_point(KVPOOL_KILL_STATE_STORED);
	if (r != 0) {
		kvpool_state_free(state);
		return r < 0 ? r : -ENOTCONN;
	}
	*out = state;
	return 0;
}

/* Sizes that a daemon could have chosen: all that is derived from them stays within its bounds. */
static bool sizes_fit(const struct kvpool_state_sizes *s)
{
	return KVPOOL_IS_POW2(s->segment_bytes) && s->segment_bytes <= KVPOOL_SEGMENT_MAX &&
	       KVPOOL_IS_POW2(s->extent_bytes) && s->extent_bytes <= s->segment_bytes &&
	       KVPOOL_IS_POW2(s->step_bytes) && s->step_bytes <= s->segment_bytes &&
	       s->extent_bytes >= 4096 && s->step_bytes >= 4096 && s->pool_bytes > 0 &&
	       s->pool_bytes % s->segment_bytes == 0 && segments_of(s) <= KVPOOL_SEGMENTS_MAX &&
	       s->blocks_max <= UINT32_MAX;
}

/* What keeps the memory from being a state; NULL: nothing. */
static const char *fault_of(const struct kvpool_state *state)
{
	const struct kvpool_header *h = state->memory.address;
	const struct kvpool_state_control *c = state->control;

	/* H2 <- H1 */
	if (atomic_load_explicit(&h->state, memory_order_acquire) != KVPOOL_HEADER_READY)
		return "its header was never finished";
	if (memcmp(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic)) != 0 ||
	    h->kind != KVPOOL_HEADER_STATE || h->header_bytes != KVPOOL_HEADER_BYTES)
		return "it is no state of kvpoold";
	if (h->format_major != KVPOOL_STATE_MAJOR || h->must_features != 0)
		return "it has the format of another major version";
	if (c->sizes_check != kvpool_crc32c_add(0, &c->sizes, sizeof(c->sizes)) ||
	    !sizes_fit(&c->sizes))
		return "its sizes are not those that were written";
	if (h->total_bytes != state->memory.bytes ||
	    bytes_of(segments_of(&c->sizes)) != state->memory.bytes)
		return "it is not as long as it says";
	return NULL;
}

/* The daemon's own memory and nobody else's: the right length, sealed against another. */
static int look(int fd, const char **fault, uint64_t *bytes)
{
	uint64_t is;

	if (!kvpool_memory_sealed(fd, &is)) {
		*fault = "it is no sealed memory";
		return KVPOOL_STATE_E_FOREIGN;
	}
	if (is < bytes_of(1) || is > bytes_of(KVPOOL_SEGMENTS_MAX)) {
		*fault = "it is too short or too long";
		return KVPOOL_STATE_E_FOREIGN;
	}
	*bytes = is;
	return 0;
}

int kvpool_state_adopt(int fd, const char **fault, struct kvpool_state **out)
{
	struct kvpool_state *state;
	uint64_t bytes = 0;
	int r;

	r = look(fd, fault, &bytes);
	if (r != 0)
		return r;
	state = calloc(1, sizeof(*state));
	if (!state)
		return -ENOMEM;
	r = kvpool_memory_adopt(fd, bytes, &state->memory);
	if (r != 0) {
		free(state);
		return r;
	}
	place(state);
	*fault = fault_of(state);
	if (*fault) {
		state->memory.fd = -1; /* the caller's still */
		kvpool_state_free(state);
		return KVPOOL_STATE_E_FOREIGN;
	}
	state->n_segments = (uint32_t)segments_of(&state->control->sizes);
	place(state);
	*out = state;
	return 0;
}

void kvpool_state_free(struct kvpool_state *state)
{
	if (!state)
		return;
	kvpool_memory_free(&state->memory);
	free(state);
}

static uint32_t segment_check(const struct kvpool_state_segment *entry)
{
	struct kvpool_state_segment copy = *entry;

	copy.check = 0;
	return kvpool_crc32c_add(0, &copy, sizeof(copy));
}

void kvpool_state_segment_set(struct kvpool_state *state, uint32_t at,
			      const struct kvpool_state_segment *entry)
{
	struct kvpool_state_segment *to = &state->segments[at];

	store_last(&to->check, 0);
	*to = *entry;
	store_last(&to->check, segment_check(entry));
}

bool kvpool_state_segment_get(const struct kvpool_state *state, uint32_t at,
			      struct kvpool_state_segment *out)
{
	struct kvpool_state_segment copy = state->segments[at];

	if (copy.id == 0 || copy.check != segment_check(&copy))
		return false;
	*out = copy;
	return true;
}

static uint32_t client_check(const struct kvpool_state_client *entry)
{
	return kvpool_crc32c_add(0, entry, offsetof(struct kvpool_state_client, check));
}

static uint32_t epoch_check(uint32_t id, uint64_t epoch)
{
	uint32_t sum = kvpool_crc32c_add(id, &epoch, sizeof(epoch));

	return sum ? sum : 1;
}

int kvpool_state_client_add(struct kvpool_state *state, const struct kvpool_state_client *entry,
			    struct kvpool_state_client **out)
{
	for (uint32_t i = 0; i < KVPOOL_STATE_CLIENTS_MAX; i++) {
		uint32_t at = (state->client_at + i) % KVPOOL_STATE_CLIENTS_MAX;
		struct kvpool_state_client *to = &state->clients[at];

		if (to->id != 0)
			continue;
		to->uid = entry->uid;
		memcpy(to->token, entry->token, sizeof(to->token));
		to->flags = entry->flags;
		to->holding = 0;
		to->members = 0;
		to->epoch = entry->epoch;
		to->epoch_check = epoch_check(entry->id, entry->epoch);
		to->check = client_check(entry);
		/* Cut short before this, there is no entry, and its client was granted nothing. */
		store_last(&to->id, entry->id);
		state->client_at = at + 1;
		*out = to;
		return 0;
	}
	return KVPOOL_STATE_E_FULL;
}

void kvpool_state_client_flag(struct kvpool_state_client *entry, enum kvpool_state_flag flag)
{
	struct kvpool_state_client copy = *entry;

	copy.flags |= flag;
	copy.check = client_check(&copy);
	/* One store of both words, so that the entry fits at every instruction. */
	memcpy(&entry->flags, &copy.flags, 2 * sizeof(copy.flags));
}

void kvpool_state_client_remove(struct kvpool_state_client *entry)
{
	if (!entry)
		return;
	store_last(&entry->id, 0);
	explicit_bzero(entry, sizeof(*entry));
}

bool kvpool_state_client_resumable(const struct kvpool_state_client *entry)
{
	return entry->epoch_check == epoch_check(entry->id, entry->epoch);
}

void kvpool_state_client_never_resumes(struct kvpool_state_client *entry)
{
	/* epoch_check() is never 0. */
	store_last(&entry->epoch_check, 0);
}

bool kvpool_state_client_valid(const struct kvpool_state_client *entry)
{
	return entry->id != 0 && entry->check == client_check(entry);
}
