/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes two processes compute the same bytes. See identity.h.
 *
 * Pure functions over their arguments and the running program, usable from any thread.
 */
#include "client/llama/identity.h"

#include "client/llama/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <ggml-backend.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OBJECTS_MAX 32u

/* ---- the build ---- */

struct objects {
	uint8_t digests[OBJECTS_MAX][KVPOOL_LLAMA_DIGEST_BYTES];
	uint32_t n;
	int error;
};

static bool contains(const struct dl_phdr_info *info, uintptr_t address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

/* Shared libraries of llama.cpp by name; whatever it is linked into by address. */
static bool is_engine(const struct dl_phdr_info *info)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	return strncmp(name, "libggml", 7) == 0 || strncmp(name, "libllama", 8) == 0 ||
	       contains(info, (uintptr_t)llama_decode) ||
	       contains(info, (uintptr_t)ggml_backend_dev_count);
}

static int digest_object(const char *path, uint8_t out[KVPOOL_LLAMA_DIGEST_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct kvpool_llama_digest d;
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0) {
		r = -errno;
		close(fd);
		return r;
	}
	kvpool_llama_digest_begin(&d);
	kvpool_llama_digest_range(&d, fd, 0, (uint64_t)st.st_size);
	close(fd);
	return kvpool_llama_digest_end(&d, out);
}

static int visit_object(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
	struct objects *o = cookie;

	(void)bytes;
	if (!is_engine(info))
		return 0;
	if (o->n == OBJECTS_MAX) {
		o->error = -E2BIG;
		return 1;
	}
	o->error = digest_object(info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe",
				 o->digests[o->n++]);
	return o->error;
}

static int compare_digests(const void *a, const void *b)
{
	return memcmp(a, b, KVPOOL_LLAMA_DIGEST_BYTES);
}

int kvpool_llama_build_identity(char out[KVPOOL_LLAMA_IDENTITY_BYTES])
{
	uint8_t digest[KVPOOL_LLAMA_DIGEST_BYTES];
	struct kvpool_llama_digest d;
	struct objects objects = {0};
	int r;

	dl_iterate_phdr(visit_object, &objects);
	if (objects.error != 0)
		return objects.error;
	/* The order of loading is the program's, not the engine's. */
	qsort(objects.digests, objects.n, KVPOOL_LLAMA_DIGEST_BYTES, compare_digests);
	kvpool_llama_digest_begin(&d);
	kvpool_llama_digest_add(&d, objects.digests, (size_t)objects.n * KVPOOL_LLAMA_DIGEST_BYTES);
	kvpool_llama_digest_text(&d, llama_print_system_info());
	for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
		ggml_backend_dev_t device = ggml_backend_dev_get(i);

		kvpool_llama_digest_text(&d, ggml_backend_dev_name(device));
		kvpool_llama_digest_text(&d, ggml_backend_dev_description(device));
	}
	r = kvpool_llama_digest_end(&d, digest);
	if (r == 0)
		kvpool_llama_digest_hex(digest, out);
	return r;
}

/* ---- parameters ---- */

static void print_model(FILE *f, const struct llama_model_params *p)
{
	fprintf(f, "layers on devices %d split %d main %d extra %d host %d mtp %d", p->n_gpu_layers,
		(int)p->split_mode, p->main_gpu, p->use_extra_bufts, !p->no_host, p->load_mtp);
	for (size_t i = 0; p->tensor_split && i < llama_max_devices(); i++)
		fprintf(f, " share %a", (double)p->tensor_split[i]);
	for (const struct llama_model_tensor_buft_override *o = p->tensor_buft_overrides;
	     o && o->pattern; o++)
		fprintf(f, " place %s=%s", o->pattern, ggml_backend_buft_name(o->buft));
	for (const struct llama_model_kv_override *o = p->kv_overrides; o && o->key[0]; o++) {
		fprintf(f, " override %.*s:%d=", (int)sizeof(o->key), o->key, (int)o->tag);
		switch (o->tag) {
		case LLAMA_KV_OVERRIDE_TYPE_INT:
			fprintf(f, "%lld", (long long)o->val_i64);
			break;
		case LLAMA_KV_OVERRIDE_TYPE_FLOAT:
			fprintf(f, "%a", o->val_f64);
			break;
		case LLAMA_KV_OVERRIDE_TYPE_BOOL:
			fprintf(f, "%d", o->val_bool);
			break;
		case LLAMA_KV_OVERRIDE_TYPE_STR:
			fprintf(f, "%.*s", (int)sizeof(o->val_str), o->val_str);
			break;
		}
	}
}

/* Some ways of scaling positions take the length of the context into account. */
static bool length_matters(const struct llama_model *model, const struct llama_context_params *p)
{
	char key[256];

	if (p->rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED &&
	    p->rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_NONE)
		return true;
	for (int32_t i = 0; i < llama_model_meta_count(model); i++) {
		if (llama_model_meta_key_by_index(model, i, key, sizeof(key)) > 0 &&
		    strstr(key, ".rope.scaling"))
			return true;
	}
	return false;
}

static void print_context(FILE *f, const struct llama_model *model,
			  const struct llama_context *context, const struct llama_context_params *p)
{
	fprintf(f, "; rope %d base %a scale %a yarn %a %a %a %a %u", (int)p->rope_scaling_type,
		(double)p->rope_freq_base, (double)p->rope_freq_scale, (double)p->yarn_ext_factor,
		(double)p->yarn_attn_factor, (double)p->yarn_beta_fast, (double)p->yarn_beta_slow,
		p->yarn_orig_ctx);
	fprintf(f, " attention %d flash %d kv on devices %d ops %d whole windows %d",
		(int)p->attention_type, (int)p->flash_attn_type, p->offload_kqv, p->op_offload,
		p->swa_full);
	fprintf(f, " kind %d", (int)p->ctx_type);
	if (length_matters(model, p))
		fprintf(f, " length %u", llama_n_ctx_seq(context));
}

char *kvpool_llama_parameters(const struct llama_model *model, const struct llama_context *context,
			      const struct llama_model_params *model_params,
			      const struct llama_context_params *context_params)
{
	size_t bytes;
	char *text;
	FILE *f = open_memstream(&text, &bytes);
	int bad;

	if (!f)
		return NULL;
	print_model(f, model_params);
	print_context(f, model, context, context_params);
	bad = ferror(f);
	if (fclose(f) == 0 && !bad)
		return text;
	free(text);
	return NULL;
}
