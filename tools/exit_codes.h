/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exit codes of kvpool's tools. They are documented in each tool's --help and stay as they are.
 *
 * Holds constants only: no object, no state.
 */
#ifndef KVPOOL_TOOLS_EXIT_CODES_H
#define KVPOOL_TOOLS_EXIT_CODES_H

enum kvpool_exit {
	KVPOOL_EXIT_FINE = 0,
	KVPOOL_EXIT_FAILURE = 1,
	KVPOOL_EXIT_USAGE = 2,       /* the command line, or an input file that it names */
	KVPOOL_EXIT_UNREACHABLE = 3, /* no daemon answers */
	KVPOOL_EXIT_REFUSED = 4,     /* a daemon answers: not to you, or not that */
	KVPOOL_EXIT_DEGRADED = 5,    /* it serves, but not as it should */
	KVPOOL_EXIT_VERSION = 6,     /* it speaks another version */
};

#endif
