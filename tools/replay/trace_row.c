/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of a trace, parsed and checked: see trace_row.h.
 *
 * The format is told by the fields: `h` is weka's, `hash_ids` with `session` LMCache's, `hash_ids`
 * alone Mooncake's. Usable from any thread.
 */
#include "tools/replay/trace_row.h"

#include "shm/base.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_TOKENS_MOONCAKE 512
#define BLOCK_TOKENS_OTHERS   64

uint32_t kvpool_trace_row_block_tokens(enum kvpool_trace_format format)
{
	return format == KVPOOL_TRACE_MOONCAKE ? BLOCK_TOKENS_MOONCAKE : BLOCK_TOKENS_OTHERS;
}

static int add_run(struct kvpool_trace_row *row, uint64_t first, uint32_t count)
{
	struct kvpool_trace_run *last = row->n_runs > 0 ? &row->runs[row->n_runs - 1] : NULL;

	if (last != NULL && last->first + last->count == first &&
	    last->count <= UINT32_MAX - count) {
		last->count += count;
		return 0;
	}
	if (row->n_runs == row->runs_capacity) {
		uint32_t capacity = KVPOOL_MAX(64u, 2 * row->runs_capacity);
		struct kvpool_trace_run *runs = realloc(row->runs, capacity * sizeof(*runs));

		if (runs == NULL)
			return -ENOMEM;
		row->runs = runs;
		row->runs_capacity = capacity;
	}
	row->runs[row->n_runs++] = (struct kvpool_trace_run){first, count};
	return 0;
}

/* A field that must be a whole number of min..max. */
static int number(const json_t *object, const char *name, uint64_t min, uint64_t max, char *why,
		  size_t why_bytes, uint64_t *out)
{
	const json_t *field = json_object_get(object, name);
	json_int_t value = json_integer_value(field);

	if (field == NULL) {
		snprintf(why, why_bytes, "\"%s\" is missing", name);
		return KVPOOL_TRACE_E_LINE;
	}
	if (!json_is_integer(field) || value < 0 || (uint64_t)value < min ||
	    (uint64_t)value > max) {
		snprintf(why, why_bytes, "\"%s\" must be a whole number of %" PRIu64 " to %" PRIu64,
			 name, min, max);
		return KVPOOL_TRACE_E_LINE;
	}
	*out = (uint64_t)value;
	return 0;
}

static int parse_ids(const json_t *ids, char *why, size_t why_bytes, struct kvpool_trace_row *row)
{
	const json_t *id;
	size_t i;

	if (!json_is_array(ids)) {
		snprintf(why, why_bytes, "\"hash_ids\" must be an array of block ids");
		return KVPOOL_TRACE_E_LINE;
	}
	json_array_foreach(ids, i, id)
	{
		int error;

		if (!json_is_integer(id) || json_integer_value(id) < 0) {
			snprintf(why, why_bytes, "\"hash_ids\"[%zu] must be a whole number from 0",
				 i);
			return KVPOOL_TRACE_E_LINE;
		}
		error = add_run(row, (uint64_t)json_integer_value(id), 1);
		if (error != 0)
			return error;
	}
	return 0;
}

static int parse_runs(const json_t *runs, char *why, size_t why_bytes, struct kvpool_trace_row *row)
{
	const json_t *run;
	size_t i;

	if (!json_is_array(runs)) {
		snprintf(why, why_bytes, "\"h\" must be an array of runs [first, count]");
		return KVPOOL_TRACE_E_LINE;
	}
	json_array_foreach(runs, i, run)
	{
		const json_t *first = json_array_get(run, 0);
		const json_t *count = json_array_get(run, 1);
		int error;

		if (json_array_size(run) != 2 || !json_is_integer(first) ||
		    !json_is_integer(count) || json_integer_value(first) < 0 ||
		    json_integer_value(count) < 1 ||
		    json_integer_value(count) > (json_int_t)KVPOOL_TRACE_TOKENS_MAX) {
			snprintf(why, why_bytes,
				 "\"h\"[%zu] must be [first, count], first from 0, count from 1",
				 i);
			return KVPOOL_TRACE_E_LINE;
		}
		error = add_run(row, (uint64_t)json_integer_value(first),
				(uint32_t)json_integer_value(count));
		if (error != 0)
			return error;
	}
	return 0;
}

/* The ids must cover every whole block; one more may stand for the tokens after the last. */
static int check_count(const struct kvpool_trace_row *row, char *why, size_t why_bytes)
{
	uint32_t whole = row->tokens / kvpool_trace_row_block_tokens(row->format);
	uint64_t ids = 0;
	uint32_t i;

	for (i = 0; i < row->n_runs; i++)
		ids += row->runs[i].count;
	/* LMCache's lengths are characters divided by four: they may be a block short. */
	if (ids >= whole && ids <= (uint64_t)whole + 2)
		return 0;
	snprintf(why, why_bytes,
		 "%" PRIu64 " block ids do not fit %" PRIu32 " tokens, which are %" PRIu32
		 " whole blocks of %" PRIu32,
		 ids, row->tokens, whole, kvpool_trace_row_block_tokens(row->format));
	return KVPOOL_TRACE_E_LINE;
}

static int parse_weka(const json_t *object, char *why, size_t why_bytes,
		      struct kvpool_trace_row *row, uint64_t *tokens)
{
	int error = number(object, "in", 1, KVPOOL_TRACE_TOKENS_MAX, why, why_bytes, tokens);

	if (error == 0)
		error = number(object, "c", 0, INT64_MAX - 1, why, why_bytes, &row->conversation);
	if (error == 0)
		error = number(object, "s", 0, INT64_MAX, why, why_bytes, &row->part);
	if (error != 0)
		return error;
	row->format = KVPOOL_TRACE_WEKA;
	row->has_conversation = true;
	row->scope = row->conversation + 1;
	return parse_runs(json_object_get(object, "h"), why, why_bytes, row);
}

static int parse_hash_ids(const json_t *object, char *why, size_t why_bytes,
			  struct kvpool_trace_row *row, uint64_t *tokens)
{
	int error =
		number(object, "input_length", 1, KVPOOL_TRACE_TOKENS_MAX, why, why_bytes, tokens);

	row->format = KVPOOL_TRACE_MOONCAKE;
	if (error == 0 && json_object_get(object, "session") != NULL) {
		row->format = KVPOOL_TRACE_LMCACHE;
		row->has_conversation = true;
		error = number(object, "session", 0, INT64_MAX, why, why_bytes, &row->conversation);
	}
	if (error != 0)
		return error;
	return parse_ids(json_object_get(object, "hash_ids"), why, why_bytes, row);
}

int kvpool_trace_row_parse(const char *line, size_t length, char *why, size_t why_bytes,
			   struct kvpool_trace_row *row)
{
	json_error_t problem;
	json_t *object = json_loadb(line, length, 0, &problem);
	uint64_t tokens = 0;
	int error;

	row->conversation = 0;
	row->part = 0;
	row->has_conversation = false;
	row->scope = 0;
	row->n_runs = 0;
	if (object == NULL) {
		snprintf(why, why_bytes, "not JSON: %s (column %d)", problem.text, problem.column);
		return KVPOOL_TRACE_E_LINE;
	}
	if (json_object_get(object, "hash_ids") != NULL) {
		error = parse_hash_ids(object, why, why_bytes, row, &tokens);
	} else if (json_object_get(object, "h") != NULL) {
		error = parse_weka(object, why, why_bytes, row, &tokens);
	} else {
		snprintf(why, why_bytes,
			 "neither \"hash_ids\" (Mooncake, LMCache) nor \"h\" (weka) is there");
		error = KVPOOL_TRACE_E_LINE;
	}
	json_decref(object);
	if (error != 0)
		return error;
	row->tokens = (uint32_t)tokens;
	return check_count(row, why, why_bytes);
}

void kvpool_trace_row_clear(struct kvpool_trace_row *row)
{
	free(row->runs);
	row->runs = NULL;
	row->runs_capacity = 0;
	row->n_runs = 0;
}
