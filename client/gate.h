/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock that may be held while something slow is waited for: who wants in gives up at a deadline.
 *
 * Owned by the object that it guards; any thread.
 */
#ifndef KVPOOL_CLIENT_GATE_H
#define KVPOOL_CLIENT_GATE_H

#include "client/deadline.h"

#include <pthread.h>

struct kvpool_gate {
	pthread_mutex_t mutex; /* held for a few instructions only */
	pthread_cond_t opened; /* on CLOCK_MONOTONIC */
	bool closed;           /* guarded by mutex */
};

int kvpool_gate_init(struct kvpool_gate *gate); /* -ENOMEM, -EAGAIN */
void kvpool_gate_fini(struct kvpool_gate *gate);

/* 0, or -ETIMEDOUT. */
int kvpool_gate_enter(struct kvpool_gate *gate, struct kvpool_deadline *deadline);
void kvpool_gate_leave(struct kvpool_gate *gate);

#endif
