/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named moments at which a test has the daemon die as by SIGKILL: between two steps of a change
 * that the next life must understand.
 *
 * Built in with -Dkill_points=true only; otherwise nothing is left of them. No object; any thread
 * of the daemon. Where $KVPOOL_DIE_AT names the point and the file $KVPOOL_DIE_FILE can be removed,
 * the process is killed: once, whatever life reaches it. tests/integration/test_kill_points.c walks
 * them all.
 */
#ifndef KVPOOL_DAEMON_KILL_POINT_H
#define KVPOOL_DAEMON_KILL_POINT_H

#define KVPOOL_KILL_POINTS(X) \
	X(STATE_MADE)         \
	X(STATE_STORED)       \
	X(SEGMENT_MADE)       \
	X(SEGMENT_NOTED)      \
	X(SEGMENT_STORED)     \
	X(SEGMENT_FILLED)     \
	X(SEGMENT_LENT)       \
	X(SEGMENT_ADDED)      \
	X(SEGMENT_TAKEN)      \
	X(SEGMENT_RELEASED)   \
	X(SEGMENT_WIPED)      \
	X(SEGMENT_REMOVED)    \
	X(CATALOG_MADE)       \
	X(CATALOG_STORED)     \
	X(CATALOG_BEGUN)      \
	X(NOTES_STORED)       \
	X(CLIENT_NOTED)       \
	X(MEMBER_STORED)      \
	X(MEMBER_COUNTED)     \
	X(MEMBER_UNCOUNTED)   \
	X(CLIENT_ENDED)       \
	X(CLIENT_FREED)       \
	X(DOMAIN_FREED)       \
	X(REQUEST_SERVED)     \
	X(REQUEST_GRANTED)    \
	X(REQUEST_ANSWERED)   \
	X(REQUEST_SETTLED)    \
	X(REQUEST_RELEASED)   \
	X(KEPT_SORTED)        \
	X(SEGMENTS_ADOPTED)   \
	X(CATALOG_ADOPTED)    \
	X(SEGMENTS_CLAIMED)   \
	X(CLIENTS_ADOPTED)    \
	X(PAST_ENDED)         \
	X(GHOST_DONE)         \
	X(CLIENT_BACK)        \
	X(CLAIMS_TAKEN)       \
	X(CLAIMS_ENDED)

#define KVPOOL_KILL_POINT_ENUM(name) KVPOOL_KILL_##name,

enum kvpool_kill_point {
	KVPOOL_KILL_POINTS(KVPOOL_KILL_POINT_ENUM) KVPOOL_KILL_POINT_COUNT
};

#ifdef KVPOOL_WITH_KILL_POINTS
void kvpool_kill_point(enum kvpool_kill_point point);
#else
static inline void kvpool_kill_point(enum kvpool_kill_point point)
{
	(void)point;
}
#endif

#endif
