/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client process under torture: reads, writes, holds, forgets, at random, until it is killed or
 * told to stop; and one that fills the pool and reads all of it.
 *
 * Called in a child of fork(), which ends with what is returned. One thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_CLIENT_H
#define KVPOOL_TOOLS_TORTURE_CLIENT_H

#include "tools/torture/books.h"

#include <stdint.h>

struct kvpool_torture_client {
	struct kvpool_books *books; /* borrowed */
	const char *socket;         /* borrowed */
	uint32_t number;            /* its slot in the books */
	uint64_t seed;
};

/* Until books->stop. Returns the exit code. */
int kvpool_torture_client_run(const struct kvpool_torture_client *spec);

/* Every chain once: reads what is there and writes the rest. Returns the exit code. */
int kvpool_torture_client_fill(const struct kvpool_torture_client *spec);

#endif
