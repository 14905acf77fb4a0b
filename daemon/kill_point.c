/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named moments at which a test has the daemon die: see kill_point.h.
 */
#include "daemon/kill_point.h"

#ifdef KVPOOL_WITH_KILL_POINTS

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME(name) #name,

static const char *const names[KVPOOL_KILL_POINT_COUNT] = {KVPOOL_KILL_POINTS(NAME)};

void kvpool_kill_point(enum kvpool_kill_point point)
{
	const char *at = getenv("KVPOOL_DIE_AT");
	const char *file = getenv("KVPOOL_DIE_FILE");

	if (at && file && strcmp(at, names[point]) == 0 && unlink(file) == 0)
		(void)kill(getpid(), SIGKILL);
}

#endif
