/* Kernel inception distance (Binkowski et al., "Demystifying MMD GANs", arXiv:1801.01401): the squared maximum mean
 * discrepancy between two sets of feature vectors with the kernel k(x, y) = (x . y / d + 1)^3. The estimator is unbiased,
 *   sum over i != j of (k(x_i, x_j) + k(y_i, y_j)) / (m (m - 1)) - 2 sum over i, j of k(x_i, y_j) / m^2,
 * so that it is zero on average, and may be negative, for two samples of one distribution. It is computed for random
 * subsets of m vectors; the result is the mean over the subsets and their standard deviation. */
#pragma once

#include "kernels/base/status.h"

/* Vectors of `d` numbers, one after another. Borrowed. */
typedef struct FeatureSet {
    const float *at; /* [count][d] */
    int64_t count;
    int32_t d;
} FeatureSet;

typedef struct KidConfig {
    int subsets;   /* usually 100 */
    int64_t size;  /* m, usually 1000; at most as many as the smaller set has */
    uint64_t seed; /* determines the subsets: the same seed gives the same subsets */
} KidConfig;

typedef struct Kid {
    double mean, deviation; /* over the subsets; the deviation divides by their number */
    int subsets;
    int64_t size;
} Kid;

/* Subsets are drawn without replacement. Errors: ERR_ARG for vectors of different lengths or fewer than two of them,
 * ERR_NUMERIC for features that are not finite, ERR_MEMORY. */
NODISCARD Status kid_compute(const FeatureSet *x, const FeatureSet *y, const KidConfig *config, Kid *kid);
