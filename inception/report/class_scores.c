/* Counting, and writing scores as a table, JSON and CSV. */
#include "inception/report/class_scores.h"

ClassScore class_score(const Run *run, int class)
{
    int n = run->classes;
    ClassScore one = {.class = class, .right = run->confusion[class * n + class]};
    for (int k = 0; k < n; k++) {
        one.samples += run->confusion[class * n + k];
        one.taken += run->confusion[k * n + class];
    }
    return one;
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : ABSENT;
}

double class_recall(const ClassScore *s)
{
    return share(s->right, s->samples);
}

double class_precision(const ClassScore *s)
{
    return share(s->right, s->taken);
}

double class_f1(const ClassScore *s)
{
    return share(2 * s->right, s->samples + s->taken);
}

static int by_recall(const void *a, const void *b)
{
    const ClassScore *x = a, *y = b;
    int64_t order = x->right * y->samples - y->right * x->samples;
    return order ? (order > 0) - (order < 0) : x->class - y->class;
}

void class_scores_sort(ClassScore *scores, int count)
{
    qsort(scores, (size_t)count, sizeof *scores, by_recall);
}

double calibration_error(const EvalSample *samples, int64_t count, ReliabilityBin bins[RELIABILITY_BINS])
{
    double sum = 0;
    int64_t answers = 0;
    memset(bins, 0, RELIABILITY_BINS * sizeof *bins);
    for (int64_t i = 0; i < count; i++) {
        if (samples[i].label == LABEL_NONE) continue;
        double sure = (double)samples[i].probability;
        int b = (int)ceil(sure * RELIABILITY_BINS) - 1;
        ReliabilityBin *bin = &bins[b < 0 ? 0 : b < RELIABILITY_BINS ? b : RELIABILITY_BINS - 1];
        bin->answers++;
        bin->right += samples[i].label == samples[i].predicted;
        bin->sure += sure;
        answers++;
    }
    for (int b = 0; b < RELIABILITY_BINS; b++) sum += fabs((double)bins[b].right - bins[b].sure);
    return answers ? sum / (double)answers : ABSENT;
}

typedef struct TwoClassed {
    float prob[2];
    bool positive;
} TwoClassed;

/* By the odds, which tell apart what rounds to 1; a product of two floats is exact. */
static int by_odds(const void *a, const void *b)
{
    const float *p = ((const TwoClassed *)a)->prob, *q = ((const TwoClassed *)b)->prob;
    double x = (double)p[1] * (double)q[0], y = (double)q[1] * (double)p[0];
    return (x < y) - (x > y);
}

Status binary_curves(const EvalSample *samples, const float *prob, int64_t count, double *roc_auc,
                     double *average_precision)
{
    double hits = 0, misses = 0, area = 0, precision = 0;
    int64_t n = 0;
    TwoClassed *sorted = calloc((size_t)count + 1, sizeof *sorted);
    if (!sorted) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " predictions", count);
    for (int64_t i = 0; i < count; i++)
        if (samples[i].label != LABEL_NONE)
            sorted[n++] = (TwoClassed){{prob[2 * i], prob[2 * i + 1]}, samples[i].label == 1};
    qsort(sorted, (size_t)n, sizeof *sorted, by_odds);
    for (int64_t i = 0, end; i < n; i = end) { /* equal ones together */
        double hits_before = hits, misses_before = misses;
        for (end = i; end < n && !by_odds(&sorted[end], &sorted[i]); end++) sorted[end].positive ? hits++ : misses++;
        area += (misses - misses_before) * (hits + hits_before) / 2;
        precision += (hits - hits_before) * hits / (hits + misses);
    }
    free(sorted);
    *roc_auc = hits > 0 && misses > 0 ? area / (hits * misses) : ABSENT;
    *average_precision = hits > 0 && misses > 0 ? precision / hits : ABSENT;
    return OK;
}
