/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to clients and to the daemon in a trial: see trial.h.
 */
#include "tools/bench/keys.h"
#include "tools/bench/ticks.h"
#include "tools/interrupt.h"
#include "tools/torture/trial.h"

#include <signal.h>
#include <string.h>

#define STOP_NS_MAX   UINT64_C(600000000)
#define RETURN_NS_MAX UINT64_C(10000000000)
#define CHILD_NS_MAX  UINT64_C(5000000000)
#define SECOND_MS_MAX 20u /* from a new life to its death, when it dies at once */

static uint32_t below(struct kvpool_trial *trial, uint32_t n)
{
	return (uint32_t)kvpool_random_below(&trial->random, n);
}

/* The client of this process in the daemon's list, if it has leases; 0: none. */
static int64_t client_with_leases(const struct kvpool_trial *trial, pid_t pid)
{
	json_t *page = kvpool_subject_page(&trial->subject, "/v1/clients");
	json_t *client, *member;
	int64_t id = 0;
	size_t i, j;

	json_array_foreach(json_object_get(page, "clients"), i, client)
	{
		json_array_foreach(json_object_get(client, "members"), j, member)
		{
			if (kvpool_subject_number(member, "pid") == pid &&
			    kvpool_subject_number(client, "leases") > 0)
				id = kvpool_subject_number(client, "id");
		}
	}
	json_decref(page);
	return id;
}

/* 1: the client is in the daemon's list; 0: it is not; -1: nobody answers. */
static int is_listed(const struct kvpool_trial *trial, int64_t id)
{
	json_t *page = kvpool_subject_page(&trial->subject, "/v1/clients");
	int listed = page ? 0 : -1;
	json_t *client;
	size_t i;

	json_array_foreach(json_object_get(page, "clients"), i, client)
	{
		if (kvpool_subject_number(client, "id") == id)
			listed = 1;
	}
	json_decref(page);
	return listed;
}

/* Kills a client that holds leases and waits until they are back. */
static void kill_and_measure(struct kvpool_trial *trial, uint32_t number)
{
	pid_t pid = trial->fleet.clients[number].pid;
	int64_t id = pid != 0 && atomic_load(&trial->books->clients[number].held) > 0
			     ? client_with_leases(trial, pid)
			     : 0;
	uint64_t begun = kvpool_monotonic_ns();
	int listed = 1;

	kvpool_fleet_kill(&trial->fleet, number);
	if (id == 0)
		return;
	while (listed == 1 && kvpool_monotonic_ns() - begun < RETURN_NS_MAX)
		listed = is_listed(trial, id);
	if (listed == 0)
		kvpool_samples_add(&trial->toll.lease_return, kvpool_monotonic_ns() - begun);
	else if (listed == 1)
		kvpool_books_fault(trial->books, "client %lld is dead, and its leases are kept",
				   (long long)id);
}

void kvpool_trial_strike_client(struct kvpool_trial *trial)
{
	uint32_t number = below(trial, trial->fleet.n);
	uint32_t blow = below(trial, 100);
	struct kvpool_toll *toll = &trial->toll;

	if (blow < 30) {
		kvpool_fleet_kill(&trial->fleet, number);
		toll->client_kills++;
	} else if (blow < 50) {
		kill_and_measure(trial, number);
		toll->client_kills++;
	} else if (blow < 75) {
		kvpool_fleet_pause(&trial->fleet, number,
				   kvpool_random_below(&trial->random, STOP_NS_MAX));
		toll->client_stops++;
	} else {
		kvpool_fleet_order(&trial->fleet, number, 1 + below(trial, KVPOOL_ORDER_COUNT - 1));
		toll->client_orders++;
	}
}

static void add_ratio(struct kvpool_kept_ratio *to, int64_t before, int64_t after)
{
	double ratio = before > 0 ? (double)after / (double)before : 1.0;

	if (before == 0)
		return;
	to->min = to->n == 0 ? ratio : KVPOOL_MIN(to->min, ratio);
	to->sum += ratio;
	to->n++;
}

/*
 * The memory is whole, only the process that wrote to it died: at most the one block that each life
 * was changing is torn, and what hangs on such a one, or on one that was being written, is
 * orphaned.
 */
static void note_adoption(struct kvpool_trial *trial, const json_t *page, int64_t torn_max)
{
	const json_t *restart = json_object_get(page, "restart");
	const char *fault = json_string_value(json_object_get(restart, "fault"));
	int64_t torn = kvpool_subject_number(restart, "torn");
	int64_t misplaced = kvpool_subject_number(restart, "misplaced");
	int64_t orphaned = kvpool_subject_number(restart, "orphaned");
	int64_t unfinished = kvpool_subject_number(restart, "unfinished");
	struct kvpool_toll *toll = &trial->toll;

	toll->torn += (uint64_t)torn;
	toll->misplaced += (uint64_t)misplaced;
	toll->orphaned += (uint64_t)orphaned;
	toll->unfinished += (uint64_t)unfinished;
	if (torn > torn_max || misplaced != 0 || (orphaned != 0 && unfinished + torn == 0))
		kvpool_books_fault(trial->books,
				   "dropped: %lld torn, %lld misplaced, %lld orphaned blocks",
				   (long long)torn, (long long)misplaced, (long long)orphaned);
	if (fault) {
		toll->emptied++;
		kvpool_books_fault(trial->books, "the pool was given up: %s", fault);
	}
}

/* Kills the life that has just begun, before it serves or soon after. */
static void kill_newborn(struct kvpool_trial *trial, pid_t old)
{
	uint64_t until = kvpool_monotonic_ns() + CHILD_NS_MAX;
	pid_t pid = 0;

	/* Not in a tight loop: whoever lists processes keeps others from beginning and ending. */
	while ((pid == 0 || pid == old) && kvpool_monotonic_ns() < until) {
		kvpool_interrupt_pause(1);
		pid = kvpool_subject_child(&trial->subject);
	}
	if (pid == 0 || pid == old)
		return;
	kvpool_interrupt_pause(below(trial, SECOND_MS_MAX));
	if (kill(pid, SIGKILL) == 0)
		trial->toll.daemon_kills++;
}

/* A sentence for each client that holds something. */
static void name_holders(const struct kvpool_trial *trial)
{
	json_t *page = kvpool_subject_page(&trial->subject, "/v1/clients");
	json_t *client;
	size_t i;

	json_array_foreach(json_object_get(page, "clients"), i, client)
	{
		int64_t leases = kvpool_subject_number(client, "leases");
		int64_t reserved = kvpool_subject_number(client, "reserved_blocks");
		int64_t quarantined = kvpool_subject_number(client, "quarantined_blocks");

		if (leases + reserved + quarantined == 0)
			continue;
		kvpool_books_fault(trial->books,
				   "client %lld (%s, %zu members, %lld not back) has %lld leases, "
				   "%lld reserved, %lld in quarantine",
				   (long long)kvpool_subject_number(client, "id"),
				   json_string_value(json_object_get(client, "state")),
				   json_array_size(json_object_get(client, "members")),
				   (long long)kvpool_subject_number(client, "not_back"),
				   (long long)leases, (long long)reserved, (long long)quarantined);
	}
	json_decref(page);
}

/*
 * Everybody is there and holds nothing: so nothing may be held, not by answers that nobody read in
 * an earlier life of the daemon either.
 */
static void look_at_rest(struct kvpool_trial *trial)
{
	uint64_t until = kvpool_monotonic_ns() + RETURN_NS_MAX;
	int64_t held = 0;

	if (kvpool_fleet_any_paused(&trial->fleet))
		return;
	do {
		json_t *page;

		kvpool_interrupt_pause(1);
		page = kvpool_subject_page(&trial->subject, "/v1/status");
		held = page ? kvpool_trial_held(page) : 0;
		json_decref(page);
	} while (held != 0 && kvpool_monotonic_ns() < until);
	trial->toll.rests++;
	if (held == 0)
		return;
	trial->toll.leaked_blocks += (uint64_t)held;
	kvpool_books_fault(trial->books, "%lld held while everybody rests", (long long)held);
	name_holders(trial);
}

void kvpool_trial_strike_daemon(struct kvpool_trial *trial)
{
	bool quiet = below(trial, 2) == 0 && kvpool_fleet_rest(&trial->fleet);
	bool twice = !quiet && below(trial, 2) == 0;
	pid_t pid = trial->subject.pid;
	int64_t before, after;
	json_t *page;

	if (quiet)
		look_at_rest(trial);
	page = kvpool_subject_page(&trial->subject, "/v1/status");
	before = kvpool_subject_number(page, "accounting.blocks.ready");
	json_decref(page);
	if (page && kill(pid, SIGKILL) == 0)
		trial->toll.daemon_kills++;
	kvpool_fleet_resume(&trial->fleet);
	if (twice)
		kill_newborn(trial, pid);
	page = kvpool_subject_next_life(&trial->subject);
	if (!page) {
		trial->broken = true;
		kvpool_books_fault(trial->books, "the daemon does not come back");
		return;
	}
	after = kvpool_subject_number(page, "restart.blocks");
	/* Behind a block that nobody can finish any more: these could not be found before either.
	 */
	before -= kvpool_subject_number(page, "restart.orphaned");
	add_ratio(quiet ? &trial->toll.quiet : &trial->toll.busy, before, after);
	if (quiet && before != after)
		kvpool_books_fault(trial->books,
				   "of %lld blocks that could be found %lld were kept",
				   (long long)before, (long long)after);
	note_adoption(trial, page, quiet ? 0 : 1 + twice);
	json_decref(page);
}
