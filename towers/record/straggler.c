/* Finding the tower that the others wait for; see straggler.h. */
#include "towers/record/straggler.h"

#include "towers/data/loading/share.h"
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

/* The median of the other towers that had samples in this step: of an activity and of a sample, or (activity -1) of the whole
 * work. Returns how many they were. */
static int others_median(const StragglerTimes *step, int towers, int tower, int activity, double *value)
{
    double values[TOWERS_MAX];
    int count = 0;
    for (int u = 0; u < towers && count < TOWERS_MAX; u++) {
        if (u == tower || step[u].samples == 0) continue;
        values[count++] = activity < 0 ? work(&step[u]) : step[u].seconds[activity] / (double)step[u].samples;
    }
    *value = series_median(values, count);
    return count;
}

/* A tower's time in an activity compared with the time that the others would need. */
typedef struct Excess {
    double own, others, excess, margin; /* medians over the steps */
    bool steady, delays;
} Excess;

static bool excess_measure(const StragglerTimes *times, int steps, int towers, int tower, int activity, Excess *e)
{
    double own[STRAGGLER_WINDOW], others[STRAGGLER_WINDOW], excess[STRAGGLER_WINDOW], late[STRAGGLER_WINDOW],
        usual[STRAGGLER_WINDOW];
    int count = 0, above = 0;
    for (int s = 0; s < steps && count < STRAGGLER_WINDOW; s++) {
        const StragglerTimes *step = times + (int64_t)s * towers, *mine = &step[tower];
        double sample, total;
        if (mine->samples == 0 || others_median(step, towers, tower, activity, &sample) == 0) continue;
        others_median(step, towers, tower, -1, &total);
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
    double most = 0;
    for (int t = 0; towers > 1 && t < towers; t++) {
        for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) {
            Excess e;
            if (!excess_measure(times, steps, towers, t, k, &e)) continue;
            if (e.excess <= e.margin || e.excess <= most || !e.steady || !e.delays) continue;
            most = e.excess;
            found = (Straggler){.tower = t, .activity = k, .seconds = e.own, .others = e.others};
        }
    }
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

StragglerNews straggler_window(StragglerWatch *watch, const Straggler *found, bool loaded, int64_t step)
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
