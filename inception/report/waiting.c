/* Time per activity and slow towers of a run; see report_data.h. */
#include "inception/report/report_data.h"

#include "inception/report/page/svg.h"
#include "towers/files/json.h"
#include "towers/record/statistics.h"

enum { ACTIVITIES = 4, STRETCHES_SHOWN = 12 };

/* Consecutive steps with the same slow tower and activity. */
typedef struct WaitingSteps {
    int64_t first, last; /* steps */
    int tower;
    char where[RUN_HOST_BYTES + 4]; /* " on HOST", or "" */
    const char *activity;
} WaitingSteps;

static void where_text(const Run *run, int tower, char *text, size_t bytes)
{
    char host[RUN_HOST_BYTES];
    run_host(run, tower, host);
    snprintf(text, bytes, "%s%s", *host ? " on " : "", host);
}

/* Find the next stretch at or after index *at, and set *at past its end. */
static bool stretch_next(const Run *run, int64_t *at, WaitingSteps *stretch)
{
    while (*at < run->steps && !run->step[*at].slow_activity[0]) ++*at;
    if (*at >= run->steps) return false;
    const RunStep *begin = &run->step[*at];
    while (*at < run->steps && run->step[*at].slow_tower == begin->slow_tower &&
           !strcmp(run->step[*at].slow_activity, begin->slow_activity))
        ++*at;
    *stretch = (WaitingSteps){begin->step, run->step[*at - 1].step, begin->slow_tower, "", begin->slow_activity};
    where_text(run, stretch->tower, stretch->where, sizeof stretch->where);
    return true;
}

void waiting_text(const Run *run, FILE *to)
{
    WaitingSteps s;
    int shown = 0;
    for (int64_t at = 0; shown < STRETCHES_SHOWN && stretch_next(run, &at, &s); shown++)
        text_printf(to, "  steps %" PRId64 " to %" PRId64 ": all towers waited for tower %d%s, slow in %s\n", s.first,
                    s.last, s.tower, s.where, s.activity);
}

json_t *waiting_json(const Run *run)
{
    json_t *all = json_array();
    WaitingSteps s;
    for (int64_t at = 0; stretch_next(run, &at, &s);)
        json_array_append_new(all, json_pack("{s:I, s:I, s:i, s:o*, s:o}", "first_step", (json_int_t)s.first,
                                             "last_step", (json_int_t)s.last, "tower", s.tower, "host",
                                             *s.where ? json_text(s.where + strlen(" on ")) : NULL, "activity",
                                             json_text(s.activity)));
    return all;
}

/* ---- the table */

/* Median in milliseconds; NaN if no step has a value. */
static double activity_median(const Run *run, int tower, int activity, double *scratch)
{
    int64_t count = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        const double *us[ACTIVITIES] = {s->data_us, s->copy_us, s->forward_us, s->backward_us};
        if (isfinite(us[activity][tower])) scratch[count++] = us[activity][tower] / 1000;
    }
    series_sort(scratch, count);
    return count ? scratch[count / 2] : ABSENT;
}

void waiting_html(const Run *run, FILE *to)
{
    WaitingSteps s;
    int shown = 0;
    double *scratch = run->towers > 1 ? calloc((size_t)run->steps + 1, sizeof *scratch) : NULL;
    if (!scratch) return;
    section_open(to, "Time per activity of each tower");
    fputs("<table><tr><th>median milliseconds</th><td class=\"n\">data</td><td class=\"n\">copy</td>"
          "<td class=\"n\">forward</td><td class=\"n\">backward</td></tr>",
          to);
    for (int t = 0; t < run->towers; t++) {
        char where[RUN_HOST_BYTES + 4];
        where_text(run, t, where, sizeof where);
        svg_printf(to, "<tr><th>tower %d%s</th>", t, where);
        for (int k = 0; k < ACTIVITIES; k++) {
            double ms = activity_median(run, t, k, scratch);
            fprintf(to, isfinite(ms) ? "<td class=\"n\">%.2f</td>" : "<td class=\"n\">&ndash;</td>", ms);
        }
        fputs("</tr>", to);
    }
    for (int64_t at = 0; shown < STRETCHES_SHOWN && stretch_next(run, &at, &s); shown++)
        svg_printf(to,
                   "<tr><th>slow</th><td colspan=\"4\">tower %d%s in %s, steps %" PRId64 " to %" PRId64
                   ": all others waited for it</td></tr>",
                   s.tower, s.where, s.activity, s.first, s.last);
    fputs("</table></section>\n", to);
    free(scratch);
}
