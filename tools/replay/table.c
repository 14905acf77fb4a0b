/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of one or two replays, made of their JSON: see report.h.
 *
 * A row is a label and a function that makes a cell of a report. Main thread.
 */
#include "shm/base.h"
#include "tools/replay/report.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>

#define LABEL_WIDTH 24
#define CELL_WIDTH  20
#define CELL_BYTES  80

static uint64_t integer(const json_t *report, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(report, name));
}

static void count_cell(const json_t *report, const char *name, char *cell)
{
	char text[KVPOOL_UNITS_BYTES];

	snprintf(cell, CELL_BYTES, "%s", kvpool_units_count(integer(report, name), text));
}

static void rate_cell(const json_t *report, const char *name, char *cell)
{
	snprintf(cell, CELL_BYTES, "%.1f %%",
		 100 * json_number_value(json_object_get(report, name)));
}

static void bytes_cell(const json_t *report, const char *name, char *cell)
{
	char text[KVPOOL_UNITS_BYTES];

	if (json_is_integer(json_object_get(report, name)))
		snprintf(cell, CELL_BYTES, "%s", kvpool_units_bytes(integer(report, name), text));
	else
		snprintf(cell, CELL_BYTES, "not known");
}

static void pools_cell(const json_t *report, const char *name, char *cell)
{
	uint64_t pools = integer(report, "pools");
	char total[CELL_BYTES];
	char text[KVPOOL_UNITS_BYTES];

	bytes_cell(report, name, total);
	if (pools > 1 && integer(report, name) > 0)
		snprintf(cell, CELL_BYTES, "%" PRIu64 " x %s", pools,
			 kvpool_units_bytes(integer(report, name) / pools, text));
	else
		snprintf(cell, CELL_BYTES, "%s", total);
}

static void ns_cell(const json_t *report, const char *name, char *cell)
{
	const json_t *percentiles = json_object_get(report, name);
	char p50[KVPOOL_UNITS_BYTES];
	char p99[KVPOOL_UNITS_BYTES];

	snprintf(cell, CELL_BYTES, "%s / %s", kvpool_units_ns(integer(percentiles, "p50"), p50),
		 kvpool_units_ns(integer(percentiles, "p99"), p99));
}

static void gbps_cell(const json_t *report, const char *name, char *cell)
{
	const json_t *value = json_object_get(report, name);

	if (json_is_real(value))
		snprintf(cell, CELL_BYTES, "%.1f GB/s", json_real_value(value));
	else
		snprintf(cell, CELL_BYTES, "-");
}

static void seconds_cell(const json_t *report, const char *name, char *cell)
{
	snprintf(cell, CELL_BYTES, "%.1f s", json_number_value(json_object_get(report, name)));
}

static const struct {
	const char *label;
	const char *field;
	void (*cell)(const json_t *report, const char *field, char *cell);
} rows[] = {
	{"pool memory", "pool_bytes", pools_cell},
	{"requests", "requests", count_cell},
	{"prompt tokens", "tokens", count_cell},
	{"token hit rate", "token_hit_rate", rate_cell},
	{"prefill tokens saved", "prefill_tokens_saved", count_cell},
	{"lookup p50 / p99", "lookup_ns", ns_cell},
	{"store", "store_gbps", gbps_cell},
	{"load", "load_gbps", gbps_cell},
	{"memcpy of such blocks", "memcpy_gbps", gbps_cell},
	{"waits for a neighbour", "waits", count_cell},
	{"failed calls", "failed_calls", count_cell},
	{"bytes checked", "checked_bytes", bytes_cell},
	{"wrong bytes", "wrong_bytes", count_cell},
	{"took", "seconds", seconds_cell},
};

/* "4 processes, 1 pool" is what tells two columns apart. */
static void title(const json_t *report, char *cell)
{
	uint64_t pools = integer(report, "pools");

	if (integer(report, "processes") == 1)
		snprintf(cell, CELL_BYTES, "one process");
	else if (pools == 1)
		snprintf(cell, CELL_BYTES, "one shared pool");
	else
		snprintf(cell, CELL_BYTES, "%" PRIu64 " private pools", pools);
}

void kvpool_replay_report_table(json_t *const *reports, size_t n)
{
	char cell[CELL_BYTES];
	size_t row;
	size_t i;

	printf("%-*s", LABEL_WIDTH, "");
	for (i = 0; i < n; i++) {
		title(reports[i], cell);
		printf("%*s", CELL_WIDTH, cell);
	}
	printf("\n");
	for (row = 0; row < KVPOOL_ARRAY_SIZE(rows); row++) {
		printf("%-*s", LABEL_WIDTH, rows[row].label);
		for (i = 0; i < n; i++) {
			rows[row].cell(reports[i], rows[row].field, cell);
			printf("%*s", CELL_WIDTH, cell);
		}
		printf("\n");
	}
}
