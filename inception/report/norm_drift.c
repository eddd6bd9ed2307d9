/* Drift of batch-norm statistics between towers; see report_data.h. */
#include "inception/report/report_data.h"

#include "inception/report/page/svg.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

enum { LAYERS_SHOWN = 8 };
enum { MEAN, VARIANCE };

/* The last record consists of the rows [result, run->norms.count). */
static int64_t last_record(const Run *run)
{
    int64_t first = run->norms.count;
    while (first > 0 && run->norms.pair[first - 1].step == run->norms.pair[run->norms.count - 1].step) first--;
    return first;
}

/* "Mixed_5b.branch3x3.bn" of "Mixed_5b.branch3x3.bn.running_var" */
static void layer_text(const Run *run, const RunPair *norm, char *text, size_t bytes)
{
    static const char ending[] = ".running_var";
    const char *name = run->norms.name[norm->name];
    size_t length = strlen(name) - (ends_with(name, ending) ? strlen(ending) : 0);
    snprintf(text, bytes, "%.*s", (int)length, name);
}

static const RunPair *largest(const Run *run, int which)
{
    const RunPair *most = NULL;
    for (int64_t i = last_record(run); i < run->norms.count; i++) {
        const RunPair *norm = &run->norms.pair[i];
        if (!most || norm->value[which] > most->value[which]) most = norm;
    }
    return most;
}

void norm_drift_text(const Run *run, FILE *to)
{
    char mean_layer[128], variance_layer[128];
    const RunPair *mean = largest(run, MEAN), *variance = largest(run, VARIANCE);
    if (!mean) return;
    layer_text(run, mean, mean_layer, sizeof mean_layer);
    layer_text(run, variance, variance_layer, sizeof variance_layer);
    text_printf(to,
                "  batch-norm statistics of the towers, step %" PRId64
                ": means differ by up to %.3g of a deviation (%s), variances by %.3g %% (%s)\n",
                mean->step, mean->value[MEAN], mean_layer, 100 * variance->value[VARIANCE], variance_layer);
}

static json_t *largest_json(const Run *run, const RunPair *norm, double value)
{
    char layer[128];
    layer_text(run, norm, layer, sizeof layer);
    return json_pack("{s:o, s:o}", "layer", json_text(layer), "spread", json_finite(value));
}

json_t *norm_drift_json(const Run *run)
{
    const RunPair *mean = largest(run, MEAN), *variance = largest(run, VARIANCE);
    if (!mean) return json_null();
    return json_pack("{s:I, s:o, s:o}", "step", (json_int_t)mean->step, "means",
                     largest_json(run, mean, mean->value[MEAN]), "variances",
                     largest_json(run, variance, variance->value[VARIANCE]));
}

static int by_drift(const void *a, const void *b)
{
    const RunPair *x = a, *y = b;
    double p = fmax(x->value[MEAN], x->value[VARIANCE]), q = fmax(y->value[MEAN], y->value[VARIANCE]);
    return (p < q) - (p > q);
}

void norm_drift_html(const Run *run, FILE *to)
{
    int64_t first = last_record(run), count = run->norms.count - first;
    RunPair *rows = count ? calloc((size_t)count, sizeof *rows) : NULL;
    if (!rows) return;
    memcpy(rows, run->norms.pair + first, (size_t)count * sizeof *rows);
    qsort(rows, (size_t)count, sizeof *rows, by_drift);
    section_open(to, "Batch-norm statistics at the end");
    fputs("<table><tr><th>largest spread between towers</th><td class=\"n\">means, deviations</td>"
          "<td class=\"n\">variances, %</td></tr>",
          to);
    for (int64_t i = 0; i < count && i < LAYERS_SHOWN; i++) {
        char layer[128];
        layer_text(run, &rows[i], layer, sizeof layer);
        svg_printf(to, "<tr><th>%s</th><td class=\"n\">%.3g</td><td class=\"n\">%.3g</td></tr>", layer,
                   rows[i].value[MEAN], 100 * rows[i].value[VARIANCE]);
    }
    fputs("</table></section>\n", to);
    free(rows);
}
