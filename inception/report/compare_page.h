/* The page of a comparison: curves of all runs laid over each other, the runs with their lines, the settings that differ.
 * Self-contained, as the report of a run is. */
#pragma once

#include "towers/record/run_read.h"

/* Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status compare_page(Run *const *runs, int count, const char *path);
