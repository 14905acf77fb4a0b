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

enum kind {
	TEXT,
	NUMBER,
	BYTES,
	MEMBERS,
	IDLE
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
	{"STATE", "state", TEXT, -16},
	{"PROCESSES", "members", MEMBERS, 9},
	{"LEASES", "leases", NUMBER, 8},
	{"LEASED", "leased_bytes", BYTES, 9},
	{"RESERVED", "reserved_bytes", BYTES, 9},
	{"QUARANTINED", "quarantined_blocks", NUMBER, 11},
	{"IDLE", "idle_ms", IDLE, 8},
};

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
	case MEMBERS:
		return kvpool_units_count(json_array_size(kvpool_show_field(client, field)), text);
	case IDLE:
		return kvpool_units_ns(value * 1000000, text);
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
