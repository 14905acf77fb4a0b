/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-llama's work. See generate.h.
 *
 * One thread, but that llama.cpp has its own.
 */
#include "client/llama/generate.h"

#include "client/kvpool.h"
#include "client/llama/clock.h"
#include "client/llama/digest.h"

#include "shm/base.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_MIN 4096u
#define BATCH_MIN   512u
#define PIECE_BYTES 256

/* The last thing that llama.cpp complained about; its other talk is dropped. */
struct complaint {
	char text[KVPOOL_GENERATE_TEXT_BYTES];
};

struct run {
	const struct kvpool_generate_job *job; /* borrowed, as the next two */
	struct kvpool_generate_outcome *out;
	char *error;
	struct llama_model *model; /* owned, as all below */
	struct llama_context *context;
	struct kvpool *pool;
	struct kvpool_llama *handle;
	llama_token *tokens;
	uint32_t n_tokens;
	FILE *text;
	struct kvpool_llama_digest digest;
	struct complaint complaint;
};

static const struct {
	const char *name;
	enum ggml_type type;
} kv_types[] = {
	{"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
	{"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0},
};

static void listen_to_llama(enum ggml_log_level level, const char *text, void *cookie)
{
	struct complaint *c = cookie;

	if (level == GGML_LOG_LEVEL_ERROR)
		snprintf(c->text, sizeof(c->text), "%.*s", (int)strcspn(text, "\n"), text);
}

KVPOOL_PRINTF(3, 4) static int fail(struct run *r, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->error, KVPOOL_GENERATE_TEXT_BYTES, format, args);
	va_end(args);
	return error;
}

static const char *complaint_of(const struct run *r)
{
	return r->complaint.text[0] ? r->complaint.text : "llama.cpp does not say why";
}

static int load_model(struct run *r, struct llama_model_params *params)
{
	uint64_t start = kvpool_llama_now_ns();
	FILE *f = fopen(r->job->model, "rb");
	int c;

	if (!f)
		return fail(r, -EINVAL, "cannot open the model %.300s: %s", r->job->model,
			    strerror(errno));
	c = fgetc(f);
	if (c == EOF) {
		int e = ferror(f) ? errno : 0;

		fclose(f);
		return fail(r, -EINVAL, "cannot read the model %.300s: %s", r->job->model,
			    e ? strerror(e) : "it is empty");
	}
	fclose(f);
	*params = llama_model_default_params();
	r->model = llama_model_load_from_file(r->job->model, *params);
	if (!r->model)
		return fail(r, -EINVAL, "%.200s is no model that llama.cpp can load: %.200s",
			    r->job->model, complaint_of(r));
	r->out->load_ns = kvpool_llama_now_ns() - start;
	return 0;
}

static int tokenize(struct run *r)
{
	const struct llama_vocab *vocab = llama_model_get_vocab(r->model);
	int32_t n;

	if (r->job->prompt_bytes > INT32_MAX)
		return fail(r, -EINVAL, "the prompt is longer than 2 GiB");
	n = -llama_tokenize(vocab, r->job->prompt, (int32_t)r->job->prompt_bytes, NULL, 0, true,
			    true);
	if (n <= 0)
		return fail(r, -EINVAL, "the prompt has no tokens");
	r->tokens = calloc((size_t)n, sizeof(*r->tokens));
	if (!r->tokens)
		return fail(r, -ENOMEM, "out of memory");
	if (llama_tokenize(vocab, r->job->prompt, (int32_t)r->job->prompt_bytes, r->tokens, n, true,
			   true) != n)
		return fail(r, -EIO, "llama.cpp does not tokenize the prompt the same way twice");
	r->n_tokens = (uint32_t)n;
	return 0;
}

/* The same for most prompts: the length of the context is part of what some models compute. */
static uint32_t context_for(uint32_t tokens)
{
	uint32_t n = CONTEXT_MIN;

	while (n < tokens && n < UINT32_C(1) << 31)
		n *= 2;
	return n;
}

static int make_context(struct run *r, struct llama_context_params *params)
{
	const struct kvpool_generate_job *job = r->job;
	uint32_t batch = KVPOOL_MAX(job->block, BATCH_MIN);
	size_t type = 0;

	while (type < KVPOOL_ARRAY_SIZE(kv_types) && strcmp(kv_types[type].name, job->kv_type) != 0)
		type++;
	if (type == KVPOOL_ARRAY_SIZE(kv_types))
		return fail(r, -EINVAL, "unknown KV type %.100s: f32, f16, bf16, q8_0 or q4_0",
			    job->kv_type);
	if (job->context && job->context < r->n_tokens)
		return fail(r, -EINVAL, "the prompt has %u tokens, the context takes %u",
			    r->n_tokens, job->context);
	*params = llama_context_default_params();
	params->n_ctx = job->context ? job->context : context_for(r->n_tokens + job->predict);
	params->n_batch = batch;
	params->n_ubatch = batch;
	params->n_seq_max = 1;
	params->n_threads = (int32_t)job->threads;
	params->n_threads_batch = (int32_t)job->threads;
	params->type_k = kv_types[type].type;
	params->type_v = kv_types[type].type;
	params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED; /* else V lies transposed */
	params->no_perf = true;
	r->context = llama_init_from_model(r->model, *params);
	if (!r->context)
		return fail(r, -EIO, "llama.cpp makes no context: %.300s", complaint_of(r));
	return 0;
}

static int open_handle(struct run *r, const struct llama_model_params *model_params,
		       const struct llama_context_params *context_params)
{
	struct kvpool_options pool = {.size = sizeof(pool), .name = "kvpool-llama"};
	struct kvpool_llama_options options = {
		.size = sizeof(options),
		.model_path = r->job->model,
		.model_params = model_params,
		.context_params = context_params,
		.salt = r->job->salt,
		.salt_bytes = r->job->salt ? strlen(r->job->salt) : 0,
		.block_tokens = r->job->block,
	};
	uint64_t start = kvpool_llama_now_ns();
	int e;

	if (r->job->share && kvpool_open(&pool, &r->pool) != 0)
		return fail(r, -EINVAL, "cannot open the pool: is KVPOOL_SOCKET too long?");
	options.pool = r->pool;
	e = kvpool_llama_open(r->model, r->context, &options, &r->handle);
	if (e != 0)
		return fail(r, e, "cannot prepare the context for kvpool: %s", strerror(-e));
	r->out->open_ns = kvpool_llama_now_ns() - start;
	return 0;
}

static const float *logits_of(struct run *r)
{
	const float *logits = llama_get_logits_ith(r->context, -1);
	int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(r->model));

	if (logits && r->job->digest)
		kvpool_llama_digest_add(&r->digest, logits, (size_t)n * sizeof(*logits));
	return logits;
}

static llama_token likeliest(const struct run *r, const float *logits)
{
	int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(r->model));
	llama_token best = 0;

	for (llama_token t = 1; t < n; t++) {
		if (logits[t] > logits[best])
			best = t;
	}
	return best;
}

static void print_token(struct run *r, llama_token token)
{
	char piece[PIECE_BYTES];
	int32_t n = llama_token_to_piece(llama_model_get_vocab(r->model), token, piece,
					 sizeof(piece), 0, true);

	if (n > 0)
		fwrite(piece, 1, (size_t)n, r->text);
}

static int predict(struct run *r)
{
	const struct llama_vocab *vocab = llama_model_get_vocab(r->model);
	uint64_t start = kvpool_llama_now_ns();

	for (;;) {
		const float *logits = logits_of(r);
		llama_token token;
		int e;

		if (!logits)
			return fail(r, -EIO, "llama.cpp gives no logits");
		token = likeliest(r, logits);
		if (r->out->predicted == r->job->predict || llama_vocab_is_eog(vocab, token) ||
		    r->n_tokens + r->out->predicted == llama_n_ctx_seq(r->context))
			break;
		print_token(r, token);
		r->out->predicted++;
		if (r->out->predicted == r->job->predict && !r->job->digest)
			break; /* what comes after the last one is of no use */
		e = llama_decode(r->context, llama_batch_get_one(&token, 1));
		if (e != 0)
			return fail(r, -EIO, "llama_decode() returned %d", e);
	}
	r->out->predict_ns = kvpool_llama_now_ns() - start;
	return 0;
}

static int run(struct run *r)
{
	struct llama_model_params model_params;
	struct llama_context_params context_params;
	uint64_t start;
	int e = load_model(r, &model_params);

	if (e == 0)
		e = tokenize(r);
	if (e == 0)
		e = make_context(r, &context_params);
	if (e == 0)
		e = open_handle(r, &model_params, &context_params);
	if (e != 0)
		return e;
	start = kvpool_llama_now_ns();
	e = kvpool_llama_prefill(r->handle, r->tokens, r->n_tokens, &r->out->report);
	if (e != 0)
		return fail(r, e, "%s", kvpool_llama_error(r->handle));
	r->out->prefill_ns = kvpool_llama_now_ns() - start;
	if (kvpool_llama_private(r->handle))
		snprintf(r->out->why_private, sizeof(r->out->why_private), "%s",
			 kvpool_llama_private(r->handle));
	if (r->pool && !kvpool_attached(r->pool))
		snprintf(r->out->pool_error, sizeof(r->out->pool_error), "%s",
			 kvpool_error(r->pool));
	else if (strcmp(kvpool_llama_error(r->handle), KVPOOL_LLAMA_NO_ERROR) != 0)
		snprintf(r->out->pool_error, sizeof(r->out->pool_error), "%s",
			 kvpool_llama_error(r->handle));
	return predict(r);
}

static int finish(struct run *r, int e)
{
	uint8_t digest[KVPOOL_LLAMA_DIGEST_BYTES];
	int d = kvpool_llama_digest_end(&r->digest, digest);

	kvpool_llama_close(r->handle);
	kvpool_close(r->pool);
	llama_free(r->context);
	llama_model_free(r->model);
	free(r->tokens);
	if (fclose(r->text) != 0 && e == 0)
		e = fail(r, -ENOMEM, "out of memory");
	if (e == 0 && d != 0)
		e = fail(r, d, "libcrypto fails");
	if (e == 0 && r->job->digest)
		kvpool_llama_digest_hex(digest, r->out->digest);
	llama_log_set(NULL, NULL);
	return e;
}

int kvpool_generate(const struct kvpool_generate_job *job, struct kvpool_generate_outcome *out,
		    char error[KVPOOL_GENERATE_TEXT_BYTES])
{
	struct run r = {.job = job, .out = out};
	int e;

	*out = (struct kvpool_generate_outcome){0};
	r.error = error;
	r.text = open_memstream(&out->text, &out->text_bytes);
	if (!r.text)
		return fail(&r, -ENOMEM, "out of memory");
	llama_log_set(listen_to_llama, &r.complaint);
	kvpool_llama_digest_begin(&r.digest);
	e = finish(&r, run(&r));
	if (e != 0) {
		free(out->text);
		out->text = NULL;
	}
	return e;
}
