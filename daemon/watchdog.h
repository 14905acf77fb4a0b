/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sign of life for the service manager, from the loop itself: a loop that is stuck gives none,
 * and the daemon is started again. Where nobody asked for it (WatchdogSec=) nothing runs.
 *
 * Owned by main(); service thread only.
 */
#ifndef KVPOOL_DAEMON_WATCHDOG_H
#define KVPOOL_DAEMON_WATCHDOG_H

#include "daemon/loop.h"

#include <stdint.h>

struct kvpool_watchdog {
	struct kvpool_source *timer; /* owned; NULL: nobody asked */
	uint64_t interval_ns;        /* half of what the manager waits */
};

/* -ENOMEM. */
int kvpool_watchdog_start(struct kvpool_watchdog *w, struct kvpool_loop *loop);

/* Before the loop ends. One that did not start is left alone. */
void kvpool_watchdog_stop(struct kvpool_watchdog *w);

#endif
