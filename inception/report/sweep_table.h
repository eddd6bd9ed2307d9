/* The ranking of a sweep's settings, and what mattered: a table or JSON. Those that reached a higher rung come first, then those with the
 * better mean score of their repetitions; settings without a score come last, with the reason. */
#pragma once

#include "inception/report/runs.h"

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
/* Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status sweep_table(SweepResult *result, bool json, FILE *to);
/* sweep_page.c: FOLDER/sweep.html with the settings as parallel coordinates, the curves of all runs, the options that mattered
 * and the ranking. `result`: sorted by sweep_table. Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status sweep_page(const SweepResult *result);

/* setting_effects.c: which options of a sweep mattered: how much of the spread of the scores each of them explains, in the text of
 * the ranking, in its JSON and on the page. */
enum { EFFECTS_MOST = 16, EFFECT_BYTES = 64 };

typedef struct SettingEffect {
    const char *option; /* borrowed */
    double explained;   /* 0 to 1 */
    double p;           /* how often settings of no effect would explain as much */
    double trend;       /* 1: more is always better, -1: less is; NaN: of words */
    char best[EFFECT_BYTES];
} SettingEffect;

typedef struct SettingEffects {
    int settings, left_out; /* compared; without a score */
    int count;              /* 0: too few settings, or all scores are equal */
    SettingEffect row[EFFECTS_MOST];
    int64_t epoch; /* up to which scores count, with halving; 0: all */
    char of[128];  /* "over 9 settings, by their scores up to epoch 1, before halving stopped any" */
} SettingEffects;

/* Errors: ERR_MEMORY. */
NODISCARD Status setting_effects(const SweepResult *result, SettingEffects *effects);
void setting_effects_print(const SettingEffects *effects, FILE *to); /* nothing if there are none */
json_t *setting_effects_json(const SettingEffects *effects);
