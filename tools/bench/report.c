/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One JSON object and its two printed forms. Owned by main(); main thread.
 */
#include "tools/bench/report.h"

#include "shm/base.h"
#include "tools/bench/machine.h"
#include "tools/bench/samples.h"
#include "tools/bench/ticks.h"
#include "tools/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLES_MAX 4
#define CELL_BYTES 96

struct table {
	const char *array;                   /* borrowed, static */
	const struct kvpool_column *columns; /* borrowed, static */
	size_t n;
};

struct kvpool_report {
	json_t *root; /* owned */
	struct table tables[TABLES_MAX];
	size_t n_tables;
};

int kvpool_report_new(const char *command, struct kvpool_report **out)
{
	struct kvpool_report *report = calloc(1, sizeof(*report));
	int r;

	if (!report)
		return -ENOMEM;
	report->root = json_object();
	r = kvpool_report_set(report, "schema_version", json_integer(KVPOOL_REPORT_SCHEMA));
	if (r == 0)
		r = kvpool_report_set(report, "command", json_string(command));
	if (r == 0)
		r = kvpool_machine_describe(report->root);
	if (r < 0) {
		kvpool_report_free(report);
		return r;
	}
	*out = report;
	return 0;
}

void kvpool_report_free(struct kvpool_report *report)
{
	if (!report)
		return;
	json_decref(report->root);
	free(report);
}

int kvpool_report_set(struct kvpool_report *report, const char *field, json_t *value)
{
	return json_object_set_new(report->root, field, value) == 0 ? 0 : -ENOMEM;
}

int kvpool_report_add(struct kvpool_report *report, const char *array, json_t *object)
{
	json_t *items = json_object_get(report->root, array);

	if (!items) {
		items = json_array();
		if (kvpool_report_set(report, array, items) < 0) {
			json_decref(object);
			return -ENOMEM;
		}
	}
	return json_array_append_new(items, object) == 0 ? 0 : -ENOMEM;
}

json_t *kvpool_report_percentiles(struct kvpool_samples *samples, const struct kvpool_ticks *ticks)
{
	uint64_t p50 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(samples, 50));
	uint64_t p99 = kvpool_ticks_to_ns(ticks, kvpool_samples_percentile(samples, 99));

	return json_pack("{s:I, s:I}", "p50", (json_int_t)p50, "p99", (json_int_t)p99);
}

int kvpool_report_clock(struct kvpool_report *report, const struct kvpool_ticks *ticks)
{
	return kvpool_report_set(report, "clock",
				 json_pack("{s:s, s:f}", "source", kvpool_ticks_source(ticks),
					   "cost_ns", ticks->cost_ns));
}

void kvpool_report_table(struct kvpool_report *report, const char *array,
			 const struct kvpool_column *columns, size_t n)
{
	if (report->n_tables < TABLES_MAX)
		report->tables[report->n_tables++] = (struct table){array, columns, n};
}

static void format_cell(const json_t *value, enum kvpool_column_kind kind, char *out)
{
	double number = json_number_value(value);
	char text[KVPOOL_UNITS_BYTES];

	if (kind == KVPOOL_COLUMN_MET)
		snprintf(out, CELL_BYTES, "%s",
			 json_is_true(value)    ? "met"
			 : json_is_false(value) ? "MISSED"
						: "");
	else if (!value || json_is_null(value))
		snprintf(out, CELL_BYTES, "-");
	else if (json_is_string(value))
		snprintf(out, CELL_BYTES, "%s", json_string_value(value));
	else if (json_is_boolean(value))
		snprintf(out, CELL_BYTES, "%s", json_is_true(value) ? "yes" : "no");
	else if (kind == KVPOOL_COLUMN_NS)
		snprintf(out, CELL_BYTES, "%s", kvpool_units_ns((uint64_t)number, text));
	else if (kind == KVPOOL_COLUMN_BYTES)
		snprintf(out, CELL_BYTES, "%s", kvpool_units_bytes((uint64_t)number, text));
	else if (kind == KVPOOL_COLUMN_COUNT)
		snprintf(out, CELL_BYTES, "%s", kvpool_units_count((uint64_t)number, text));
	else
		snprintf(out, CELL_BYTES, "%.2f", number);
}

static size_t column_width(const struct kvpool_column *column, const json_t *items)
{
	size_t width = strlen(column->title);
	char cell[CELL_BYTES];
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
	{
		format_cell(json_object_get(item, column->field), column->kind, cell);
		width = KVPOOL_MAX(width, strlen(cell));
	}
	return width;
}

static void print_cell(const char *text, size_t width, enum kvpool_column_kind kind)
{
	int left = kind == KVPOOL_COLUMN_TEXT || kind == KVPOOL_COLUMN_MET;

	printf(left ? "  %-*s" : "  %*s", (int)width, text);
}

static void print_table(const struct table *table, const json_t *items)
{
	size_t widths[16];
	char cell[CELL_BYTES];
	const json_t *item;
	size_t i;

	for (size_t c = 0; c < table->n && c < KVPOOL_ARRAY_SIZE(widths); c++) {
		widths[c] = column_width(&table->columns[c], items);
		print_cell(table->columns[c].title, widths[c], table->columns[c].kind);
	}
	putchar('\n');
	json_array_foreach(items, i, item)
	{
		for (size_t c = 0; c < table->n && c < KVPOOL_ARRAY_SIZE(widths); c++) {
			const struct kvpool_column *column = &table->columns[c];

			format_cell(json_object_get(item, column->field), column->kind, cell);
			print_cell(cell, widths[c], column->kind);
		}
		putchar('\n');
	}
}

/* A field that no table shows: one line, nested objects as compact JSON. */
static void print_field(const char *name, const json_t *value)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

	if (!text)
		return;
	if (json_is_string(value))
		printf("%-24s %s\n", name, json_string_value(value));
	else
		printf("%-24s %s\n", name, text);
	free(text);
}

int kvpool_report_print(const struct kvpool_report *report, bool json)
{
	const char *name;
	json_t *value;

	if (json) {
		if (json_dumpf(report->root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0)
			return -EIO;
		putchar('\n');
		return fflush(stdout) == 0 ? 0 : -EIO;
	}
	json_object_foreach(report->root, name, value)
	{
		if (!json_is_array(value))
			print_field(name, value);
	}
	for (size_t i = 0; i < report->n_tables; i++) {
		value = json_object_get(report->root, report->tables[i].array);
		if (!value)
			continue;
		putchar('\n');
		print_table(&report->tables[i], value);
	}
	return fflush(stdout) == 0 ? 0 : -EIO;
}
