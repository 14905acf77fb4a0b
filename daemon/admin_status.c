/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status page of the admin socket: see admin_json.h.
 */
#include "daemon/admin_json.h"
#include "daemon/admin_usage.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/server.h"
#include "daemon/state.h"
#include "daemon/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static json_t *text_or_null(const char *text)
{
	return text && text[0] ? json_string(text) : json_null();
}

static json_t *errno_or_null(int error)
{
	return error ? json_string(strerror(error)) : json_null();
}

/* null: not there yet */
static json_t *ms_or_null(uint64_t ns)
{
	return ns ? json_real((double)ns / (double)KVPOOL_NS_PER_MS) : json_null();
}

static json_t *pages(const struct kvpool_pool_status *status)
{
	/* As the setting `pages` has them. */
	static const char *const names[KVPOOL_PAGES_COUNT] = {
		[KVPOOL_PAGES_1G] = "1G",
		[KVPOOL_PAGES_2M] = "2M",
		[KVPOOL_PAGES_THP] = "thp",
		[KVPOOL_PAGES_4K] = "4k",
	};
	json_t *object = json_object();
	int i;

	for (i = KVPOOL_PAGES_1G; i < KVPOOL_PAGES_COUNT; i++)
		(void)json_object_set_new(object, names[i],
					  json_integer((json_int_t)status->by_pages[i]));
	return object;
}

static json_t *pool(const struct kvpool_server *s)
{
	struct kvpool_pool_status status;

	kvpool_pool_status(s->pool, &status);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:s}",
			 "bytes", (json_int_t)status.bytes, "ready_bytes", (json_int_t)status.ready,
			 "lent_bytes", (json_int_t)status.lent, "segment_bytes",
			 (json_int_t)s->config.pool.segment_bytes, "extent_bytes",
			 (json_int_t)s->config.extent_bytes, "nodes", (json_int_t)status.nodes,
			 "growing", (int)status.growing, "error", text_or_null(status.error_text),
			 "mbind_error", errno_or_null(status.mbind_error), "pages", pages(&status),
			 "first_ms", ms_or_null(status.first_ns), "full_ms",
			 ms_or_null(status.full_ns), "catalog",
			 s->config.shared_catalog ? "shared" : "private");
}

static json_t *requests(const struct kvpool_server *s)
{
	static const char *const names[KVPOOL_OP_COUNT + 1] = {
		[KVPOOL_OP_NOP] = "nop",         [KVPOOL_OP_LAYOUT] = "layout",
		[KVPOOL_OP_MATCH] = "match",     [KVPOOL_OP_WAIT] = "wait",
		[KVPOOL_OP_RESERVE] = "reserve", [KVPOOL_OP_COMMIT] = "commit",
		[KVPOOL_OP_ABORT] = "abort",     [KVPOOL_OP_RELEASE] = "release",
		[KVPOOL_OP_FORGET] = "forget",   [KVPOOL_OP_SUMS] = "sums",
		[KVPOOL_OP_DROP] = "drop",       [KVPOOL_OP_CLAIM] = "claim",
		[KVPOOL_OP_COUNT] = "unknown",
	};
	json_t *object = json_object();
	unsigned int i;

	for (i = 0; i <= KVPOOL_OP_COUNT; i++)
		(void)json_object_set_new(object, names[i],
					  json_integer((json_int_t)s->counters.requests[i]));
	return object;
}

static json_t *violations(const struct kvpool_server *s)
{
	json_t *object = json_object();
	int i;

	for (i = 0; i < KVPOOL_VIOLATION_COUNT; i++)
		(void)json_object_set_new(object, kvpool_violation_name((enum kvpool_violation)i),
					  json_integer((json_int_t)s->violations.counts[i]));
	return object;
}

static json_t *service(const struct kvpool_server *s)
{
	const struct kvpool_server_counters *c = &s->counters;

	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "requests", requests(s), "replies", (json_int_t)c->replies, "turns",
			 (json_int_t)c->turns, "sleeps", (json_int_t)c->sleeps, "wakeups",
			 (json_int_t)kvpool_loop_wakeups(s->loop), "spin_window_us",
			 (json_int_t)(kvpool_spin_window(&s->spin) / KVPOOL_NS_PER_US), "bells_in",
			 (json_int_t)c->bells_in, "bells_out", (json_int_t)c->bells_out, "channels",
			 (json_int_t)s->n_channels, "channels_hot", (json_int_t)s->n_hot, "waits",
			 (json_int_t)s->waits.n, "attached_ever", (json_int_t)c->attached,
			 "refused", (json_int_t)c->refused, "segments_taken", (json_int_t)c->takes);
}

/* What this life took over from the one before it. */
static json_t *restart(const struct kvpool_server *s)
{
	const struct kvpool_adoption *a = &s->adoption;
	json_int_t past = 0;
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &s->domains)
	{
		past += kvpool_list_entry(node, struct kvpool_domain, link)->n_past;
	}
	return json_pack(
		"{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
		"kept", (int)(s->config.pool.state != NULL), "adopted", (int)a->any, "lives",
		(json_int_t)(s->config.pool.state ? s->config.pool.state->control->lives : 1),
		"blocks", (json_int_t)a->sum.blocks, "torn", (json_int_t)a->sum.torn, "misplaced",
		(json_int_t)a->sum.misplaced, "orphaned", (json_int_t)a->sum.orphaned, "unfinished",
		(json_int_t)a->sum.unfinished, "descriptors_dropped", (json_int_t)a->dropped,
		"domains_empty", (json_int_t)a->domains_empty, "writing",
		(json_int_t)a->sum.writing, "leases", (json_int_t)a->sum.leases, "past_clients",
		past, "ns", (json_int_t)a->ns, "fault", text_or_null(a->fault));
}

char *kvpool_admin_json_status(const struct kvpool_server *s, const char *admin_socket)
{
	struct kvpool_cache_usage usage;
	uint64_t now = kvpool_clock_ns();
	char epoch[20];

	kvpool_admin_usage_sum(s, &usage);
	(void)snprintf(epoch, sizeof(epoch), "%016" PRIx64, s->epoch);
	return kvpool_admin_json_text(json_pack(
		"{s:s, s:s, s:I, s:I, s:s, s:s, s:{s:s, s:o}, s:{s:s, s:s}, s:o, s:{s:I, s:I, s:I, "
		"s:I}, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"version", KVPOOL_VERSION, "commit", KVPOOL_COMMIT, "pid", (json_int_t)getpid(),
		"uptime_ms", (json_int_t)((now - s->start_ns) / KVPOOL_NS_PER_MS), "epoch", epoch,
		"state", s->draining ? "draining" : "serving", "loop", "backend",
		kvpool_loop_kind(s->loop) == KVPOOL_LOOP_URING ? "io_uring" : "epoll", "refusal",
		errno_or_null(kvpool_loop_refusal(s->loop)), "sockets", "data", s->listener.path,
		"admin", admin_socket, "pool", pool(s), "clients", "attached_or_quarantined",
		(json_int_t)s->n_clients, "attaching", (json_int_t)s->n_pending, "max",
		(json_int_t)s->config.clients_max, "domains", (json_int_t)s->n_domains, "writers",
		kvpool_admin_usage_writers(s), "accounting", kvpool_admin_usage_accounting(&usage),
		"counters", kvpool_admin_usage_counters(&usage), "service", service(s),
		"violations", violations(s), "domains", kvpool_admin_usage_domains(s), "restart",
		restart(s)));
}
