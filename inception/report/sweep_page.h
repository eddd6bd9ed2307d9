/* The page of a sweep: FOLDER/sweep.html with the settings as parallel coordinates, the curves of all runs, the options
 * that mattered and the ranking. Self-contained, as the report of a run is. */
#pragma once

#include "inception/report/sweep_table.h"

/* `result`: sorted by sweep_table. Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status sweep_page(const SweepResult *result);
