/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sign of life for the service manager: see watchdog.h.
 */
#include "daemon/watchdog.h"

#include "daemon/clock.h"
#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

static void due(void *cookie, uint32_t events)
{
	const struct kvpool_watchdog *w = cookie;

	(void)events;
	kvpool_notify_alive();
	kvpool_source_set_timer(w->timer, kvpool_clock_ns() + w->interval_ns);
}

int kvpool_watchdog_start(struct kvpool_watchdog *w, struct kvpool_loop *loop)
{
	uint64_t us;
	int r;

	/* Variables that make no sense ask for nothing. */
	if (sd_watchdog_enabled(1, &us) <= 0)
		return 0;
	r = kvpool_loop_add_timer(loop, due, w, &w->timer);
	if (r != 0)
		return r;
	w->interval_ns = us * KVPOOL_NS_PER_US / 2;
	due(w, 0);
	return 0;
}

void kvpool_watchdog_stop(struct kvpool_watchdog *w)
{
	kvpool_source_remove(w->timer);
	w->timer = NULL;
}
