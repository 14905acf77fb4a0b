/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of the admin socket's documents: see show.h.
 *
 * Pure; main thread.
 */
#include "tools/ctl/show.h"

#include <stdio.h>
#include <string.h>

const json_t *kvpool_show_field(const json_t *document, const char *path)
{
	const json_t *field = document;

	while (field != NULL && *path != '\0') {
		size_t length = strcspn(path, "/");
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)length, path);
		field = json_object_get(field, name);
		path += length + (path[length] == '/');
	}
	return field;
}

uint64_t kvpool_show_integer(const json_t *document, const char *path)
{
	json_int_t value = json_integer_value(kvpool_show_field(document, path));

	return value > 0 ? (uint64_t)value : 0;
}

char *kvpool_show_text(const json_t *document, const char *path, char out[KVPOOL_SHOW_TEXT_BYTES])
{
	const char *text = json_string_value(kvpool_show_field(document, path));
	char *c;

	snprintf(out, KVPOOL_SHOW_TEXT_BYTES, "%s", text != NULL && text[0] != '\0' ? text : "-");
	for (c = out; *c != '\0'; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	return out;
}
