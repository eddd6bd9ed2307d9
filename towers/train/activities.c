/* The time of each tower's activities in a step, copied from the ledger to the records, and the detection of a slow
 * tower. Called by rank 0 after the towers have agreed on the step, when every tower's row is complete up to the
 * all-reduce. */
#include "towers/train/activities.h"
#include "towers/replica/tower_process.h"

#include <stdlib.h>
#include <unistd.h>

static const Activity work_activities[STRAGGLER_ACTIVITIES] = {ACTIVITY_DATA, ACTIVITY_COPY, ACTIVITY_FORWARD,
                                                               ACTIVITY_BACKWARD};

/* The first steps warm up caches and pages, and wait for the first batches. */
enum { WARM_STEPS = 10 };

/* With several programs only the towers of this one have their times in the ledger. */
static int towers_here(const TowerProcess *p)
{
    Placement last = job_placement(p->job, job_group_processes(p->job) - 1);
    return last.first_tower + last.local_towers;
}

static void window_read(const TowerProcess *p, int64_t last, StragglerTimes *times)
{
    int towers = towers_here(p); /* rank 0's program has the first ones */
    for (int s = 0; s < STRAGGLER_WINDOW; s++) {
        for (int t = 0; t < towers; t++) {
            const LedgerRow *row = ledger_row(p->ledger, t, last - STRAGGLER_WINDOW + 1 + s);
            StragglerTimes *to = &times[s * towers + t];
            to->samples = row->loss.count;
            for (int k = 0; k < STRAGGLER_ACTIVITIES; k++)
                to->seconds[k] = (double)row->activity_ns[work_activities[k]] * 1e-9;
        }
    }
}

static Status news_tell(TowerProcess *p, StragglerNews news, const Straggler *was, int64_t step)
{
    const Straggler *s = &p->watch.named;
    char text[256];
    if (news == STRAGGLER_NAMED)
        snprintf(text, sizeof text,
                 "tower %d is slow in %s: %.1f ms per step, the others need %.1f ms (median of %d steps up to %lld); "
                 "all towers wait for it",
                 s->tower, straggler_activity_name(s->activity), s->seconds * 1e3, s->others * 1e3, STRAGGLER_WINDOW,
                 (long long)step);
    else
        snprintf(text, sizeof text, "tower %d is no longer slow in %s (step %lld)", was->tower,
                 straggler_activity_name(was->activity), (long long)step);
    ledger_note(p->ledger, "%s", text);
    return metrics_log(p->metrics, "%s", text);
}

static bool machine_loaded(void)
{
    double load;
    return getloadavg(&load, 1) == 1 && straggler_machine_loaded(load, (int)sysconf(_SC_NPROCESSORS_ONLN));
}

static Status window_judge(TowerProcess *p, int64_t step)
{
    Straggler was = p->watch.named;
    size_t rows = (size_t)STRAGGLER_WINDOW * (size_t)towers_here(p);
    StragglerTimes *times = calloc(rows, sizeof *times);
    if (!times) return FAIL(ERR_MEMORY, "no memory for the times of %zu rows", rows);
    window_read(p, step, times);
    Straggler found = straggler_find(times, STRAGGLER_WINDOW, towers_here(p));
    free(times);
    StragglerNews news = straggler_window(&p->watch, &found, machine_loaded(), step);
    return news == STRAGGLER_SAME ? OK : news_tell(p, news, &was, step);
}

Status activities_watch(TowerProcess *p, int64_t step)
{
    int64_t first = atomic_load(&p->ledger->run.first_step) + WARM_STEPS, seen = step - first;
    if (towers_here(p) == 1 || seen <= 0) return OK;
    if (seen == 1) straggler_start(&p->watch);
    return seen % STRAGGLER_WINDOW ? OK : window_judge(p, step);
}

void activities_read(const TowerProcess *p, int64_t step, ActivityRecord *record)
{
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step);
        for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) record->us[k][t] = row->activity_ns[work_activities[k]] / 1000;
    }
    record->slow_tower = p->watch.named.tower;
    record->slow_activity = p->watch.named.tower < 0 ? NULL : straggler_activity_name(p->watch.named.activity);
}
