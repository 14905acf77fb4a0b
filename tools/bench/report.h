/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command found: one JSON object, printed as such or as a table made from the same fields.
 *
 * The field names are a contract with scripts; KVPOOL_REPORT_SCHEMA rises when one changes its
 * meaning or goes. Owned by main(); main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_REPORT_H
#define KVPOOL_TOOLS_BENCH_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define KVPOOL_REPORT_SCHEMA 1

struct kvpool_report;
struct kvpool_samples;
struct kvpool_ticks;

enum kvpool_column_kind {
	KVPOOL_COLUMN_TEXT,
	KVPOOL_COLUMN_COUNT,
	KVPOOL_COLUMN_NUMBER, /* two decimals */
	KVPOOL_COLUMN_NS,
	KVPOOL_COLUMN_BYTES,
	KVPOOL_COLUMN_MET, /* true: met, false: missed, null or absent: no goal */
};

/* A column of the table; `field` of each object in the array. Static. */
struct kvpool_column {
	const char *title;
	const char *field;
	enum kvpool_column_kind kind;
};

/* Makes a report with the header: schema_version, command, machine, kernel, commit, date. */
int kvpool_report_new(const char *command, struct kvpool_report **out);
void kvpool_report_free(struct kvpool_report *report); /* takes NULL */

/* Sets a field of the whole report; takes the value over, NULL is -ENOMEM. */
int kvpool_report_set(struct kvpool_report *report, const char *field, json_t *value);

/* Appends an object to the array `array`, made at first use; takes it over, NULL is -ENOMEM. */
int kvpool_report_add(struct kvpool_report *report, const char *array, json_t *object);

/* {"p50": .., "p99": ..} of samples in ticks, as nanoseconds. NULL where memory is out. */
json_t *kvpool_report_percentiles(struct kvpool_samples *samples, const struct kvpool_ticks *ticks);

/* Sets `clock`: what it is and what reading it costs. */
int kvpool_report_clock(struct kvpool_report *report, const struct kvpool_ticks *ticks);

/* The table that stands for `array`; columns are borrowed and static. Shown in this order. */
void kvpool_report_table(struct kvpool_report *report, const char *array,
			 const struct kvpool_column *columns, size_t n);

/* To stdout. -EIO where that fails. */
int kvpool_report_print(const struct kvpool_report *report, bool json);

#endif
