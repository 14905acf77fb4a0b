/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-torture: kills clients and daemons of a pool at random and checks every byte that is read.
 *
 * Reads the command line, runs the trial, reports. One thread; the objects are beside this file.
 */
#include "tools/exit_codes.h"
#include "tools/interrupt.h"
#include "tools/torture/options.h"
#include "tools/torture/report.h"
#include "tools/torture/trial.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct kvpool_torture_options options;
	struct kvpool_trial trial;
	bool fine = false;
	int r = kvpool_torture_options_read(argc, argv, &options);

	if (r != 0)
		return r == KVPOOL_TORTURE_OPTIONS_SHOWN ? KVPOOL_EXIT_FINE : KVPOOL_EXIT_USAGE;
	kvpool_interrupt_watch();
	signal(SIGPIPE, SIG_IGN);
	r = kvpool_trial_run(&options, &trial);
	if (r == 0) {
		fine = kvpool_torture_report_fine(&trial);
		r = kvpool_torture_report_print(&trial);
		if (r < 0)
			fprintf(stderr, "kvpool-torture: cannot write the report: %s\n",
				strerror(-r));
	}
	kvpool_trial_end(&trial, r != 0 || !fine);
	return r == 0 && fine ? KVPOOL_EXIT_FINE : KVPOOL_EXIT_FAILURE;
}
