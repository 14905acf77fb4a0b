/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle of libkvpool-llama and what its files do for each other.
 *
 * Owned by the caller of kvpool_llama_open(); belongs to the thread of its context.
 */
#ifndef KVPOOL_CLIENT_LLAMA_HANDLE_H
#define KVPOOL_CLIENT_LLAMA_HANDLE_H

#include "client/llama/kvpool_llama.h"
#include "client/llama/state.h"

#include "shm/base.h"

#define KVPOOL_LLAMA_TEXT_BYTES 256u

struct kvpool_llama {
	struct llama_model *model;      /* borrowed */
	struct llama_context *context;  /* borrowed */
	struct kvpool *pool;            /* borrowed; NULL: share nothing */
	struct kvpool_channel *channel; /* owned; NULL: share nothing */
	struct kvpool_layout *layout;   /* the pool's */
	struct llama_batch batch;       /* owned; of `chunk` tokens */
	llama_seq_id sequence;
	uint32_t chunk;    /* tokens that are decoded together, and of a block */
	uint64_t chunk_ns; /* how long that takes at most, as far as is known */
	void *salt;        /* owned */
	size_t salt_bytes;

	/* What the layout is made of; owned. */
	char model_digest[KVPOOL_LLAMA_IDENTITY_BYTES];
	char build_digest[KVPOOL_LLAMA_IDENTITY_BYTES];
	char *parameters, *variant, *label;
	int32_t threads[2]; /* for one token and for many, as the layout has them */

	bool known; /* the state's shape is, so that it can be laid out canonically */
	struct kvpool_llama_shape shape;
	uint32_t windows[KVPOOL_LLAMA_CACHES]; /* tokens that a cache keeps; 0: all */
	uint8_t *blob;                         /* owned */
	uint64_t blob_bytes;
	uint8_t *spare;              /* owned: a block's rows of the widest tensor */
	struct kvpool_piece *pieces; /* owned: two a tensor */

	char why_private[KVPOOL_LLAMA_TEXT_BYTES]; /* empty: it shares */
	char error[KVPOOL_LLAMA_TEXT_BYTES];
};

/* How long the pool may take to answer: little beside a chunk, which is what a hit saves. */
static inline uint64_t kvpool_llama_deadline_ns(const struct kvpool_llama *h)
{
	return KVPOOL_MIN(KVPOOL_MAX(h->chunk_ns / 4, UINT64_C(50000000)), UINT64_C(1000000000));
}

/* Keeps what the pool said last as the handle's error, with how large its blocks are. */
void kvpool_llama_note(struct kvpool_llama *h, const char *said);

/* `blob` takes that many bytes afterwards. 0 or -ENOMEM. */
int kvpool_llama_blob_ensure(struct kvpool_llama *h, uint64_t bytes);

/* Empties the sequence, and lays out as in a new context where it is the only one. */
void kvpool_llama_empty(struct kvpool_llama *h);

/*
 * Decodes `n` tokens, at most a chunk, as positions from `at` on; with the last one's logits where
 * asked. 0, or what llama_decode() returned.
 */
int kvpool_llama_decode(struct kvpool_llama *h, const llama_token *tokens, uint32_t at, uint32_t n,
			bool logits);

/*
 * Reads the state of tokens [0, n) into `blob`: of all caches, or (`from` 1) of the sliding one.
 * False: it is not as it should be.
 */
bool kvpool_llama_state_get(struct kvpool_llama *h, uint32_t from, uint32_t n,
			    struct kvpool_llama_state *out);

/* Puts `blob` in the place of the same caches of the sequence. False: they are empty now. */
bool kvpool_llama_state_set(struct kvpool_llama *h, const struct kvpool_llama_state *state);

/* Makes the layout for the context's present number of threads. 0 or -errno. */
int kvpool_llama_layout_make(struct kvpool_llama *h);

/*
 * Reads the longest prefix of at most `n` blocks that the pool has into the (empty) sequence, and
 * waits for what somebody is computing now. Returns its blocks; 0 also where something failed: the
 * sequence is empty then.
 */
uint32_t kvpool_llama_restore(struct kvpool_llama *h, const uint8_t *keys, uint32_t n,
			      struct kvpool_llama_report *report);

/* ---- publishing: one prompt's blocks on their way into the pool ---- */

struct kvpool_llama_publication {
	struct kvpool_block *blocks[KVPOOL_LLAMA_CACHES]; /* owned: of each key, block 0: none */
	uint32_t n;                                       /* keys */
	uint32_t stored; /* of the cache that keeps all: keys up to here are done with */
	uint32_t count;  /* of them, committed in the group that keeps all */
	bool late;       /* somebody else had the first of them before us */
};

/* Blocks that are computed before they are published together: few, and an eighth of a long
   prompt, because the state can only be read as a whole. */
static inline uint32_t kvpool_llama_publish_step(uint32_t stored)
{
	return KVPOOL_MAX(stored / 8, 1);
}

/* Reserves the blocks of keys [from, n). Where none is granted it does nothing. */
void kvpool_llama_publish_begin(struct kvpool_llama *h, const uint8_t *keys, uint32_t from,
				uint32_t n, struct kvpool_llama_publication *out);

/* Takes the last block of tokens [0, state's end) out of the sliding cache's state in `blob`. */
void kvpool_llama_publish_window(struct kvpool_llama *h, struct kvpool_llama_publication *p,
				 const struct kvpool_llama_state *state);

/* The sequence has `done` whole blocks now: publishes them where it is time, or `all`. */
void kvpool_llama_publish(struct kvpool_llama *h, struct kvpool_llama_publication *p, uint32_t done,
			  bool all);

/* Gives back what was not published, and frees. */
void kvpool_llama_publish_end(struct kvpool_llama *h, struct kvpool_llama_publication *p);

#endif
