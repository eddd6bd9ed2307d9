/* A run directory, read back: metrics.jsonl, results.csv, confusion.csv, layers.jsonl, norms.jsonl, generated.jsonl,
 * args.yaml, env.json. Reading is strict: a line in another format than this project's is ERR_FORMAT with file and
 * line. Only the last line of a file may be cut short (a process was killed, or is still writing); it is left out.
 * Everything but metrics.jsonl may be missing. */
#pragma once

#include "kernels/telemetry.h"
#include "towers/record/epoch.h"

#define RUN_C_REAL(key) Number key
#define RUN_C_MAYBE(key) Number key
#define RUN_C_LOSS(key) Number key
#define RUN_C_WHOLE(key) Number key
#define RUN_C_COUNT(key) int64_t key
#define RUN_C_FLAG(key) bool key
#define RUN_C_WORD(key) char key[16]

/* A step: the columns of metrics.def. Numbers that were not finite are NaN, those that are not there ABSENT, words "".
 * Arrays: [towers]. */
typedef struct RunStep {
#define DERIVED(type, key, value, when, read, tag, text) RUN_C_##type(key);
#define TOWER_DERIVED(type, key, value, known, read, tag, text) const RUN_C_##type(*key);
#define TELEMETRY(key, tag, text)
#include "towers/record/metrics.def"
    const DeviceTelemetry *telemetry; /* [towers]; NULL: the row has none */
} RunStep;

/* A named term of a step's phase: the mean over all samples, and over those of each tower. */
typedef struct RunTerm {
    int64_t step;
    int name; /* in Run.term_name */
    Number mean;
    const Number *tower; /* [towers]; ABSENT: it had no samples, or older runs do not say */
} RunTerm;

/* KID of generated images after a step, and its deviation over subsets. */
typedef struct RunKid {
    int64_t step;
    int features; /* in Run.features_name: the network, and the digest of its weights */
    double kid, deviation;
} RunKid;

/* Two numbers for each of some names, at some steps. */
typedef struct RunPair {
    int64_t step;
    int name; /* in RunPairs.name */
    double value[2];
} RunPair;

typedef struct RunPairs {
    char **name;
    int names;
    RunPair *pair; /* in the order of steps */
    int64_t count;
} RunPairs;

typedef struct Run {
    char *path, *name; /* as given; its last component */
    int towers;
    RunStep *step;
    int64_t steps, rows; /* kept; of metrics.jsonl */
    EpochRecord *epoch;
    int64_t epochs;
    bool multi_label;     /* of the epochs: samples have any number of classes (epoch.h) */
    int classes;          /* 0: no confusion.csv */
    bool confusion_named; /* the file has the names of the classes */
    int64_t *confusion;   /* [classes][classes]: true class, predicted class */
    char **term_name;
    int term_names;
    RunTerm *term; /* of all steps, in their order */
    int64_t terms;
    char **features_name;
    int features_names;
    RunKid *kid;
    int64_t kids;
    RunPairs layers; /* root mean squares of a parameter and of its gradient */
    RunPairs norms;  /* largest drift of a batch-norm layer's statistics between towers, in standard deviations over
                        towers: of the means (relative to the layer's deviation), of the variances (relative) */
    char *args, *environment; /* texts of args.yaml and env.json; "" if missing */
    bool cut;                 /* the last line of metrics.jsonl was cut short */
    const char *phase;        /* of a view (run_view.h); NULL: all steps */
    void **blocks;            /* owned: memory of RunStep's arrays */
    int64_t block_count;
} Run;

/* `limit`: about how many bytes of metrics.jsonl are kept; 0: all. Of a larger file these are evenly spaced rows of each
 * phase, the last ones, and the first thousand that were refused or not finite; the others are not checked. */
NODISCARD Status run_read(const char *directory, int64_t limit, Run **made);
#define PREDICTIONS_CSV "predictions.csv" /* sample,label,predicted,file of each image of the last evaluation */
/* For a list of runs: the rows in the last ENDING_BYTES of metrics.jsonl, results.csv, args.yaml and env.json alone. */
enum { ENDING_BYTES = 4 << 20 };
NODISCARD Status run_read_ending(const char *directory, Run **made);
void run_destroy(Run *run); /* NULL is fine */

/* The host of a tower in a run of several nodes; "" otherwise. */
enum { RUN_HOST_BYTES = 64 };
void run_host(const Run *run, int tower, char host[RUN_HOST_BYTES]);

/* The value of `key: value  # from ...` in args.yaml, unquoted, into `text`; false if it is not there or not set. */
bool run_argument(const Run *run, const char *key, char *text, size_t bytes);
