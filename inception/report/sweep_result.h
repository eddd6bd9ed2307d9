/* The outcome of a sweep: its runs, the settings that they repeat, and what a setting has scored. */
#pragma once

#include "inception/report/runs.h"
#include "kernels/base/absent.h"

enum { SWEEP_RUNGS = 24 };

/* A run of a sweep, from its records. */
typedef struct SweepRow {
    RunRow run;
    int64_t epochs;     /* completed */
    EpochRecord *epoch; /* owned: [epoch_count] */
    int64_t epoch_count;
    bool failed;
    double score[SWEEP_RUNGS]; /* the best one until the end of each rung; NaN: none */
    ScoreKind kind[SWEEP_RUNGS];
} SweepRow;

/* Mean and deviation over the repetitions that have a score of the same kind as the first that has one. */
typedef struct SweepScore {
    ScoreKind kind;
    int count;
    double mean, deviation; /* NaN: too few */
} SweepScore;

typedef struct SweepSetting {
    int number, rung;      /* rung: to which it was trained; -1: not at all */
    const SweepRow **rows; /* borrowed: [repeats] */
    json_t *values;        /* borrowed: option: value */
} SweepSetting;

typedef struct SweepResult {
    const char *folder;
    const int64_t *rung; /* [rungs]: epochs */
    int rungs, repeats, count;
    int folds;              /* N of the folds K/N that are among the repetitions; 0: these are seeds alone */
    SweepSetting *settings; /* [count]; sweep_table sorts them */
} SweepResult;

const char *setting_value(const SweepSetting *setting, const char *option);
/* Whether a value of the option is no number; the number of a setting's value: its own, or if there are words, which of the
 * different ones it is. */
bool option_has_words(const SweepResult *result, const char *option);
double setting_place(const SweepResult *result, int setting, const char *option, bool words);
SweepScore sweep_score(const SweepRow *const *rows, int repeats, int rung);
SweepScore setting_result(const SweepResult *result, int setting); /* its score at the rung to which it was trained */
int64_t sweep_epochs(const SweepSetting *setting, int repeats);    /* of its longest run */
const SweepRow *sweep_failure(const SweepSetting *setting, int repeats); /* a run that failed; NULL: none */
