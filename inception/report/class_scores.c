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
    return whole ? (double)part / (double)whole : NAN;
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

double answers_calibration(const ClassAnswer *answers, int64_t count, ReliabilityBin bins[RELIABILITY_BINS])
{
    double sum = 0;
    memset(bins, 0, RELIABILITY_BINS * sizeof *bins);
    for (int64_t i = 0; i < count; i++) {
        int b = (int)ceil(answers[i].probability * RELIABILITY_BINS) - 1;
        ReliabilityBin *bin = &bins[b < 0 ? 0 : b < RELIABILITY_BINS ? b : RELIABILITY_BINS - 1];
        bin->answers++;
        bin->right += answers[i].label == answers[i].predicted;
        bin->sure += answers[i].probability;
    }
    for (int b = 0; b < RELIABILITY_BINS; b++) sum += fabs((double)bins[b].right - bins[b].sure);
    return count ? sum / (double)count : NAN;
}

static double positive(const ClassAnswer *answer)
{
    return answer->predicted ? answer->probability : 1 - answer->probability;
}

static int by_positive(const void *a, const void *b)
{
    double x = positive(a), y = positive(b);
    return (x < y) - (x > y);
}

void answers_curves(ClassAnswer *answers, int64_t count, double *roc_auc, double *average_precision)
{
    double hits = 0, misses = 0, area = 0, precision = 0;
    qsort(answers, (size_t)count, sizeof *answers, by_positive);
    for (int64_t i = 0, end; i < count; i = end) { /* equal ones together */
        double hits_before = hits, misses_before = misses;
        for (end = i; end < count && !by_positive(&answers[end], &answers[i]); end++)
            answers[end].label ? hits++ : misses++;
        area += (misses - misses_before) * (hits + hits_before) / 2;
        precision += (hits - hits_before) * hits / (hits + misses);
    }
    *roc_auc = hits > 0 && misses > 0 ? area / (hits * misses) : NAN;
    *average_precision = hits > 0 && misses > 0 ? precision / hits : NAN;
}
