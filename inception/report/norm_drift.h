/* How far the batch-norm statistics of a run's towers have drifted apart (norms.jsonl), at its last record: each tower
 * normalizes with its own batches, so a small drift is noise; a large one shows that the towers see different data. */
#pragma once

#include <jansson.h>

#include "towers/record/run_read.h"

void norm_drift_text(const Run *run, FILE *to); /* one line, or nothing if there is no record */
void norm_drift_html(const Run *run, FILE *to); /* a table of the layers that drifted most */
json_t *norm_drift_json(const Run *run);        /* null if there is no record; owned by the caller */
