/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One life of a daemon in which one call fails: it starts, serves two clients, grows, dies and
 * adopts where it is supervised, and ends; or it says at the start why it does not.
 *
 * Owned by whoever calls; one thread, one run a process. It fails the test by itself.
 */
#ifndef KVPOOL_TESTS_FAULT_RUN_H
#define KVPOOL_TESTS_FAULT_RUN_H

#include "tests/integration/fault_shim.h"

#include <stdbool.h>
#include <stdint.h>

struct kvpool_fault_plan {
	enum kvpool_fault_call call;
	int error;
	const char *loop; /* as the setting of this name */
	bool old;         /* see struct kvpool_fault */
	bool supervised;
	uint64_t at;
};

enum kvpool_fault_outcome {
	KVPOOL_FAULT_NOT_HIT = 10, /* there are fewer calls */
	KVPOOL_FAULT_ENDED,        /* before it served anybody, and said why */
	KVPOOL_FAULT_RESTARTED,    /* a life ended so, and the supervisor began the next one */
	KVPOOL_FAULT_SERVED,
};

const char *kvpool_fault_name(enum kvpool_fault_call call);

/*
 * Has the shim loaded by what this process executes from now on, with its words in a new file at
 * `path`; returns them, mapped. kvpool_fault_unload(): no further process.
 */
struct kvpool_fault *kvpool_fault_load(const char *path);
void kvpool_fault_unload(void);

/* `seen`: how many such calls there were. */
enum kvpool_fault_outcome kvpool_fault_run(const struct kvpool_fault_plan *plan, uint64_t *seen);

#endif
