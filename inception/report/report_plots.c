/* Plots of accuracy, rate, speed, arrival, gradients, layers and confusion; see report_plots.h. */
#include "inception/report/report_plots.h"

#include "inception/report/answer.h"
#include "inception/report/class_scores.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

enum { ARRIVAL_COLUMNS = 60, LAYER_ROWS = 80, LAYER_COLUMNS = 90, LAYER_NAMES = 4096, NAMED_CLASSES = 20 };

/* ---- epochs */

/* Two curves over the epochs; each value is multiplied by `scale`. */
static void epochs_figure(Figures *f, const char *title, const char *note, size_t train_at, size_t test_at,
                          double scale)
{
    const Run *run = f->run;
    SvgPlot plot;
    int64_t n = run->epochs;
    SvgFrame frame = figure_frame(title, "epoch");
    double *x = calloc((size_t)(3 * n + 1), sizeof *x);
    if (!x) return;
    double *train = x + n, *test = train + n;
    for (int64_t i = 0; i < n; i++) {
        const char *epoch = (const char *)&run->epoch[i];
        x[i] = (double)run->epoch[i].epoch;
        train[i] = scale * *(const double *)(epoch + train_at);
        test[i] = scale * *(const double *)(epoch + test_at);
    }
    svg_extent(train, 2 * n, &frame.y_low, &frame.y_high);
    if (frame.y_low <= frame.y_high) { /* a GAN predicts nothing */
        frame.x_low = x[0], frame.x_high = x[n - 1];
        frame.x_whole = true;
        figure_open(f, false, &plot, &frame, title, note);
        svg_line(&plot, x, train, n, 5, 1.6, "training");
        svg_dots(&plot, x, train, n, 5);
        svg_line(&plot, x, test, n, 2, 2, "test");
        svg_dots(&plot, x, test, n, 2);
        figure_close(f, &plot);
    }
    free(x);
}

static void figure_accuracy(Figures *f)
{
    static const char accuracy[] = "Per cent, at the end of each epoch. Training accuracy is averaged over the epoch's "
                                   "steps, during which the weights change.";
    static const char precision[] = "Per cent, at the end of each epoch. Test: mean average precision. Training: the "
                                    "share of images with exactly the right classes, averaged over the epoch's steps.";
    bool multi_label = f->run->multi_label;
    epochs_figure(f, multi_label ? "mAP and exact matches" : "Accuracy", multi_label ? precision : accuracy,
                  offsetof(EpochRecord, train_top1), offsetof(EpochRecord, test_top1), 100);
}

static void figure_epoch_loss(Figures *f)
{
    epochs_figure(f, "Loss per epoch",
                  "Test loss and the mean training loss of the epoch: where they diverge, the "
                  "network overfits the training images.",
                  offsetof(EpochRecord, train_loss), offsetof(EpochRecord, test_loss), 1);
}

/* ---- one curve */

static void curve(Figures *f, const char *title, const char *note, const double *y, int tint)
{
    SvgPlot plot;
    SvgFrame frame = figure_steps(f, title);
    frame.bare = true;
    svg_extent(y, f->run->steps, &frame.y_low, &frame.y_high);
    if (!(frame.y_low <= frame.y_high)) return;
    if (frame.y_low > 0) frame.y_low = 0;
    figure_open(f, false, &plot, &frame, title, note);
    svg_curve(&plot, f->x, y, f->run->steps, tint, 1.4, title);
    figure_close(f, &plot);
}

static void figure_rate(Figures *f)
{
    curve(f, "Learning rate", "As used by the optimizer.", figure_column(f, 0, offsetof(RunStep, lr)), 3);
}

static double *numbers_of(const json_t *array, size_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; values && i < count; i++) {
        const json_t *value = json_array_get(array, i);
        values[i] = json_is_number(value) ? json_number_value(value) : ABSENT;
    }
    return values;
}

/* What --lr auto has found: losses above those of the first half are cut, as they would hide the fall. */
static void figure_sweep(Figures *f)
{
    char note[200];
    SvgPlot plot;
    json_t *root = json_of_run(f->run->path, "lr-find.json"), *rates = json_object_get(root, "lr");
    size_t n = json_array_size(rates);
    double *x = numbers_of(rates, n), *y = numbers_of(json_object_get(root, "smoothed"), n),
           pick = json_number_value(json_object_get(root, "suggestion"));
    if (n > 1 && x && y && pick > 0) {
        SvgFrame frame = figure_frame("Learning rates that were tried", "learning rate");
        frame.bare = frame.x_log = true;
        svg_extent(y, (int64_t)n / 2, &frame.y_low, &frame.y_high);
        double most = frame.y_high;
        svg_extent(y, (int64_t)n, &frame.y_low, &frame.y_high);
        frame.y_high = most;
        for (size_t i = 0; i < n; i++) y[i] = y[i] > most ? ABSENT : y[i];
        frame.x_low = x[0], frame.x_high = x[n - 1];
        snprintf(note, sizeof note,
                 "Smoothed loss of a sweep before the run, nine steps late. The mark is at %.3g, where the loss itself "
                 "falls most steeply.",
                 pick);
        figure_open(f, false, &plot, &frame, frame.title, note);
        svg_curve(&plot, x, y, (int64_t)n, 2, 1.6, "smoothed loss");
        svg_mark(&plot, pick);
        figure_close(f, &plot);
    }
    free(x);
    free(y);
    json_decref(root);
}

static void figure_speed(Figures *f)
{
    curve(f, "Throughput", "Images per second of all towers, step by step.",
          figure_column(f, 0, offsetof(RunStep, images_per_sec)), 2);
}

/* The longest wait of any tower for its batch, as a share of the step. */
static void figure_waiting(Figures *f)
{
    const Run *run = f->run;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        double most = ABSENT, step_us = (double)s->images / s->images_per_sec * 1e6;
        for (int t = 0; t < run->towers; t++) most = fmax(most, s->data_us[t]);
        f->scratch[0][i] = step_us > 0 ? fmin(100 * most / step_us, 100) : ABSENT;
    }
    curve(f, "Waiting for data", "Per cent of the step in which the slowest tower waited for its batch.", f->scratch[0],
          4);
}

/* ---- a line for each tower */

/* `value`: [towers][count]. Nothing if none is known. */
static void towers_figure(const Figures *f, SvgFrame *frame, const char *title, const char *note, const double *x,
                          const double *value, int towers, int64_t count, double width)
{
    SvgPlot plot;
    svg_extent(value, towers * count, &frame->y_low, &frame->y_high);
    if (!(frame->y_low <= frame->y_high)) return;
    figure_open(f, false, &plot, frame, title, note);
    for (int t = 0; t < towers; t++) {
        char name[SVG_LABEL_BYTES];
        snprintf(name, sizeof name, "tower %d", t);
        svg_line(&plot, x, value + t * count, count, t, width, name);
    }
    figure_close(f, &plot);
}

/* Median delay of this tower's arrival after the first tower's, over a part of the run. */
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
    return n ? found[n / 2] : ABSENT;
}

static void figure_arrival(Figures *f)
{
    const Run *run = f->run;
    SvgFrame frame = figure_steps(f, "arrival at the sum of gradients");
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
    towers_figure(f, &frame, "Arrival",
                  "Milliseconds from the first tower's gradients being ready until each tower's are (medians): the "
                  "last one delays the step. Towers of one process take turns.",
                  x, value, shown, columns, 1.5);
    free(value);
}

/* One number of the GPUs' telemetry, of the rows that have it; `part` of it is the unit of the plot. */
static void telemetry_figure(Figures *f, const char *title, const char *note, size_t place, double part)
{
    const Run *run = f->run;
    SvgFrame frame = figure_steps(f, title);
    int64_t rows = 0;
    for (int64_t i = 0; i < run->steps; i++) rows += run->step[i].telemetry != NULL;
    double *x = calloc((size_t)rows * ((size_t)run->towers + 1) + 1, sizeof *x), *value = x + rows;
    if (!x) return;
    rows = 0;
    for (int64_t i = 0; i < run->steps; i++)
        if (run->step[i].telemetry) x[rows++] = f->x[i];
    for (int t = 0; t < run->towers; t++) {
        double *at = value + t * rows;
        for (int64_t i = 0; i < run->steps; i++)
            if (run->step[i].telemetry)
                *at++ = *(const double *)((const char *)&run->step[i].telemetry[t] + place) / part;
    }
    if (rows > 1) towers_figure(f, &frame, title, note, x, value, run->towers, rows, 1.3);
    free(x);
}

/* A plot for each number that the GPUs have reported. */
static void figure_telemetry(Figures *f)
{
#define TELEMETRY_FIGURE(title, note, key, part) telemetry_figure(f, title, note, offsetof(DeviceTelemetry, key), part)
    TELEMETRY_FIGURE("GPU power", "Watts of each tower's GPU, once a second.", gpu_watts, 1);
    TELEMETRY_FIGURE("GPU temperature", "Degrees Celsius of each tower's GPU.", gpu_celsius, 1);
    TELEMETRY_FIGURE("GPU clock",
                     "Megahertz of the multiprocessors: a GPU that is slower than the others makes their towers wait.",
                     gpu_mhz, 1);
    TELEMETRY_FIGURE("GPU utilization", "Per cent of the time in which a kernel ran on each tower's GPU.", gpu_busy, 1);
    TELEMETRY_FIGURE("GPU memory", "GiB in use on each tower's GPU, by all programs.", gpu_memory_bytes, 1 << 30);
}

/* ---- gradients and layers */

static double value_gradient(const RunStep *s, int tower)
{
    return s->tower_grad_norm[tower];
}

static void figure_gradients(Figures *f)
{
    const Run *run = f->run;
    SvgPlot plot;
    SvgFrame frame = figure_steps(f, "norm of the gradient");
    double *mean = figure_column(f, 0, offsetof(RunStep, grad_norm));
    figure_range(f, value_gradient);
    svg_extent(mean, run->steps, &frame.y_low, &frame.y_high);
    if (!(frame.y_low <= frame.y_high)) return;
    svg_extent(f->scratch[3], run->steps, &frame.y_low, &frame.y_high);
    frame.y_log = frame.y_low > 0 && frame.y_high > 30 * frame.y_low;
    if (!frame.y_log) frame.y_low = 0;
    figure_open(f, false, &plot, &frame, "Gradient",
                run->towers > 1
                    ? "Norm of the averaged gradient, and the range of the towers' norms (each of its share of "
                      "the sum)."
                    : "Norm of the gradient, step by step.");
    if (run->towers > 1) svg_band(&plot, f->x, f->scratch[2], f->scratch[3], run->steps, 5, "towers");
    svg_line(&plot, f->x, mean, run->steps, 0, 1.3, "averaged");
    figure_close(f, &plot);
}

typedef struct LayerGrid {
    int rows, columns, row_of[LAYER_NAMES];
    const char *name[LAYER_ROWS];
    int64_t step[LAYER_COLUMNS];
    double *share; /* owned: [rows][columns] */
} LayerGrid;

static void grid_axes(const Run *run, LayerGrid *grid)
{
    int64_t distinct = 0, kept = 0, before = -1;
    for (int64_t i = 0; i < run->layers.count; i++)
        distinct += run->layers.pair[i].step != before, before = run->layers.pair[i].step;
    int64_t every = (distinct + LAYER_COLUMNS - 1) / LAYER_COLUMNS, seen = 0;
    before = -1;
    for (int64_t i = 0; i < run->layers.count; i++) {
        if (run->layers.pair[i].step == before) continue;
        before = run->layers.pair[i].step;
        if (seen++ % every == 0 && kept < LAYER_COLUMNS) grid->step[kept++] = before;
    }
    grid->columns = (int)kept;
    for (int i = 0; i < run->layers.names && i < LAYER_NAMES; i++) {
        const char *name = run->layers.name[i];
        bool layer = ends_with(name, ".weight") && !strstr(name, "bn.") && !strstr(name, "norm"),
             shown = layer && grid->rows < LAYER_ROWS;
        grid->row_of[i] = shown ? grid->rows : -1;
        if (shown) grid->name[grid->rows++] = name;
    }
}

/* Log of gradient RMS over weight RMS, scaled so that the range of all values becomes 0.05 .. 1. */
static void grid_fill(const Run *run, LayerGrid *grid, double *low, double *high)
{
    int column_now = 0;
    for (int i = 0; i < grid->rows * grid->columns; i++) grid->share[i] = ABSENT;
    for (int64_t i = 0; i < run->layers.count; i++) {
        const RunPair *layer = &run->layers.pair[i];
        while (column_now < grid->columns && grid->step[column_now] < layer->step) column_now++;
        if (column_now == grid->columns) break;
        int row = layer->name < LAYER_NAMES ? grid->row_of[layer->name] : -1;
        if (row < 0 || grid->step[column_now] != layer->step) continue;
        double ratio = layer->value[1] / layer->value[0];
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
    if (grid && f->run->layers.count) grid_axes(f->run, grid);
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
                        .width = FIGURE_WIDTH,
                        .row_height = grid->rows > 40 ? 14 : 18,
                        .left = 270,
                        .tint = 3};
        snprintf(
            note, sizeof note,
            "Gradient relative to weight (root mean squares), from %.2g (pale) to %.2g (full), steps %" PRId64
            " to %" PRId64
            ". A pale row learns slowly; a sudden change of a whole column marks a step that disturbed all layers.",
            pow(10, low), pow(10, high), grid->step[0], grid->step[grid->columns - 1]);
        figure_begin(f, true, "Layers", note);
        svg_heat(f->to, &heat);
        figure_end(f);
    }
    if (grid) free(grid->share);
    free(grid);
}

/* ---- confusion */

static void figure_confusion(Figures *f)
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
    char name[NAMED_CLASSES][CLASS_NAME_BYTES];
    const char *names[NAMED_CLASSES];
    size_t longest = 0;
    for (int c = 0; c < n && c < NAMED_CLASSES; c++) {
        names[c] = class_name(f->environment, run, c, name[c]);
        if (strlen(names[c]) > longest) longest = strlen(names[c]);
    }
    SvgHeat heat = {.title = "confusion matrix",
                    .rows = n,
                    .columns = n,
                    .share = share,
                    .number = n <= NAMED_CLASSES ? run->confusion : NULL,
                    .row_names = n <= NAMED_CLASSES ? names : NULL,
                    .column_names = n <= NAMED_CLASSES ? names : NULL,
                    .x_label = "predicted",
                    .y_label = "true",
                    .width = FIGURE_WIDTH,
                    .row_height = n <= NAMED_CLASSES ? 34 : 960.0 / n,
                    .left = n <= NAMED_CLASSES ? 30 + 6.5 * fmin((double)longest, 30) : 60,
                    .tint = 2};
    figure_begin(f, true, "Confusion",
                 "Test samples of each true class (rows) by predicted class (columns), with the weights "
                 "of the best epoch. The color shows the square root of the share, so that rare mistakes are visible.");
    svg_heat(f->to, &heat);
    figure_end(f);
    free(share);
}

/* ---- reliability */

static void reliability_figure(Figures *f, const char *when, const json_t *bins, double error)
{
    char title[40], note[256];
    double middle[RELIABILITY_BINS];
    SvgPlot plot;
    double *right = numbers_of(json_object_get(bins, "accuracy"), RELIABILITY_BINS);
    if (!right || !json_is_array(json_object_get(bins, "accuracy")) || !isfinite(error)) {
        free(right);
        return;
    }
    snprintf(title, sizeof title, "Reliability %s calibration", when);
    snprintf(note, sizeof note,
             "Share of right predictions by their probability; on the line both are equal. Expected calibration error "
             "%.4f, weighted by images, for the weights for which the temperature was fitted.",
             error);
    SvgFrame frame = figure_frame(title, "probability of the predicted class");
    frame.x_low = frame.y_low = 0;
    frame.x_high = frame.y_high = 1;
    frame.bare = true;
    figure_open(f, false, &plot, &frame, title, note);
    for (int b = 0; b < RELIABILITY_BINS; b++) middle[b] = (b + 0.5) / RELIABILITY_BINS;
    for (int b = 0; b < RELIABILITY_BINS; b++) svg_bar(&plot, middle[b], right[b], 1.0 / RELIABILITY_BINS, 2);
    svg_straight(&plot, 0, 1, NULL);
    svg_values(&plot, middle, right, NULL, RELIABILITY_BINS, 2, "right");
    figure_close(f, &plot);
    free(right);
}

/* Of towers eval --calibrate: before and after. */
static void figure_reliability(Figures *f)
{
    static const char *const when[] = {"before", "after"};
    json_t *root = json_of_run(f->run->path, "calibration.json");
    double *error = numbers_of(json_object_get(root, "calibration_error"), 2);
    for (size_t k = 0; error && k < 2; k++)
        reliability_figure(f, when[k], json_array_get(json_object_get(root, "reliability"), k), error[k]);
    free(error);
    json_decref(root);
}

static void all_write(Figures *f, FiguresWrite *const *figures, size_t count)
{
    for (size_t i = 0; i < count; i++) figures[i](f);
}

void figures_curves(Figures *f)
{
    static FiguresWrite *const figures[] = {figure_accuracy, figure_epoch_loss, figure_losses,    figure_kid,
                                            figure_terms,    figure_rate,       figure_gradients, figure_sweep};
    all_write(f, figures, sizeof figures / sizeof *figures);
}

void figures_classes(Figures *f)
{
    figure_confusion(f);
    figure_reliability(f);
}

void figures_towers(Figures *f)
{
    static FiguresWrite *const figures[] = {figure_tower_losses, figure_ending,    figure_noise,
                                            figure_bias,         figure_deviation, figure_arrival};
    all_write(f, figures, sizeof figures / sizeof *figures);
}

void figures_speed(Figures *f)
{
    figure_speed(f);
    figure_waiting(f);
    figure_telemetry(f);
}
