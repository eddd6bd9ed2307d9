/* Scores over the folds of a cross-validation: mean and deviation of each setting, and whether settings differ.
 *
 * Settings are compared by the differences of their scores in the same folds. The training sets of folds overlap, so these
 * differences are not independent: the variance of their mean is taken as (1/n + 1/(N - 1)) s^2 for n of N folds, the
 * corrected resampled t-test (Nadeau & Bengio, "Inference for the Generalization Error", 2003). */
#pragma once

#include <jansson.h>

#include "towers/record/run_read.h"

/* To root["folds"], or (root NULL) as a table; nothing if fewer than two runs have --fold and a test score. Runs are of one
 * setting if only --fold differs; a fold that occurs again begins another setting. Errors: ERR_MEMORY. */
NODISCARD Status fold_scores(const Run *const *runs, int count, json_t *root, FILE *to);
