/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes what a measurement stands on. Owned by the command that runs; main thread.
 */
#include "tools/bench/session.h"

#include "tools/bench/report.h"
#include "tools/bench/status.h"
#include "tools/interrupt.h"

#include <errno.h>

#define FULL_NS      UINT64_C(300000000000)
#define FULL_POLL_MS 5

int kvpool_bench_session_prepare(const struct kvpool_bench_options *options,
				 struct kvpool_bench_session *out)
{
	struct kvpool_bench_session session = {0};
	int r = kvpool_cpus_choose(options, &session.cpus);

	if (r == 0) {
		r = kvpool_cpus_pin(session.cpus.client);
		if (r < 0)
			kvpool_bench_fail(r, "cannot pin to core %d", session.cpus.client);
	}
	if (r < 0)
		return r;
	if (!session.cpus.apart)
		fprintf(stderr,
			"kvpool-bench: one core only: daemon and client take turns on it\n");
	kvpool_ticks_init(&session.ticks);
	*out = session;
	return 0;
}

int kvpool_bench_session_attach(struct kvpool_bench_session *session)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.socket = session->daemon.socket,
		.name = "kvpool-bench",
		.deadline_ns = KVPOOL_BENCH_SESSION_DEADLINE_NS,
		.spin_ns = KVPOOL_BENCH_SESSION_SPIN_NS,
		.arena_bytes = KVPOOL_BENCH_SESSION_ARENA_BYTES,
		.flags = KVPOOL_OPEN_REQUIRE,
	};
	int r = kvpool_open(&options, &session->pool);

	if (r < 0)
		return kvpool_bench_fail(r, "cannot attach to %s", session->daemon.socket);
	r = kvpool_channel_open(session->pool, &session->channel);
	if (r < 0)
		return kvpool_bench_fail(r, "cannot open a channel (%s)",
					 kvpool_error(session->pool));
	return 0;
}

int kvpool_bench_session_open(const struct kvpool_bench_options *options, uint64_t pool_bytes,
			      bool populate, struct kvpool_bench_session *out)
{
	struct kvpool_bench_session session;
	struct kvpool_daemon_spec spec = {
		.options = options,
		.pool_bytes = pool_bytes,
		.populate = populate,
		.supervise = options->kept,
	};
	int r = kvpool_bench_session_prepare(options, &session);

	if (r < 0)
		return r;
	spec.cpu = session.cpus.daemon;
	r = kvpool_daemon_run_start(&spec, &session.daemon);
	if (r == 0)
		r = kvpool_daemon_run_await(&session.daemon);
	if (r == 0)
		r = kvpool_bench_session_attach(&session);
	if (r < 0) {
		kvpool_bench_session_close(&session);
		return r;
	}
	*out = session;
	return 0;
}

void kvpool_bench_session_close(struct kvpool_bench_session *session)
{
	kvpool_channel_close(session->channel);
	kvpool_close(session->pool);
	session->channel = NULL;
	session->pool = NULL;
	kvpool_daemon_run_stop(&session->daemon);
}

int kvpool_bench_session_layout(struct kvpool_bench_session *session, const char *label,
				uint64_t slot_bytes, struct kvpool_layout **out)
{
	const struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = slot_bytes};
	const struct kvpool_layout_spec spec = {
		.size = sizeof(spec),
		.engine = "kvpool-bench",
		.hash_algorithm = "splitmix64",
		.model = label,
		.dtype = "bytes",
		.order = "LBHNC",
		.label = label,
		.block_tokens = 16,
		.n_shards = 1,
		.n_groups = 1,
		.groups = &group,
	};
	int r = kvpool_layout(session->pool, &spec, out);

	if (r < 0)
		kvpool_bench_fail(r, "cannot describe the layout (%s)",
				  kvpool_error(session->pool));
	return r;
}

int kvpool_bench_session_await_full(struct kvpool_bench_session *session)
{
	uint64_t until = kvpool_monotonic_ns() + FULL_NS;

	for (;;) {
		bool growing;
		json_t *status;
		int r = kvpool_daemon_run_status(&session->daemon, &status);

		if (r < 0)
			return r;
		growing = kvpool_status_growing(status);
		json_decref(status);
		if (!growing)
			return 0;
		if (kvpool_bench_interrupted() < 0)
			return -EINTR;
		if (kvpool_monotonic_ns() > until)
			return kvpool_bench_fail(-ETIMEDOUT, "the pool is not populated yet");
		kvpool_interrupt_pause(FULL_POLL_MS);
	}
}

int kvpool_bench_session_describe(struct kvpool_bench_session *session,
				  struct kvpool_report *report)
{
	json_t *status;
	int r = kvpool_daemon_run_status(&session->daemon, &status);

	if (r < 0)
		return r;
	r = kvpool_report_clock(report, &session->ticks);
	if (r == 0)
		r = kvpool_report_set(report, "cpus",
				      json_pack("{s:i, s:i, s:b}", "client", session->cpus.client,
						"daemon", session->cpus.daemon, "apart",
						session->cpus.apart));
	if (r == 0)
		r = kvpool_report_set(report, "client_spin_ns",
				      json_integer((json_int_t)KVPOOL_BENCH_SESSION_SPIN_NS));
	if (r == 0)
		r = kvpool_report_set(report, "kept", json_boolean(kvpool_status_kept(status)));
	if (r == 0)
		r = kvpool_report_set(report, "pool", kvpool_status_pool(status));
	json_decref(status);
	return r;
}
