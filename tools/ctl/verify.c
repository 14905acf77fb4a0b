/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoolctl verify`: begins a run, waits for its end, and shows it. See command.h.
 *
 * Main thread.
 */
#include "shm/base.h"
#include "tools/ctl/command.h"
#include "tools/ctl/show.h"
#include "tools/exit_codes.h"
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

static int verify(const char *socket, const char *domain, int structure, char *why,
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

static void show(const json_t *document)
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

static bool unsound(const json_t *document)
{
	return kvpool_show_integer(document, "corrupt") > 0 ||
	       json_is_true(kvpool_show_field(document, "structure_fault"));
}

int kvpool_ctl_verify(const struct kvpool_ctl_request *request)
{
	static const char names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._-";
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int code = KVPOOL_EXIT_FINE;
	int error;

	if (request->domain != NULL && request->domain[strspn(request->domain, names)] != '\0') {
		fprintf(stderr, "kvpoolctl: %s is no domain's name\n", request->domain);
		return KVPOOL_EXIT_USAGE;
	}
	error = verify(request->path, request->domain, request->structure, why, sizeof(why),
		       &document);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	if (request->json)
		kvpool_ctl_print_json(document);
	else
		show(document);
	if (unsound(document)) {
		fprintf(stderr, "kvpoolctl: not everything was what had been stored\n");
		code = KVPOOL_EXIT_DEGRADED;
	}
	json_decref(document);
	return code;
}
