/* Frechet distance between two sets of feature vectors, each described by a Gaussian with their mean m and covariance S
 * (Heusel et al., "GANs Trained by a Two Time-Scale Update Rule", arXiv:1706.08500):
 *   |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)).
 * The trace of the root is the sum of the roots of the eigenvalues of S1^(1/2) S2 S1^(1/2), which is symmetric, unlike
 * S1 S2. The value is biased upward by about 1 / (number of images): compare only values of equally many images. */
#pragma once

#include "inception/quality/kid.h"

typedef struct Moments {
    int32_t d;
    double *mean, *covariance; /* owned: [d] and [d][d], divided by count - 1 */
} Moments;

/* Errors: ERR_ARG for fewer than two vectors, ERR_NUMERIC for features that are not finite, ERR_MEMORY. */
NODISCARD Status moments_compute(const FeatureSet *set, Moments *moments);
void moments_free(Moments *moments); /* a zeroed one is fine */

/* Errors: ERR_ARG for different lengths, ERR_MEMORY, ERR_NUMERIC if LAPACK finds no eigenvalues. */
NODISCARD Status frechet_distance(const Moments *a, const Moments *b, double *distance);
