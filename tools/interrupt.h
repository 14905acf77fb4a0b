/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether somebody asked the tool to end (SIGINT, SIGTERM, SIGHUP), so that it can clean up first.
 *
 * Main thread. A forked child calls kvpool_interrupt_forget(); exec forgets by itself.
 */
#ifndef KVPOOL_TOOLS_INTERRUPT_H
#define KVPOOL_TOOLS_INTERRUPT_H

#include <stdbool.h>

void kvpool_interrupt_watch(void);
void kvpool_interrupt_forget(void);

bool kvpool_interrupt_asked(void);

/* Sleeps for a moment, or until asked. What waits for another process polls with this. */
void kvpool_interrupt_pause(unsigned int ms);

#endif
