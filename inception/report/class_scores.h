/* Precision, recall and F1 of each class of an evaluation. Recall: the share of the samples of a class that were
 * predicted as this class. Precision: the share of the samples predicted as a class that belong to it. F1: the
 * harmonic mean of both, 2 right / (samples + taken). */
#pragma once

#include "towers/record/run_read.h"
#include "towers/replica/ledger.h"

typedef struct ClassScore {
    int class;
    int64_t samples, taken, right;
    double average; /* average precision (average_precision.h); only if samples have any number of classes */
} ClassScore;

/* By the confusion matrix of a run. */
ClassScore class_score(const Run *run, int class);
/* From 0 to 1; NaN without a sample to measure it on. */
double class_recall(const ClassScore *score);
double class_precision(const ClassScore *score);
double class_f1(const ClassScore *score);

enum { RELIABILITY_BINS = 15 };
typedef struct ReliabilityBin {
    int64_t answers, right;
    double sure; /* sum of the probabilities */
} ReliabilityBin;

/* How well the probabilities are those of being right: the expected calibration error (Guo et al., "On Calibration of
 * Modern Neural Networks", 2017), with bins of equal width, each with its upper end: sum of |accuracy - mean
 * probability| of each, weighted by its samples. NaN without samples that have a label. `bins` receives what a reliability
 * diagram shows. */
double calibration_error(const EvalSample *samples, int64_t count, ReliabilityBin bins[RELIABILITY_BINS]);
/* For two classes with the probabilities prob[count][2], where class 1 is the positive one: the area under the ROC
 * curve, and average precision, which is the area under the precision-recall curve without interpolation: scikit-learn's
 * roc_auc_score and average_precision_score. NaN if one of the classes has no samples. Errors: ERR_MEMORY. */
NODISCARD Status binary_curves(const EvalSample *samples, const float *prob, int64_t count, double *roc_auc,
                               double *average_precision);

/* The lowest recall first. */
void class_scores_sort(ClassScore *scores, int count);
