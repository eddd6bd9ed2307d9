/* The runs command: one row for each run directory in a folder, as a table or as JSON. Reads records only, and asks the
 * lock of a run whether its trainer lives. */
#ifndef TOWERS_INCEPTION_REPORT_RUNS_H
#define TOWERS_INCEPTION_REPORT_RUNS_H

#include <stdbool.h>
#include <stdio.h>

#include "inception/options/options.h"

/* Lists `folder` if it is a run, else the runs directly in it, in this order (best score and longest time first). A run
 * whose records cannot be read is a row that says why. Errors: ERR_ARG if the folder cannot be read or has no run. */
NODISCARD Status runs_list(const char *folder, RunOrder order, bool json, FILE *to);

#endif
