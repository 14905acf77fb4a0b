/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives every process that is killed: which versions of which block were begun, offered and
 * given up, what each client counted, what was found wrong; and the parent's word to the clients.
 *
 * One anonymous shared mapping, made by the parent before it forks. All but new and free may be
 * called from any process; nothing is ever locked.
 */
#ifndef KVPOOL_TOOLS_TORTURE_BOOKS_H
#define KVPOOL_TOOLS_TORTURE_BOOKS_H

#include "shm/base.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_BOOKS_CLIENTS_MAX  64u
#define KVPOOL_BOOKS_VERSIONS_MAX (1u << 26)
#define KVPOOL_BOOKS_FAULTS_MAX   16u
#define KVPOOL_BOOKS_TEXT_BYTES   400u

enum kvpool_version {
	KVPOOL_VERSION_BEGUN = 1,   /* being written: must not be found */
	KVPOOL_VERSION_OFFERED = 2, /* its last commit is about to be asked for: may be found */
	KVPOOL_VERSION_TAKEN = 3,   /* the daemon said that it has it */
	KVPOOL_VERSION_DROPPED = 4, /* is about to be aborted: must not be found */
};

/* What a client is told to do to itself, once. */
enum kvpool_order {
	KVPOOL_ORDER_NONE = 0,
	KVPOOL_ORDER_EXIT_COPYING,  /* leave with half of a block written */
	KVPOOL_ORDER_EXIT_HOLDING,  /* leave with leases */
	KVPOOL_ORDER_FORK_AND_STAY, /* the child looks at what it inherited and leaves */
	KVPOOL_ORDER_FORK_AND_EXIT, /* the child survives it for a moment, its descriptors too */
	KVPOOL_ORDER_COUNT,
};

struct kvpool_books_client {
	_Atomic uint32_t order;   /* enum kvpool_order; set by the parent, cleared by the client */
	_Atomic uint32_t resting; /* makes no call and holds nothing */
	_Atomic uint32_t held;    /* blocks that it leases now */
	_Atomic uint64_t checked; /* blocks of which every byte was looked at */
	_Atomic uint64_t stored;  /* blocks that the daemon took */
	_Atomic uint64_t missed;  /* calls that failed as documented */
	_Atomic uint64_t odd;     /* calls that failed in another way */
	_Atomic uint64_t wrong;   /* bytes */
};

struct kvpool_books {
	_Atomic uint32_t stop; /* clients leave */
	_Atomic uint32_t rest; /* clients rest as soon as they hold nothing */
	_Atomic uint32_t versions_n;
	_Atomic uint32_t faults_n;
	char faults[KVPOOL_BOOKS_FAULTS_MAX][KVPOOL_BOOKS_TEXT_BYTES];
	struct kvpool_books_client clients[KVPOOL_BOOKS_CLIENTS_MAX];
	_Atomic uint64_t versions[]; /* key << 8 | enum kvpool_version */
};

/* -ENOMEM. */
int kvpool_books_new(struct kvpool_books **out);
void kvpool_books_free(struct kvpool_books *books); /* takes NULL */

/* A new version of a block, BEGUN. 0: the books are full. */
uint32_t kvpool_books_begin(struct kvpool_books *books, uint64_t key);
void kvpool_books_set(struct kvpool_books *books, uint32_t version, enum kvpool_version state);

/* Whether somebody wrote this version for this key and offered it. */
bool kvpool_books_may_be_found(const struct kvpool_books *books, uint32_t version, uint64_t key);

/* A sentence about something that is wrong; the first ones are kept, all are counted. */
void kvpool_books_fault(struct kvpool_books *books, const char *format, ...) KVPOOL_PRINTF(2, 3);

#endif
