/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request trace in memory: who asked for which prefix, in which order.
 *
 * Read once, before the workers are forked, and not changed afterwards: they share it. Block ids
 * are kept as runs, as an hour of agents names tens of millions of blocks.
 */
#ifndef KVPOOL_TOOLS_REPLAY_TRACE_H
#define KVPOOL_TOOLS_REPLAY_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVPOOL_TRACE_NONE UINT32_MAX

/* Block ids first, first + 1, ..., first + count - 1. */
struct kvpool_trace_run {
	uint64_t first;
	uint32_t count;
};

enum kvpool_trace_format {
	KVPOOL_TRACE_MOONCAKE = 1, /* hash_ids of 512 tokens; no conversations */
	KVPOOL_TRACE_LMCACHE = 2,  /* hash_ids of 64 tokens; `session` */
	KVPOOL_TRACE_WEKA = 3,     /* runs in `h` of 64 tokens, local to the conversation `c` */
};

struct kvpool_trace_request {
	uint64_t scope;     /* ids are equal only within one scope; 0: known everywhere */
	uint32_t first_run; /* index in runs */
	uint32_t n_runs;
	uint32_t tokens;   /* of the whole prompt */
	uint32_t blocks;   /* whole ones: what the runs hold at least, and what can be reused */
	uint32_t previous; /* earlier request of the same conversation, or KVPOOL_TRACE_NONE */
};

struct kvpool_trace {
	enum kvpool_trace_format format;
	uint32_t block_tokens;
	struct kvpool_trace_request *requests; /* owned */
	uint32_t n;
	uint32_t capacity;
	struct kvpool_trace_run *runs; /* owned */
	uint64_t n_runs;
	uint64_t runs_capacity;
	uint32_t blocks_max;    /* of one request */
	uint64_t skipped_lines; /* bad ones, where they were to be skipped */
};

enum {
	KVPOOL_TRACE_E_LINE = 1, /* a line that is no request of the format; `why` says which */
	KVPOOL_TRACE_E_FILE = 2, /* the file as a whole: empty, damaged, no known format */
};

struct kvpool_trace_options {
	uint32_t requests_max; /* stop after so many; 0: all */
	bool skip_bad_lines;   /* count them instead of failing at the first */
};

/*
 * Negative errno where the file cannot be read. `why` gets a sentence with file and line on every
 * failure.
 */
int kvpool_trace_read(const char *path, const struct kvpool_trace_options *options, char *why,
		      size_t why_bytes, struct kvpool_trace **out);
void kvpool_trace_free(struct kvpool_trace *trace); /* takes NULL */

const char *kvpool_trace_format_name(enum kvpool_trace_format format);

#endif
