/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of the torture: see trial.h.
 */
#include "tools/torture/trial.h"

#include "tools/bench/keys.h"
#include "tools/bench/ticks.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define POLL_MS       2
#define QUIET_NS      UINT64_C(30000000000)
#define SAMPLES       (1u << 16)
#define S_NS          UINT64_C(1000000000)
#define DESCRIPTOR_NS UINT64_C(3000000000)

static int fail(int error, const char *what)
{
	fprintf(stderr, "kvpool-torture: %s: %s\n", what, strerror(-error));
	return error;
}

int64_t kvpool_trial_held(const json_t *page)
{
	static const char *const paths[] = {"accounting.blocks.reserved",
					    "accounting.blocks.leased_only",
					    "accounting.blocks.quarantined", "accounting.leases"};
	int64_t sum = 0;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(paths); i++)
		sum += kvpool_subject_number(page, paths[i]);
	return sum;
}

static bool is_exact(const json_t *page)
{
	static const char *const parts[] = {"free",        "ready",       "reserved",
					    "leased_only", "quarantined", "slack"};
	const json_t *bytes = json_object_get(json_object_get(page, "accounting"), "bytes");
	int64_t sum = 0;

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(parts); i++)
		sum += kvpool_subject_number(bytes, parts[i]);
	return bytes && sum == kvpool_subject_number(bytes, "total");
}

/* Until nobody is there and nothing is held; notes what stays. */
static void await_quiet(struct kvpool_trial *trial)
{
	uint64_t until = kvpool_monotonic_ns() + QUIET_NS;
	json_t *page = NULL;
	bool over;

	do {
		json_decref(page);
		kvpool_interrupt_pause(POLL_MS);
		page = kvpool_subject_page(&trial->subject, "/v1/status");
		over = page && kvpool_trial_held(page) == 0 &&
		       kvpool_subject_number(page, "clients.attached_or_quarantined") == 0 &&
		       kvpool_subject_number(page, "restart.past_clients") == 0;
	} while (!over && kvpool_monotonic_ns() < until);
	if (!over)
		kvpool_books_fault(
			trial->books, "not quiet: %lld held, %lld clients, %lld of the past",
			(long long)kvpool_trial_held(page),
			(long long)kvpool_subject_number(page, "clients.attached_or_quarantined"),
			(long long)kvpool_subject_number(page, "restart.past_clients"));
	trial->toll.leaked_blocks += (uint64_t)kvpool_trial_held(page);
	trial->toll.exact = trial->toll.exact && is_exact(page);
	json_decref(page);
}

/* Of both processes; negative errno. */
static int descriptors(const struct kvpool_trial *trial)
{
	int daemon = kvpool_subject_descriptors(trial->subject.pid);
	int supervisor = kvpool_subject_descriptors(trial->subject.supervisor.pid);

	if (daemon < 0)
		return daemon;
	return supervisor < 0 ? supervisor : daemon + supervisor;
}

/* The pool full and read, nobody there, and a life that has just adopted all of it. */
static int settle(struct kvpool_trial *trial)
{
	json_t *page;

	if (!kvpool_fleet_fill(&trial->fleet))
		return fail(-ECHILD, "the client that fills the pool failed");
	await_quiet(trial);
	if (kill(trial->subject.pid, SIGKILL) != 0)
		return fail(-errno, "cannot kill the daemon");
	page = kvpool_subject_next_life(&trial->subject);
	if (!page)
		return fail(-ETIMEDOUT, "the daemon does not come back");
	json_decref(page);
	await_quiet(trial);
	return 0;
}

static void play(struct kvpool_trial *trial)
{
	uint64_t now = kvpool_monotonic_ns();
	uint64_t every = trial->options->daemon_kill_every * S_NS;
	uint64_t end = now + trial->options->seconds * S_NS;
	uint64_t blow_max = 2 * (uint64_t)trial->options->blow_ms * 1000000;
	uint64_t blow = now, death = now + every;

	while (now < end && !trial->broken && !kvpool_interrupt_asked()) {
		kvpool_fleet_tend(&trial->fleet);
		if (now >= blow) {
			kvpool_trial_strike_client(trial);
			blow = now + kvpool_random_below(&trial->random, blow_max);
		}
		if (every != 0 && now >= death) {
			kvpool_trial_strike_daemon(trial);
			death = kvpool_monotonic_ns() + every / 2 +
				kvpool_random_below(&trial->random, every);
		}
		kvpool_interrupt_pause(POLL_MS);
		now = kvpool_monotonic_ns();
	}
}

static void note_evicted(struct kvpool_trial *trial)
{
	json_t *page = kvpool_subject_page(&trial->subject, "/v1/status");

	trial->toll.evicted = (uint64_t)kvpool_subject_number(page, "counters.evicted");
	json_decref(page);
}

/* Against `before`, once the last pages of the admin socket are closed. */
static void count_descriptors(struct kvpool_trial *trial, int before)
{
	uint64_t until = kvpool_monotonic_ns() + DESCRIPTOR_NS;
	int after = descriptors(trial);

	while (after > before && kvpool_monotonic_ns() < until) {
		kvpool_interrupt_pause(POLL_MS);
		after = descriptors(trial);
	}
	trial->toll.leaked_fds = before < 0 || after < 0 ? -1 : KVPOOL_MAX(after - before, 0);
}

static int prepare(const struct kvpool_torture_options *options, struct kvpool_trial *trial)
{
	int r = kvpool_books_new(&trial->books);

	if (r == 0)
		r = kvpool_samples_init(&trial->toll.lease_return, SAMPLES);
	if (r < 0)
		return fail(r, "cannot start");
	/* What a killed client leaves behind is reaped here, not elsewhere. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	r = kvpool_subject_start(options->daemon, &trial->subject);
	if (r < 0)
		return r;
	trial->fleet.books = trial->books;
	trial->fleet.socket = trial->subject.socket;
	trial->fleet.supervisor = &trial->subject.supervisor;
	trial->fleet.random = &trial->random;
	return settle(trial);
}

int kvpool_trial_run(const struct kvpool_torture_options *options, struct kvpool_trial *trial)
{
	int before, r;

	*trial = (struct kvpool_trial){
		.options = options, .random = options->seed, .toll = {.exact = true}};
	r = prepare(options, trial);
	if (r < 0)
		return r;
	before = descriptors(trial);
	trial->fleet.n = options->clients;
	play(trial);
	note_evicted(trial);
	kvpool_fleet_end(&trial->fleet);
	if (trial->broken || kvpool_interrupt_asked())
		return trial->broken ? 0 : fail(-EINTR, "asked to end");
	await_quiet(trial);
	r = settle(trial);
	if (r == 0)
		count_descriptors(trial, before);
	return r;
}

void kvpool_trial_end(struct kvpool_trial *trial, bool show)
{
	kvpool_subject_stop(&trial->subject, show);
	kvpool_samples_clear(&trial->toll.lease_return);
	kvpool_books_free(trial->books);
}
