/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their answers. See link.h.
 *
 * Used by the thread of the channel that has the link.
 */
#include "client/link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* Looks at the ring this often before it looks at the clock: about two microseconds. */
#define SPINS 64u

/* Who never sleeps asks the kernel this often whether the daemon is still there. */
#define ASK_NS UINT64_C(1000000)

/*
 * Where the daemon has no core to itself it cannot answer while this thread spins on its own: after
 * so many naps in a row spinning is cut short, and tried in full now and then.
 */
#define NAPS_MAX      4u
#define NAPS_A_TRIAL  64u
#define SHORT_SPIN_NS UINT64_C(1000)

static uint64_t spin_time(const struct kvpool_link *link, uint64_t spin_ns)
{
	if (link->naps < NAPS_MAX || link->naps % NAPS_A_TRIAL == 0 || spin_ns == UINT64_MAX)
		return KVPOOL_MIN(spin_ns, KVPOOL_DEADLINE_MAX_NS);
	return KVPOOL_MIN(spin_ns, SHORT_SPIN_NS);
}

static int lose(struct kvpool_link *link, struct kvpool_failure *failure)
{
	kvpool_session_lose(link->session);
	return kvpool_failure_literal(failure, -EPROTO,
				      "the daemon answers what nobody asked, or is another one");
}

static int went_away(struct kvpool_link *link, struct kvpool_failure *failure)
{
	kvpool_session_lose(link->session);
	return kvpool_failure_literal(failure, -ENOTCONN, "the daemon went away");
}

static bool arena_busy(const struct kvpool_link *link)
{
	for (uint32_t i = 0; i < link->n_late; i++)
		if (link->late[i].arena)
			return true;
	return false;
}

/* What a late RESERVE was granted goes back with a later call. Room was made. */
static void return_blocks(struct kvpool_link *link, const struct kvpool_late *late,
			  const struct kvpool_reply *reply)
{
	const struct kvpool_wire_block *blocks =
		(const struct kvpool_wire_block *)(const void *)(link->arena + late->result);

	if (late->inline_key && reply->block.block != 0)
		kvpool_ledger_owe_block(&link->ledger, reply->block.block, reply->block.generation);
	for (uint32_t i = 0; !late->inline_key && i < late->n; i++) {
		struct kvpool_wire_block block = blocks[i];

		if (block.block != 0)
			kvpool_ledger_owe_block(&link->ledger, block.block, block.generation);
	}
}

/* An answer that nobody waits for any more. False: nobody ever asked. */
static bool settle_late(struct kvpool_link *link, const struct kvpool_reply *reply)
{
	struct kvpool_late late;
	uint32_t i = 0;

	while (i < link->n_late && link->late[i].id != reply->id)
		i++;
	if (i == link->n_late)
		return false;
	late = link->late[i];
	link->late[i] = link->late[--link->n_late];
	if (reply->status != KVPOOL_STATUS_OK)
		return true;
	if (late.op == KVPOOL_OP_MATCH && reply->lease != 0)
		kvpool_ledger_owe_lease(&link->ledger, reply->lease);
	if (late.op == KVPOOL_OP_RESERVE)
		return_blocks(link, &late, reply);
	return true;
}

/* The caller gives up; whoever comes next recognises the answer. */
static void remember(struct kvpool_link *link, const struct kvpool_request *request)
{
	bool inline_key = (request->flags & KVPOOL_REQUEST_INLINE_KEY) != 0;

	assert(link->n_late < KVPOOL_LINK_LATE_MAX);
	link->late[link->n_late++] = (struct kvpool_late){
		.id = request->id,
		.op = request->op,
		.n = request->op == KVPOOL_OP_RESERVE ? request->n : 0,
		.result = request->op == KVPOOL_OP_RESERVE ? request->result : 0,
		.inline_key = inline_key,
		.arena = !inline_key || (request->flags & KVPOOL_REQUEST_HAS_PARENT) != 0,
	};
}

static void ring_daemon(const struct kvpool_link *link)
{
	static const uint64_t one = 1;

	if (kvpool_producer_must_ring(&link->requests))
		/* A full counter is a doorbell that rings already. */
		(void)!write(link->daemon_bell, &one, sizeof(one));
}

/* Until the doorbell rings, the daemon goes or the deadline comes. 0: look again. */
static int doze(struct kvpool_link *link, const struct kvpool_deadline *deadline, uint64_t now_ns,
		struct kvpool_failure *failure)
{
	struct timespec left = kvpool_deadline_left(deadline, now_ns);
	struct pollfd p[2] = {
		{.fd = link->own_bell, .events = POLLIN},
		{.fd = link->session->socket, .events = POLLRDHUP},
	};
	uint64_t count;
	int n;

	if (!kvpool_consumer_arm(&link->replies))
		return 0;
	n = ppoll(p, 2, &left, NULL);
	kvpool_consumer_disarm(&link->replies);
	if (n > 0 && p[0].revents != 0)
		(void)!read(link->own_bell, &count, sizeof(count));
	if (n > 0 && p[1].revents != 0 && !kvpool_consumer_ready(&link->replies))
		return went_away(link, failure);
	return 0;
}

/*
 * The next answer, whoever's. Spins, then sleeps. The clock starts here, unless it runs already:
 * with an answer on time it is never read.
 */
static int next_reply(struct kvpool_link *link, uint64_t spin_ns, struct kvpool_deadline *deadline,
		      struct kvpool_failure *failure, struct kvpool_reply *reply)
{
	uint64_t spin_end = 0, ask = 0;
	bool napped = false;
	int r;

	for (;;) {
		uint64_t now, end;

		for (uint32_t i = 0; i < SPINS; i++) {
			if (kvpool_consumer_pop(&link->replies, reply)) {
				link->naps = napped ? link->naps + 1 : 0;
				return 0;
			}
			kvpool_cpu_relax();
		}
		now = kvpool_clock_ns();
		end = kvpool_deadline_fix(deadline, now);
		if (now >= end)
			return kvpool_failure_literal(failure, -ETIMEDOUT,
						      "the daemon did not answer in time");
		if (spin_end == 0) {
			spin_end = now + spin_time(link, spin_ns);
			ask = now + ASK_NS;
		}
		if (now < spin_end) {
			if (now < ask)
				continue;
			ask = now + ASK_NS;
			if (kvpool_session_hung_up(link->session) &&
			    !kvpool_consumer_ready(&link->replies))
				return went_away(link, failure);
			continue;
		}
		napped = true;
		r = doze(link, deadline, now, failure);
		if (r != 0)
			return r;
	}
}

int kvpool_link_call(struct kvpool_link *link, struct kvpool_request *request, uint64_t spin_ns,
		     struct kvpool_deadline *deadline, struct kvpool_failure *failure,
		     struct kvpool_reply *reply)
{
	struct kvpool_reply answer;
	int r;

	/* RELEASEs leave half of the ring alone and few calls are given up: there is always room.
	 */
	if (kvpool_producer_room(&link->requests, 1) != 0)
		return lose(link, failure);
	if (++link->next_id == 0)
		link->next_id = 1;
	request->id = link->next_id;
	kvpool_producer_push(&link->requests, request);
	ring_daemon(link);
	for (;;) {
		r = next_reply(link, spin_ns, deadline, failure, &answer);
		if (r == -ETIMEDOUT)
			remember(link, request);
		if (r != 0)
			return r;
		if (KVPOOL_LIKELY(answer.id == request->id))
			break;
		if (!settle_late(link, &answer))
			return lose(link, failure);
	}
	if (KVPOOL_UNLIKELY(answer.epoch != link->session->epoch))
		return lose(link, failure);
	/* No edge: set once, read after the session was lost. */
	if (KVPOOL_UNLIKELY(!atomic_load_explicit(&link->session->useful, memory_order_relaxed)))
		atomic_store_explicit(&link->session->useful, true, memory_order_relaxed);
	*reply = answer;
	return 0;
}

int kvpool_link_settle(struct kvpool_link *link, bool arena, uint64_t spin_ns,
		       struct kvpool_deadline *deadline, struct kvpool_failure *failure)
{
	struct kvpool_reply answer;
	int r;

	/* Answers that are there already cost nothing. */
	while (link->n_late > 0 && kvpool_consumer_pop(&link->replies, &answer))
		if (!settle_late(link, &answer))
			return lose(link, failure);
	while (link->n_late == KVPOOL_LINK_LATE_MAX || (arena && arena_busy(link))) {
		r = next_reply(link, spin_ns, deadline, failure, &answer);
		if (r != 0)
			return r;
		if (!settle_late(link, &answer))
			return lose(link, failure);
	}
	return 0;
}

bool kvpool_link_release(struct kvpool_link *link, uint64_t lease, uint32_t keep)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_RELEASE,
		.keep = keep,
		.lease = lease,
	};

	/* Half of the ring stays free for calls that are waited for. */
	if (kvpool_producer_room(&link->requests, (link->requests.mask + 1) / 2) != 0)
		return false;
	kvpool_producer_push(&link->requests, &request);
	ring_daemon(link);
	return true;
}
