/* Compare: the verb that says what the losses of a run's towers tell (loss_truth.h), and whether runs differ
 * (run_difference.h), as tables or as JSON. Nothing here trains. */
#ifndef TOWERS_INCEPTION_REPORT_COMPARE_H
#define TOWERS_INCEPTION_REPORT_COMPARE_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/status.h"

/* Runs after the first are compared with the first. ERR_ARG if there is none, errors of run_read and loss_truth. */
NODISCARD Status compare_runs(char *const *paths, int count, bool json, FILE *to);

#endif
