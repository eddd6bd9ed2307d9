/* Reading two lists of predictions side by side; see paired_accuracy.h. */
#include "inception/report/paired_accuracy.h"

#include "towers/record/run_lines.h"

typedef struct RunPrediction {
    int64_t sample, label, predicted;
    const char *file; /* as the line has it */
} RunPrediction;

static Status prediction_next(RunLines *lines, RunPrediction *made, bool *more)
{
    int file = 0;
    const char *line = lines_next(lines);
    *more = line != NULL;
    if (!line) return lines->trouble;
    if (sscanf(line, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%n", &made->sample, &made->label, &made->predicted, &file) <
            3 ||
        !file)
        return LINE_FAIL(lines, "expected sample, label, predicted and file");
    made->file = line + file;
    return OK;
}

/* *same: both lists are of the same images, with the same labels. */
static Status lists_compare(RunLines *a, RunLines *b, PairedAccuracy *made, bool *same)
{
    RunPrediction x, y;
    bool more = lines_next(a) && lines_next(b), also = more; /* the headers */
    while (more && also) {
        TRY(prediction_next(a, &x, &more));
        TRY(prediction_next(b, &y, &also));
        *same = more == also && (!more || (x.sample == y.sample && x.label == y.label && !strcmp(x.file, y.file)));
        if (!*same || !more) return OK;
        bool right = x.predicted == x.label, other = y.predicted == y.label;
        made->images++;
        made->right_a += right, made->right_b += other;
        made->only_a += right && !other, made->only_b += other && !right;
    }
    return OK;
}

Status paired_accuracy(const Run *a, const Run *b, PairedAccuracy *made)
{
    RunLines x, y;
    char a_path[PATH_BYTES], b_path[PATH_BYTES];
    bool a_open, b_open = false, same = false;
    *made = (PairedAccuracy){0};
    TRY(path_join(a_path, a->path, PREDICTIONS_CSV));
    TRY(path_join(b_path, b->path, PREDICTIONS_CSV));
    TRY(lines_open(a_path, &x, &a_open));
    if (!a_open) return OK;
    Status st = lines_open(b_path, &y, &b_open);
    if (b_open) {
        st = lists_compare(&x, &y, made, &same);
        same &= !x.cut && !y.cut;
        lines_close(&y);
    }
    lines_close(&x);
    if (st != OK || !same) *made = (PairedAccuracy){0};
    return st;
}
