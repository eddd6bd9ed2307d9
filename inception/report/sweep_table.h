/* The ranking of a sweep's settings, and what mattered: a table or JSON. Those that reached a higher rung come first, then those with the
 * better mean score of their repetitions; settings without a score come last, with the reason. */
#pragma once

#include "inception/report/setting_effects.h"

/* Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status sweep_table(SweepResult *result, bool json, FILE *to);
/* sweep_page.c: FOLDER/sweep.html with the best setting in words, a plot of the scores for each option, the curves of all runs, the
 * options that mattered and the ranking. `result`: sorted by sweep_table. Errors: ERR_MEMORY, ERR_IO. */
NODISCARD Status sweep_page(const SweepResult *result);
/* sweep_answer.c: the first paragraph of that page: the best setting, what mattered, what failed, and what to try next. */
void sweep_answer(const SweepResult *result, const SettingEffects *effects, FILE *to);
