/* Writing the shared parts of plots. */
#include "inception/report/figure.h"

#include <math.h>

Status figures_open(Figures *f, FILE *to, const Run *run, const LossTruth *truth)
{
    size_t n = (size_t)run->steps;
    *f = (Figures){.to = to, .run = run, .truth = truth, .x = calloc(5 * n + 1, sizeof *f->x)};
    if (!f->x) return FAIL(ERR_MEMORY, "no memory for the plots of %lld steps", (long long)run->steps);
    for (size_t k = 0; k < 4; k++) f->scratch[k] = f->x + (k + 1) * n;
    for (size_t i = 0; i < n; i++) f->x[i] = (double)run->step[i].step;
    return OK;
}

void figures_close(Figures *f)
{
    free(f->x);
    *f = (Figures){0};
}

void figure_begin(const Figures *f, const char *kind, const char *title, const char *note)
{
    fprintf(f->to, "<figure class=\"%s\"><figcaption><h2>", kind);
    svg_text(f->to, title);
    fputs("</h2><p>", f->to);
    svg_text(f->to, note);
    fputs("</p></figcaption>\n<div class=\"plot\">", f->to);
}

void figure_end(const Figures *f)
{
    fputs("</div></figure>\n", f->to);
}

SvgFrame figure_steps(const Figures *f, const char *title, double width, double height)
{
    int64_t n = f->run->steps;
    return (SvgFrame){.title = title,
                      .x_label = "step",
                      .width = width,
                      .height = height,
                      .x_low = f->x[0],
                      .x_high = f->x[n - 1],
                      .y_low = INFINITY,
                      .y_high = -INFINITY};
}

double *figure_column(Figures *f, int slot, StepValue *value, int tower)
{
    for (int64_t i = 0; i < f->run->steps; i++) f->scratch[slot][i] = value(&f->run->step[i], tower);
    return f->scratch[slot];
}

void figure_range(Figures *f, StepValue *value, double *low, double *high)
{
    for (int64_t i = 0; i < f->run->steps; i++) {
        low[i] = INFINITY, high[i] = -INFINITY;
        for (int t = 0; t < f->run->towers; t++) {
            double v = value(&f->run->step[i], t);
            if (!isfinite(v)) continue;
            low[i] = fmin(low[i], v);
            high[i] = fmax(high[i], v);
        }
        if (low[i] > high[i]) low[i] = high[i] = NAN;
    }
}
