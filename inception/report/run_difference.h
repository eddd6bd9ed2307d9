/* Run difference: whether two runs differ in loss, test accuracy and speed, each at DIFFERENCE_LEVEL.
 *
 * Losses and speeds are paired by the images seen (run_images.h), not by step number: a step of 512 images in one run is
 * compared with the 8 steps of 64 that saw the same images in the other. The later half of the images that both runs have
 * recorded is compared. Speeds are compared as ratios, with outliers clamped to three deviations. Accuracies are compared image
 * by image where both runs have the predictions (paired_accuracy.h), else as shares of two sets of images. KID of generated
 * images is the last of each run; its error is taken to be the deviation over subsets, which is larger than that of their mean.
 *
 * What was not measured is ABSENT, and so is what is said of it: nothing. A loss that is not finite is no loss to compare with. */
#pragma once

#include "inception/report/loss_truth.h"
#include "inception/report/paired_accuracy.h"
#include "inception/report/run_images.h"

/* A number of both runs. */
typedef struct Measured {
    Number a, b;
    Estimate change; /* b - a */
} Measured;

typedef struct RunDifference {
    Measured loss, accuracy, speed, kid;
    bool multi_label;    /* accuracies are mAP, which has no test here */
    bool other_features; /* KIDs of different features are not compared */
    bool images_known;   /* else an older version recorded not all steps of a run, nor how many images they had */
    int64_t steps;       /* number of pairs of losses */
    int64_t images_from, images_to; /* range of images that these pairs cover; 0, 0 if there are none */
    int64_t a_lost, b_lost;         /* pairs in which the loss of a run is not finite: they are left out */
    PairedAccuracy paired;          /* .images is 0: accuracies are those of two sets of images */
    bool same;                      /* all losses are equal bit for bit */
    char subjects[VERDICT_BYTES];   /* sentences if models, data, classes or formulas of the loss are others; else "" */
    char verdict[VERDICT_BYTES];
} RunDifference;

/* The mean of the finite values of a number of the steps from index `first` on, by its place in RunStep; ABSENT if there is none. */
Number steps_mean(const Run *run, int64_t first, size_t place);

/* The last epoch with an evaluation, and the last KID of a run; NULL if there was none. */
const EpochRecord *run_last_test(const Run *run);
const RunKid *run_last_kid(const Run *run);

/* Whether two runs are of the same model, data and classes; `text` says what differs, "" if nothing: what differs between
 * runs of other subjects was not changed by a setting alone. */
bool subjects_equal(const Run *a, const Run *b, char text[VERDICT_BYTES]);
/* RunDifference.subjects alone: these sentences, and one about other formulas of the loss. */
void subjects_compare(const Run *a, const Run *b, char text[VERDICT_BYTES]);

/* Settings by which the same outputs of a network have another loss, and their values when off: older runs lack some. */
enum { LOSS_FORMULAS = 5 };
extern const char *const loss_formulas[LOSS_FORMULAS][2];

NODISCARD Status run_difference(const Run *a, const Run *b, RunDifference *difference);
