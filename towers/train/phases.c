/* Where each tower's time went in a step, from the ledger to the records, and the watch for one that all wait for.
 * Called by rank 0 after the towers have agreed on the step, when every tower's row is complete up to the sum. */
#include "towers/train/phases.h"
#include "towers/replica/tower_process.h"

#include <stdlib.h>
#include <unistd.h>

static const Phase work_phases[STRAGGLER_PHASES] = {PHASE_DATA, PHASE_COPY, PHASE_FORWARD, PHASE_BACKWARD};

/* The first steps warm up caches and pages, and wait for the first batches. */
enum { WARM_STEPS = 10 };

static void window_read(const TowerProcess *p, int64_t last, StragglerTimes *times)
{
    int towers = p->ledger->towers;
    for (int s = 0; s < STRAGGLER_WINDOW; s++) {
        for (int t = 0; t < towers; t++) {
            const LedgerRow *row = ledger_row(p->ledger, t, last - STRAGGLER_WINDOW + 1 + s);
            StragglerTimes *to = &times[s * towers + t];
            to->samples = row->loss.count;
            for (int k = 0; k < STRAGGLER_PHASES; k++) to->seconds[k] = (double)row->phase_ns[work_phases[k]] * 1e-9;
        }
    }
}

static Status news_tell(TowerProcess *p, StragglerNews news, const Straggler *was, int64_t step)
{
    const Straggler *s = &p->watch.named;
    char text[256];
    if (news == STRAGGLER_NAMED)
        snprintf(
            text, sizeof text,
            "tower %d is slow in %s: %.1f ms a step where the others need %.1f ms (median of %d steps up to %lld); "
            "all towers wait for it",
            s->tower, straggler_phase_name(s->phase), s->seconds * 1e3, s->others * 1e3, STRAGGLER_WINDOW,
            (long long)step);
    else
        snprintf(text, sizeof text, "tower %d is no longer slow in %s (step %lld)", was->tower,
                 straggler_phase_name(was->phase), (long long)step);
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
    size_t rows = (size_t)STRAGGLER_WINDOW * (size_t)p->ledger->towers;
    StragglerTimes *times = calloc(rows, sizeof *times);
    if (!times) return FAIL(ERR_MEMORY, "no memory for times of %zu rows", rows);
    window_read(p, step, times);
    Straggler found = straggler_find(times, STRAGGLER_WINDOW, p->ledger->towers);
    free(times);
    StragglerNews news = straggler_window(&p->watch, &found, machine_loaded(), step);
    return news == STRAGGLER_SAME ? OK : news_tell(p, news, &was, step);
}

Status phases_watch(TowerProcess *p, int64_t step)
{
    int64_t first = atomic_load(&p->ledger->run.first_step) + WARM_STEPS, seen = step - first;
    if (p->ledger->towers == 1 || seen <= 0) return OK;
    if (seen == 1) straggler_start(&p->watch);
    return seen % STRAGGLER_WINDOW ? OK : window_judge(p, step);
}

void phases_read(const TowerProcess *p, int64_t step, PhaseRecord *record)
{
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step);
        for (int k = 0; k < STRAGGLER_PHASES; k++) record->us[k][t] = row->phase_ns[work_phases[k]] / 1000;
    }
    record->slow_tower = p->watch.named.tower;
    record->slow_phase = p->watch.named.tower < 0 ? NULL : straggler_phase_name(p->watch.named.phase);
}
