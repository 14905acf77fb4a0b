/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-bench compare: the same lookups and the same 2 MiB blocks on other stores, in turns with
 * kvpool, in one run. The other stores answer only whether a key exists; kvpool's answer is leased
 * and says where the block lies.
 *
 * Each server is started here, pinned to the core that kvpoold has, and stopped. A request to a
 * peer is formatted before the clock starts. One thread.
 */
#include "tools/bench/bench.h"

#include "tools/bench/contest.h"
#include "tools/bench/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define RESIDENT UINT64_C(98304)
#define ROUNDS   5u
#define PEERS    "redis,memcached"

#define GOAL_1_KEY     20.0
#define GOAL_1024_KEYS 8.0

static const struct kvpool_peer *const known[] = {&kvpool_peer_redis, &kvpool_peer_memcached};

static const struct kvpool_column columns[] = {
	{"peer", "peer", KVPOOL_COLUMN_TEXT},
	{"operation", "operation", KVPOOL_COLUMN_TEXT},
	{"keys", "keys", KVPOOL_COLUMN_COUNT},
	{"block", "block_bytes", KVPOOL_COLUMN_BYTES},
	{"p50", "p50_ns", KVPOOL_COLUMN_NS},
	{"p99", "p99_ns", KVPOOL_COLUMN_NS},
	{"kvpool p50", "kvpool_p50_ns", KVPOOL_COLUMN_NS},
	{"kvpool p99", "kvpool_p99_ns", KVPOOL_COLUMN_NS},
	{"ratio", "ratio", KVPOOL_COLUMN_NUMBER},
	{"goal", "goal", KVPOOL_COLUMN_TEXT},
	{"", "met", KVPOOL_COLUMN_MET},
};

/* Starts the peers that are named; one that is not installed is said and left out. */
static int start_peers(struct kvpool_contest *contest, const char *names,
		       struct kvpool_report *report)
{
	const char *at = names;
	int r = 0;

	while (r == 0 && *at != '\0') {
		size_t length = strcspn(at, ",");
		const struct kvpool_peer *peer = NULL;

		for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(known); i++) {
			if (strlen(known[i]->name) == length &&
			    strncmp(known[i]->name, at, length) == 0)
				peer = known[i];
		}
		if (!peer)
			return kvpool_bench_fail(-EINVAL, "--peers %.*s: known are %s", (int)length,
						 at, PEERS);
		r = kvpool_contest_add(contest, peer, report);
		at += length + (at[length] == ',');
	}
	return r;
}

static int add_goal(json_t *row, double ratio, double goal)
{
	char text[32];

	snprintf(text, sizeof(text), "ratio >= %.0f", goal);
	if (json_object_set_new(row, "goal", json_string(text)) != 0 ||
	    json_object_set_new(row, "met", json_boolean(ratio >= goal)) != 0)
		return -ENOMEM;
	return 0;
}

static json_t *make_row(const char *peer, const char *operation, struct kvpool_samples *theirs,
			struct kvpool_samples *ours, const struct kvpool_ticks *ticks,
			double *ratio)
{
	uint64_t their_p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(theirs, 50));
	uint64_t their_p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(theirs, 99));
	uint64_t our_p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(ours, 50));
	uint64_t our_p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(ours, 99));

	*ratio = our_p50 ? (double)their_p50 / (double)our_p50 : 0;
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f}", "peer", peer, "operation",
			 operation, "p50_ns", (json_int_t)their_p50, "p99_ns",
			 (json_int_t)their_p99, "kvpool_p50_ns", (json_int_t)our_p50,
			 "kvpool_p99_ns", (json_int_t)our_p99, "ratio", *ratio);
}

static int report_lookups(struct kvpool_contest *contest, struct kvpool_contender *contender,
			  struct kvpool_report *report)
{
	const struct kvpool_ticks *ticks = &contest->session.ticks;
	int r = 0;

	for (uint32_t c = 0; r == 0 && c < contest->resident.n_classes; c++) {
		uint32_t keys = contest->resident.classes[c].keys;
		double ratio;
		json_t *row = make_row(contender->peer->name, "lookup", &contender->lookups[c],
				       &contest->own.lookups[c], ticks, &ratio);

		if (!row)
			return -ENOMEM;
		json_object_set_new(row, "keys", json_integer((json_int_t)keys));
		if (keys == 1)
			r = add_goal(row, ratio, GOAL_1_KEY);
		else if (keys == 1024)
			r = add_goal(row, ratio, GOAL_1024_KEYS);
		if (kvpool_report_add(report, "results", row) < 0)
			return -ENOMEM;
	}
	return r;
}

static int report_copies(struct kvpool_contest *contest, struct kvpool_contender *contender,
			 struct kvpool_report *report)
{
	static const char *const operations[2] = {"store", "load"};
	const struct kvpool_ticks *ticks = &contest->session.ticks;

	for (int way = 0; way < 2; way++) {
		double ratio;
		json_t *row =
			make_row(contender->peer->name, operations[way], &contender->copies[way],
				 &contest->own.copies[way], ticks, &ratio);

		if (!row)
			return -ENOMEM;
		json_object_set_new(row, "block_bytes",
				    json_integer((json_int_t)KVPOOL_CONTEST_BLOCK_BYTES));
		if (kvpool_report_add(report, "results", row) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int report_all(struct kvpool_contest *contest, struct kvpool_report *report)
{
	int r = kvpool_bench_session_describe(&contest->session, report);

	if (r == 0)
		r = kvpool_report_set(report, "resident",
				      json_integer((json_int_t)contest->resident.blocks));
	for (uint32_t i = 0; r == 0 && i < contest->n; i++) {
		r = report_lookups(contest, &contest->contenders[i], report);
		if (r == 0)
			r = report_copies(contest, &contest->contenders[i], report);
	}
	if (r == 0 && contest->n == 0)
		r = kvpool_report_set(report, "results", json_array());
	kvpool_report_table(report, "results", columns, KVPOOL_ARRAY_SIZE(columns));
	return r;
}

int kvpool_bench_compare(const struct kvpool_bench_options *options, struct kvpool_report *report)
{
	static const struct kvpool_bench_list usual = {3, {1, 32, 1024}};
	struct kvpool_contest contest = {0};
	int r = kvpool_resident_plan(options->resident ? options->resident : RESIDENT,
				     options->keys.n ? &options->keys : &usual, false,
				     &contest.resident);

	if (r == 0)
		r = kvpool_contest_open(&contest, options);
	if (r < 0)
		return r;
	r = start_peers(&contest, options->peers ? options->peers : PEERS, report);
	if (r == 0)
		r = kvpool_contest_run(&contest, options->rounds ? options->rounds : ROUNDS,
				       options->samples);
	if (r == 0)
		r = report_all(&contest, report);
	kvpool_contest_close(&contest);
	return r;
}
