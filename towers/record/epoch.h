/* One epoch's results: a row of results.csv, a line of log.txt and of the console; and the scores of a run. */
#pragma once

#include "kernels/base/absent.h"

/* The numbers of epoch.def; ABSENT: not measured. */
typedef struct EpochRecord {
    int64_t epoch, step; /* epochs from 1; the last step of this one */
#define EPOCH(key, multi_label, tag, multi_label_tag) Number key;
#include "towers/record/epoch.def"
    /* Samples have any number of classes: train_top1 and test_top5 are the share of samples with exactly the right
     * ones, test_top1 is mAP. */
    bool multi_label;
} EpochRecord;

/* A number of EpochRecord. */
typedef struct EpochColumn {
    const char *name, *multi_label, *tag, *multi_label_tag; /* as in epoch.def */
    size_t offset;                                          /* of the number in EpochRecord */
} EpochColumn;
#define EPOCH(key, multi_label, tag, multi_label_tag) +1
enum {
    EPOCH_COLUMNS = 0
#include "towers/record/epoch.def"
};
extern const EpochColumn epoch_column[EPOCH_COLUMNS];
static inline Number *epoch_number(EpochRecord *epoch, int column)
{
    return (Number *)((char *)epoch + epoch_column[column].offset);
}
/* Nothing measured. */
void epoch_clear(EpochRecord *epoch);

/* The terms of models whose means over an epoch are recorded. */
enum {
#define EPOCH_TERM(key) EPOCH_TERM_##key,
#include "towers/record/epoch.def"
    EPOCH_TERMS
};
extern const char *const epoch_term[EPOCH_TERMS];

enum { EPOCH_TEXT = 300 };
/* The first line of results.csv, without its end. */
void epoch_header(bool multi_label, char text[EPOCH_TEXT]);
/* Whether `line` is this first line, or that of an older version, which had fewer columns. */
bool epoch_header_known(const char *line, bool multi_label);
/* The tf.distribute tutorial's five fields, then ours; `loss`: what to call the first of them. */
void epoch_text(const EpochRecord *epoch, const char *loss, char text[EPOCH_TEXT]);

/* Each score has a best value so far in RunState and LedgerRun; ABSENT: none yet. */
typedef enum Score {
#define SCORE(id, key, json, multi_label_json, higher) SCORE_##id,
#include "towers/record/epoch.def"
    SCORES
} Score;
/* Whether `value` is a better score than `best`; not if it is not finite. */
bool score_better(Score score, double value, double best);
