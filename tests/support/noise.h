/* Random series and runs made from them, for tests of statistics; everything is determined by a seed. */
#pragma once

#include "towers/record/run_read.h"

/* A standard normal number for (seed, index). */
double noise_normal(uint64_t seed, uint32_t index);
/* x[i] = memory x[i - 1] + sqrt(1 - memory^2) normal: variance 1, started in its own distribution. */
void noise_series(uint64_t seed, double memory, double *x, int64_t count);

typedef struct NoiseRun {
    int towers;
    int64_t steps;
    double tower_noise;           /* of each tower's loss, independent */
    double shared, shared_memory; /* of all towers alike, and how long it is remembered */
    double speed_memory;
    double loss_shift, speed_factor;
    double last_shift; /* bias of the last tower */
    int share;         /* images of a tower in a step; 0: 25. Larger ones see the same course in fewer steps */
} NoiseRun;

/* A run that falls from 2.3 to 0.3, 100 images a second. run_destroy frees it. */
Run *noise_run(const NoiseRun *what, uint64_t seed);
