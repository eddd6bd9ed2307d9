/* Views of a run; see run_view.h. */
#include "towers/record/run_view.h"

#include "towers/record/run_lines.h"

/* The name of a phase by the order of first steps; NULL behind the last. */
static const char *phase_name(const Run *run, int phase)
{
    const char *names[RUN_PHASES];
    int count = 0;
    for (int64_t i = 0; i < run->steps && count < RUN_PHASES; i++) {
        int k = 0;
        while (k < count && strcmp(names[k], run->step[i].phase) != 0) k++;
        if (k == count) names[count++] = run->step[i].phase;
        if (count > phase) return names[phase];
    }
    return phase == 0 && !count ? "" : NULL;
}

Status run_phase(const Run *run, int phase, Run *view, bool *found)
{
    const char *name = phase_name(run, phase);
    *found = name != NULL;
    *view = *run;
    view->step = NULL;
    if (!name) return OK;
    view->phase = *name ? name : NULL;
    view->kids = phase == 0 ? run->kids : 0;
    view->steps = 0;
    view->step = calloc((size_t)run->steps + 1, sizeof *view->step);
    if (!view->step) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " steps", run->steps);
    for (int64_t i = 0; i < run->steps; i++)
        if (!strcmp(run->step[i].phase, name)) view->step[view->steps++] = run->step[i];
    return OK;
}

Status run_term(const Run *phase, int name, Run *view, bool *found)
{
    int64_t k = 0;
    *view = *phase;
    view->steps = 0;
    view->step = calloc((size_t)phase->steps + 1, sizeof *view->step);
    if (!view->step) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " steps", phase->steps);
    for (int64_t i = 0; i < phase->steps; i++) {
        int64_t at = phase->step[i].step;
        while (k < phase->terms &&
               (phase->term[k].step < at || (phase->term[k].step == at && phase->term[k].name != name)))
            k++;
        if (k == phase->terms || phase->term[k].step != at) continue;
        RunStep *step = &view->step[view->steps++];
        *step = phase->step[i];
        step->mean_loss = phase->term[k].mean;
        step->tower_loss = phase->term[k].tower;
        step->last_tower_loss = ABSENT; /* of the last tower with samples */
        for (int t = phase->towers; t > 0 && is_absent(step->last_tower_loss); t--)
            step->last_tower_loss = phase->term[k].tower[t - 1];
    }
    *found = view->steps > 0;
    return OK;
}

void run_view_free(Run *view)
{
    free(view->step);
    view->step = NULL;
}
