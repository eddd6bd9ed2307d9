/* The compare command: how the losses of a run's towers relate to mean_loss (loss_truth.h) and whether runs differ
 * (run_difference.h), as tables or as JSON, and its parts. Reads records only. */
#pragma once

#include "inception/options/options.h"
#include "towers/files/json.h"
#include "towers/record/run_read.h"
#include "towers/record/setting_line.h"

/* Compare the first run with each of the others. `page`: where to write compare_page's; NULL: nowhere. Errors: ERR_ARG if there
 * is no run; ERR_IO; those of run_read and loss_truth. */
NODISCARD Status compare_runs(char *const *paths, int count, bool json, const char *page, FILE *to);

/* compare_page.c: in words, which run is the best and whether chance alone may have made it so; then curves of all runs laid over each
 * other, the runs with their lines, the settings that differ, on a page that is self-contained, as the report of a run is. Errors:
 * ERR_MEMORY, ERR_IO. */
NODISCARD Status compare_page(Run *const *runs, int count, const char *path);

/* ranking.c: the ranking of ranking.h, into `root` under "ranking", or as text if that is NULL. */
NODISCARD Status ranking_emit(Run *const *runs, int count, json_t *root, FILE *to);

/* fold_scores.c: scores over the folds of a cross-validation, or else over seeds. To root["folds"] or root["seeds"], or (root NULL)
 * as a table; nothing if fewer than two runs have --fold and a test score, and no two of one setting have different seeds. Runs are
 * of one setting if only --fold, or --seed, differs; one that occurs again begins another setting. Errors: ERR_MEMORY. */
NODISCARD Status fold_scores(const Run *const *runs, int count, json_t *root, FILE *to);

/* setting_differences.c: the settings in which runs differ, from their args.yaml: {"lr": ["0.1", null, ...]}, which the caller owns;
 * null: not set. Names of runs and what only concerns output are left out. Errors: ERR_MEMORY. */
NODISCARD Status setting_differences(const Run *const *runs, int count, json_t **made);
/* The value of a run in such a row; "-" if it is not set. */
const char *setting_text(const json_t *row, int run);
/* A table of them; nothing if there are none. */
void setting_differences_print(const Run *const *runs, int count, json_t *settings, FILE *to);
/* Whether a line of args.yaml is a setting of training with another value than the default, whoever gave it. */
bool setting_is_changed(const SettingLine *setting);
/* Whether two runs have the same settings, other than this one. */
bool settings_equal(const Run *a, const Run *b, OptionId but);
