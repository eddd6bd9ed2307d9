/* Average precision of each class, for samples with any number of classes, and its mean over the classes (mAP).
 *
 * With the samples in the order of falling scores, and P and R the precision and recall of the first n of them (equal scores
 * together): AP = sum of (R[n] - R[n - 1]) P[n], without interpolation: scikit-learn's average_precision_score. The
 * mean is over the classes that some sample has; the others have no AP (NaN). */
#pragma once

#include "towers/data/sources/source.h"
#include "towers/replica/ledger.h"

/* `samples` and `scores` [count][classes] of all samples of `source`, which has several classes for a sample; damaged samples
 * (LABEL_NONE) are left out. `precision` [classes] receives AP, NULL is fine; *mean is NaN if no sample has a class.
 * A score of NaN counts as the lowest. ERR_MEMORY. */
NODISCARD Status average_precision(const Source *source, const EvalSample *samples, const float *scores, int classes,
                                   double *precision, double *mean);
