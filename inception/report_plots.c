/* From the records of a run to plots; see report_plots.h. */
#include "inception/report_plots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "towers/record/svg.h"

enum { WIDE = 1080, HALF = 532, TALL = 330, LOW = 230, FLAT = 150, ENDING = 120, HISTOGRAM = 41, ARRIVAL_COLUMNS = 60 };
enum { LAYER_ROWS = 80, LAYER_COLUMNS = 90, NAMED_CLASSES = 20 };

Status figures_open(Figures *f, FILE *to, const Run *run, const LossTruth *truth)
{
    size_t n = (size_t)run->steps;
    *f = (Figures){.to = to, .run = run, .truth = truth, .x = calloc(5 * n + 1, sizeof *f->x)};
    if (!f->x) return FAIL(ERR_MEMORY, "plots of %lld steps", (long long)run->steps);
    for (size_t k = 0; k < 4; k++) f->scratch[k] = f->x + (k + 1) * n;
    for (size_t i = 0; i < n; i++) f->x[i] = (double)run->step[i].step;
    return OK;
}

void figures_close(Figures *f)
{
    free(f->x);
    *f = (Figures){0};
}

/* ---- frames */

static void figure_begin(const Figures *f, const char *kind, const char *title, const char *note)
{
    fprintf(f->to, "<figure class=\"%s\"><figcaption><h2>", kind);
    svg_text(f->to, title);
    fputs("</h2><p>", f->to);
    svg_text(f->to, note);
    fputs("</p></figcaption>\n", f->to);
}

static void figure_end(const Figures *f)
{
    fputs("</figure>\n", f->to);
}

static SvgFrame step_frame(const Figures *f, const char *title, double width, double height)
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

/* ---- columns of the record */

typedef double StepValue(const RunStep *step, int tower);

static double value_mean_loss(const RunStep *s, int tower)
{
    (void)tower;
    return s->mean_loss;
}

static double value_tower_loss(const RunStep *s, int tower)
{
    return s->count[tower] ? s->loss[tower] : NAN;
}

static double value_rate(const RunStep *s, int tower)
{
    (void)tower;
    return s->lr;
}

static double value_speed(const RunStep *s, int tower)
{
    (void)tower;
    return s->images_per_sec;
}

static double value_gradient(const RunStep *s, int tower)
{
    return tower < 0 ? s->grad_norm : s->grad_norms[tower];
}

static double *column(Figures *f, int slot, StepValue *value, int tower)
{
    for (int64_t i = 0; i < f->run->steps; i++) f->scratch[slot][i] = value(&f->run->step[i], tower);
    return f->scratch[slot];
}

/* The least and the greatest over the towers of every step. */
static void tower_range(Figures *f, StepValue *value, double *low, double *high)
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

/* A centred mean over `window` values that are finite. */
static void smooth(const double *from, double *to, int64_t count, int64_t window)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t k = i - window / 2; k < i - window / 2 + window; k++)
            if (k >= 0 && k < count && isfinite(from[k])) sum += from[k], n++;
        to[i] = n ? sum / (double)n : NAN;
    }
}

/* ---- losses */

static void loss_lines(Figures *f, SvgPlot *plot)
{
    const Run *run = f->run;
    bool several = run->towers > 1;
    char name[SVG_LABEL_BYTES];
    if (several) {
        snprintf(name, sizeof name, "tower %d (last)", f->truth->last);
        svg_line(plot, f->x, column(f, 0, value_tower_loss, f->truth->last), run->steps, 1, 1, name);
    }
    svg_line(plot, f->x, column(f, 1, value_mean_loss, 0), run->steps, 0, several ? 1.6 : 1.3, "mean_loss");
}

void figure_losses(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    SvgFrame frame = step_frame(f, "loss of every step", WIDE, TALL);
    tower_range(f, value_tower_loss, f->scratch[2], f->scratch[3]);
    svg_extent(f->scratch[2], run->steps, &frame.y_low, &frame.y_high);
    svg_extent(f->scratch[3], run->steps, &frame.y_low, &frame.y_high);
    double low = INFINITY, high = -INFINITY;
    svg_extent(column(f, 1, value_mean_loss, 0), run->steps, &low, &high);
    frame.y_log = frame.y_low > 0 && high > 50 * low; /* a spike of one tower is no reason */
    if (!frame.y_log && frame.y_low > 0 && frame.y_low < frame.y_high / 2) frame.y_low = 0;
    figure_begin(f, "wide", "Loss",
                 run->towers > 1 ? "Every step: mean_loss over all samples, the last tower's own loss, and the range "
                                   "from the lowest to the highest tower."
                                 : "Every step's mean_loss.");
    svg_open(&plot, f->to, &frame);
    if (run->towers > 1) svg_band(&plot, f->x, f->scratch[2], f->scratch[3], run->steps, 5, "all towers");
    loss_lines(f, &plot);
    for (int64_t i = 0; i < f->truth->bad_count; i++) svg_mark(&plot, (double)f->truth->bad[i].step);
    svg_close(&plot);
    figure_end(f);
}

void figure_ending(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    char note[200];
    int64_t window = f->truth->window;
    if (run->towers < 2 || run->steps < 20) return;
    int64_t count = run->steps < ENDING ? run->steps : ENDING, first = run->steps - count;
    SvgFrame frame = step_frame(f, "loss of the last steps", WIDE, LOW);
    double *last = column(f, 0, value_tower_loss, f->truth->last), *mean = column(f, 1, value_mean_loss, 0);
    frame.x_low = f->x[first];
    svg_extent(last + first, count, &frame.y_low, &frame.y_high);
    svg_extent(mean + first, count, &frame.y_low, &frame.y_high);
    snprintf(note, sizeof note, "The last %lld steps: what a reader of one tower's loss sees, and what happened%s.",
             (long long)count, window > 1 ? "" : " (here they agree)");
    figure_begin(f, "wide", "Step by step", note);
    svg_open(&plot, f->to, &frame);
    svg_line(&plot, f->x + first, last + first, count, 1, 1.2, "last tower");
    if (window > 1) {
        char name[SVG_LABEL_BYTES];
        smooth(last, f->scratch[2], run->steps, window);
        snprintf(name, sizeof name, "last, over %lld", (long long)window);
        svg_line(&plot, f->x + first, f->scratch[2] + first, count, 3, 1.6, name);
    }
    svg_line(&plot, f->x + first, mean + first, count, 0, 2, "mean_loss");
    svg_close(&plot);
    figure_end(f);
}

/* ---- towers side by side */

typedef struct TowerAxis {
    char text[64][16];
    const char *name[64];
    int count;
} TowerAxis;

static void tower_axis(const LossTruth *truth, TowerAxis *axis)
{
    axis->count = truth->towers < 64 ? truth->towers : 64;
    for (int t = 0; t < axis->count; t++) {
        snprintf(axis->text[t], sizeof axis->text[t], t == truth->last ? "%d (last)" : "%d", t);
        axis->name[t] = axis->text[t];
    }
}

static void whiskers(Figures *f, bool ratio, const SvgFrame *frame)
{
    SvgPlot plot;
    svg_open(&plot, f->to, frame);
    const TowerTruth *last = &f->truth->tower[f->truth->last];
    svg_level(&plot, ratio ? last->expected : 0, ratio ? "independent" : "mean_loss");
    for (int t = 0; t < frame->category_count; t++) {
        const TowerTruth *tower = &f->truth->tower[t];
        const Estimate *e = ratio ? &tower->ratio : &tower->bias;
        if (tower->share) svg_whisker(&plot, t, e->mean, e->low, e->high, t == f->truth->last ? 1 : 0);
    }
    svg_close(&plot);
}

static void whisker_figure(Figures *f, bool ratio, const char *title, const char *note)
{
    TowerAxis axis;
    if (f->run->towers < 2 || f->truth->used < 24) return;
    tower_axis(f->truth, &axis);
    SvgFrame frame = {.title = title,
                      .x_label = "tower",
                      .width = HALF,
                      .height = LOW,
                      .y_low = 0,
                      .y_high = 0,
                      .categories = axis.name,
                      .category_count = axis.count};
    for (int t = 0; t < axis.count; t++) {
        const TowerTruth *tower = &f->truth->tower[t];
        const Estimate *e = ratio ? &tower->ratio : &tower->bias;
        double ends[] = {e->low, e->high, ratio ? tower->expected : 0};
        if (tower->share) svg_extent(ends, 3, &frame.y_low, &frame.y_high);
    }
    figure_begin(f, "half", title, note);
    whiskers(f, ratio, &frame);
    figure_end(f);
}

void figure_noise(Figures *f)
{
    whisker_figure(
        f, true, "Variance ratio",
        "How much noisier each tower's loss is than mean_loss, with 95 % intervals. Independent batches give "
        "the dashed line: the number of towers, if their shares are equal.");
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
    double bin[HISTOGRAM] = {0}, reach = 0;
    if (run->towers < 2 || run->steps < 50) return;
    double *last = column(f, 0, value_tower_loss, f->truth->last), *mean = column(f, 1, value_mean_loss, 0), square = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < run->steps; i++)
        if (isfinite(last[i] - mean[i])) square += (last[i] - mean[i]) * (last[i] - mean[i]), n++;
    reach = n ? 3.5 * sqrt(square / (double)n) : 0;
    if (!(reach > 0)) return;
    for (int64_t i = 0; i < run->steps; i++) {
        double at = ((last[i] - mean[i]) / reach + 1) / 2 * HISTOGRAM;
        if (isfinite(at) && at >= 0 && at < HISTOGRAM) bin[(int)at]++;
    }
    SvgFrame frame = {.title = "deviation of the last tower",
                      .x_label = "last tower's loss minus mean_loss",
                      .width = HALF,
                      .height = LOW,
                      .x_low = -reach,
                      .x_high = reach,
                      .bare = true};
    svg_extent(bin, HISTOGRAM, &frame.y_low, &frame.y_high);
    figure_begin(f, "half", "Deviation of the last tower", "In how many steps its loss was so far from mean_loss.");
    svg_open(&plot, f->to, &frame);
    for (int k = 0; k < HISTOGRAM; k++)
        svg_bar(&plot, reach * ((k + 0.5) * 2 / HISTOGRAM - 1), bin[k], 2 * reach / HISTOGRAM, 1);
    svg_close(&plot);
    figure_end(f);
}

/* ---- epochs */

void figure_accuracy(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    int64_t n = run->epochs;
    double *x = calloc((size_t)(3 * n + 1), sizeof *x), *train = x ? x + n : NULL, *test = x ? x + 2 * n : NULL;
    SvgFrame frame = {.title = "accuracy per epoch",
                      .x_label = "epoch",
                      .width = HALF,
                      .height = LOW,
                      .y_low = INFINITY,
                      .y_high = -INFINITY};
    for (int64_t i = 0; x && i < n; i++) {
        x[i] = (double)run->epoch[i].epoch;
        train[i] = 100 * run->epoch[i].train_top1;
        test[i] = 100 * run->epoch[i].test_top1;
    }
    if (x && n) {
        svg_extent(train, n, &frame.y_low, &frame.y_high);
        svg_extent(test, n, &frame.y_low, &frame.y_high);
        frame.x_low = n > 1 ? x[0] : 0;
        frame.x_high = x[n - 1];
        figure_begin(f, "half", "Accuracy",
                     "Per cent, at the end of each epoch. The training figure is of the epoch's "
                     "own steps, while the weights still moved.");
        svg_open(&plot, f->to, &frame);
        svg_line(&plot, x, train, n, 5, 1.6, "training");
        svg_dots(&plot, x, train, n, 5);
        svg_line(&plot, x, test, n, 2, 2, "test");
        svg_dots(&plot, x, test, n, 2);
        svg_close(&plot);
        figure_end(f);
    }
    free(x);
}

/* ---- one curve */

static void curve(Figures *f, bool wide, const char *title, const char *note, const double *y, int tint)
{
    SvgPlot plot;
    SvgFrame frame = step_frame(f, title, wide ? WIDE : HALF, wide ? FLAT : LOW);
    frame.bare = true;
    svg_extent(y, f->run->steps, &frame.y_low, &frame.y_high);
    if (!(frame.y_low <= frame.y_high)) return;
    if (frame.y_low > 0) frame.y_low = 0;
    figure_begin(f, wide ? "wide" : "half", title, note);
    svg_open(&plot, f->to, &frame);
    svg_line(&plot, f->x, y, f->run->steps, tint, 1.4, NULL);
    svg_close(&plot);
    figure_end(f);
}

void figure_rate(Figures *f)
{
    curve(f, true, "Learning rate", "As the optimizer used it.", column(f, 0, value_rate, 0), 3);
}

void figure_speed(Figures *f)
{
    curve(f, false, "Throughput", "Images per second of all towers, step by step.", column(f, 0, value_speed, 0), 2);
}

/* The longest that a tower waited for its batch, as a share of the step. */
void figure_waiting(Figures *f)
{
    const Run *run = f->run;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        double most = NAN, step_us = (double)s->images / s->images_per_sec * 1e6;
        for (int t = 0; t < run->towers; t++) most = fmax(most, s->data_us[t]);
        f->scratch[0][i] = step_us > 0 ? fmin(100 * most / step_us, 100) : NAN;
    }
    curve(f, false, "Waiting for data", "Per cent of the step in which the slowest tower waited for its batch.",
          f->scratch[0], 4);
}

/* ---- arrival */

/* The median over a piece of the run of how long after the first tower this one came. */
static double arrival_median(Figures *f, int tower, int64_t first, int64_t end)
{
    int64_t n = 0;
    double *found = f->scratch[3];
    for (int64_t i = first; i < end; i++) {
        const double *arrival = f->run->step[i].arrival_us;
        double earliest = INFINITY;
        for (int t = 0; t < f->run->towers; t++) earliest = fmin(earliest, arrival[t]);
        if (isfinite(arrival[tower] - earliest)) found[n++] = (arrival[tower] - earliest) / 1000;
    }
    series_sort(found, n);
    return n ? found[n / 2] : NAN;
}

void figure_arrival(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    SvgFrame frame = step_frame(f, "arrival at the sum of gradients", HALF, LOW);
    int64_t columns = run->steps < ARRIVAL_COLUMNS ? run->steps : ARRIVAL_COLUMNS;
    int shown = run->towers < SVG_LABELS ? run->towers : SVG_LABELS;
    if (run->towers < 2 || run->steps < 4) return;
    double *value = calloc((size_t)(columns * (shown + 1)), sizeof *value), *x = value + columns * shown;
    if (!value) return;
    for (int64_t k = 0; k < columns; k++) {
        int64_t first = run->steps * k / columns, end = run->steps * (k + 1) / columns;
        x[k] = f->x[(first + end - 1) / 2];
        for (int t = 0; t < shown; t++) value[t * columns + k] = arrival_median(f, t, first, end);
    }
    frame.y_low = 0;
    svg_extent(value, columns * shown, &frame.y_low, &frame.y_high);
    if (frame.y_low <= frame.y_high) {
        figure_begin(f, "half", "Arrival",
                     "Milliseconds after the first tower at which each one had its gradients ready "
                     "(medians): who is waited for. Towers of one process take turns.");
        svg_open(&plot, f->to, &frame);
        for (int t = 0; t < shown; t++) {
            char name[SVG_LABEL_BYTES];
            snprintf(name, sizeof name, "tower %d", t);
            svg_line(&plot, x, value + t * columns, columns, t % SVG_TINTS, 1.5, name);
        }
        svg_close(&plot);
        figure_end(f);
    }
    free(value);
}

/* ---- gradients and layers */

void figure_gradients(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    SvgFrame frame = step_frame(f, "norm of the gradient", HALF, LOW);
    double *mean = column(f, 0, value_gradient, -1);
    tower_range(f, value_gradient, f->scratch[2], f->scratch[3]);
    svg_extent(mean, run->steps, &frame.y_low, &frame.y_high);
    if (!(frame.y_low <= frame.y_high)) return;
    svg_extent(f->scratch[3], run->steps, &frame.y_low, &frame.y_high);
    frame.y_log = frame.y_low > 0 && frame.y_high > 30 * frame.y_low;
    if (!frame.y_log) frame.y_low = 0;
    figure_begin(f, "half", "Gradient",
                 run->towers > 1 ? "Norm of the averaged gradient, and the range of the towers' own (each a share of "
                                   "the sum)."
                                 : "Norm of the gradient, step by step.");
    svg_open(&plot, f->to, &frame);
    if (run->towers > 1) svg_band(&plot, f->x, f->scratch[2], f->scratch[3], run->steps, 5, "towers");
    svg_line(&plot, f->x, mean, run->steps, 0, 1.3, "averaged");
    svg_close(&plot);
    figure_end(f);
}

static bool shown_layer(const char *name)
{
    size_t n = strlen(name);
    return n > 7 && !strcmp(name + n - 7, ".weight") && !strstr(name, "bn.") && !strstr(name, "norm");
}

typedef struct LayerGrid {
    int rows, columns, row_of[4096];
    const char *name[LAYER_ROWS];
    int64_t step[LAYER_COLUMNS];
    double *share; /* owned: [rows][columns] */
} LayerGrid;

static void grid_axes(const Run *run, LayerGrid *grid)
{
    int64_t distinct = 0, kept = 0, before = -1;
    for (int64_t i = 0; i < run->layers; i++) distinct += run->layer[i].step != before, before = run->layer[i].step;
    int64_t every = (distinct + LAYER_COLUMNS - 1) / LAYER_COLUMNS, seen = 0;
    before = -1;
    for (int64_t i = 0; i < run->layers; i++) {
        if (run->layer[i].step == before) continue;
        before = run->layer[i].step;
        if (seen++ % every == 0 && kept < LAYER_COLUMNS) grid->step[kept++] = before;
    }
    grid->columns = (int)kept;
    for (int i = 0; i < run->layer_names && i < 4096; i++) {
        bool shown = shown_layer(run->layer_name[i]) && grid->rows < LAYER_ROWS;
        grid->row_of[i] = shown ? grid->rows : -1;
        if (shown) grid->name[grid->rows++] = run->layer_name[i];
    }
}

/* Logarithm of gradient over weight, then the range of all spread over 0.05 .. 1. */
static void grid_fill(const Run *run, LayerGrid *grid, double *low, double *high)
{
    int column_now = 0;
    for (int i = 0; i < grid->rows * grid->columns; i++) grid->share[i] = NAN;
    for (int64_t i = 0; i < run->layers; i++) {
        const RunLayer *layer = &run->layer[i];
        while (column_now < grid->columns && grid->step[column_now] < layer->step) column_now++;
        if (column_now == grid->columns) break;
        int row = layer->name < 4096 ? grid->row_of[layer->name] : -1;
        if (row < 0 || grid->step[column_now] != layer->step) continue;
        double ratio = layer->gradient / layer->weight;
        if (ratio > 0 && isfinite(ratio)) grid->share[row * grid->columns + column_now] = log10(ratio);
    }
    *low = INFINITY, *high = -INFINITY;
    svg_extent(grid->share, grid->rows * grid->columns, low, high);
    for (int i = 0; i < grid->rows * grid->columns; i++)
        grid->share[i] = 0.05 + 0.95 * (*high > *low ? (grid->share[i] - *low) / (*high - *low) : 0.5);
}

void figure_layers(Figures *f)
{
    LayerGrid *grid = calloc(1, sizeof *grid);
    double low, high;
    char note[256];
    if (grid && f->run->layers) grid_axes(f->run, grid);
    if (grid && grid->rows && grid->columns)
        grid->share = calloc((size_t)grid->rows * (size_t)grid->columns, sizeof *grid->share);
    if (grid && grid->share) {
        grid_fill(f->run, grid, &low, &high);
        SvgHeat heat = {.title = "gradient of every layer",
                        .rows = grid->rows,
                        .columns = grid->columns,
                        .share = grid->share,
                        .row_names = grid->name,
                        .x_label = "step, from left to right",
                        .width = WIDE,
                        .row_height = grid->rows > 40 ? 14 : 18,
                        .left = 270,
                        .tint = 3};
        snprintf(
            note, sizeof note,
            "Gradient relative to weight (root mean squares), from 10^%.1f (pale) to 10^%.1f (full), steps %lld to "
            "%lld. A pale row learns slowly, a column that jumps is a shock.",
            low, high, (long long)grid->step[0], (long long)grid->step[grid->columns - 1]);
        figure_begin(f, "wide", "Layers", note);
        svg_heat(f->to, &heat);
        figure_end(f);
    }
    if (grid) free(grid->share);
    free(grid);
}

/* ---- confusion */

void figure_confusion(Figures *f)
{
    const Run *run = f->run;
    int n = run->classes;
    double *share = n ? calloc((size_t)n * (size_t)n, sizeof *share) : NULL;
    if (!share) return;
    for (int r = 0; r < n; r++) {
        int64_t all = 0;
        for (int c = 0; c < n; c++) all += run->confusion[r * n + c];
        for (int c = 0; c < n; c++) share[r * n + c] = all ? sqrt((double)run->confusion[r * n + c] / (double)all) : 0;
    }
    bool named = f->class_count == n && n <= NAMED_CLASSES;
    SvgHeat heat = {.title = "confusion matrix",
                    .rows = n,
                    .columns = n,
                    .share = share,
                    .number = n <= NAMED_CLASSES ? run->confusion : NULL,
                    .row_names = named ? f->classes : NULL,
                    .column_names = named ? f->classes : NULL,
                    .x_label = "predicted",
                    .y_label = "true",
                    .width = WIDE,
                    .row_height = n <= NAMED_CLASSES ? 34 : 960.0 / n,
                    .left = named ? 110 : 60,
                    .tint = 2};
    figure_begin(f, "wide", "Confusion",
                 "Test samples of each true class (rows) by what they were taken for, at the last "
                 "evaluation. Colour is the square root of the share, so that rare mistakes show.");
    svg_heat(f->to, &heat);
    figure_end(f);
    free(share);
}
