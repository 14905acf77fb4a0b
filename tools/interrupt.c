/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether somebody asked the tool to end: see interrupt.h.
 *
 * One flag, written by the signal handler.
 */
#include "tools/interrupt.h"

#include "shm/base.h"

#include <signal.h>
#include <time.h>

static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};

static volatile sig_atomic_t asked;

static void note(int signal)
{
	(void)signal;
	asked = 1;
}

static void set(void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};
	size_t i;

	sigemptyset(&action.sa_mask);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(SIGNALS); i++)
		sigaction(SIGNALS[i], &action, NULL);
}

void kvpool_interrupt_watch(void)
{
	set(note);
}

void kvpool_interrupt_forget(void)
{
	set(SIG_DFL);
}

bool kvpool_interrupt_asked(void)
{
	return asked != 0;
}

void kvpool_interrupt_pause(unsigned int ms)
{
	struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};

	if (!asked)
		nanosleep(&pause, NULL);
}
