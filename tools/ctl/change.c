/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoolctl evict`, `drain` and `resume`: see command.h.
 *
 * Main thread.
 */
#include "shm/base.h"
#include "tools/ctl/command.h"
#include "tools/ctl/show.h"
#include "tools/exit_codes.h"
#include "tools/interrupt.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TIMEOUT 10u /* seconds that `drain` waits for writers */
#define POLL_MS 50u

int kvpool_ctl_complain(int error, const char *why)
{
	static const int codes[] = {
		[KVPOOL_ADMIN_E_UNREACHABLE] = KVPOOL_EXIT_UNREACHABLE,
		[KVPOOL_ADMIN_E_REFUSED] = KVPOOL_EXIT_REFUSED,
		[KVPOOL_ADMIN_E_ANSWER] = KVPOOL_EXIT_FAILURE,
		[KVPOOL_ADMIN_E_VERSION] = KVPOOL_EXIT_VERSION,
		[KVPOOL_ADMIN_E_PATH] = KVPOOL_EXIT_USAGE,
	};

	fprintf(stderr, "kvpoolctl: %s\n", error < 0 ? strerror(-error) : why);
	return error > 0 ? codes[error] : KVPOOL_EXIT_FAILURE;
}

void kvpool_ctl_print_json(const json_t *document)
{
	json_dumpf(document, stdout, JSON_INDENT(2));
	printf("\n");
}

int kvpool_ctl_evict(const struct kvpool_ctl_request *request)
{
	char why[KVPOOL_ADMIN_WHY_BYTES], name[KVPOOL_SHOW_TEXT_BYTES];
	json_t *document = NULL;
	char resource[64];
	int error;

	if (request->client == 0) {
		fprintf(stderr,
			"kvpoolctl: evict whom? --client N, as `kvpoolctl clients` has it\n");
		return KVPOOL_EXIT_USAGE;
	}
	snprintf(resource, sizeof(resource), "/v1/evict?client=%" PRIu32, request->client);
	error = kvpool_admin_client_post(request->path, resource, why, sizeof(why), &document);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	if (request->json)
		kvpool_ctl_print_json(document);
	else
		printf("client %" PRIu32 " (%s) is evicted: %" PRIu64 " processes, %" PRIu64
		       " leases; %" PRIu64
		       " blocks stay in quarantine until its processes are gone\n",
		       request->client, kvpool_show_text(document, "name", name),
		       kvpool_show_integer(document, "members"),
		       kvpool_show_integer(document, "leases"),
		       kvpool_show_integer(document, "quarantined_blocks"));
	json_decref(document);
	return KVPOOL_EXIT_FINE;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * Asks for the status until no block is being written or the time is over. The caller owns `out`.
 */
static int await_writers(const struct kvpool_ctl_request *request, uint32_t seconds, char *why,
			 size_t why_bytes, json_t **out)
{
	uint64_t end = now_ms() + (uint64_t)seconds * 1000;
	json_t *status;
	int error;

	for (;;) {
		error = kvpool_admin_client_get(request->path, "/v1/status", why, why_bytes,
						&status);
		if (error != 0)
			return error;
		if (kvpool_show_integer(status, "accounting/blocks/reserved") == 0 ||
		    now_ms() >= end || kvpool_interrupt_asked())
			break;
		json_decref(status);
		kvpool_interrupt_pause(POLL_MS);
	}
	*out = status;
	return 0;
}

static void print_left(const json_t *status)
{
	char clients[KVPOOL_UNITS_BYTES], leases[KVPOOL_UNITS_BYTES], blocks[KVPOOL_UNITS_BYTES];
	char bytes[KVPOOL_UNITS_BYTES], quarantined[KVPOOL_UNITS_BYTES];

	printf("left: clients %s, leases %s, ready blocks %s (%s), quarantined blocks %s\n",
	       kvpool_units_count(kvpool_show_integer(status, "clients/attached_or_quarantined"),
				  clients),
	       kvpool_units_count(kvpool_show_integer(status, "accounting/leases"), leases),
	       kvpool_units_count(kvpool_show_integer(status, "accounting/blocks/ready"), blocks),
	       kvpool_units_bytes(kvpool_show_integer(status, "accounting/bytes/ready"), bytes),
	       kvpool_units_count(kvpool_show_integer(status, "accounting/blocks/quarantined"),
				  quarantined));
}

static void print_left_json(const json_t *status)
{
	static const struct {
		const char *name, *path;
	} fields[] = {
		{"clients", "clients/attached_or_quarantined"},
		{"leases", "accounting/leases"},
		{"ready_blocks", "accounting/blocks/ready"},
		{"ready_bytes", "accounting/bytes/ready"},
		{"reserved_blocks", "accounting/blocks/reserved"},
		{"quarantined_blocks", "accounting/blocks/quarantined"},
	};
	uint64_t reserved = kvpool_show_integer(status, "accounting/blocks/reserved");
	json_t *left = json_pack("{s:i, s:b}", "schema_version", KVPOOL_ADMIN_SCHEMA, "drained",
				 reserved == 0);
	size_t i;

	for (i = 0; i < KVPOOL_ARRAY_SIZE(fields); i++)
		json_object_set_new(
			left, fields[i].name,
			json_integer((json_int_t)kvpool_show_integer(status, fields[i].path)));
	json_object_set(left, "writers", json_object_get(status, "writers"));
	kvpool_ctl_print_json(left);
	json_decref(left);
}

/* Returns the exit code: nothing is being written any more, or who writes still. */
static int judge(const json_t *status)
{
	uint64_t reserved = kvpool_show_integer(status, "accounting/blocks/reserved");
	char name[KVPOOL_SHOW_TEXT_BYTES];
	const json_t *writer;
	size_t i;

	if (reserved == 0)
		return KVPOOL_EXIT_FINE;
	fprintf(stderr, "kvpoolctl: %" PRIu64 " blocks are still being written:", reserved);
	json_array_foreach(kvpool_show_field(status, "writers"), i, writer)
		fprintf(stderr, "%s %" PRIu64 " by client %" PRIu64 " (%s)", i > 0 ? "," : "",
			kvpool_show_integer(writer, "reserved_blocks"),
			kvpool_show_integer(writer, "id"), kvpool_show_text(writer, "name", name));
	fprintf(stderr, "\n");
	return KVPOOL_EXIT_FAILURE;
}

int kvpool_ctl_drain(const struct kvpool_ctl_request *request)
{
	uint32_t seconds = request->timeout != 0 ? request->timeout : TIMEOUT;
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int error, code;

	error = kvpool_admin_client_post(request->path, "/v1/drain", why, sizeof(why), &document);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	json_decref(document);
	kvpool_interrupt_watch();
	error = await_writers(request, seconds, why, sizeof(why), &document);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	if (request->json)
		print_left_json(document);
	else
		print_left(document);
	code = judge(document);
	json_decref(document);
	return code;
}

int kvpool_ctl_resume(const struct kvpool_ctl_request *request)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int error;

	error = kvpool_admin_client_post(request->path, "/v1/resume", why, sizeof(why), &document);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	if (request->json)
		kvpool_ctl_print_json(document);
	else
		printf("serving\n");
	json_decref(document);
	return KVPOOL_EXIT_FINE;
}
