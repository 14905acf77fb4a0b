/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replay found, as JSON: see report.h. table.c prints it.
 *
 * Main thread.
 */
#include "tools/replay/report.h"

#include "client/kvpool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

static void sum(struct kvpool_figures *into, const struct kvpool_figures *from)
{
	into->requests += from->requests;
	into->tokens += from->tokens;
	into->blocks += from->blocks;
	into->hit_blocks += from->hit_blocks;
	into->stored_blocks += from->stored_blocks;
	into->exists_blocks += from->exists_blocks;
	into->busy_blocks += from->busy_blocks;
	into->refused_blocks += from->refused_blocks;
	into->waits += from->waits;
	into->failed_calls += from->failed_calls;
	into->wrong_bytes += from->wrong_bytes;
	into->checked_bytes += from->checked_bytes;
	kvpool_histogram_merge(&into->lookup_ns, &from->lookup_ns);
	kvpool_histogram_merge(&into->reserve_ns, &from->reserve_ns);
	kvpool_histogram_merge(&into->commit_ns, &from->commit_ns);
	kvpool_histogram_merge(&into->store_ns, &from->store_ns);
	kvpool_histogram_merge(&into->load_ns, &from->load_ns);
	kvpool_histogram_merge(&into->memcpy_ns, &from->memcpy_ns);
}

static json_t *rate(uint64_t part, uint64_t whole)
{
	return json_real(whole > 0 ? (double)part / (double)whole : 0);
}

static json_t *percentiles(const struct kvpool_histogram *histogram)
{
	return json_pack("{s:I, s:I, s:I}", "p50",
			 (json_int_t)kvpool_histogram_percentile(histogram, 0.5), "p99",
			 (json_int_t)kvpool_histogram_percentile(histogram, 0.99), "n",
			 (json_int_t)histogram->total);
}

/* Bytes a nanosecond at the median block; null where no block was copied. */
static json_t *gbps(const struct kvpool_histogram *block_ns, uint64_t block_bytes)
{
	uint64_t ns = kvpool_histogram_percentile(block_ns, 0.5);

	return ns > 0 ? json_real((double)block_bytes / (double)ns) : json_null();
}

static json_t *figures_object(const struct kvpool_replay_run *run,
			      const struct kvpool_figures *figures)
{
	uint64_t hit_tokens = figures->hit_blocks * run->trace->block_tokens;

	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
		" s:o, s:o, s:o, s:o, s:o, s:o}",
		"requests", (json_int_t)figures->requests, "tokens", (json_int_t)figures->tokens,
		"blocks", (json_int_t)figures->blocks, "hit_blocks",
		(json_int_t)figures->hit_blocks, "hit_tokens", (json_int_t)hit_tokens,
		"prefill_tokens_saved", (json_int_t)hit_tokens, "token_hit_rate",
		rate(hit_tokens, figures->tokens), "block_hit_rate",
		rate(figures->hit_blocks, figures->blocks), "stored_blocks",
		(json_int_t)figures->stored_blocks, "exists_blocks",
		(json_int_t)figures->exists_blocks, "busy_blocks", (json_int_t)figures->busy_blocks,
		"refused_blocks", (json_int_t)figures->refused_blocks, "waits",
		(json_int_t)figures->waits, "failed_calls", (json_int_t)figures->failed_calls,
		"checked_bytes", (json_int_t)figures->checked_bytes, "wrong_bytes",
		(json_int_t)figures->wrong_bytes, "lookup_ns", percentiles(&figures->lookup_ns),
		"reserve_ns", percentiles(&figures->reserve_ns), "commit_ns",
		percentiles(&figures->commit_ns), "store_gbps",
		gbps(&figures->store_ns, run->block_bytes), "load_gbps",
		gbps(&figures->load_ns, run->block_bytes), "memcpy_gbps",
		gbps(&figures->memcpy_ns, run->block_bytes));
}

static json_t *per_process(const struct kvpool_replay_run *run)
{
	json_t *array = json_array();
	uint32_t i;

	for (i = 0; array != NULL && i < run->workers; i++) {
		json_t *object = figures_object(run, kvpool_board_figures(run->board, i));

		if (json_array_append_new(array, object) != 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *header(const struct kvpool_replay_run *run)
{
	char version[32];
	struct utsname name;

	snprintf(version, sizeof(version), "%d.%d", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
	if (uname(&name) != 0)
		return NULL;
	return json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:o,"
			 " s:f}",
			 "schema_version", KVPOOL_REPLAY_SCHEMA, "tool", "kvpool-replay", "version",
			 version, "kernel", name.release, "architecture", name.machine, "cpus",
			 (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "trace", run->path, "format",
			 kvpool_trace_format_name(run->trace->format), "block_tokens",
			 (int)run->trace->block_tokens, "block_bytes", (json_int_t)run->block_bytes,
			 "skipped_lines", (json_int_t)run->trace->skipped_lines, "processes",
			 (json_int_t)run->workers, "pools", (json_int_t)run->pools, "pool_bytes",
			 run->pool_bytes > 0 ? json_integer((json_int_t)run->pool_bytes)
					     : json_null(),
			 "seconds", (double)run->took_ns / 1e9);
}

json_t *kvpool_replay_report_make(const struct kvpool_replay_run *run)
{
	struct kvpool_figures *all = calloc(1, sizeof(*all));
	json_t *report = header(run);
	json_t *total = NULL;
	int error = -1;
	uint32_t i;

	for (i = 0; all != NULL && i < run->workers; i++)
		sum(all, kvpool_board_figures(run->board, i));
	if (all != NULL)
		total = figures_object(run, all);
	if (report != NULL && total != NULL && json_object_update(report, total) == 0)
		error = json_object_set_new(report, "per_process", per_process(run));
	json_decref(total);
	free(all);
	if (error != 0) {
		json_decref(report);
		return NULL;
	}
	return report;
}

json_t *kvpool_replay_report_load(const char *path, char *why, size_t why_bytes)
{
	json_error_t problem;
	json_t *report = json_load_file(path, 0, &problem);
	const json_t *schema = json_object_get(report, "schema_version");
	const char *tool = json_string_value(json_object_get(report, "tool"));

	if (report == NULL) {
		snprintf(why, why_bytes, "%s: %s", path, problem.text);
		return NULL;
	}
	if (tool != NULL && json_integer_value(schema) == KVPOOL_REPLAY_SCHEMA)
		return report;
	snprintf(why, why_bytes, "%s: not a report of kvpool-replay --json in schema_version %d",
		 path, KVPOOL_REPLAY_SCHEMA);
	json_decref(report);
	return NULL;
}

uint64_t kvpool_replay_report_wrong(const json_t *report)
{
	return (uint64_t)json_integer_value(json_object_get(report, "wrong_bytes"));
}
