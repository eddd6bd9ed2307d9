/* The settings in which runs differ, from their args.yaml: a row for each setting, a column for each run. */
#pragma once

#include <jansson.h>

#include "inception/options/options.h"
#include "towers/record/run_read.h"

/* To root["settings"], {"lr": ["0.1", null, ...]}, or (root NULL) as a table; null and "-": not set. Names of runs and
 * what only concerns output are left out. Errors: ERR_MEMORY. */
NODISCARD Status setting_differences(const Run *const *runs, int count, json_t *root, FILE *to);
/* Whether two runs have the same settings, other than this one. */
bool settings_equal(const Run *a, const Run *b, OptionId but);
