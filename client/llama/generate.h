/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-llama's work: loads a model, puts one prompt into it through libkvpool-llama, and goes on
 * with the likeliest token each time.
 *
 * A job and its outcome belong to the caller; one thread.
 */
#ifndef KVPOOL_CLIENT_LLAMA_GENERATE_H
#define KVPOOL_CLIENT_LLAMA_GENERATE_H

#include "client/llama/kvpool_llama.h"

#include <stdbool.h>

#define KVPOOL_GENERATE_TEXT_BYTES 512u

struct kvpool_generate_job {
	const char *model;  /* borrowed, as all here: path of a GGUF file */
	const char *prompt; /* its bytes; may hold zeros */
	size_t prompt_bytes;
	const char *salt;    /* NULL: none */
	const char *kv_type; /* of K and V in the cache: "f16", ... */
	uint32_t predict;    /* tokens at most */
	uint32_t threads;    /* at least 1 */
	uint32_t context;    /* tokens; 0: as many as it takes, at least 4096 */
	uint32_t block;      /* tokens; 0: the library's */
	bool share, digest;
};

struct kvpool_generate_outcome {
	char *text; /* owned by the caller: free() */
	size_t text_bytes;
	uint32_t predicted; /* tokens */
	struct kvpool_llama_report report;
	uint64_t load_ns, open_ns, prefill_ns, predict_ns;
	char digest[KVPOOL_LLAMA_IDENTITY_BYTES];     /* of all logits, in hex; empty: not asked */
	char why_private[KVPOOL_GENERATE_TEXT_BYTES]; /* empty: it shares, if a daemon answers */
	char pool_error[KVPOOL_GENERATE_TEXT_BYTES];  /* empty: none */
};

/*
 * Does it. 0; -EINVAL: `error` says what of the job is wrong; another -errno: `error` says what
 * failed.
 */
int kvpool_generate(const struct kvpool_generate_job *job, struct kvpool_generate_outcome *out,
		    char error[KVPOOL_GENERATE_TEXT_BYTES]);

#endif
