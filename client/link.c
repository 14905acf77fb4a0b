/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One channel's memory in one daemon life: made, unmade, and what is told to the daemon on the
 * side. See link.h; the calls are in link_call.c.
 *
 * Owned by a session, lent to one channel at a time.
 */
#include "client/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Handles in one ABORT: as many as any arena holds. */
#define PAY_BLOCKS ((uint32_t)(KVPOOL_ARENA_MIN / sizeof(struct kvpool_wire_handle)))

static int map(struct kvpool_link *link, int fd, uint64_t bytes, struct kvpool_failure *failure)
{
	const char *why = bytes <= SIZE_MAX / 2 ? kvpool_segments_distrust(fd, bytes)
						: "the daemon grants a channel of impossible size";
	void *base;

	if (why)
		return kvpool_failure_literal(failure, -EPROTO, why);
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return kvpool_failure_set(failure, -errno, "a channel cannot be mapped: %s",
					  strerror(errno));
	link->base = base;
	link->bytes = bytes;
	if (madvise(base, bytes, MADV_DONTFORK) != 0 || madvise(base, bytes, MADV_DONTDUMP) != 0)
		return kvpool_failure_set(failure, -errno, "a channel cannot be hidden: %s",
					  strerror(errno));
	return 0;
}

static int lay_out(struct kvpool_link *link, struct kvpool_failure *failure)
{
	struct kvpool_channel_geometry g;
	struct kvpool_channel_control *control;

	if (link->bytes < KVPOOL_HEADER_BYTES ||
	    kvpool_channel_header_read((const struct kvpool_header *)(void *)link->base,
				       link->bytes, &g) != 0)
		return kvpool_failure_literal(failure, -EPROTO,
					      "the daemon's channel is not of this version");
	control = (struct kvpool_channel_control *)(void *)(link->base + g.control);
	kvpool_producer_init(&link->requests,
			     (struct kvpool_entry *)(void *)(link->base + g.requests),
			     &control->requests, g.entries, 0);
	kvpool_consumer_init(&link->replies,
			     (struct kvpool_entry *)(void *)(link->base + g.replies),
			     &control->replies, g.entries, 0);
	link->arena = link->base + g.arena;
	link->arena_bytes = g.arena_bytes;
	return 0;
}

int kvpool_link_new(struct kvpool_session *session, struct kvpool_packet *grant,
		    struct kvpool_failure *failure, struct kvpool_link **out)
{
	struct kvpool_link *link = calloc(1, sizeof(*link));
	int r;

	if (!link)
		return kvpool_failure_literal(failure, -ENOMEM, "out of memory");
	r = kvpool_ledger_init(&link->ledger);
	if (r != 0) {
		free(link);
		return kvpool_failure_literal(failure, r, "out of memory");
	}
	link->session = session;
	link->number = grant->channel.channel;
	link->daemon_bell = kvpool_packet_take(grant, 1);
	link->own_bell = kvpool_packet_take(grant, 2);
	r = map(link, grant->fds[0], grant->channel.total_bytes, failure);
	if (r == 0)
		r = lay_out(link, failure);
	if (r != 0) {
		kvpool_link_free(link, false);
		return r;
	}
	*out = link;
	return 0;
}

void kvpool_link_free(struct kvpool_link *link, bool forked)
{
	if (!link)
		return;
	if (link->base && !forked)
		munmap(link->base, link->bytes);
	close(link->daemon_bell);
	close(link->own_bell);
	kvpool_ledger_fini(&link->ledger);
	free(link);
}

int kvpool_link_make_room(struct kvpool_link *link, uint32_t leases, uint32_t blocks)
{
	for (uint32_t i = 0; i < link->n_late; i++)
		blocks += link->late[i].n;
	return kvpool_ledger_make_room(&link->ledger, leases + link->n_late, blocks);
}

static void pay_leases(struct kvpool_link *link, struct kvpool_ledger *ledger)
{
	uint64_t lease;

	while (kvpool_ledger_take_leases(ledger, &lease, 1) == 1) {
		if (kvpool_link_release(link, lease, 0))
			continue;
		/* It was taken out a moment ago, so there is room for it. */
		kvpool_ledger_owe_lease(ledger, lease);
		return;
	}
}

static int pay_blocks(struct kvpool_link *link, struct kvpool_ledger *ledger, uint64_t spin_ns,
		      struct kvpool_deadline *deadline, struct kvpool_failure *failure)
{
	struct kvpool_wire_handle *handles = (struct kvpool_wire_handle *)(void *)link->arena;
	struct kvpool_request request;
	struct kvpool_reply reply;
	uint32_t n;
	int r;

	for (;;) {
		r = kvpool_link_settle(link, true, spin_ns, deadline, failure);
		if (r != 0)
			return r;
		n = kvpool_ledger_take_blocks(ledger, handles, PAY_BLOCKS);
		if (n == 0)
			return 0;
		request = (struct kvpool_request){.op = KVPOOL_OP_ABORT, .n = n};
		/* Once sent it will be done, late or not; what it did not find is over already. */
		r = kvpool_link_call(link, &request, spin_ns, deadline, failure, &reply);
		if (r != 0)
			return r;
	}
}

int kvpool_link_pay(struct kvpool_link *link, struct kvpool_ledger *ledger, uint64_t spin_ns,
		    struct kvpool_deadline *deadline, struct kvpool_failure *failure)
{
	if (kvpool_ledger_owed(ledger) == 0)
		return 0;
	pay_leases(link, ledger);
	return pay_blocks(link, ledger, spin_ns, deadline, failure);
}
