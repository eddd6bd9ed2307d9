/* Paired accuracy: which of two runs is right for each image of the same evaluation, from the predictions.csv of both.
 *
 * Accuracies on the same images are not independent: most images are easy or hard for both. Whether one run is better shows
 * in the images for which only one of them is right (McNemar, "Note on the sampling error of the difference between
 * correlated proportions", 1947): if both are equally good, each of these is a coin toss. */
#pragma once

#include "towers/record/run_read.h"

typedef struct PairedAccuracy {
    int64_t images; /* 0: the runs have no predictions for the same images */
    int64_t right_a, right_b, only_a, only_b;
} PairedAccuracy;

/* Errors: ERR_FORMAT (a line that is no prediction), ERR_IO, ERR_MEMORY. */
NODISCARD Status paired_accuracy(const Run *a, const Run *b, PairedAccuracy *made);
