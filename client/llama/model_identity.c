/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity of a GGUF file: by its header and sampled bytes of every tensor.
 *
 * Two fine-tunes have the same header, names, shapes and size, and other bytes in every tensor. A
 * sample of each tells them apart without reading a model of many gigabytes at every start.
 *
 * Pure functions over their arguments and files, usable from any thread.
 */
#include "client/llama/digest.h"
#include "client/llama/kvpool_llama.h"

#include "shm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <gguf.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLE_BYTES UINT64_C(4096)

/* A sample at its start, middle and end; all of it where they would touch. */
static void digest_tensor(struct kvpool_llama_digest *d, int fd, uint64_t at, uint64_t bytes)
{
	if (bytes <= 3 * SAMPLE_BYTES) {
		kvpool_llama_digest_range(d, fd, at, bytes);
		return;
	}
	kvpool_llama_digest_range(d, fd, at, SAMPLE_BYTES);
	kvpool_llama_digest_range(d, fd, at + bytes / 2 - SAMPLE_BYTES / 2, SAMPLE_BYTES);
	kvpool_llama_digest_range(d, fd, at + bytes - SAMPLE_BYTES, SAMPLE_BYTES);
}

static void digest_file(struct kvpool_llama_digest *d, int fd, const struct gguf_context *gguf)
{
	uint64_t data = gguf_get_data_offset(gguf);
	struct stat st;

	if (fstat(fd, &st) != 0) {
		d->error = d->error ? d->error : -errno;
		return;
	}
	kvpool_llama_digest_u64(d, (uint64_t)st.st_size);
	kvpool_llama_digest_u64(d, data);
	kvpool_llama_digest_range(d, fd, 0, KVPOOL_MIN(data, (uint64_t)st.st_size));
	for (int64_t i = 0; i < gguf_get_n_tensors(gguf); i++)
		digest_tensor(d, fd, data + gguf_get_tensor_offset(gguf, i),
			      gguf_get_tensor_size(gguf, i));
}

/* How many files the model is in; 0: the header says nothing sensible. */
static uint32_t count_files(const struct gguf_context *gguf)
{
	int64_t key = gguf_find_key(gguf, "split.count");

	if (key < 0)
		return 1;
	if (gguf_get_kv_type(gguf, key) != GGUF_TYPE_UINT16)
		return 0;
	return KVPOOL_MAX(gguf_get_val_u16(gguf, key), 1);
}

/* Adds one file; *n_files: how many it says there are. */
static int add_file(struct kvpool_llama_digest *d, const char *path, uint32_t *n_files)
{
	struct gguf_init_params params = {.no_alloc = true};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct gguf_context *gguf;

	*n_files = 0;
	if (fd < 0)
		return -errno;
	gguf = gguf_init_from_file(path, params);
	if (gguf) {
		*n_files = count_files(gguf);
		digest_file(d, fd, gguf);
		gguf_free(gguf);
	}
	close(fd);
	return gguf && *n_files > 0 ? 0 : -EPROTO;
}

static int add_all(struct kvpool_llama_digest *d, const char *path)
{
	char prefix[PATH_MAX], part[PATH_MAX];
	uint32_t n, ignored;
	int r = add_file(d, path, &n);

	if (r != 0 || n == 1)
		return r;
	if (llama_split_prefix(prefix, sizeof(prefix), path, 0, (int32_t)n) <= 0)
		return -EPROTO;
	for (uint32_t i = 1; i < n && r == 0; i++) {
		if (llama_split_path(part, sizeof(part), prefix, (int32_t)i, (int32_t)n) <= 0)
			return -ENAMETOOLONG;
		r = add_file(d, part, &ignored);
	}
	return r;
}

int kvpool_llama_file_identity(const char *path, char out[KVPOOL_LLAMA_IDENTITY_BYTES])
{
	uint8_t digest[KVPOOL_LLAMA_DIGEST_BYTES];
	struct kvpool_llama_digest d;
	int r, e;

	kvpool_llama_digest_begin(&d);
	kvpool_llama_digest_text(&d, "kvpool-gguf-1");
	r = add_all(&d, path);
	e = kvpool_llama_digest_end(&d, digest);
	if (r != 0 || e != 0)
		return r ? r : e;
	kvpool_llama_digest_hex(digest, out);
	return 0;
}
