/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-replay.
 *
 * Pure but for messages on stderr; main thread.
 */
#ifndef KVPOOL_TOOLS_REPLAY_OPTIONS_H
#define KVPOOL_TOOLS_REPLAY_OPTIONS_H

#include "tools/replay/trace.h"

#include <stdbool.h>
#include <stdint.h>

/* Strings are borrowed from the command line; NULL: not given. */
struct kvpool_replay_options {
	const char *trace;
	const char *socket;
	const char *against; /* an earlier report, for the table */
	uint32_t processes;
	uint64_t block_bytes;
	uint64_t pool_bytes; /* of all pools together */
	bool private_pools;
	bool json;
	struct kvpool_trace_options read;
};

enum {
	KVPOOL_REPLAY_OPTIONS_E_USAGE = 1, /* said on stderr what is wrong */
	KVPOOL_REPLAY_OPTIONS_SHOWN = 2,   /* --help or --version: printed, nothing else to do */
};

/* 0 or one of the above. */
int kvpool_replay_options_read(int argc, char **argv, struct kvpool_replay_options *out);

#endif
