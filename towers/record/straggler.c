/* Finding the tower that the others wait for; see straggler.h. */
#include "towers/record/straggler.h"

#include "towers/record/statistics.h"

static const double SLOW_SHARE = 0.15, SLOW_LEAST = 3e-3, SLOW_STEPS = 0.85, LOADED = 1.25;

const char *straggler_activity_name(int activity)
{
    static const char *const names[STRAGGLER_ACTIVITIES] = {"data", "copy", "forward", "backward"};
    return activity >= 0 && activity < STRAGGLER_ACTIVITIES ? names[activity] : "no activity";
}

static double work(const StragglerTimes *t)
{
    double sum = 0;
    for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) sum += t->seconds[k];
    return sum;
}

enum { MEASURES = STRAGGLER_ACTIVITIES + 1 }; /* an activity for a sample; the whole work */

static double measure(const StragglerTimes *t, int which)
{
    return which == STRAGGLER_ACTIVITIES ? work(t) : t->seconds[which] / (double)t->samples;
}

/* The median of sorted values without one that is equal to `own`; NaN of none. */
static double median_without(const double *sorted, int count, double own)
{
    int before = 0, behind = count, rest = count - 1;
    while (before < behind) { /* the first that is not below it */
        int middle = before + (behind - before) / 2;
        if (sorted[middle] < own)
            before = middle + 1;
        else
            behind = middle;
    }
    double low = rest ? sorted[(rest - 1) / 2 + ((rest - 1) / 2 >= before)] : ABSENT;
    double high = rest ? sorted[rest / 2 + (rest / 2 >= before)] : ABSENT;
    return (low + high) / 2;
}

/* others[tower]: the median of the other towers that had samples in this step. `sorted` has room for all. */
static void others_find(const StragglerTimes *step, int towers, int which, double *sorted, double *others)
{
    int count = 0;
    for (int t = 0; t < towers; t++)
        if (step[t].samples) sorted[count++] = measure(&step[t], which);
    series_sort(sorted, count);
    for (int t = 0; t < towers; t++)
        others[t] = step[t].samples ? median_without(sorted, count, measure(&step[t], which)) : ABSENT;
}

/* A tower's time in an activity compared with the time that the others would need. */
typedef struct Excess {
    double own, others, excess, margin; /* medians over the steps */
    bool steady, delays;
} Excess;

/* middle: [steps][MEASURES][towers], of others_find. */
static bool excess_measure(const StragglerTimes *times, const double *middle, int steps, int towers, int tower,
                           int activity, Excess *e)
{
    double own[STRAGGLER_WINDOW], others[STRAGGLER_WINDOW], excess[STRAGGLER_WINDOW], late[STRAGGLER_WINDOW],
        usual[STRAGGLER_WINDOW];
    int count = 0, above = 0;
    for (int s = 0; s < steps && count < STRAGGLER_WINDOW; s++) {
        const StragglerTimes *step = times + (int64_t)s * towers, *mine = &step[tower];
        const double *others_of = middle + (int64_t)s * MEASURES * towers + tower;
        double sample = others_of[(int64_t)activity * towers],
               total = others_of[(int64_t)STRAGGLER_ACTIVITIES * towers];
        if (is_absent(sample)) continue;
        own[count] = mine->seconds[activity];
        others[count] = sample * (double)mine->samples;
        excess[count] = own[count] - others[count];
        late[count] = work(mine) - total;
        usual[count++] = total;
    }
    if (count < STRAGGLER_WINDOW / 2) return false;
    double share = SLOW_SHARE * series_median(usual, count);
    e->margin = share > SLOW_LEAST ? share : SLOW_LEAST;
    for (int i = 0; i < count; i++) above += excess[i] > e->margin / 2;
    e->steady = above >= SLOW_STEPS * count;
    e->delays = series_median(late, count) > e->margin / 2;
    e->own = series_median(own, count);
    e->others = series_median(others, count);
    e->excess = series_median(excess, count);
    return true;
}

Straggler straggler_find(const StragglerTimes *times, int steps, int towers)
{
    Straggler found = {.tower = -1};
    double most = 0, *middle = calloc(((size_t)steps * MEASURES + 1) * (size_t)towers, sizeof *middle);
    double *sorted = middle ? middle + (size_t)steps * MEASURES * (size_t)towers : NULL;
    if (!middle) return found; /* the next window has another chance */
    for (int i = 0; i < steps * MEASURES; i++)
        others_find(times + (int64_t)(i / MEASURES) * towers, towers, i % MEASURES, sorted,
                    middle + (int64_t)i * towers);
    for (int t = 0; towers > 1 && t < towers; t++) {
        for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) {
            Excess e;
            if (!excess_measure(times, middle, steps, towers, t, k, &e)) continue;
            if (e.excess <= e.margin || e.excess <= most || !e.steady || !e.delays) continue;
            most = e.excess;
            found = (Straggler){.tower = t, .activity = k, .seconds = e.own, .others = e.others};
        }
    }
    free(middle);
    return found;
}

void straggler_start(StragglerWatch *watch)
{
    *watch = (StragglerWatch){.before = {.tower = -1}, .named = {.tower = -1}, .agreed = 1};
}

static bool same(const Straggler *a, const Straggler *b)
{
    return a->tower == b->tower && (a->tower < 0 || a->activity == b->activity);
}

bool straggler_machine_loaded(double load, int cores)
{
    return load > LOADED * cores;
}

StragglerChange straggler_window(StragglerWatch *watch, const Straggler *found, bool loaded, int64_t step)
{
    bool known = same(&watch->named, found), was = watch->named.tower >= 0;
    int wanted = loaded && found->tower >= 0 && !known ? STRAGGLER_AGREE_LOADED : STRAGGLER_AGREE;
    watch->agreed = same(&watch->before, found) ? watch->agreed + 1 : 1;
    watch->before = *found;
    if (watch->agreed < wanted) return STRAGGLER_SAME;
    watch->named = *found;
    if (found->tower < 0) return was ? STRAGGLER_GONE : STRAGGLER_SAME;
    if (known && step - watch->noted < STRAGGLER_REMIND) return STRAGGLER_SAME;
    watch->noted = step;
    return STRAGGLER_NAMED;
}
