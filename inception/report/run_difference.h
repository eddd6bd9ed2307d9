/* Run difference: whether two runs differ in loss, test accuracy and speed, each at DIFFERENCE_LEVEL.
 *
 * Losses are paired by the images seen, not by step number: a step of 512 images in one run is compared with the 8
 * steps of 64 that saw the same images in the other. The later half of the images that both runs have seen is compared.
 * Speeds are compared as ratios, with outliers clamped to three deviations. KID of generated images is the last of each
 * run; its error is taken to be the deviation over subsets, which is larger than that of their mean. */
#pragma once

#include "inception/report/loss_truth.h"

/* A number of both runs. */
typedef struct Measured {
    double a, b;     /* NaN: unknown */
    Estimate change; /* b - a; unknown (p = 1, infinite error) if there are no data */
} Measured;

typedef struct RunDifference {
    Measured loss, accuracy, speed, kid;
    bool other_features;            /* KIDs of different features are not compared */
    int64_t steps;                  /* number of pairs of losses */
    int64_t images_from, images_to; /* range of images that these pairs cover; 0, 0 if there are none */
    bool same;                      /* all losses are equal bit for bit */
    char subjects[VERDICT_BYTES];   /* sentences if models, data, classes or formulas of the loss are others; else "" */
    char verdict[VERDICT_BYTES];
} RunDifference;

/* Number of images seen by the end of the run; mean loss over the images (from, to], NaN if there is none. */
NODISCARD Status run_images(const Run *run, int64_t *images);
NODISCARD Status run_loss_over(const Run *run, int64_t from, int64_t to, double *loss);

/* The mean of the finite values of a number of the steps from index `first` on, by its place in RunStep; NaN if there is none. */
double steps_mean(const Run *run, int64_t first, size_t place);

/* The last epoch with an evaluation, and the last KID of a run; NULL if there was none. */
const EpochRecord *run_last_test(const Run *run);
const RunKid *run_last_kid(const Run *run);

/* Whether two runs are of the same model, data and classes; `text` says what differs, "" if nothing: what differs between
 * runs of other subjects was not changed by a setting alone. */
bool subjects_equal(const Run *a, const Run *b, char text[VERDICT_BYTES]);

/* Settings by which the same outputs of a network have another loss, and their values when off: older runs lack some. */
enum { LOSS_FORMULAS = 5 };
extern const char *const loss_formulas[LOSS_FORMULAS][2];

NODISCARD Status run_difference(const Run *a, const Run *b, RunDifference *difference);
