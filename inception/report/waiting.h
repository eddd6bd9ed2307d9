/* Waiting: what the records of a run say about time: how long each tower needs for each activity of a step, and which one
 * the others had to wait for (towers/record/straggler.h names it while the run goes on). */
#ifndef TOWERS_INCEPTION_REPORT_WAITING_H
#define TOWERS_INCEPTION_REPORT_WAITING_H

#include <jansson.h>
#include <stdio.h>

#include "towers/record/run_read.h"

void waiting_text(const Run *run, FILE *to); /* a line for every stretch of steps with a slow tower */
void waiting_html(const Run *run, FILE *to); /* a table of activities, and those lines */
json_t *waiting_json(const Run *run);        /* the stretches; owned by the caller */

#endif
