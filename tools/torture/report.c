/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came of a trial: see report.h.
 */
#include "tools/torture/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct sums {
	uint64_t checked, stored, missed, odd, wrong;
};

static struct sums add_up(const struct kvpool_books *books)
{
	struct sums sums = {0};

	for (uint32_t i = 0; i < KVPOOL_BOOKS_CLIENTS_MAX; i++) {
		const struct kvpool_books_client *client = &books->clients[i];

		sums.checked += atomic_load(&client->checked);
		sums.stored += atomic_load(&client->stored);
		sums.missed += atomic_load(&client->missed);
		sums.odd += atomic_load(&client->odd);
		sums.wrong += atomic_load(&client->wrong);
	}
	return sums;
}

bool kvpool_torture_report_fine(const struct kvpool_trial *trial)
{
	const struct kvpool_toll *toll = &trial->toll;

	return !trial->broken && atomic_load(&trial->books->faults_n) == 0 &&
	       toll->leaked_blocks == 0 && toll->leaked_fds <= 0 && toll->exact;
}

/* null where there was none. */
static json_t *ratio(const struct kvpool_kept_ratio *r)
{
	if (r->n == 0)
		return json_null();
	return json_pack("{s:I, s:f, s:f}", "n", (json_int_t)r->n, "min", r->min, "mean",
			 r->sum / (double)r->n);
}

static json_t *lease_return(struct kvpool_samples *samples)
{
	double p50 = (double)kvpool_samples_percentile(samples, 50) / 1e6;
	double p99 = (double)kvpool_samples_percentile(samples, 99) / 1e6;

	if (samples->n == 0)
		return json_null();
	return json_pack("{s:I, s:f, s:f}", "n", (json_int_t)samples->n, "p50", p50, "p99", p99);
}

static json_t *faults(const struct kvpool_books *books)
{
	uint32_t n = atomic_load(&books->faults_n);
	json_t *list = json_array();

	for (uint32_t i = 0; i < n && i < KVPOOL_BOOKS_FAULTS_MAX; i++)
		(void)json_array_append_new(list, json_string(books->faults[i]));
	return list;
}

static json_t *make(struct kvpool_trial *trial)
{
	const struct kvpool_torture_options *o = trial->options;
	struct kvpool_toll *t = &trial->toll;
	struct sums sums = add_up(trial->books);

	return json_pack(
		"{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:o, "
		"s:b, s:{s:o, s:o}, s:o, s:{s:I, s:I, s:I, s:I, s:I}, s:b, s:o}",
		"schema_version", 1, "seed", (json_int_t)o->seed, "seconds", (json_int_t)o->seconds,
		"clients", (json_int_t)o->clients, "client_kills", (json_int_t)t->client_kills,
		"client_stops", (json_int_t)t->client_stops, "client_orders",
		(json_int_t)t->client_orders, "daemon_kills", (json_int_t)t->daemon_kills,
		"blocks_checked", (json_int_t)sums.checked, "blocks_stored",
		(json_int_t)sums.stored, "evicted_in_last_life", (json_int_t)t->evicted,
		"calls_missed", (json_int_t)sums.missed, "calls_odd", (json_int_t)sums.odd,
		"wrong_bytes", (json_int_t)sums.wrong, "leaked_blocks",
		(json_int_t)t->leaked_blocks, "rests", (json_int_t)t->rests, "leaked_fds",
		t->leaked_fds < 0 ? json_null() : json_integer((json_int_t)t->leaked_fds),
		"accounting_exact", (int)t->exact, "kept_ratio", "quiet", ratio(&t->quiet), "busy",
		ratio(&t->busy), "lease_return_ms", lease_return(&t->lease_return), "dropped",
		"torn", (json_int_t)t->torn, "misplaced", (json_int_t)t->misplaced, "orphaned",
		(json_int_t)t->orphaned, "unfinished", (json_int_t)t->unfinished, "pools",
		(json_int_t)t->emptied, "fine", (int)kvpool_torture_report_fine(trial), "faults",
		faults(trial->books));
}

static void print_lines(const json_t *report)
{
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach((json_t *)(uintptr_t)report, name, value)
	{
		char *text =
			json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

		if (text && !json_is_array(value))
			printf("%-22s %s\n", name, text);
		free(text);
	}
	json_array_foreach(json_object_get(report, "faults"), i, value)
		printf("  %s\n", json_string_value(value));
}

int kvpool_torture_report_print(struct kvpool_trial *trial)
{
	json_t *report = make(trial);
	int r = 0;

	if (!report)
		return -ENOMEM;
	if (!trial->options->json)
		print_lines(report);
	else if (json_dumpf(report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0 ||
		 putchar('\n') == EOF)
		r = -EIO;
	json_decref(report);
	return fflush(stdout) == 0 ? r : -EIO;
}
