/* Which options of a sweep mattered: how much of the spread of the scores each of them explains, all others
 * being equal, in the text of the ranking, in its JSON and on the page. */
#pragma once

#include "inception/report/sweep_result.h"

enum { EFFECTS_MOST = 16, EFFECT_BYTES = 64 };

typedef struct SettingEffect {
    const char *option; /* borrowed */
    /* at most 1; below 0: less than chance. ABSENT: it cannot be told from the other options, as the next */
    Number explained;
    Number p;     /* how often settings of no effect would explain as much; ABSENT: none can be exchanged */
    Number trend; /* 1: more is always better, -1: less is; ABSENT: of words */
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
