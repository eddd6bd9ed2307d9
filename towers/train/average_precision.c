/* Average precision by sorting the scores of one class after another; see average_precision.h. */
#include "towers/train/average_precision.h"

#include "kernels/base/progress.h"
#include "kernels/op.h"

typedef struct ScoredSample {
    float score;
    bool has; /* the sample has the class */
} ScoredSample;

static int by_score(const void *a, const void *b)
{
    float x = ((const ScoredSample *)a)->score, y = ((const ScoredSample *)b)->score;
    return (x < y) - (x > y);
}

/* `scored`: sorted. NaN if none has the class. */
static double precision_of(const ScoredSample *scored, int64_t count)
{
    int64_t all = 0, found = 0, before = 0;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) all += scored[i].has;
    for (int64_t i = 0; i < count; i++) {
        found += scored[i].has;
        if (i + 1 < count && scored[i + 1].score == scored[i].score) continue;
        sum += (double)(found - before) * (double)found / (double)(i + 1);
        before = found;
    }
    return all ? sum / (double)all : ABSENT;
}

static bool has_class(const Source *source, int64_t id, int32_t class)
{
    const int32_t *labels;
    int32_t low = 0, high = source_labels(source, id, &labels);
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (labels[middle] == class) return true;
        if (labels[middle] < class)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

Status average_precision(const Source *source, const EvalSample *samples, const float *scores, int classes,
                         double *precision, double *mean)
{
    int64_t all = source_info(source)->count, measured = 0;
    ScoredSample *scored = malloc((size_t)all * sizeof *scored + 1);
    if (!scored) return FAIL(ERR_MEMORY, "no memory to sort the scores of %" PRId64 " samples", all);
    *mean = 0;
    for (int c = 0; c < classes; c++) {
        int64_t count = 0;
        progress_made("average precision");
        for (int64_t i = 0; i < all; i++) {
            float score = scores[i * classes + c];
            if (samples[i].label != LABEL_NONE)
                scored[count++] = (ScoredSample){isnan(score) ? -1 : score, has_class(source, i, c)};
        }
        qsort(scored, (size_t)count, sizeof *scored, by_score);
        double one = precision_of(scored, count);
        if (precision) precision[c] = one;
        if (!is_absent(one)) *mean += one, measured++;
    }
    free(scored);
    *mean = measured ? *mean / (double)measured : ABSENT;
    return OK;
}
