/* The steps of a run, and the terms of its phases: the rows of metrics.jsonl. A row needs the NEEDED keys of metrics.def,
 * of their types, with arrays of one element per tower (or empty if unknown). */
#pragma once

#include "towers/record/run_lines.h"
#include "towers/record/run_read.h"

/* Of a step and its images, multiplied: the sum of all rows' images then fits an integer. */
#define SEEN_LIMIT 1e17

NODISCARD Status step_add(Run *run, const RunLines *lines, json_t *object);
