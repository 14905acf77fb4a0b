/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock with a deadline. See gate.h.
 *
 * Owned by the object that it guards; any thread.
 */
#include "client/gate.h"

#include <errno.h>

int kvpool_gate_init(struct kvpool_gate *gate)
{
	pthread_condattr_t attr;
	int r = pthread_condattr_init(&attr);

	if (r != 0)
		return -r;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	r = pthread_cond_init(&gate->opened, &attr);
	pthread_condattr_destroy(&attr);
	if (r != 0)
		return -r;
	r = pthread_mutex_init(&gate->mutex, NULL);
	if (r != 0) {
		pthread_cond_destroy(&gate->opened);
		return -r;
	}
	gate->closed = false;
	return 0;
}

void kvpool_gate_fini(struct kvpool_gate *gate)
{
	pthread_mutex_destroy(&gate->mutex);
	pthread_cond_destroy(&gate->opened);
}

int kvpool_gate_enter(struct kvpool_gate *gate, struct kvpool_deadline *deadline)
{
	struct timespec end =
		kvpool_deadline_timespec(kvpool_deadline_fix(deadline, kvpool_clock_ns()));
	int r = 0;

	pthread_mutex_lock(&gate->mutex);
	while (gate->closed && r == 0)
		r = pthread_cond_timedwait(&gate->opened, &gate->mutex, &end);
	if (!gate->closed) {
		gate->closed = true;
		r = 0;
	}
	pthread_mutex_unlock(&gate->mutex);
	return -r;
}

void kvpool_gate_leave(struct kvpool_gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	gate->closed = false;
	pthread_cond_signal(&gate->opened);
	pthread_mutex_unlock(&gate->mutex);
}
