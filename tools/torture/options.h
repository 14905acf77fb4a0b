/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-torture. Pure but for messages; main thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_OPTIONS_H
#define KVPOOL_TOOLS_TORTURE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct kvpool_torture_options {
	bool json;
	uint64_t seed;
	uint32_t seconds;
	uint32_t clients;
	uint32_t daemon_kill_every; /* seconds; 0: never */
	uint32_t blow_ms;           /* between two blows at clients, on average */
	const char *daemon;         /* borrowed: argv; NULL: find it */
};

enum {
	KVPOOL_TORTURE_OPTIONS_E_USAGE = 1, /* the message is printed */
	KVPOOL_TORTURE_OPTIONS_SHOWN = 2,   /* --help or --version was printed */
};

int kvpool_torture_options_read(int argc, char **argv, struct kvpool_torture_options *out);

#endif
