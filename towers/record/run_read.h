/* A run directory, read back: metrics.jsonl, results.csv, confusion.csv, layers.jsonl, norms.jsonl, generated.jsonl,
 * args.yaml, env.json. Reading is strict: a line in another format than this project's is ERR_FORMAT with file and
 * line. Only the last line of a file may be cut short (a process was killed, or is still writing); it is left out.
 * Everything but metrics.jsonl may be missing. */
#pragma once

#include "kernels/status.h"
#include "towers/record/epoch.h"

#define RUN_C_REAL(key) double key
#define RUN_C_WHOLE(key) double key
#define RUN_C_COUNT(key) int64_t key
#define RUN_C_FLAG(key) bool key
#define RUN_C_WORD(key) char key[16]

/* A step: the columns of metrics.def. Numbers that were not finite or not known are NaN, words "". Arrays: [towers]. */
typedef struct RunStep {
#define DERIVED(type, key, value, when, read, tag, text) RUN_C_##type(key);
#define TOWER_DERIVED(type, key, value, known, read, tag, text) const RUN_C_##type(*key);
#define VITAL(key, tag, text)
#include "towers/record/metrics.def"
} RunStep;

/* A named term of a step's phase: the mean over all samples, and over those of each tower. */
typedef struct RunTerm {
    int64_t step;
    int name; /* in Run.term_name */
    double mean;
    const double *tower; /* [towers]; NaN: it had no samples, or older runs do not say */
} RunTerm;

/* KID of generated images after a step, and its deviation over subsets. */
typedef struct RunKid {
    int64_t step;
    int features; /* in Run.features_name: the network, and the digest of its weights */
    double kid, deviation;
} RunKid;

/* Root mean squares of a parameter and of its gradient at a step. */
typedef struct RunLayer {
    int64_t step;
    int name; /* in Run.layer_name */
    double weight, gradient;
} RunLayer;

/* Largest drift of a batch-norm layer's statistics between towers, in standard deviations over towers: of the means
 * (relative to the layer's deviation), of the variances (relative). */
typedef struct RunNorm {
    int64_t step;
    int name; /* in Run.norm_name */
    double mean, variance;
} RunNorm;

typedef struct Run {
    char *path, *name; /* as given; its last component */
    int towers;
    RunStep *step;
    int64_t steps, rows; /* kept; of metrics.jsonl */
    EpochRecord *epoch;
    int64_t epochs;
    bool several;         /* of the epochs: samples have any number of classes (epoch.h) */
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
    char **layer_name;
    int layer_names;
    RunLayer *layer;
    int64_t layers;
    char **norm_name;
    int norm_names;
    RunNorm *norm;
    int64_t norms;
    char *args, *environment; /* texts of args.yaml and env.json; "" if missing */
    bool cut;                 /* the last line of metrics.jsonl was cut short */
    const char *phase;        /* of a view (run_phase); NULL: all steps */
    void **blocks;            /* owned: memory of RunStep's arrays */
    int64_t block_count;
} Run;

/* `limit`: about how many bytes of metrics.jsonl are kept; 0: all. Of a larger file these are evenly spaced rows of each
 * phase, the last ones, and the first thousand that were refused or not finite; the others are not checked. */
NODISCARD Status run_read(const char *directory, int64_t limit, Run **made);
void run_destroy(Run *run); /* NULL is fine */

/* A model with several phases mixes their losses in its rows. *view receives the steps of the phase of number `phase`, in
 * the order of their first steps; of a run with one phase, all steps. *found: there is such a phase. The view borrows
 * everything but its list of steps, which run_view_free frees. KID is that of the first phase. */
NODISCARD Status run_phase(const Run *run, int phase, Run *view, bool *found);
/* The steps of a phase's view that have this term, with the term in the place of the loss: mean_loss, last_tower_loss and
 * tower_loss are those of the term. *found: there is such a step. */
NODISCARD Status run_term(const Run *phase, int name, Run *view, bool *found);
void run_view_free(Run *view);

/* The host of a tower in a run of several launched programs; "" otherwise. */
enum { RUN_HOST_BYTES = 64 };
void run_host(const Run *run, int tower, char host[RUN_HOST_BYTES]);

/* The value of `key: value  # from ...` in args.yaml, unquoted, into `text`; false if it is not there or not set. */
bool run_argument(const Run *run, const char *key, char *text, size_t bytes);
