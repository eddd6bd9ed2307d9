/* Two other measures of generated images: the classes that a classifier predicts for them, compared with those of real
 * images, and the distance in pixels from each to the nearest image of the training set. */
#pragma once

#include "inception/quality/images.h"

/* Pearson's chi-squared statistic that two histograms come from one distribution:
 *   sum over classes of (sqrt(B / A) a - sqrt(A / B) b)^2 / (a + b),  A and B their totals.
 * `freedom` receives its degrees of freedom: classes that occur, less one. For equal distributions it is about
 * `freedom`, with a standard deviation of sqrt(2 freedom). 0 if one of the histograms is empty. */
double chi_squared(const int64_t *a, const int64_t *b, int classes, int *freedom);

typedef struct Neighbour {
    int64_t index;   /* in the set that was searched; -1: none yet */
    double distance; /* root of the mean squared difference of all pixels, on the scale 0 to 255 */
} Neighbour;
/* nearest[i] for every query: the nearest of the candidates, in pixels. The sets have images of one size. */
void neighbors_find(const Images *queries, const Images *candidates, Neighbour *nearest);
