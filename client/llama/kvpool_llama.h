/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool-llama: prompts of llama.cpp through the pool.
 *
 * It stands in for the loop of llama_decode() over a prompt. What of the prompt another process of
 * this host has computed already is read from the pool; the rest is computed, and left there.
 *
 * The prompt is computed in chunks of one block, each from a cache that is laid out in one way, so
 * that the logits after a prompt are the same bits whether all, some or none of it came from the
 * pool. This holds while the sequence is the only one in the context.
 *
 * Threads: a handle belongs to the thread that uses its context.
 *
 * Errors: 0 is success, a negative errno is failure, kvpool_llama_error() has a sentence about it.
 * A pool that is absent, slow or full is no failure: then the prompt is computed.
 */
#ifndef KVPOOL_LLAMA_H
#define KVPOOL_LLAMA_H

#include <llama.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct kvpool; /* of <kvpool.h> */
struct kvpool_llama;

struct kvpool_llama_options {
	size_t size;         /* sizeof(struct kvpool_llama_options), so that it can grow */
	struct kvpool *pool; /* borrowed; NULL: compute the same way, share nothing */

	/* What the model and the context were made with; borrowed for the call. */
	const char *model_path;
	const struct llama_model_params *model_params;
	const struct llama_context_params *context_params;

	/*
	 * Whatever else changes what the model computes, named by content: adapters
	 * (kvpool_llama_file_identity() of each, with its scale), control vectors. NULL: nothing
	 * does. llama.cpp does not tell, so leaving out an adapter here shares wrong bytes.
	 */
	const char *variant;

	const void *salt; /* only prompts with the same salt are shared; copied */
	size_t salt_bytes;
	uint32_t
		block_tokens; /* tokens a block; 0: 128. At most n_batch, n_ubatch and the window */
	llama_seq_id sequence; /* of the context, emptied by each prompt */
};

/*
 * Makes a handle. Decodes two tokens, to learn what the context's state looks like, and reads a few
 * KiB of every tensor of the model. Where the state is of a form that cannot be shared, the handle
 * computes every prompt and kvpool_llama_private() says why. -EINVAL, -ENOMEM.
 */
int kvpool_llama_open(struct llama_model *model, struct llama_context *context,
		      const struct kvpool_llama_options *options, struct kvpool_llama **out);

/* Takes NULL. The model, the context and the pool stay. */
void kvpool_llama_close(struct kvpool_llama *handle);

struct kvpool_llama_report {
	uint32_t tokens;     /* of the prompt */
	uint32_t restored;   /* leading tokens of it that were not computed */
	uint32_t published;  /* blocks of tokens that were left in the pool */
	uint64_t wait_ns;    /* for another process that was computing the same */
	uint64_t restore_ns; /* from the pool into the context */
	uint64_t compute_ns; /* the rest, with publishing */
};

/*
 * Empties the sequence and puts `tokens` into it. The last token is always computed, so the logits
 * after it are llama_get_logits_ith(context, -1). Where another process is computing the same
 * prefix now, waits about as long as computing it would take. `report` may be NULL. -EINVAL: no
 * tokens, or more than the context takes; -EIO: llama_decode() failed, the sequence is empty.
 */
int kvpool_llama_prefill(struct kvpool_llama *handle, const llama_token *tokens, size_t n,
			 struct kvpool_llama_report *report);

/* Why nothing is shared with this model and context; NULL: it is. Valid until close. */
const char *kvpool_llama_private(const struct kvpool_llama *handle);

/*
 * What went wrong last, also where it only means that less was shared; "no error" where nothing did
 * in the last prompt. Never NULL; valid until the next call.
 */
const char *kvpool_llama_error(const struct kvpool_llama *handle);

#define KVPOOL_LLAMA_NO_ERROR       "no error"
#define KVPOOL_LLAMA_IDENTITY_BYTES 65

/*
 * Names a GGUF file by content: SHA-256 in hex of its size, its header, and 4 KiB at the start, the
 * middle and the end of every tensor; of all its parts, where it is split. -errno: it cannot be
 * read; -EPROTO: it is no GGUF file.
 */
int kvpool_llama_file_identity(const char *path, char out[KVPOOL_LLAMA_IDENTITY_BYTES]);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
