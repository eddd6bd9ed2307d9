/* The compare command: how the losses of a run's towers relate to mean_loss (loss_truth.h) and whether runs differ
 * (run_difference.h), as tables or as JSON. Reads records only. */
#pragma once

#include "kernels/status.h"

/* Compare the first run with each of the others. `page`: where to write compare_page.h's; NULL: nowhere. Errors: ERR_ARG if there
 * is no run; ERR_IO; those of run_read and loss_truth. */
NODISCARD Status compare_runs(char *const *paths, int count, bool json, const char *page, FILE *to);
