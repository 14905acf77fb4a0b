/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on in a new session with what is held in lost ones of the same life of the client.
 *
 * All of it moves into the new session's ledger first; then what is held is claimed from the
 * daemon, which ends the rest: what it granted in an answer that nobody read. What is owed is paid
 * once the session serves, and so is what other threads give back during the claim: they find it in
 * the new session, and leave it as owed.
 *
 * For whoever attaches, under the handle's attach gate; the new session is nobody else's for calls
 * until kvpool_resume_claim() has succeeded.
 */
#ifndef KVPOOL_CLIENT_RESUME_H
#define KVPOOL_CLIENT_RESUME_H

#include "client/link.h"

/*
 * Takes over what is held and mapped in the sessions of `lost`, those of the same life. Pool lock.
 * -ENOMEM: a part of it may have moved.
 */
int kvpool_resume_take_over(struct kvpool_session *lost, struct kvpool_session *session);

/*
 * Claims everything that is held in the session's ledger through `link`, its first. 0, or what the
 * attempt fails with; the session is then of no use.
 */
int kvpool_resume_claim(struct kvpool_session *session, struct kvpool_link *link, uint64_t spin_ns,
			struct kvpool_deadline *deadline, struct kvpool_failure *failure);

#endif
