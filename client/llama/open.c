/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a handle: what the state looks like, and whether it may be shared.
 *
 * Called by the thread of the context.
 */
#include "client/llama/handle.h"

#include "client/llama/clock.h"
#include "client/llama/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 128u

/* What a chunk may take until one was timed: a machine that is busy now makes all of them slow. */
#define CHUNK_NS UINT64_C(3000000000)

static void keep_private(struct kvpool_llama *h, const char *why)
{
	if (!h->why_private[0])
		snprintf(h->why_private, sizeof(h->why_private), "%s", why);
}

/* What the public functions of llama.cpp tell about a model that has more than a KV cache. */
static const char *unsupported(const struct llama_model *model)
{
	enum llama_rope_type rope = llama_model_rope_type(model);

	if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model))
		return "the model keeps recurrent state";
	if (llama_model_has_encoder(model) || llama_model_is_diffusion(model))
		return "the model is no plain decoder";
	if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ||
	    rope == LLAMA_ROPE_TYPE_VISION)
		return "the model's positions have several dimensions";
	return NULL;
}

static int learn(struct kvpool_llama *h, uint64_t bytes, const char **why)
{
	uint32_t window = (uint32_t)KVPOOL_MAX(llama_model_n_swa(h->model), 0);
	int r = kvpool_llama_shape_learn(h->blob, bytes, h->sequence, 1, &h->shape, why);

	if (r != 0 && window > 0) {
		r = kvpool_llama_shape_learn(h->blob, bytes, h->sequence, 2, &h->shape, why);
		h->windows[1] = window;
	}
	return r;
}

/* Decodes one more token, which tells how long one takes and whether the shape holds. */
static bool probe_second(struct kvpool_llama *h)
{
	static const llama_token second;
	uint64_t start = kvpool_llama_now_ns();
	struct kvpool_llama_state state;

	if (kvpool_llama_decode(h, &second, 1, 1, true) != 0)
		return false;
	llama_synchronize(h->context);
	h->chunk_ns = KVPOOL_MAX((kvpool_llama_now_ns() - start) * h->chunk, CHUNK_NS);
	return kvpool_llama_state_get(h, 0, 2, &state);
}

/* Decodes a token to see the state of it. */
static void probe(struct kvpool_llama *h)
{
	static const llama_token first;
	const char *why = unsupported(h->model);
	uint64_t bytes;

	if (why) {
		keep_private(h, why);
		return;
	}
	kvpool_llama_empty(h);
	if (kvpool_llama_decode(h, &first, 0, 1, true) != 0) {
		keep_private(h, "the context does not decode a first token");
		return;
	}
	bytes = llama_state_seq_get_size(h->context, h->sequence);
	if (bytes == 0 || kvpool_llama_blob_ensure(h, bytes) != 0 ||
	    llama_state_seq_get_data(h->context, h->blob, bytes, h->sequence) != bytes)
		keep_private(h, "llama.cpp does not give the sequence's state");
	else if (learn(h, bytes, &why) != 0)
		keep_private(h, why);
	else if (h->windows[1] > 0 && h->windows[1] < h->chunk)
		keep_private(h, "a block is longer than the model's window");
	else if (!probe_second(h))
		keep_private(h, "the state of two tokens is not like that of one");
	else
		h->known = true;
	kvpool_llama_empty(h);
}

static int make_buffers(struct kvpool_llama *h)
{
	uint64_t widest = 1;
	uint32_t tensors = 1;

	for (uint32_t i = 0; i < h->shape.n_caches; i++) {
		const struct kvpool_llama_cache *c = &h->shape.caches[i];

		tensors = KVPOOL_MAX(tensors, c->n_tensors);
		for (uint32_t t = 0; t < c->n_tensors; t++)
			widest = KVPOOL_MAX(widest, c->row[t]);
	}
	h->spare = malloc(h->chunk * widest);
	h->pieces = calloc((size_t)2 * tensors, sizeof(*h->pieces));
	return h->spare && h->pieces ? 0 : -ENOMEM;
}

/* The types of K and V, tensor after tensor, with how often each comes. */
static int print_types(const struct kvpool_llama_shape *shape, char **text)
{
	size_t bytes;
	FILE *f = open_memstream(text, &bytes);
	int bad;

	if (!f)
		return -ENOMEM;
	for (uint32_t i = 0; i < shape->n_caches; i++) {
		const struct kvpool_llama_cache *c = &shape->caches[i];

		fprintf(f, "cache");
		for (uint32_t t = 0; t < c->n_tensors; t++)
			fprintf(f, " %d:%llu", c->type[t], (unsigned long long)c->row[t]);
	}
	bad = ferror(f);
	return fclose(f) == 0 && !bad ? 0 : -ENOMEM;
}

int kvpool_llama_layout_make(struct kvpool_llama *h)
{
	struct kvpool_group_spec groups[KVPOOL_LLAMA_CACHES] = {0};
	struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "llama.cpp",
		.hash_algorithm = "sha256",
		.model = h->model_digest,
		.revision = h->build_digest,
		.adapter = h->variant,
		.label = h->label,
		.block_tokens = h->chunk,
		.n_shards = 1,
		.n_groups = h->shape.n_caches,
		.groups = groups,
	};
	char *types = NULL, *order = NULL;
	int r = print_types(&h->shape, &types);

	h->threads[0] = llama_n_threads(h->context);
	h->threads[1] = llama_n_threads_batch(h->context);
	for (uint32_t i = 0; i < h->shape.n_caches; i++) {
		groups[i].kind = h->windows[i] ? KVPOOL_WINDOW : KVPOOL_FULL;
		groups[i].window = h->windows[i];
		groups[i].slot_bytes = h->chunk * h->shape.caches[i].cell_bytes;
	}
	if (r == 0 && asprintf(&order, "rows 1; threads %d %d; %s", h->threads[0], h->threads[1],
			       h->parameters) < 0) {
		order = NULL;
		r = -ENOMEM;
	}
	spec.dtype = types;
	spec.order = order;
	if (r == 0)
		r = kvpool_layout(h->pool, &spec, &h->layout);
	free(types);
	free(order);
	return r;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Everything that only sharing needs. Failures make the handle private, but for -ENOMEM. */
static int make_shared(struct kvpool_llama *h, const struct kvpool_llama_options *o)
{
	int r = kvpool_llama_build_identity(h->build_digest);

	if (r != 0) {
		keep_private(h, "the files of the loaded llama.cpp cannot be read");
		return 0;
	}
	r = kvpool_llama_file_identity(o->model_path, h->model_digest);
	if (r != 0) {
		snprintf(h->why_private, sizeof(h->why_private), "%.160s cannot be identified: %s",
			 o->model_path, r == -EPROTO ? "not a whole GGUF file" : strerror(-r));
		return 0;
	}
	h->parameters =
		kvpool_llama_parameters(h->model, h->context, o->model_params, o->context_params);
	h->variant = strdup(o->variant ? o->variant : "");
	if (asprintf(&h->label, "%.63s", base_name(o->model_path)) < 0)
		h->label = NULL;
	if (!h->parameters || !h->variant || !h->label)
		return -ENOMEM;
	if (kvpool_llama_layout_make(h) != 0 || kvpool_channel_open(h->pool, &h->channel) != 0)
		keep_private(h, kvpool_error(h->pool));
	return 0;
}

static int fill(struct kvpool_llama *h, const struct kvpool_llama_options *o)
{
	int r = 0;

	h->batch = llama_batch_init((int32_t)h->chunk, 0, 1);
	if (!h->batch.token || !h->batch.logits)
		return -ENOMEM;
	if (o->salt_bytes > 0) {
		h->salt = malloc(o->salt_bytes);
		if (!h->salt)
			return -ENOMEM;
		memcpy(h->salt, o->salt, o->salt_bytes);
		h->salt_bytes = o->salt_bytes;
	}
	probe(h);
	if (h->known)
		r = make_buffers(h);
	if (r == 0 && h->known && h->pool)
		r = make_shared(h, o);
	if (!h->pool)
		keep_private(h, "no pool was given");
	return r;
}

int kvpool_llama_open(struct llama_model *model, struct llama_context *context,
		      const struct kvpool_llama_options *options, struct kvpool_llama **out)
{
	struct kvpool_llama *h;
	uint32_t block, most;
	int r;

	if (!model || !context || !options || options->size < sizeof(*options) ||
	    !options->model_path || !options->model_params || !options->context_params ||
	    (options->salt_bytes > 0 && !options->salt) || options->sequence < 0 ||
	    (uint32_t)options->sequence >= llama_n_seq_max(context))
		return -EINVAL;
	block = options->block_tokens ? options->block_tokens : BLOCK_TOKENS;
	most = KVPOOL_MIN(llama_n_batch(context), llama_n_ubatch(context));
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->model = model;
	h->context = context;
	h->pool = options->pool;
	h->sequence = options->sequence;
	h->chunk = KVPOOL_MIN(block, most);
	snprintf(h->error, sizeof(h->error), "%s", KVPOOL_LLAMA_NO_ERROR);
	r = fill(h, options);
	if (r != 0) {
		kvpool_llama_close(h);
		return r;
	}
	*out = h;
	return 0;
}

void kvpool_llama_close(struct kvpool_llama *handle)
{
	if (!handle)
		return;
	kvpool_channel_close(handle->channel);
	llama_batch_free(handle->batch);
	free(handle->salt);
	free(handle->parameters);
	free(handle->variant);
	free(handle->label);
	free(handle->blob);
	free(handle->spare);
	free(handle->pieces);
	free(handle);
}

void kvpool_llama_note(struct kvpool_llama *h, const char *said)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < h->shape.n_caches; i++)
		bytes += h->chunk * h->shape.caches[i].cell_bytes;
	snprintf(h->error, sizeof(h->error), "%.160s (a block of %u tokens takes %llu bytes)", said,
		 h->chunk, (unsigned long long)bytes);
}

const char *kvpool_llama_private(const struct kvpool_llama *handle)
{
	return handle->why_private[0] ? handle->why_private : NULL;
}

const char *kvpool_llama_error(const struct kvpool_llama *handle)
{
	return handle->error;
}
