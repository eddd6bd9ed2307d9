/* The temperature of a run's probabilities (towers/replica/temperature.h). The file of its weights has it in its metadata
 * (towers/replica/about.h), so that it is wherever the weights are. How it was fitted is in RUN/calibration.json:
 *
 *   temperature, images, loss, calibration_error, reliability [before, after] of the evaluation that it was fitted on:
 *   reliability has the images, the share of right ones and the mean probability of each bin (class_scores.h); and
 *   weights: size and XXH3-128 of the file of weights that it is of
 *
 * Earlier versions wrote only this. Then it is used for this file of weights alone; a run that has trained on has another one. */
#pragma once

#include "inception/options/options.h"
#include "inception/report/class_scores.h"

typedef struct Calibration {
    double temperature;
    int64_t images;
    double loss[2], error[2]; /* before and after, as the next */
    ReliabilityBin bins[2][RELIABILITY_BINS];
} Calibration;

/* The folder of a run that --weights names; NULL if it names a file. */
const char *calibration_run(const Options *options);
/* *temperature = that of the file of weights, else that of the run for this file, or 0; says on stderr which one is used, or that it
 * is of other weights, unless options->quiet. ERR_FORMAT if the number is impossible. */
NODISCARD Status calibration_read(const Options *options, const char *weights, double *temperature);
/* The file of weights keeps its times: --resume auto goes by them. */
NODISCARD Status calibration_write(const Options *options, const char *weights, const Calibration *calibration);
NODISCARD Status calibration_remove(const Options *options, const char *weights);
