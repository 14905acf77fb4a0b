/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoolctl status` for people: see show.h.
 *
 * Main thread.
 */
#include "shm/base.h"
#include "tools/ctl/show.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LABEL "%-11s"

static void daemon_line(const json_t *document)
{
	char version[KVPOOL_SHOW_TEXT_BYTES];
	char state[KVPOOL_SHOW_TEXT_BYTES];
	char loop[KVPOOL_SHOW_TEXT_BYTES];
	char time[KVPOOL_UNITS_BYTES];

	printf("kvpoold %s, process %" PRIu64 ", %s for %s, loop: %s\n",
	       kvpool_show_text(document, "version", version), kvpool_show_integer(document, "pid"),
	       kvpool_show_text(document, "state", state),
	       kvpool_units_ns(kvpool_show_integer(document, "uptime_ms") * 1000000, time),
	       kvpool_show_text(document, "loop/backend", loop));
}

/* "64 MiB on 2M, 960 MiB on 4K": only what there is. */
static void pages(const json_t *document)
{
	const json_t *kinds = kvpool_show_field(document, "pool/pages");
	const char *separator = "";
	const char *kind;
	const json_t *bytes;
	char text[KVPOOL_UNITS_BYTES];

	json_object_foreach((json_t *)(uintptr_t)kinds, kind, bytes)
	{
		if (json_integer_value(bytes) <= 0)
			continue;
		printf("%s%s on %s", separator,
		       kvpool_units_bytes((uint64_t)json_integer_value(bytes), text), kind);
		separator = ", ";
	}
	printf("%s pages\n", separator[0] == '\0' ? "no" : "");
}

static void pool_lines(const json_t *document)
{
	uint64_t bytes = kvpool_show_integer(document, "pool/bytes");
	uint64_t ready = kvpool_show_integer(document, "pool/ready_bytes");
	uint64_t lent = kvpool_show_integer(document, "pool/lent_bytes");
	char text[KVPOOL_UNITS_BYTES];
	char other[KVPOOL_UNITS_BYTES];

	printf(LABEL "%s", "pool", kvpool_units_bytes(bytes, text));
	if (ready < bytes)
		printf(", %s of it there so far", kvpool_units_bytes(ready, other));
	printf(" in segments of %s; ",
	       kvpool_units_bytes(kvpool_show_integer(document, "pool/segment_bytes"), text));
	pages(document);
	printf(LABEL "%s to %" PRIu64 " domain%s, %s not lent\n", "lent",
	       kvpool_units_bytes(lent, text),
	       (uint64_t)json_array_size(kvpool_show_field(document, "domains")),
	       json_array_size(kvpool_show_field(document, "domains")) == 1 ? "" : "s",
	       kvpool_units_bytes(ready > lent ? ready - lent : 0, other));
}

/* What is lent adds up: total = ready + reserved + leased only + quarantined + free + slack. */
static void accounting_lines(const json_t *document)
{
	static const struct {
		const char *title;
		const char *field;
		int counted;
	} columns[] = {
		{"ready", "ready", 1},
		{"reserved", "reserved", 1},
		{"leased only", "leased_only", 1},
		{"quarantined", "quarantined", 1},
		{"free", "free", 0},
		{"slack", "slack", 0},
		{"total", "total", 0},
	};
	char path[64];
	char text[KVPOOL_UNITS_BYTES];
	size_t i;

	printf("\n" LABEL, "");
	for (i = 0; i < KVPOOL_ARRAY_SIZE(columns); i++)
		printf("%12s", columns[i].title);
	printf("\n" LABEL, "memory");
	for (i = 0; i < KVPOOL_ARRAY_SIZE(columns); i++) {
		snprintf(path, sizeof(path), "accounting/bytes/%s", columns[i].field);
		printf("%12s", kvpool_units_bytes(kvpool_show_integer(document, path), text));
	}
	printf("\n" LABEL, "blocks");
	for (i = 0; i < KVPOOL_ARRAY_SIZE(columns) && columns[i].counted; i++) {
		snprintf(path, sizeof(path), "accounting/blocks/%s", columns[i].field);
		printf("%12s", kvpool_units_count(kvpool_show_integer(document, path), text));
	}
	printf("\n\n");
}

static void client_lines(const json_t *document)
{
	char text[KVPOOL_UNITS_BYTES];
	char other[KVPOOL_UNITS_BYTES];

	printf(LABEL "%" PRIu64 " of at most %s, %s lease%s, %" PRIu64 " of %" PRIu64
		     " channels hot\n",
	       "clients", kvpool_show_integer(document, "clients/attached_or_quarantined"),
	       kvpool_units_count(kvpool_show_integer(document, "clients/max"), text),
	       kvpool_units_count(kvpool_show_integer(document, "accounting/leases"), other),
	       kvpool_show_integer(document, "accounting/leases") == 1 ? "" : "s",
	       kvpool_show_integer(document, "service/channels_hot"),
	       kvpool_show_integer(document, "service/channels"));
	printf(LABEL "%s, %.0f B a block\n", "metadata",
	       kvpool_units_bytes(kvpool_show_integer(document, "accounting/metadata_bytes"), text),
	       json_number_value(
		       kvpool_show_field(document, "accounting/metadata_bytes_per_block")));
}

static void counter_lines(const json_t *document)
{
	const json_t *counters = kvpool_show_field(document, "counters");
	char a[KVPOOL_UNITS_BYTES];
	char b[KVPOOL_UNITS_BYTES];
	char c[KVPOOL_UNITS_BYTES];

	printf(LABEL "%s, hits: %s of %s tokens\n", "lookups",
	       kvpool_units_count(kvpool_show_integer(counters, "matches"), a),
	       kvpool_units_share(kvpool_show_integer(counters, "match_hit_tokens"),
				  kvpool_show_integer(counters, "match_tokens"), b),
	       kvpool_units_count(kvpool_show_integer(counters, "match_tokens"), c));
	printf(LABEL "%s blocks, evicted %s, expired %s", "stored",
	       kvpool_units_count(kvpool_show_integer(counters, "stored"), a),
	       kvpool_units_count(kvpool_show_integer(counters, "evicted"), b),
	       kvpool_units_count(kvpool_show_integer(counters, "expired"), c));
	printf(", forgotten %s, abandoned %s, refused for space %s\n",
	       kvpool_units_count(kvpool_show_integer(counters, "forgotten"), a),
	       kvpool_units_count(kvpool_show_integer(counters, "abandoned"), b),
	       kvpool_units_count(kvpool_show_integer(counters, "no_space"), c));
	if (kvpool_show_integer(counters, "corrupt") > 0)
		printf(LABEL "%s blocks were not what had been stored, and were dropped\n",
		       "corrupt", kvpool_units_count(kvpool_show_integer(counters, "corrupt"), a));
}

/* Whether the pool outlives the daemon, and what this life found of it. */
static void restart_lines(const json_t *document)
{
	const json_t *restart = kvpool_show_field(document, "restart");
	uint64_t past = kvpool_show_integer(restart, "past_clients");
	uint64_t empty = kvpool_show_integer(restart, "domains_empty");
	char fault[KVPOOL_SHOW_TEXT_BYTES];
	char blocks[KVPOOL_UNITS_BYTES];
	char leases[KVPOOL_UNITS_BYTES];
	char time[KVPOOL_UNITS_BYTES];

	if (json_is_string(kvpool_show_field(restart, "fault")))
		printf(LABEL "an earlier life's pool was not taken over: %s\n", "restart",
		       kvpool_show_text(restart, "fault", fault));
	else if (json_is_true(kvpool_show_field(restart, "adopted")))
		printf(LABEL "life %" PRIu64 " of this pool: %s blocks and %s leases kept in %s\n",
		       "restart", kvpool_show_integer(restart, "lives"),
		       kvpool_units_count(kvpool_show_integer(restart, "blocks"), blocks),
		       kvpool_units_count(kvpool_show_integer(restart, "leases"), leases),
		       kvpool_units_ns(kvpool_show_integer(restart, "ns"), time));
	else
		printf(LABEL "the pool %s\n", "restart",
		       json_is_true(kvpool_show_field(restart, "kept"))
			       ? "outlives this daemon"
			       : "ends with this daemon: nobody keeps it");
	if (empty > 0)
		printf(LABEL "%" PRIu64 " domain%s began empty; the log says why\n", "", empty,
		       empty == 1 ? "" : "s");
	if (past > 0)
		printf(LABEL "%" PRIu64 " client%s may still use what an earlier life granted\n",
		       "", past, past == 1 ? "" : "s");
}

static void violation_lines(const json_t *document)
{
	const json_t *kinds = kvpool_show_field(document, "violations");
	const char *kind;
	const json_t *count;

	json_object_foreach((json_t *)(uintptr_t)kinds, kind, count)
	{
		if (json_integer_value(count) > 0)
			printf(LABEL "%lld x %s\n", "violations",
			       (long long)json_integer_value(count), kind);
	}
}

void kvpool_show_status(const json_t *document)
{
	char text[KVPOOL_SHOW_TEXT_BYTES];

	daemon_line(document);
	printf(LABEL "%s\n", "socket", kvpool_show_text(document, "sockets/data", text));
	pool_lines(document);
	accounting_lines(document);
	client_lines(document);
	counter_lines(document);
	restart_lines(document);
	violation_lines(document);
}

int kvpool_show_degraded(const json_t *status, char *why, size_t why_bytes)
{
	char text[KVPOOL_SHOW_TEXT_BYTES];

	kvpool_show_text(status, "state", text);
	if (strcmp(text, "serving") != 0) {
		snprintf(why, why_bytes, "the daemon is %s", text);
		return 1;
	}
	if (!json_is_string(kvpool_show_field(status, "pool/error")))
		return 0;
	snprintf(why, why_bytes, "the pool is smaller than wanted: %s",
		 kvpool_show_text(status, "pool/error", text));
	return 1;
}
