/* Writing the shared parts of plots. */
#include "inception/report/figure.h"

Status figures_open(Figures *f, FILE *to, const Run *run, const LossTruth *truth)
{
    size_t n = (size_t)run->steps;
    *f = (Figures){.to = to, .run = run, .truth = truth, .x = calloc(5 * n + 1, sizeof *f->x)};
    if (!f->x) return FAIL(ERR_MEMORY, "no memory for the plots of %" PRId64 " steps", run->steps);
    for (size_t k = 0; k < 4; k++) f->scratch[k] = f->x + (k + 1) * n;
    for (size_t i = 0; i < n; i++) f->x[i] = (double)run->step[i].step;
    return OK;
}

void figures_close(Figures *f)
{
    free(f->x);
    *f = (Figures){0};
}

void figure_begin(const Figures *f, bool wide, const char *title, const char *note)
{
    svg_printf(f->to, "<figure class=\"%s\"><figcaption><h3>%s</h3><p>%s</p></figcaption>\n<div class=\"plot\">",
               wide ? "wide" : "half", title, note);
}

void figure_end(const Figures *f)
{
    fputs("</div></figure>\n", f->to);
}

void figure_open(const Figures *f, bool wide, SvgPlot *plot, const SvgFrame *frame, const char *title, const char *note)
{
    figure_begin(f, wide, title, note);
    svg_open(plot, f->to, frame);
}

void figure_close(const Figures *f, SvgPlot *plot)
{
    svg_close(plot);
    figure_end(f);
}

SvgFrame figure_frame(const char *title, const char *x_label)
{
    return (SvgFrame){title, x_label, FIGURE_LOW, .y_low = INFINITY, .y_high = -INFINITY};
}

SvgFrame figure_steps(const Figures *f, const char *title)
{
    SvgFrame frame = figure_frame(title, "step");
    frame.x_low = f->x[0], frame.x_high = f->x[f->run->steps - 1];
    frame.x_whole = true;
    return frame;
}

double *figure_column(Figures *f, int k, size_t offset)
{
    for (int64_t i = 0; i < f->run->steps; i++)
        f->scratch[k][i] = *(const double *)((const char *)&f->run->step[i] + offset);
    return f->scratch[k];
}

void figure_range(Figures *f, StepValue *value)
{
    double *low = f->scratch[2], *high = f->scratch[3];
    for (int64_t i = 0; i < f->run->steps; i++) {
        low[i] = INFINITY, high[i] = -INFINITY;
        for (int t = 0; t < f->run->towers; t++) {
            double v = value(&f->run->step[i], t);
            if (!isfinite(v)) continue;
            low[i] = fmin(low[i], v);
            high[i] = fmax(high[i], v);
        }
        if (low[i] > high[i]) low[i] = high[i] = ABSENT;
    }
}
