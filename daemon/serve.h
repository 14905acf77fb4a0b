/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request: checked on its private copy, carried out on the cache, answered.
 *
 * Stateless; service thread only. Makes no system call, except a doorbell for a client that sleeps
 * and what the cache needs to grow.
 */
#ifndef KVPOOL_DAEMON_SERVE_H
#define KVPOOL_DAEMON_SERVE_H

#include "shm/wire.h"

struct kvpool_channel;

/* `request` is a private copy. Every operation but RELEASE gets exactly one reply, now or later. */
void kvpool_serve(struct kvpool_channel *channel, const struct kvpool_request *request);

#endif
