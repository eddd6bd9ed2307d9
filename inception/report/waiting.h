/* Waiting: from a run's records, the time that each tower needs for each activity of a step, and the towers that
 * delayed the others (named during the run by towers/record/straggler.h). */
#pragma once

#include <jansson.h>

#include "towers/record/run_read.h"

void waiting_text(const Run *run, FILE *to); /* one line per stretch of steps with a slow tower */
void waiting_html(const Run *run, FILE *to); /* a table of activities, and those lines */
json_t *waiting_json(const Run *run);        /* the stretches; owned by the caller */
