/* Counting, and writing scores as a table, JSON and CSV. */
#include "inception/report/class_scores.h"

#include <math.h>
#include <stdlib.h>

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
