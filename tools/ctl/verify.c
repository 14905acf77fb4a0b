/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoolctl verify`: begins a run, waits for its end, and shows it. See show.h.
 *
 * Main thread.
 */
#include "shm/base.h"
#include "tools/admin_client.h"
#include "tools/ctl/show.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RESOURCE "/v1/verify"

/* Between two looks: short at first, since most pools are small. */
#define LOOK_MIN_NS 10000000L
#define LOOK_MAX_NS 500000000L

static int running(const json_t *document)
{
	return json_is_true(kvpool_show_field(document, "running"));
}

int kvpool_verify_run(const char *socket, const char *domain, int structure, char *why,
		      size_t why_bytes, json_t **out)
{
	struct timespec pause = {0, LOOK_MIN_NS};
	char resource[KVPOOL_SHOW_TEXT_BYTES + sizeof(RESOURCE) + 32];
	json_t *document = NULL;
	uint64_t run;
	int error;

	snprintf(resource, sizeof(resource), RESOURCE "?structure=%d%s%.*s", structure != 0,
		 domain != NULL ? "&domain=" : "", KVPOOL_SHOW_TEXT_BYTES,
		 domain != NULL ? domain : "");
	error = kvpool_admin_client_post(socket, resource, why, why_bytes, &document);
	if (error != 0)
		return error;
	run = kvpool_show_integer(document, "runs");
	/* Another run may have begun by then; ours is over all the same. */
	while (running(document) && kvpool_show_integer(document, "runs") == run) {
		json_decref(document);
		nanosleep(&pause, NULL);
		pause.tv_nsec = KVPOOL_MIN(2 * pause.tv_nsec, LOOK_MAX_NS);
		error = kvpool_admin_client_get(socket, RESOURCE, why, why_bytes, &document);
		if (error != 0)
			return error;
	}
	*out = document;
	return 0;
}

void kvpool_show_verify(const json_t *document)
{
	double seconds = json_number_value(kvpool_show_field(document, "seconds"));
	uint64_t bytes = kvpool_show_integer(document, "bytes");
	char text[KVPOOL_SHOW_TEXT_BYTES];
	char a[KVPOOL_UNITS_BYTES];
	char b[KVPOOL_UNITS_BYTES];

	printf("%s blocks, %s read in %.2f s",
	       kvpool_units_count(kvpool_show_integer(document, "checked"), a),
	       kvpool_units_bytes(bytes, b), seconds);
	printf("; %s without a checksum, %s not to be read\n",
	       kvpool_units_count(kvpool_show_integer(document, "without_checksum"), a),
	       kvpool_units_count(kvpool_show_integer(document, "skipped"), b));
	printf("%s not what was stored; %s dropped, with what hung on them\n",
	       kvpool_units_count(kvpool_show_integer(document, "corrupt"), a),
	       kvpool_units_count(kvpool_show_integer(document, "dropped"), b));
	printf("tables: %s\n", kvpool_show_text(document, "structure", text));
}

int kvpool_show_unsound(const json_t *document)
{
	return kvpool_show_integer(document, "corrupt") > 0 ||
	       json_is_true(kvpool_show_field(document, "structure_fault"));
}
