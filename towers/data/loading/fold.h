/* Folds: part k of n of a set of samples is for evaluation, the others are for training. Which samples are in which part
 * is a pure function of seed and sample numbers, so it is the same for any number of towers, and no file is moved.
 *
 * Without groups the samples of each class are dealt out in random order, so parts differ by at most one sample of a
 * class and by at most one in all. With groups, samples of one group (a patient, a video) are in one part: groups are
 * placed one after another, the largest first, each where the classes stay most even (scikit-learn's StratifiedGroupKFold
 * minimizes the deviation of class shares in the same order). Equal files stay in one part: all are in that of the first of
 * them, but groups go before. */
#pragma once

#include "towers/data/sources/source.h"

typedef struct FoldConfig {
    int fold, folds; /* 1 <= fold <= folds, 2 <= folds; with groups there is a count for each fold and class */
    uint64_t seed;
    const char *group;  /* NULL: none; "1": name of the folder of the file, "2": of the one above; else a column */
    const char *labels; /* folder of the labels.csv that has the column */
    bool equal_apart;   /* equal files are dealt as any others, as earlier versions did */
} FoldConfig;

/* The level of a group that is a folder; 0: it is a column. */
int fold_folder(const char *group);
/* The part [0, folds) of each sample: `part` is [count]. Errors: ERR_ARG with fewer samples or groups than parts, or for a
 * sample without a group; ERR_FORMAT for a bad labels.csv, ERR_MEMORY. */
NODISCARD Status fold_parts(const Source *source, const FoldConfig *config, int32_t *part);
/* Replace *source, which the new one owns, by the samples of the fold's evaluation part or by those of its training part.
 * After an error *source is closed and NULL. */
NODISCARD Status source_fold(Source **source, const FoldConfig *config, bool evaluation);
/* What a person may have meant otherwise: values of the column that look alike, of which images that belong together would be in both parts,
 * or none that two images have. Adds a sentence to `remark`, or nothing. Errors: those of the labels file. */
NODISCARD Status fold_groups_remark(const Source *source, const FoldConfig *config, struct Text *remark);
