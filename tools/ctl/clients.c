/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoolctl clients` for people: see show.h.
 *
 * Main thread.
 */
#include "shm/base.h"
#include "tools/ctl/show.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A client whose last request is not older is no news. */
#define SILENT_MS 1000

enum kind {
	TEXT,
	NUMBER,
	BYTES,
	STATE,
	MEMBERS,
	SILENCE
};

/* Texts stand left, everything else right. */
static const struct {
	const char *title;
	const char *field;
	enum kind kind;
	int width;
} columns[] = {
	{"ID", "id", NUMBER, 6},
	{"NAME", "name", TEXT, -20},
	{"DOMAIN", "domain", TEXT, -12},
	{"STATE", "state", STATE, -16},
	{"PROCESSES", "members", MEMBERS, -13},
	{"LEASES", "leases", NUMBER, 8},
	{"LEASED", "leased_bytes", BYTES, 9},
	{"RESERVED", "reserved_bytes", BYTES, 9},
	{"QUARANTINED", "quarantined_blocks", NUMBER, 11},
	{"ACTIVITY", "idle_ms", SILENCE, 14},
};

static uint32_t count(const json_t *members, const char *field, const char *value)
{
	const json_t *member;
	uint32_t n = 0;
	size_t i;

	json_array_foreach(members, i, member)
	{
		const char *is = json_string_value(json_object_get(member, field));

		n += is != NULL && strcmp(is, value) == 0;
	}
	return n;
}

/* "2", "2, 1 stopped", "1, 1 dead": a stopped process keeps what it holds, a dead one nothing. */
static const char *members_text(const json_t *members, char *text)
{
	uint32_t stopped = count(members, "process", "stopped");
	uint32_t dead = count(members, "process", "gone");
	int n = snprintf(text, KVPOOL_SHOW_TEXT_BYTES, "%zu", json_array_size(members));

	if (stopped > 0)
		n += snprintf(text + n, KVPOOL_SHOW_TEXT_BYTES - (size_t)n, ", %" PRIu32 " stopped",
			      stopped);
	if (dead > 0)
		snprintf(text + n, KVPOOL_SHOW_TEXT_BYTES - (size_t)n, ", %" PRIu32 " dead", dead);
	return text;
}

static const char *silence_text(uint64_t idle_ms, char *text)
{
	char time[KVPOOL_UNITS_BYTES];

	if (idle_ms < SILENT_MS)
		return "active";
	snprintf(text, KVPOOL_SHOW_TEXT_BYTES, "silent %s",
		 kvpool_units_ns(idle_ms * 1000000, time));
	return text;
}

static const char *cell(const json_t *client, size_t column, char *text)
{
	const char *field = columns[column].field;
	uint64_t value = kvpool_show_integer(client, field);

	switch (columns[column].kind) {
	case TEXT:
		return kvpool_show_text(client, field, text);
	case NUMBER:
		return kvpool_units_count(value, text);
	case BYTES:
		return kvpool_units_bytes(value, text);
	case STATE:
		if (json_is_true(kvpool_show_field(client, "evicted")))
			return "evicted";
		return kvpool_show_text(client, field, text);
	case MEMBERS:
		return members_text(kvpool_show_field(client, field), text);
	case SILENCE:
		return silence_text(value, text);
	}
	return "";
}

void kvpool_show_clients(const json_t *document)
{
	const json_t *clients = kvpool_show_field(document, "clients");
	char text[KVPOOL_SHOW_TEXT_BYTES];
	const json_t *client;
	size_t column;
	size_t i;

	if (json_array_size(clients) == 0) {
		printf("no clients\n");
		return;
	}
	for (column = 0; column < KVPOOL_ARRAY_SIZE(columns); column++)
		printf("%s%*s", column > 0 ? "  " : "", columns[column].width,
		       columns[column].title);
	printf("\n");
	json_array_foreach(clients, i, client)
	{
		for (column = 0; column < KVPOOL_ARRAY_SIZE(columns); column++)
			printf("%s%*s", column > 0 ? "  " : "", columns[column].width,
			       cell(client, column, text));
		printf("\n");
	}
}
