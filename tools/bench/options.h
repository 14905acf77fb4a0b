/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of kvpool-bench. Pure functions but for messages on stderr; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_OPTIONS_H
#define KVPOOL_TOOLS_BENCH_OPTIONS_H

#include "tools/bench/bench.h"

enum {
	KVPOOL_BENCH_OPTIONS_E_USAGE = 1, /* a wrong command line: the message is printed */
	KVPOOL_BENCH_OPTIONS_E_HELP = 2,  /* --help: the caller prints the help */
};

/* Reads argv[1..] (argv[0] is the command's name). 0 or one of the above. */
int kvpool_bench_options_parse(const struct kvpool_bench_command *command, int argc, char **argv,
			       struct kvpool_bench_options *out);

/* Prints the options that the command takes. */
void kvpool_bench_options_help(const struct kvpool_bench_command *command);

#endif
