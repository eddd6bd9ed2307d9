/* The parts of a report about towers that wait and batch norm, which a comparison has, too, and about data: how long the run waited for data and why, which images could not be decoded, the
 * first batch as the network saw it, and the most confident mistakes; and about restarts. There is no section
 * for what the run has no file of. Every list and image is bounded, whatever the files contain. */
#pragma once

#include <jansson.h>

#include "towers/record/run_read.h"

/* Class maps of mistakes: so many, in RUN/cam/00000k-mistake.png, and their list. */
#define MISTAKE_MAP "mistake"
#define MISTAKE_MAPS_CSV "cam.csv"
enum { MISTAKE_MAPS = 4 };

void section_open(FILE *to, const char *title);                   /* ends with </section> */
void cell_write(FILE *to, const char *classes, const char *text); /* of a table; "n": a number, "o": in gray */
void generated_html(const Run *run, FILE *to);
void mistakes_html(const Run *run, FILE *to); /* and their class activation maps */
void data_html(const Run *run, FILE *to);     /* the first batch, the survey, the loader, damaged samples */
void restarts_html(const Run *run, FILE *to);

/* waiting.c: the time that each tower needs for each activity of a step, and the towers that delayed the others (named during
 * the run by towers/record/straggler.h). */
void waiting_text(const Run *run, FILE *to); /* one line per stretch of steps with a slow tower */
void waiting_html(const Run *run, FILE *to); /* a section with a table of activities, and those lines */
json_t *waiting_json(const Run *run);        /* the stretches; owned by the caller */

/* norm_drift.c: how far the batch-norm statistics of a run's towers have drifted apart (norms.jsonl), at its last record: each
 * tower normalizes with its own batches, so a small drift is noise; a large one shows that the towers see different data. */
void norm_drift_text(const Run *run, FILE *to); /* one line, or nothing if there is no record */
void norm_drift_html(const Run *run, FILE *to); /* a section with the layers that drifted most, or nothing */
json_t *norm_drift_json(const Run *run);        /* null if there is no record; owned by the caller */
