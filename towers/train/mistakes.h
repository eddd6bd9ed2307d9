/* Mistakes: the samples of an evaluation whose class was not the most probable one, the most confident mistake first; as CSV
 * and, in a run directory, as a sheet of pictures that the report shows. */
#ifndef TOWERS_TRAIN_MISTAKES_H
#define TOWERS_TRAIN_MISTAKES_H

#include "towers/replica/tower_process.h"

#define MISTAKES_CSV "mistakes.csv"
#define MISTAKES_SHEET "mistakes.jpg"

/* Sample numbers, by falling probability of the class that was predicted; *ids is the caller's, [*found]. */
NODISCARD Status mistakes_find(const EvalSample *samples, int64_t count, int64_t **ids, int64_t *found);
/* A header, then "sample,file,label,predicted,probability,loss" for each of `ids`; label and predicted are names where the
 * data has any, else numbers. */
void mistakes_print(const Source *source, const EvalSample *samples, const int64_t *ids, int64_t count, FILE *to);
/* RUN/mistakes.csv and RUN/mistakes.jpg: the most confident SHEET_PICTURES of the last evaluation; of the best one so far
 * also for TensorBoard. By rank 0. What cannot be read or written is told in log.txt and ends nothing. */
NODISCARD Status mistakes_write(TowerProcess *p, bool best);

/* The name of a class for CSV and captions, its number if it has none. */
const char *class_text(const SourceInfo *info, int32_t class, char number[16]);

#endif
