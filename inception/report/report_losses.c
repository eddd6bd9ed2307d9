/* Plots of losses: mean_loss, the towers' losses, their noise and their bias, the terms and the KID of a GAN; see
 * report_plots.h. */
#include "inception/report/report_plots.h"

enum {
    ENDING = 120 /* steps shown one by one */,
    HISTOGRAM = 41 /* bars */,
    AVERAGES = 40 /* side by side in a run */
};
enum { WINDOW_MOST = 500 };
enum { TOWERS_SHOWN = 64 /* side by side */, TERMS_SHOWN = 16 };

static double value_tower_loss(const RunStep *s, int tower)
{
    return s->tower_count[tower] ? s->tower_loss[tower] : ABSENT;
}

/* ---- step by step */

/* In scratch[0]. */
static double *last_tower(Figures *f)
{
    for (int64_t i = 0; i < f->run->steps; i++) f->scratch[0][i] = value_tower_loss(&f->run->step[i], f->truth->last);
    return f->scratch[0];
}

/* A centered average of the finite values over `window` steps; NaN where there is none. Each is summed anew: what a spike has
 * rounded off a running sum would stay in it. */
static void average_make(const double *values, int64_t count, int64_t window, double *average)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t k = i - window / 2; k < i - window / 2 + window; k++)
            if (k >= 0 && k < count && isfinite(values[k])) sum += values[k], n++;
        average[i] = n ? sum / (double)n : ABSENT;
    }
}

/* A logarithmic axis if mean_loss needs one: a tower's spike must not decide. */
static void loss_axis(SvgFrame *frame, const double *mean, int64_t count)
{
    double low = INFINITY, high = -INFINITY;
    svg_extent(mean, count, &low, &high);
    frame->y_log = frame->y_low > 0 && high > 50 * low;
    if (!frame->y_log && frame->y_low > 0 && frame->y_low < frame->y_high / 2) frame->y_low = 0;
    frame->height = FIGURE_TALL;
}

static void bad_marks(const Figures *f, SvgPlot *plot)
{
    for (int64_t i = 0; i < f->truth->bad_count; i++) svg_mark(plot, (double)f->truth->bad[i].step);
}

void figure_losses(Figures *f)
{
    SvgPlot plot;
    char note[160], name[SVG_LABEL_BYTES];
    int64_t steps = f->run->steps, window = steps < AVERAGES * WINDOW_MOST ? steps / AVERAGES : WINDOW_MOST;
    double *mean = figure_column(f, 1, offsetof(RunStep, mean_loss)), *average = f->scratch[2];
    SvgFrame frame = figure_steps(f, "training loss of every step");
    svg_extent(mean, steps, &frame.y_low, &frame.y_high);
    loss_axis(&frame, mean, steps);
    average_make(mean, steps, window, average);
    snprintf(name, sizeof name, "average of %" PRId64, window);
    Text words = text_start(note, sizeof note);
    text_add(&words, "mean_loss of every step");
    if (window > 1) text_add(&words, ", and its average over %" PRId64 " steps", window);
    text_add(&words, f->truth->bad_count ? ". A red mark is a step that was not finite." : ".");
    figure_open(f, true, &plot, &frame, "Training loss", note);
    if (window > 1) {
        svg_raw(&plot, f->x, mean, steps, 0, "mean_loss");
        svg_line(&plot, f->x, average, steps, 0, 2, name);
    } else {
        svg_line(&plot, f->x, mean, steps, 0, 1.6, "mean_loss");
        if (steps == 1) svg_dots(&plot, f->x, mean, steps, 0);
    }
    bad_marks(f, &plot);
    figure_close(f, &plot);
}

void figure_tower_losses(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    char name[SVG_LABEL_BYTES];
    if (run->towers < 2) return;
    SvgFrame frame = figure_steps(f, "loss of every tower");
    double *mean = figure_column(f, 1, offsetof(RunStep, mean_loss));
    figure_range(f, value_tower_loss);
    svg_extent(f->scratch[2], run->steps, &frame.y_low, &frame.y_high);
    svg_extent(f->scratch[3], run->steps, &frame.y_low, &frame.y_high);
    loss_axis(&frame, mean, run->steps);
    figure_open(
        f, true, &plot, &frame, "Loss of the towers",
        "Every step: mean_loss over all samples, the last tower's own loss, and the range from the lowest to the "
        "highest tower.");
    svg_band(&plot, f->x, f->scratch[2], f->scratch[3], run->steps, 5, "all towers");
    snprintf(name, sizeof name, "tower %d (last)", f->truth->last);
    svg_line(&plot, f->x, last_tower(f), run->steps, 1, 1, name);
    svg_line(&plot, f->x, mean, run->steps, 0, 1.6, "mean_loss");
    bad_marks(f, &plot);
    figure_close(f, &plot);
}

void figure_ending(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    char note[200];
    int64_t window = f->truth->window;
    if (run->towers < 2 || run->steps < 20) return;
    int64_t count = run->steps < ENDING ? run->steps : ENDING, first = run->steps - count;
    SvgFrame frame = figure_steps(f, "loss of the last steps");
    double *last = last_tower(f), *mean = figure_column(f, 1, offsetof(RunStep, mean_loss));
    frame.x_low = f->x[first];
    svg_extent(last + first, count, &frame.y_low, &frame.y_high);
    svg_extent(mean + first, count, &frame.y_low, &frame.y_high);
    snprintf(note, sizeof note, "The last %" PRId64 " steps: one tower's loss and mean_loss%s.", count,
             window > 1 ? "" : " (here they agree)");
    figure_open(f, true, &plot, &frame, "Step by step", note);
    svg_line(&plot, f->x + first, last + first, count, 1, 1.2, "last tower");
    if (window > 1) {
        char name[SVG_LABEL_BYTES];
        average_make(last, run->steps, window, f->scratch[2]);
        snprintf(name, sizeof name, "last, over %" PRId64, window);
        svg_line(&plot, f->x + first, f->scratch[2] + first, count, 3, 1.6, name);
    }
    svg_line(&plot, f->x + first, mean + first, count, 0, 2, "mean_loss");
    figure_close(f, &plot);
}

/* ---- towers side by side */

static void whisker_figure(Figures *f, bool ratio, const char *title, const char *note)
{
    char text[TOWERS_SHOWN][16];
    const char *name[TOWERS_SHOWN];
    SvgPlot plot;
    const LossTruth *truth = f->truth;
    if (f->run->towers < 2 || truth->used < 24) return;
    SvgFrame frame = figure_frame(title, "tower");
    frame.categories = name;
    frame.category_count = truth->towers < TOWERS_SHOWN ? truth->towers : TOWERS_SHOWN;
    frame.y_low = frame.y_high = 0;
    for (int t = 0; t < frame.category_count; t++) {
        const TowerTruth *tower = &truth->tower[t];
        const Estimate *e = ratio ? &tower->ratio : &tower->bias;
        double ends[] = {e->low, e->high, ratio ? tower->expected : 0};
        snprintf(text[t], sizeof text[t], t == truth->last ? "%d (last)" : "%d", t);
        name[t] = text[t];
        if (tower->share) svg_extent(ends, 3, &frame.y_low, &frame.y_high);
    }
    figure_open(f, false, &plot, &frame, title, note);
    double level = ratio ? truth->tower[truth->last].expected : 0;
    svg_straight(&plot, level, level, ratio ? "independent" : "mean_loss");
    for (int t = 0; t < frame.category_count; t++) {
        const TowerTruth *tower = &truth->tower[t];
        const Estimate *e = ratio ? &tower->ratio : &tower->bias;
        double at = t;
        if (!tower->share) continue;
        svg_whisker(&plot, t, e->mean, e->low, e->high, t == truth->last ? 1 : 0);
        svg_values(&plot, &at, &e->mean, NULL, 1, t == truth->last ? 1 : 0, ratio ? "ratio" : "bias");
        svg_values(&plot, &at, &e->low, &e->high, 1, 5, "95 % interval");
    }
    figure_close(f, &plot);
}

void figure_noise(Figures *f)
{
    whisker_figure(f, true, "Variance ratio",
                   "Noise variance of each tower's loss relative to mean_loss's, with 95 % intervals. Independent "
                   "batches give the dashed line: the number of towers, if their shares are equal.");
}

void figure_bias(Figures *f)
{
    whisker_figure(f, false, "Bias",
                   "Mean of each tower's loss minus mean_loss, paired step by step, with 95 % intervals that allow for "
                   "dependence between steps.");
}

void figure_deviation(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    double bin[HISTOGRAM] = {0}, middle[HISTOGRAM], reach = 0;
    if (run->towers < 2 || run->steps < 50) return;
    double *last = last_tower(f), *mean = figure_column(f, 1, offsetof(RunStep, mean_loss)), square = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < run->steps; i++)
        if (isfinite(last[i] - mean[i])) square += (last[i] - mean[i]) * (last[i] - mean[i]), n++;
    reach = n ? 3.5 * sqrt(square / (double)n) : 0;
    if (!(reach > 0)) return;
    for (int64_t i = 0; i < run->steps; i++) {
        double at = ((last[i] - mean[i]) / reach + 1) / 2 * HISTOGRAM;
        if (isfinite(at) && at >= 0 && at < HISTOGRAM) bin[(int)at]++;
    }
    SvgFrame frame = figure_frame("deviation of the last tower", "last tower's loss minus mean_loss");
    frame.x_low = -reach, frame.x_high = reach;
    frame.y_low = frame.y_high = 0;
    frame.bare = true;
    svg_extent(bin, HISTOGRAM, &frame.y_low, &frame.y_high);
    figure_open(f, false, &plot, &frame, "Deviation of the last tower",
                "Number of steps by distance of its loss from mean_loss.");
    for (int k = 0; k < HISTOGRAM; k++) {
        middle[k] = reach * ((k + 0.5) * 2 / HISTOGRAM - 1);
        svg_bar(&plot, middle[k], bin[k], 2 * reach / HISTOGRAM, 1);
    }
    svg_values(&plot, middle, bin, NULL, HISTOGRAM, 1, "steps");
    figure_close(f, &plot);
}

/* ---- terms of a phase */

/* A curve over steps; nothing if it has no value. */
static void figure_curve(Figures *f, const char *title, const char *note, const double *x, const double *y,
                         int64_t count)
{
    SvgPlot plot;
    SvgFrame frame = figure_steps(f, title);
    svg_extent(x, count, &frame.x_low, &frame.x_high);
    svg_extent(y, count, &frame.y_low, &frame.y_high);
    if (!(frame.y_low <= frame.y_high)) return;
    frame.bare = true;
    figure_open(f, false, &plot, &frame, title, note);
    svg_curve(&plot, x, y, count, 0, 1.3, title);
    if (count == 1) svg_dots(&plot, x, y, count, 0);
    figure_close(f, &plot);
}

/* Its mean at every step; NaN where a step has none. */
static double *term_column(Figures *f, int name)
{
    const Run *run = f->run;
    int64_t k = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        int64_t step = run->step[i].step;
        while (k < run->terms && (run->term[k].step < step || (run->term[k].step == step && run->term[k].name != name)))
            k++;
        f->scratch[0][i] = k < run->terms && run->term[k].step == step ? run->term[k].mean : ABSENT;
    }
    return f->scratch[0];
}

void figure_terms(Figures *f)
{
    for (int k = 0; k < f->run->term_names && k < TERMS_SHOWN; k++)
        figure_curve(f, f->run->term_name[k], "Mean over all samples of each step.", f->x, term_column(f, k),
                     f->run->steps);
}

void figure_phase(Figures *f)
{
    char title[64];
    snprintf(title, sizeof title, "Loss of the phase %s", f->run->phase ? f->run->phase : "train");
    figure_curve(f, title, "mean_loss of its steps.", f->x, figure_column(f, 1, offsetof(RunStep, mean_loss)),
                 f->run->steps);
}

void figure_kid(Figures *f)
{
    int64_t count = f->run->kids < f->run->steps ? f->run->kids : f->run->steps;
    for (int64_t i = 0; i < count; i++) {
        f->scratch[0][i] = (double)f->run->kid[i].step;
        f->scratch[1][i] = f->run->kid[i].kid;
    }
    figure_curve(f, "KID", "Of generated images against the training images: lower is closer.", f->scratch[0],
                 f->scratch[1], count);
}
