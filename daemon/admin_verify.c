/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verify page of the admin socket: see admin_json.h.
 *
 * GET shows the run under way or the last one; POST begins one, with ?domain=NAME for one domain
 * and ?structure=1 for the tables of large caches too.
 */
#include "daemon/admin_change.h"
#include "daemon/admin_json.h"
#include "daemon/admin_usage.h"
#include "daemon/clock.h"
#include "daemon/server.h"
#include "daemon/verify.h"

#include <string.h>

static const char *structure(const struct kvpool_verify_progress *p)
{
	if (p->fault[0])
		return p->fault;
	return p->too_large > 0 || p->structures == 0 ? "not checked" : "sound";
}

char *kvpool_admin_json_verify(const struct kvpool_server *s, const char *admin_socket)
{
	struct kvpool_verify_progress p;

	(void)admin_socket;
	kvpool_verify_progress(s, &p);
	return kvpool_admin_json_text(
		json_pack("{s:I, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:s}", "runs",
			  (json_int_t)p.runs, "running", (int)p.running, "domain",
			  p.domain[0] ? json_string(p.domain) : json_null(), "checked",
			  (json_int_t)p.checked, "corrupt", (json_int_t)p.corrupt, "dropped",
			  (json_int_t)p.dropped, "without_checksum", (json_int_t)p.without_checksum,
			  "skipped", (json_int_t)p.skipped, "bytes", (json_int_t)p.bytes, "seconds",
			  (double)p.elapsed_ns / (double)KVPOOL_NS_PER_S, "structure_fault",
			  (int)(p.fault[0] != '\0'), "structure", structure(&p)));
}

char *kvpool_admin_change_verify(struct kvpool_server *s, struct MHD_Connection *connection,
				 unsigned int *code)
{
	const char *domain =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "domain");
	const char *large =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "structure");
	int r = kvpool_verify_start(s, domain, large && strcmp(large, "1") == 0);

	switch (r) {
	case 0:
		*code = MHD_HTTP_OK;
		return kvpool_admin_json_verify(s, NULL);
	case KVPOOL_VERIFY_E_RUNNING:
		*code = MHD_HTTP_CONFLICT;
		return kvpool_admin_json_error("a verification is under way");
	case KVPOOL_VERIFY_E_DOMAIN:
		*code = MHD_HTTP_NOT_FOUND;
		return kvpool_admin_json_error("no such domain");
	default:
		*code = MHD_HTTP_SERVICE_UNAVAILABLE;
		return kvpool_admin_json_error(strerror(-r));
	}
}
