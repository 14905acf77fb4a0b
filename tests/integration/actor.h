/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that plays a client in a test: it is told to go on, it says when it is where it should
 * be, and it can be stopped and killed at any point of that.
 *
 * Owned by the test that made it, and dies with it. Functions fail the test by themselves.
 */
#ifndef KVPOOL_TESTS_ACTOR_H
#define KVPOOL_TESTS_ACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct kvpool_actor {
	pid_t pid;
	int from; /* owned: what it says */
	int to;   /* owned: what it is told; -1 once nothing more comes */
};

/* `in`: what it is told; `out`: where it speaks. When it returns, the process sleeps until killed.
 */
typedef void kvpool_actor_fn(int in, int out, void *cookie);

void kvpool_actor_begin(kvpool_actor_fn *play, void *cookie, struct kvpool_actor *out);

/* ---- for the test ---- */

/* The next n bytes that it says. */
void kvpool_actor_hear(const struct kvpool_actor *actor, void *bytes, size_t n);

/* One byte: go on. */
void kvpool_actor_tell(const struct kvpool_actor *actor);

/* Nothing more will come: whoever reads there sees the end. */
void kvpool_actor_dismiss(struct kvpool_actor *actor);

void kvpool_actor_stop(const struct kvpool_actor *actor); /* returns once it is stopped */
void kvpool_actor_resume(const struct kvpool_actor *actor);

/* SIGKILL, and reaps. Children of the actor that read what it is told live on. */
void kvpool_actor_kill(struct kvpool_actor *actor);

/* ---- for the actor ---- */

void kvpool_actor_say(int out, const void *bytes, size_t n);

/* Until it is told to go on. False: nothing more comes. */
bool kvpool_actor_wait(int in);

#endif
