/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has not told a daemon yet: that closed handles have let go of what an earlier
 * life granted (RETIRE).
 *
 * A handle that is closed while no daemon is there cannot tell it, one that is closed a moment
 * before the daemon dies is perhaps not noticed, and the next life waits for this process to come
 * back or end. So whichever handle attaches there next, in another life, tells it. One list a
 * process, bounded: what is dropped from it costs the daemon patience, nothing else. Any thread; a
 * child of fork() starts with an empty one.
 */
#ifndef KVPOOL_CLIENT_UNTOLD_H
#define KVPOOL_CLIENT_UNTOLD_H

#include "client/session.h"

/* The session's handle is closed: through it this process holds nothing any more. */
void kvpool_untold_add(const struct kvpool_session *lost);

/* Tells the session's daemon all that is for it. Never waits; what cannot be told stays. */
void kvpool_untold_tell(struct kvpool_session *session);

#endif
