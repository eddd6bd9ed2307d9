/* Mistakes: the misclassified samples of an evaluation, the most confident mistake first, as CSV and, in a run
 * directory, also as a sheet of images that the report shows. */
#pragma once

#include "towers/replica/tower_process.h"

#define MISTAKES_CSV "mistakes.csv"
#define MISTAKES_SHEET "mistakes.jpg"

/* Sample numbers by descending probability of the predicted class; *ids [*found] is owned by the caller. */
NODISCARD Status mistakes_find(const EvalSample *samples, int64_t count, int64_t **ids, int64_t *found);
/* A header, then "sample,file,label,predicted,probability,loss" for each of `ids`; label and predicted are names if the
 * data has any, else numbers. If samples have any number of classes (`scores` of `classes` each, those of the network,
 * ledger.h; else NULL), label and predicted are all classes of the sample and all with a probability above 0.5, joined
 * by ";", and the probability is that of the surest of the wrong answers. */
void mistakes_print(const Source *source, const EvalSample *samples, const float *scores, int classes,
                    const int64_t *ids, int64_t count, FILE *to);
/* Write RUN/mistakes.csv and RUN/mistakes.jpg: the most confident SHEET_IMAGES mistakes of the last evaluation; with
 * `best` also for TensorBoard; and RUN/predictions.csv: the class of each of its images and the one predicted. By rank 0.
 * Read and write errors are reported in log.txt and do not end the run. */
void mistakes_write(TowerProcess *p, bool best);

/* The name of a class for CSV and captions, or its number if it has no name. */
const char *class_text(const SourceInfo *info, int32_t class, char number[16]);
