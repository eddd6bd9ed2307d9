/* Precision, recall and F1 of each class of an evaluation. Of the samples of a class, recall is the share that was found; of
 * those taken for it, precision is the share that is right; F1 is their harmonic mean, 2 right / (samples + taken). */
#ifndef TOWERS_INCEPTION_REPORT_CLASS_SCORES_H
#define TOWERS_INCEPTION_REPORT_CLASS_SCORES_H

#include <stdint.h>

typedef struct ClassScore {
    int class;
    int64_t samples, taken, right;
} ClassScore;

/* From 0 to 1; NaN without a sample to measure it on. */
double class_recall(const ClassScore *score);
double class_precision(const ClassScore *score);
double class_f1(const ClassScore *score);

/* The lowest recall first. */
void class_scores_sort(ClassScore *scores, int count);

#endif
