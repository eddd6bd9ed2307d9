/* Runs ranked by their best score, each compared with the best by a test. Of runs with several phases by the first: losses
 * of several cannot be ranked together. */
#pragma once

#include "towers/files/json.h"
#include "towers/record/run_read.h"

/* Into `root` under "ranking", or as text if that is NULL. */
NODISCARD Status ranking_emit(Run *const *runs, int count, json_t *root, FILE *to);
