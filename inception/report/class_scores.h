/* Precision, recall and F1 of each class of an evaluation. Recall: the share of the samples of a class that were
 * predicted as this class. Precision: the share of the samples predicted as a class that belong to it. F1: the
 * harmonic mean of both, 2 right / (samples + taken). */
#ifndef TOWERS_INCEPTION_REPORT_CLASS_SCORES_H
#define TOWERS_INCEPTION_REPORT_CLASS_SCORES_H

#include <stdint.h>

typedef struct ClassScore {
    int class;
    int64_t samples, taken, right;
    double average; /* average precision (average_precision.h); only if samples have any number of classes */
} ClassScore;

/* From 0 to 1; NaN without a sample to measure it on. */
double class_recall(const ClassScore *score);
double class_precision(const ClassScore *score);
double class_f1(const ClassScore *score);

/* The lowest recall first. */
void class_scores_sort(ClassScore *scores, int count);

#endif
