/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client processes as their parent sees them: started, stopped, continued, killed, reaped, and
 * started again in the same slot of the books.
 *
 * Owned by the parent; main thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_FLEET_H
#define KVPOOL_TOOLS_TORTURE_FLEET_H

#include "tools/process.h"
#include "tools/torture/books.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvpool_fleet {
	struct kvpool_books *books;        /* borrowed */
	const char *socket;                /* borrowed */
	struct kvpool_process *supervisor; /* borrowed: not one to be reaped here */
	uint64_t *random;                  /* borrowed */
	uint32_t n;
	uint64_t started;
	uint64_t deaths;   /* of whatever kind, before they were told to leave */
	uint64_t failures; /* ended in a way that nobody caused */
	struct kvpool_fleet_client {
		pid_t pid;            /* 0: not there */
		uint64_t continue_ns; /* not 0: stopped until then */
		bool doomed;          /* was told to die in one way or another */
	} clients[KVPOOL_BOOKS_CLIENTS_MAX];
};

/* Reaps who has ended, starts who is missing unless they are to stop, continues who is due. */
void kvpool_fleet_tend(struct kvpool_fleet *fleet);

void kvpool_fleet_kill(struct kvpool_fleet *fleet, uint32_t number);
void kvpool_fleet_pause(struct kvpool_fleet *fleet, uint32_t number, uint64_t ns);
void kvpool_fleet_order(struct kvpool_fleet *fleet, uint32_t number, enum kvpool_order order);

/* Whether somebody is stopped, who may hold something. */
bool kvpool_fleet_any_paused(const struct kvpool_fleet *fleet);

/* Until all that can run rests; false where that takes too long. */
bool kvpool_fleet_rest(struct kvpool_fleet *fleet);
void kvpool_fleet_resume(struct kvpool_fleet *fleet);

/* Has all of them leave; kills who does not. */
void kvpool_fleet_end(struct kvpool_fleet *fleet);

/* One client that reads all there is and fills the pool. False where that fails. */
bool kvpool_fleet_fill(struct kvpool_fleet *fleet);

#endif
