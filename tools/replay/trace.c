/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request trace in memory: see trace.h.
 *
 * Belongs to the thread that reads it; after that it is only read.
 */
#include "tools/replay/trace.h"

#include "shm/base.h"
#include "tools/replay/lines.h"
#include "tools/replay/trace_row.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES 256

/* The last request of a conversation so far; a node of a tsearch(3) tree. */
struct turn {
	uint64_t conversation;
	uint64_t part;
	uint32_t request;
};

struct reader {
	const char *path;                           /* borrowed */
	const struct kvpool_trace_options *options; /* borrowed */
	struct kvpool_trace *trace;                 /* owned until it is handed over */
	struct kvpool_trace_row row;
	void *turns; /* owned: tree of struct turn */
	char *why;   /* borrowed */
	size_t why_bytes;
};

const char *kvpool_trace_format_name(enum kvpool_trace_format format)
{
	switch (format) {
	case KVPOOL_TRACE_MOONCAKE:
		return "mooncake";
	case KVPOOL_TRACE_LMCACHE:
		return "lmcache";
	case KVPOOL_TRACE_WEKA:
		return "weka";
	}
	return "unknown";
}

void kvpool_trace_free(struct kvpool_trace *trace)
{
	if (trace == NULL)
		return;
	free(trace->requests);
	free(trace->runs);
	free(trace);
}

static int compare_turns(const void *a, const void *b)
{
	const struct turn *x = a;
	const struct turn *y = b;

	if (x->conversation != y->conversation)
		return x->conversation < y->conversation ? -1 : 1;
	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return 0;
}

/* Notes that `request` is the conversation's last one; `previous` is the one before it. */
static int take_turn(struct reader *reader, uint32_t request, uint32_t *previous)
{
	struct turn *fresh = malloc(sizeof(*fresh));
	struct turn **found;

	if (fresh == NULL)
		return -ENOMEM;
	*fresh = (struct turn){reader->row.conversation, reader->row.part, request};
	found = tsearch(fresh, &reader->turns, compare_turns);
	if (found == NULL) {
		free(fresh);
		return -ENOMEM;
	}
	if (*found == fresh) {
		*previous = KVPOOL_TRACE_NONE;
		return 0;
	}
	free(fresh);
	*previous = (*found)->request;
	(*found)->request = request;
	return 0;
}

static int make_room(struct kvpool_trace *trace, uint32_t runs)
{
	if (trace->n == trace->capacity) {
		uint32_t capacity = KVPOOL_MAX(1024u, 2 * trace->capacity);
		void *requests = realloc(trace->requests, capacity * sizeof(*trace->requests));

		if (requests == NULL)
			return -ENOMEM;
		trace->requests = requests;
		trace->capacity = capacity;
	}
	if (trace->n_runs + runs > trace->runs_capacity) {
		uint64_t capacity = KVPOOL_MAX(trace->n_runs + runs, 2 * trace->runs_capacity);
		void *grown = realloc(trace->runs, capacity * sizeof(*trace->runs));

		if (grown == NULL)
			return -ENOMEM;
		trace->runs = grown;
		trace->runs_capacity = capacity;
	}
	return trace->n_runs + runs > UINT32_MAX ? -EOVERFLOW : 0;
}

static int add_row(struct reader *reader)
{
	const struct kvpool_trace_row *row = &reader->row;
	struct kvpool_trace *trace = reader->trace;
	uint32_t previous = KVPOOL_TRACE_NONE;
	struct kvpool_trace_request *request;
	int error = make_room(trace, row->n_runs);

	if (error == 0 && row->has_conversation)
		error = take_turn(reader, trace->n, &previous);
	if (error != 0)
		return error;
	request = &trace->requests[trace->n++];
	request->scope = row->scope;
	request->first_run = (uint32_t)trace->n_runs;
	request->n_runs = row->n_runs;
	request->tokens = row->tokens;
	request->blocks = row->tokens / trace->block_tokens;
	request->previous = previous;
	if (row->n_runs > 0)
		memcpy(trace->runs + trace->n_runs, row->runs, row->n_runs * sizeof(*row->runs));
	trace->n_runs += row->n_runs;
	trace->blocks_max = KVPOOL_MAX(trace->blocks_max, request->blocks);
	return 0;
}

/* The first good line decides on the format; the others must agree. */
static int check_format(struct reader *reader, char *reason)
{
	struct kvpool_trace *trace = reader->trace;

	if (trace->n == 0) {
		trace->format = reader->row.format;
		trace->block_tokens = kvpool_trace_row_block_tokens(trace->format);
		return 0;
	}
	if (reader->row.format == trace->format)
		return 0;
	snprintf(reason, WHY_BYTES, "a request of %s's format among those of %s's",
		 kvpool_trace_format_name(reader->row.format),
		 kvpool_trace_format_name(trace->format));
	return KVPOOL_TRACE_E_LINE;
}

static int take_line(struct reader *reader, const char *line, size_t length, uint64_t at)
{
	char reason[WHY_BYTES] = "";
	int error;

	if (length == strspn(line, " \t\r"))
		return 0;
	error = kvpool_trace_row_parse(line, length, reason, sizeof(reason), &reader->row);
	if (error == 0)
		error = check_format(reader, reason);
	if (error == 0)
		error = add_row(reader);
	if (error == KVPOOL_TRACE_E_LINE && reader->options->skip_bad_lines) {
		reader->trace->skipped_lines++;
		return 0;
	}
	if (error != 0)
		snprintf(reader->why, reader->why_bytes, "%s:%" PRIu64 ": %s", reader->path, at,
			 error < 0 ? strerror(-error) : reason);
	return error;
}

/* Turns the end of the file, or what stopped the reading of it, into a result and a sentence. */
static int finish(struct reader *reader, int ended, uint64_t at)
{
	const struct kvpool_trace *trace = reader->trace;

	if (ended < 0) {
		snprintf(reader->why, reader->why_bytes, "%s: %s", reader->path, strerror(-ended));
		return ended;
	}
	if (ended == KVPOOL_LINES_DAMAGED || ended == KVPOOL_LINES_TOO_LONG) {
		snprintf(reader->why, reader->why_bytes, "%s:%" PRIu64 ": %s", reader->path, at,
			 ended == KVPOOL_LINES_DAMAGED ? "the xz data is damaged or cut short"
						       : "the line is longer than 64 MiB");
		return KVPOOL_TRACE_E_FILE;
	}
	if (trace->n == 0) {
		snprintf(reader->why, reader->why_bytes, "%s: no request in it%s", reader->path,
			 trace->skipped_lines > 0 ? ": every line was skipped as bad" : "");
		return KVPOOL_TRACE_E_FILE;
	}
	return 0;
}

static int read_all(struct reader *reader, struct kvpool_lines *lines)
{
	uint32_t max = reader->options->requests_max;
	const char *line;
	size_t length;
	int ended = 0;

	while (max == 0 || reader->trace->n < max) {
		int error;

		ended = kvpool_lines_next(lines, &line, &length);
		if (ended != 0)
			break;
		error = take_line(reader, line, length, kvpool_lines_number(lines));
		if (error != 0)
			return error;
	}
	return finish(reader, ended, kvpool_lines_number(lines));
}

int kvpool_trace_read(const char *path, const struct kvpool_trace_options *options, char *why,
		      size_t why_bytes, struct kvpool_trace **out)
{
	struct reader reader = {path, options, NULL, {0}, NULL, why, why_bytes};
	struct kvpool_lines *lines = NULL;
	int error = kvpool_lines_open(path, &lines);

	reader.trace = calloc(1, sizeof(*reader.trace));
	if (error == 0 && reader.trace == NULL)
		error = -ENOMEM;
	if (error != 0)
		snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
	else
		error = read_all(&reader, lines);
	kvpool_lines_close(lines);
	kvpool_trace_row_clear(&reader.row);
	tdestroy(reader.turns, free);
	if (error != 0) {
		kvpool_trace_free(reader.trace);
		return error;
	}
	*out = reader.trace;
	return 0;
}
