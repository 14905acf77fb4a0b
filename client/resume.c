/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on in a new session with what is held in lost ones. See resume.h.
 *
 * Under the attach gate of the handle.
 */
#include "client/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where the shards of a block lie is the same in every daemon life that has the block. */
static void take_strides(const struct kvpool_session *from, struct kvpool_session *to)
{
	for (uint32_t i = 0; i < KVPOOL_CLIENT_LAYOUTS_MAX; i++) {
		for (uint32_t g = 0; g < KVPOOL_GROUPS_MAX; g++) {
			uint64_t stride = atomic_load_explicit(&from->layouts[i].stride[g],
							       memory_order_relaxed);

			/* No edges: each is whole by itself. */
			if (stride != 0)
				atomic_store_explicit(&to->layouts[i].stride[g], stride,
						      memory_order_relaxed);
		}
	}
}

static int take_holdings(struct kvpool_session *from, struct kvpool_session *to)
{
	int r = kvpool_ledger_move(&from->orphans, &to->orphans);

	for (struct kvpool_link *link = from->links; link && r == 0; link = link->next)
		r = kvpool_ledger_move(&link->ledger, &to->orphans);
	return r;
}

int kvpool_resume_take_over(struct kvpool_session *lost, struct kvpool_session *session)
{
	int r = 0;

	for (struct kvpool_session *s = lost; s && r == 0; s = s->next) {
		if (s->life != session->life)
			continue;
		/* Those that have a table have the same one: each took it over from another. */
		if (s->segments && s->segments != session->segments) {
			kvpool_segments_put(session->segments, false);
			session->segments = kvpool_segments_get(s->segments);
		}
		take_strides(s, session);
		r = take_holdings(s, session);
	}
	return r;
}

/* One batch; `claims` may be NULL where `n` is 0. */
static int send_claims(struct kvpool_link *link, const struct kvpool_wire_claim *claims, uint32_t n,
		       bool last, uint64_t spin_ns, struct kvpool_deadline *deadline,
		       struct kvpool_failure *failure)
{
	struct kvpool_request request = {
		.op = KVPOOL_OP_CLAIM,
		.flags = last ? KVPOOL_REQUEST_LAST : 0,
		.n = n,
	};
	struct kvpool_reply reply;
	int r;

	if (claims && n > 0)
		memcpy(link->arena, claims, n * sizeof(*claims));
	r = kvpool_link_call(link, &request, spin_ns, deadline, failure, &reply);
	if (r == 0)
		r = kvpool_failure_status(failure, reply.status, "claim");
	/* Fewer: what the daemon took back before it died, and a caller is not yet told of. */
	if (r == 0 && reply.granted > n)
		r = kvpool_failure_literal(failure, -EPROTO,
					   "the daemon knows more than what was claimed");
	return r;
}

int kvpool_resume_claim(struct kvpool_session *session, struct kvpool_link *link, uint64_t spin_ns,
			struct kvpool_deadline *deadline, struct kvpool_failure *failure)
{
	uint64_t room =
		KVPOOL_MIN(link->arena_bytes / sizeof(struct kvpool_wire_claim), KVPOOL_KEYS_MAX);
	struct kvpool_wire_claim *claims;
	uint32_t n, at = 0;
	int r = kvpool_ledger_claims(&session->orphans, &claims, &n);

	if (r != 0)
		return kvpool_failure_literal(failure, r, "out of memory");
	do {
		uint32_t batch = KVPOOL_MIN(n - at, (uint32_t)room);

		r = send_claims(link, claims ? claims + at : NULL, batch, at + batch == n, spin_ns,
				deadline, failure);
		at += batch;
	} while (r == 0 && at < n);
	free(claims);
	return r;
}
