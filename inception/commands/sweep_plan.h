/* What a sweep trains: a flat YAML file of options of towers train, in which some values are ranges or lists.
 *
 *   model: fashion_cnn                  the model; every other line is an option
 *   lr: log-uniform(1e-4, 0.1)          drawn for each trial; also uniform(LOW, HIGH)
 *   opt: choices(momentum | adam)       one of these
 *   seed: choices(1 | 2 | 3)            seed and fold are repetitions: each setting is trained with all of them
 *
 * Without --trials the settings are the grid of all choices. With it they are drawn at random, choices too, each by
 * Philox from --trial-seed, its number and its option: more trials never change the earlier ones. A setting that has
 * been drawn before is drawn again. */
#pragma once

#include <jansson.h>

#include "inception/options/options.h"
#include "inception/report/sweep_table.h"
#include "towers/files/files.h"

enum { SWEEP_DIMENSIONS = 16, SWEEP_FIXED = 200, SWEEP_CHOICES = 64, SWEEP_MOST = 4096 /* settings */ };
enum { SWEEP_VALUE = 256 };

typedef enum DimensionKind { DIMENSION_CHOICES, DIMENSION_UNIFORM, DIMENSION_LOG_UNIFORM } DimensionKind;

typedef struct Dimension {
    OptionId id;
    DimensionKind kind;
    bool repeats; /* no part of a setting: all of its choices are trained */
    double low, high;
    char *choice[SWEEP_CHOICES]; /* owned */
    int choices;
} Dimension;

typedef struct SweepFixed {
    OptionId id;
    bool negated;
    char *value; /* owned */
} SweepFixed;

typedef struct SweepPlan {
    char model[PATH_BYTES];
    Dimension dimension[SWEEP_DIMENSIONS];
    int dimensions;
    SweepFixed fixed[SWEEP_FIXED];
    int fixes;
    int settings, repeats;          /* a run is a setting with one of the repetitions */
    double (*at)[SWEEP_DIMENSIONS]; /* owned: [settings]: the index of a choice, or the number */
    int64_t
        rung[SWEEP_RUNGS]; /* epochs after which settings are compared; the last: INT64_MAX, or the number of epochs */
    int rungs;
    int64_t halving; /* of so many settings of a rung one goes on; 0: all are trained to the end */
    char *text;      /* owned: the lines that determine the settings, to compare sweeps */
} SweepPlan;

/* Options of the sweep itself that the file has go to *options, below the command line. ERR_ARG names file and line. */
NODISCARD Status sweep_plan_read(const char *path, Options *options, SweepPlan **made);
void sweep_plan_destroy(SweepPlan *plan); /* NULL is fine */
/* The value of a dimension in a run, as it could be typed. */
const char *sweep_value(const SweepPlan *plan, int setting, int repeat, int dimension, char text[SWEEP_VALUE]);
json_t *sweep_setting_json(const SweepPlan *plan, int setting); /* without repetitions */
