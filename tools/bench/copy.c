/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench copy: blocks from the engine's memory into the pool (RESERVE to COMMIT) and back
 * (MATCH to RELEASE), beside memcpy of the same pieces. The ratios are to memcpy into and out of
 * blocks of the pool, reserved for it, so that the memory is the same and only the way differs;
 * memcpy into and out of ordinary memory on the same kind of pages stands beside it ("plain").
 *
 * A request moves 16 MiB of blocks, as a prefix is stored and loaded; one block at a time is
 * measured too. The three take turns request by request, over parts of the buffers that none has
 * just touched, and change who goes first. Every piece that came back is checked. With --checksum
 * further requests take turns: as they are, and with a checksum a block that is made at COMMIT and
 * compared before the block is loaded. One thread.
 */
#include "tools/bench/bench.h"

#include "tools/bench/copy_run.h"
#include "tools/bench/machine.h"
#include "tools/bench/progress.h"
#include "tools/bench/report.h"
#include "tools/bench/status.h"

#include <errno.h>
#include <inttypes.h>

#define ROUNDS     4u
#define BUFFER_MAX (UINT64_C(1) << 30)
#define BUFFER_MIN (UINT64_C(1) << 20)
#define GOAL_RATIO 0.97

static const struct kvpool_column columns[] = {
	{"block", "block_bytes", KVPOOL_COLUMN_BYTES},
	{"pieces", "pieces", KVPOOL_COLUMN_COUNT},
	{"memcpy GB/s", "memcpy_gbps", KVPOOL_COLUMN_NUMBER},
	{"plain", "memcpy_plain_gather_gbps", KVPOOL_COLUMN_NUMBER},
	{"store GB/s", "store_gbps", KVPOOL_COLUMN_NUMBER},
	{"load GB/s", "load_gbps", KVPOOL_COLUMN_NUMBER},
	{"store ratio", "store_ratio", KVPOOL_COLUMN_NUMBER},
	{"load ratio", "load_ratio", KVPOOL_COLUMN_NUMBER},
	{"blocks a request", "blocks_per_request", KVPOOL_COLUMN_COUNT},
	{"single store", "store_single_gbps", KVPOOL_COLUMN_NUMBER},
	{"single load", "load_single_gbps", KVPOOL_COLUMN_NUMBER},
	{"goal", "goal", KVPOOL_COLUMN_TEXT},
	{"", "met", KVPOOL_COLUMN_MET},
};

/* Of requests with checksums to those without that took turns with them. */
static const struct kvpool_column sum_columns[] = {
	{"block", "block_bytes", KVPOOL_COLUMN_BYTES},
	{"pieces", "pieces", KVPOOL_COLUMN_COUNT},
	{"store GB/s", "store_gbps", KVPOOL_COLUMN_NUMBER},
	{"with checksum", "store_summed_gbps", KVPOOL_COLUMN_NUMBER},
	{"ratio", "store_ratio", KVPOOL_COLUMN_NUMBER},
	{"load GB/s", "load_gbps", KVPOOL_COLUMN_NUMBER},
	{"verified", "load_verified_gbps", KVPOOL_COLUMN_NUMBER},
	{"ratio", "load_ratio", KVPOOL_COLUMN_NUMBER},
};

/* GB/s of requests of so many bytes, by the median of their times. */
static double gbps(struct kvpool_samples *samples, const struct kvpool_ticks *ticks, uint64_t bytes)
{
	uint64_t median = kvpool_samples_percentile(samples, 50);

	return median ? (double)bytes / ((double)median * ticks->ns_per_tick) : 0;
}

static int report_row(struct kvpool_copy *copy, struct kvpool_report *report)
{
	const struct kvpool_ticks *ticks = &copy->session.ticks;
	uint64_t single = copy->source.block_bytes;
	uint64_t bytes = copy->request_blocks * single;
	double of[KVPOOL_COPY_WAYS];
	double store_ratio;
	double load_ratio;
	json_t *row;

	for (int way = 0; way < KVPOOL_COPY_WAYS; way++)
		of[way] = gbps(&copy->samples[way], ticks,
			       way < KVPOOL_COPY_STORE_SINGLE ? bytes : single);
	store_ratio = of[KVPOOL_COPY_STORE] / of[KVPOOL_COPY_GATHER];
	load_ratio = of[KVPOOL_COPY_LOAD] / of[KVPOOL_COPY_SCATTER];
	row = json_pack(
		"{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, "
		"s:f, s:s, s:b}",
		"block_bytes", (json_int_t)single, "pieces", (json_int_t)copy->source.pieces,
		"memcpy_gbps", KVPOOL_MAX(of[KVPOOL_COPY_GATHER], of[KVPOOL_COPY_SCATTER]),
		"store_gbps", of[KVPOOL_COPY_STORE], "load_gbps", of[KVPOOL_COPY_LOAD],
		"store_ratio", store_ratio, "load_ratio", load_ratio, "memcpy_gather_gbps",
		of[KVPOOL_COPY_GATHER], "memcpy_scatter_gbps", of[KVPOOL_COPY_SCATTER],
		"memcpy_plain_gather_gbps", of[KVPOOL_COPY_GATHER_PLAIN],
		"memcpy_plain_scatter_gbps", of[KVPOOL_COPY_SCATTER_PLAIN], "blocks_per_request",
		(json_int_t)copy->request_blocks, "blocks", (json_int_t)copy->source.blocks,
		"requests", (json_int_t)copy->requests, "discarded", (json_int_t)copy->discarded,
		"store_single_gbps", of[KVPOOL_COPY_STORE_SINGLE], "load_single_gbps",
		of[KVPOOL_COPY_LOAD_SINGLE], "goal", "both ratios >= 0.97", "met",
		store_ratio >= GOAL_RATIO && load_ratio >= GOAL_RATIO);
	return kvpool_report_add(report, "results", row);
}

static int report_sums(struct kvpool_copy *copy, struct kvpool_report *report)
{
	const struct kvpool_ticks *ticks = &copy->session.ticks;
	uint64_t bytes = copy->request_blocks * copy->source.block_bytes;
	double of[KVPOOL_COPY_WAYS] = {0};

	for (int way = KVPOOL_COPY_STORE_BESIDE; way <= KVPOOL_COPY_LOAD_VERIFIED; way++)
		of[way] = gbps(&copy->samples[way], ticks, bytes);
	return kvpool_report_add(
		report, "checksums",
		json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "block_bytes",
			  (json_int_t)copy->source.block_bytes, "pieces",
			  (json_int_t)copy->source.pieces, "store_gbps",
			  of[KVPOOL_COPY_STORE_BESIDE], "store_summed_gbps",
			  of[KVPOOL_COPY_STORE_SUMMED], "store_ratio",
			  of[KVPOOL_COPY_STORE_SUMMED] / of[KVPOOL_COPY_STORE_BESIDE], "load_gbps",
			  of[KVPOOL_COPY_LOAD_BESIDE], "load_verified_gbps",
			  of[KVPOOL_COPY_LOAD_VERIFIED], "load_ratio",
			  of[KVPOOL_COPY_LOAD_VERIFIED] / of[KVPOOL_COPY_LOAD_BESIDE]));
}

static int check_options(const struct kvpool_bench_options *options,
			 const struct kvpool_bench_list *blocks,
			 const struct kvpool_bench_list *pieces, uint64_t *buffer)
{
	uint64_t bytes = options->buffer_bytes;

	if (bytes == 0)
		bytes = KVPOOL_MIN(kvpool_machine_available_bytes() / 10, BUFFER_MAX);
	bytes = bytes / BUFFER_MIN * BUFFER_MIN;
	for (uint32_t p = 0; p < pieces->n; p++) {
		if (pieces->values[p] > KVPOOL_SHAPE_PIECES_MAX)
			return kvpool_bench_fail(-EINVAL, "--pieces: at most %u",
						 KVPOOL_SHAPE_PIECES_MAX);
		for (uint32_t b = 0; b < blocks->n; b++) {
			if (blocks->values[b] % (16 * pieces->values[p]) != 0)
				return kvpool_bench_fail(-EINVAL,
							 "a block of %" PRIu64
							 " bytes does not fall into %" PRIu64
							 " pieces of whole 16 bytes",
							 blocks->values[b], pieces->values[p]);
			if (blocks->values[b] > bytes / 4)
				return kvpool_bench_fail(-EINVAL,
							 "blocks of %" PRIu64
							 " bytes need --buffer %" PRIu64,
							 blocks->values[b], 4 * blocks->values[b]);
		}
	}
	*buffer = bytes;
	return 0;
}

static int run_all(const struct kvpool_bench_list *blocks, const struct kvpool_bench_list *pieces,
		   uint32_t rounds, struct kvpool_copy *copy, struct kvpool_report *report)
{
	struct kvpool_progress progress;
	int r = 0;

	kvpool_progress_start(&progress, "copy", (uint64_t)blocks->n * pieces->n);
	for (uint32_t b = 0; r == 0 && b < blocks->n; b++) {
		for (uint32_t p = 0; r == 0 && p < pieces->n; p++) {
			r = kvpool_copy_run(copy, blocks->values[b], (uint32_t)pieces->values[p],
					    rounds);
			if (r == 0)
				r = report_row(copy, report);
			if (r == 0 && copy->checksum)
				r = report_sums(copy, report);
			if (r == 0)
				r = kvpool_progress_step(&progress);
		}
	}
	kvpool_progress_end(&progress);
	return r;
}

static int report_setting(struct kvpool_copy *copy, struct kvpool_report *report)
{
	static const char *const pages[] = {"private 4k", "shared 4k", "shared thp", "shared 2M"};
	uint64_t cache = kvpool_machine_cache_bytes();
	int r = kvpool_bench_session_describe(&copy->session, report);

	if (r == 0)
		r = kvpool_report_set(report, "buffers",
				      json_pack("{s:I, s:b, s:s, s:s}", "bytes",
						(json_int_t)copy->buffer_bytes, "beyond_cache",
						copy->buffer_bytes > cache, "engine_pages",
						pages[copy->engine_pages], "memcpy_pages",
						pages[copy->plain_pages]));
	kvpool_report_table(report, "results", columns, KVPOOL_ARRAY_SIZE(columns));
	if (copy->checksum)
		kvpool_report_table(report, "checksums", sum_columns,
				    KVPOOL_ARRAY_SIZE(sum_columns));
	return r;
}

int kvpool_bench_copy(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	static const struct kvpool_bench_list usual_blocks = {
		4, {64u << 10, 384u << 10, 2u << 20, 5u << 20}};
	static const struct kvpool_bench_list usual_pieces = {3, {1, 32, 64}};
	const struct kvpool_bench_list *blocks =
		options->blocks.n ? &options->blocks : &usual_blocks;
	const struct kvpool_bench_list *pieces =
		options->pieces.n ? &options->pieces : &usual_pieces;
	struct kvpool_copy copy;
	uint64_t buffer = 0;
	int r = check_options(options, blocks, pieces, &buffer);

	if (r < 0)
		return r;
	r = kvpool_copy_open(options, buffer, &copy);
	if (r < 0)
		return r;
	r = run_all(blocks, pieces, options->rounds ? options->rounds : ROUNDS, &copy, report);
	if (r == 0)
		r = report_setting(&copy, report);
	kvpool_copy_close(&copy);
	return r;
}
