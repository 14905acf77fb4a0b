/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of a trace, parsed and checked: a request of one of the known formats.
 *
 * Pure but for the memory it allocates; usable from any thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_TRACE_ROW_H
#define KVPOOL_TOOLS_REPLAY_TRACE_ROW_H

#include "tools/replay/trace.h"

/* The longest prompt that is believed: ten times what any model takes today. */
#define KVPOOL_TRACE_TOKENS_MAX (1u << 27)

struct kvpool_trace_row {
	enum kvpool_trace_format format;
	uint64_t conversation; /* with `part`: names the conversation, where has_conversation */
	uint64_t part;
	bool has_conversation;
	uint64_t scope;
	uint32_t tokens;
	struct kvpool_trace_run *runs; /* owned by the row, reused from line to line */
	uint32_t n_runs;
	uint32_t runs_capacity;
};

/* Tokens a block in traces of this format. */
uint32_t kvpool_trace_row_block_tokens(enum kvpool_trace_format format);

/*
 * Fills `row`, which starts zeroed and is used again for the next line. KVPOOL_TRACE_E_LINE with
 * the reason in `why`, or -ENOMEM.
 */
int kvpool_trace_row_parse(const char *line, size_t length, char *why, size_t why_bytes,
			   struct kvpool_trace_row *row);

/* Frees what the row holds, not the row. */
void kvpool_trace_row_clear(struct kvpool_trace_row *row);

#endif
