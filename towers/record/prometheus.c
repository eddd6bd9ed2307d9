/* Writing the gauges; see prometheus.h. The columns and their texts are those of metrics.def; words are left out. */
#include "towers/record/prometheus.h"

#include "kernels/base/open.h"
#include "kernels/base/progress.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

enum { RUN_BYTES = 1024 };

static void help_put(FILE *to, const char *key, const char *text)
{
    fprintf(to, "# HELP towers_%s ", key);
    for (const char *p = text; *p; p++) fprintf(to, *p == '\\' ? "\\\\" : "%c", *p);
    fprintf(to, "\n# TYPE towers_%s gauge\n", key);
}

/* Nothing if the number is absent. `phase`: the step's, or NULL. `place`: the label of what the number belongs to besides,
 * "tower" or "head"; NULL: nothing. */
static void number_put(FILE *to, const char *key, const char *run, const char *phase, const char *place, int index,
                       Number value)
{
    char text[40];
    if (is_absent(value)) return;
    fprintf(to, "towers_%s{run=\"", key);
    for (const char *p = run; *p; p++) {
        if (*p == '\n')
            fputs("\\n", to);
        else
            fprintf(to, strchr("\\\"", *p) ? "\\%c" : "%c", *p);
    }
    if (phase) fprintf(to, "\",phase=\"%s", phase);
    if (place) fprintf(to, "\",%s=\"%d", place, index);
    text_real(value, text, sizeof text);
    fprintf(to, "\"} %s\n", isfinite(value) ? text : isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

#define NUMBER_REAL(value) (value)
#define NUMBER_MAYBE(value) (value)
#define NUMBER_LOSS(value) (value)
#define NUMBER_WHOLE(value) (double)(value)
#define NUMBER_COUNT(value) (double)(value)
#define NUMBER_FLAG(value) (double)(value)
#define IS_REAL true
#define IS_MAYBE true
#define IS_LOSS true
#define IS_WHOLE true
#define IS_COUNT true
#define IS_FLAG true
#define IS_WORD false
#define NUMBER_WORD(value) 0

static void step_put(FILE *to, const char *run, const StepRecord *r)
{
#define DERIVED(type, key, value, when, read, tag, text)                                                               \
    if (IS_##type && (when)) {                                                                                         \
        help_put(to, #key, text);                                                                                      \
        number_put(to, #key, run, r->phase, NULL, 0, NUMBER_##type(value));                                            \
    }
#define TOWER_DERIVED(type, key, value, known, read, tag, text)                                                        \
    if (known) help_put(to, #key, text);                                                                               \
    for (int t = 0; (known) && t < r->towers; t++)                                                                     \
        number_put(to, #key, run, r->phase, "tower", t, NUMBER_##type(value));
#define HEAD_DERIVED(key, value, when, tag, text)                                                                      \
    if (when) help_put(to, #key, text);                                                                                \
    for (int t = 0; (when) && t < r->heads - 1; t++) number_put(to, #key, run, r->phase, "head", t, value);
#include "towers/record/metrics.def"
}

static Status text_write(const char *path, const char *text, size_t bytes)
{
    char temporary[PATH_BYTES];
    TRY(path_temporary(temporary, path));
    int fd = regular_open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, NULL);
    if (fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", temporary, strerror(errno));
    ssize_t written = STORAGE(write(fd, text, bytes));
    bool good = STORAGE(close(fd)) == 0 && written == (ssize_t)bytes && STORAGE(rename(temporary, path)) == 0;
    if (good) return OK;
    int error = errno;
    (void)STORAGE(unlink(temporary));
    return FAIL(ERR_IO, "cannot replace '%s': %s (--prometheus)", path, strerror(error));
}

Status prometheus_step(const char *run, const StepRecord *record, char **text)
{
    Draft draft;
    char shown[RUN_BYTES];
    utf8_escape(shown, sizeof shown, run); /* the collector drops a whole file with other bytes */
    TRY(draft_begin(&draft, "the numbers of --prometheus"));
    step_put(draft.to, shown, record);
    TRY(draft_end(&draft, OK));
    *text = draft.text;
    return OK;
}

static void run_number_put(FILE *to, const char *run, const char *key, Number value, const char *text)
{
    if (!is_absent(value)) help_put(to, key, text);
    number_put(to, key, run, NULL, NULL, 0, value);
}

static void run_put(FILE *to, const char *run, const RunNumbers *n)
{
    run_number_put(to, run, "steps", (double)n->steps, "steps of the whole run");
    run_number_put(to, run, "step_time_seconds", n->step_time,
                   "when the last step was recorded, in seconds since 1970");
    if (!n->tested) return;
    run_number_put(to, run, "evaluated_epoch", (double)n->tested->epoch,
                   "epoch after which the run was last evaluated");
    run_number_put(to, run, "test_loss", n->tested->test_loss, "loss of the last evaluation");
    run_number_put(to, run, n->tested->multi_label ? "test_map" : "test_accuracy", n->tested->test_top1,
                   n->tested->multi_label ? "mean average precision of the last evaluation"
                                          : "accuracy of the last evaluation");
}

Status prometheus_write(const char *path, const char *run, const char *step, const RunNumbers *numbers)
{
    Draft draft;
    char shown[RUN_BYTES];
    utf8_escape(shown, sizeof shown, run);
    TRY(draft_begin(&draft, "the numbers of --prometheus"));
    fputs(step, draft.to);
    run_put(draft.to, shown, numbers);
    TRY(draft_end(&draft, OK));
    Status st = text_write(path, draft.text, draft.bytes);
    free(draft.text);
    return st;
}

Status prometheus_check(const char *path)
{
    char folder[PATH_BYTES];
    size_t bytes = strlen(path), name = bytes;
    while (name && path[name - 1] != '/') name--;
    if (bytes < name + 6 || strcmp(path + bytes - 5, ".prom") != 0)
        return FAIL(ERR_ARG, "--prometheus '%s': the textfile collector reads only files whose names end in .prom",
                    path);
    snprintf(folder, sizeof folder, "%.*s", (int)(name ? name : 1), name ? path : ".");
    if (access(folder, W_OK | X_OK) == 0) return OK;
    return FAIL(ERR_ARG, "--prometheus '%s': cannot write files in '%s': %s", path, folder, strerror(errno));
}
