/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came of a trial, as JSON or as lines. No state; main thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_REPORT_H
#define KVPOOL_TOOLS_TORTURE_REPORT_H

#include "tools/torture/trial.h"

/* Whether nothing was wrong, leaked or lost. */
bool kvpool_torture_report_fine(const struct kvpool_trial *trial);

/* To stdout, and what was wrong in words to stderr. -EIO, -ENOMEM. */
int kvpool_torture_report_print(struct kvpool_trial *trial);

#endif
