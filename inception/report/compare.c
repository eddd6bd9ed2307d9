/* Tables and JSON of loss truth and of run differences; see compare.h. */
#include "inception/report/compare.h"

#include "inception/report/norm_drift.h"
#include "inception/report/run_difference.h"
#include "inception/report/waiting.h"
#include "towers/files/json.h"

#include <math.h>

/* ---- text */

static void tower_row(const LossTruth *truth, int t, FILE *to)
{
    const TowerTruth *tower = &truth->tower[t];
    const char *mark = t == truth->last ? "last" : t == truth->first ? "first" : "";
    if (!tower->share) {
        fprintf(to, "  %3d %-5s %7d   no samples\n", t, "", 0);
        return;
    }
    fprintf(to, "  %3d %-5s %7lld   ", t, mark, (long long)tower->share);
    if (isfinite(tower->bias.error))
        fprintf(to, "%+10.5f  %+9.5f to %+9.5f   ", tower->bias.mean, tower->bias.low, tower->bias.high);
    else
        fprintf(to, "%-36s", "   too few steps");
    if (isfinite(tower->ratio.error))
        fprintf(to, "%6.3f  %6.3f to %6.3f   %6.3g\n", tower->ratio.mean, tower->ratio.low, tower->ratio.high,
                tower->expected);
    else
        fprintf(to, "%-27s%6.3g\n", "too few steps", tower->expected);
}

static void bad_row(const BadStep *bad, FILE *to)
{
    fprintf(to, "  step %lld, tower %d: %s not finite; a check of the last tower's loss ", (long long)bad->step,
            bad->tower,
            bad->loss && bad->gradient ? "loss and gradient"
            : bad->loss                ? "the loss is"
                                       : "the gradient is");
    const char *would = bad->measured ? "saw it" : "would see it";
    if (bad->later < 0)
        fprintf(to, bad->measured ? "never saw it\n" : "would never see it\n");
    else if (bad->later == 0)
        fprintf(to, "%s in the same step, after the update\n", would);
    else
        fprintf(to, "%s %lld step%s later, with spoilt weights\n", would, (long long)bad->later,
                bad->later == 1 ? "" : "s");
}

static void truth_print(const Run *run, const LossTruth *truth, FILE *to)
{
    fprintf(to, "%s: %lld steps, %lld of them full%s\n", run->path, (long long)truth->steps, (long long)truth->used,
            run->cut ? " (the last line was cut short and is left out)" : "");
    if (truth->towers > 1) {
        fprintf(to, "\n  tower     samples   bias against mean_loss, 95 %% interval     noise variance / that of "
                    "mean_loss   expected\n");
        for (int t = 0; t < truth->towers; t++) tower_row(truth, t, to);
        if (isfinite(truth->last_noise))
            fprintf(to,
                    "\n  noise of one step (standard deviation)   mean_loss %.4g, last tower %.4g\n"
                    "  correlation of the towers' noise         %+.3f\n",
                    truth->mean_noise, truth->last_noise, truth->correlation);
        if (truth->window > 1)
            fprintf(to, "  averaged over %lld steps the last tower's curve is as quiet as mean_loss\n",
                    (long long)truth->window);
    }
    for (int64_t i = 0; i < truth->bad_count; i++) bad_row(&truth->bad[i], to);
    waiting_text(run, to);
    norm_drift_text(run, to);
    fprintf(to, "\n%s\n", truth->verdict);
}

static void difference_row(const char *what, double a, double b, const Estimate *e, double unit, FILE *to)
{
    char a_text[16] = "-", b_text[16] = "-";
    if (!isnan(a)) snprintf(a_text, sizeof a_text, "%.5g", a * unit);
    if (!isnan(b)) snprintf(b_text, sizeof b_text, "%.5g", b * unit);
    fprintf(to, "  %-22s %12s %12s   ", what, a_text, b_text);
    if (isnan(e->mean))
        fprintf(to, "%10s   not in both runs\n", "-");
    else if (isfinite(e->error))
        fprintf(to, "%+10.4g   %+9.4g to %+9.4g   p = %.3g\n", e->mean * unit, e->low * unit, e->high * unit, e->p);
    else
        fprintf(to, "%+10.4g   not enough data for an interval\n", e->mean * unit);
}

static void difference_print(const Run *a, const Run *b, const RunDifference *d, FILE *to)
{
    fprintf(to, "\nA %s\nB %s\n\n  %-22s %12s %12s   %10s   95 %% interval\n", a->path, b->path, "", "A", "B", "B - A");
    difference_row("mean_loss", d->a_loss, d->b_loss, &d->loss, 1, to);
    difference_row("test accuracy, %", d->a_accuracy, d->b_accuracy, &d->accuracy, 100, to);
    difference_row("images per second", d->a_speed, d->b_speed, &d->speed, 1, to);
    fprintf(to, "  (losses paired by step, the later %lld steps)\n\n%s\n", (long long)d->steps, d->verdict);
}

/* ---- JSON */

static json_t *estimate_json(const Estimate *e)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "value", json_finite(e->mean), "error", json_finite(e->error), "low",
                     json_finite(e->low), "high", json_finite(e->high), "p", json_finite(e->p));
}

static json_t *towers_json(const LossTruth *truth)
{
    json_t *all = json_array();
    for (int t = 0; t < truth->towers; t++) {
        const TowerTruth *tower = &truth->tower[t];
        json_t *row = json_pack("{s:i, s:I}", "tower", t, "samples", (json_int_t)tower->share);
        if (tower->share) {
            json_object_set_new(row, "bias", estimate_json(&tower->bias));
            json_object_set_new(row, "variance_ratio", estimate_json(&tower->ratio));
            json_object_set_new(row, "expected_ratio", json_finite(tower->expected));
        }
        json_array_append_new(all, row);
    }
    return all;
}

static json_t *bad_json(const LossTruth *truth)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < truth->bad_count; i++) {
        const BadStep *bad = &truth->bad[i];
        json_t *later = bad->later < 0 ? json_null() : json_integer(bad->later);
        json_array_append_new(all, json_pack("{s:I, s:i, s:b, s:b, s:o, s:b}", "step", (json_int_t)bad->step, "tower",
                                             bad->tower, "loss", bad->loss, "gradient", bad->gradient,
                                             "last_tower_check_later", later, "measured", bad->measured));
    }
    return all;
}

static json_t *truth_json(const Run *run, const LossTruth *truth)
{
    return json_pack("{s:o, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s}", "run",
                     json_text(run->path), "steps", (json_int_t)truth->steps, "full_steps", (json_int_t)truth->used,
                     "towers", truth->towers, "last_tower", truth->last, "tower", towers_json(truth), "mean_noise",
                     json_finite(truth->mean_noise), "last_noise", json_finite(truth->last_noise), "correlation",
                     json_finite(truth->correlation), "smoothing_window", (json_int_t)truth->window, "not_finite",
                     bad_json(truth), "slow", waiting_json(run), "norm_drift", norm_drift_json(run), "verdict",
                     truth->verdict);
}

static json_t *difference_json(const Run *a, const Run *b, const RunDifference *d)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:s}", "a", json_text(a->path),
                     "b", json_text(b->path), "a_loss", json_finite(d->a_loss), "b_loss", json_finite(d->b_loss),
                     "loss", estimate_json(&d->loss), "a_accuracy", json_finite(d->a_accuracy), "b_accuracy",
                     json_finite(d->b_accuracy), "accuracy", estimate_json(&d->accuracy), "a_images_per_sec",
                     json_finite(d->a_speed), "b_images_per_sec", json_finite(d->b_speed), "images_per_sec",
                     estimate_json(&d->speed), "paired_steps", (json_int_t)d->steps, "same", d->same, "verdict",
                     d->verdict);
}

/* ---- the verb */

static Status one_run(const Run *run, json_t *list, FILE *to)
{
    LossTruth truth;
    TRY(loss_truth(run, &truth));
    if (list)
        json_array_append_new(list, truth_json(run, &truth));
    else
        truth_print(run, &truth, to);
    loss_truth_clear(&truth);
    return OK;
}

static Status one_pair(const Run *a, const Run *b, json_t *list, FILE *to)
{
    RunDifference difference;
    TRY(run_difference(a, b, &difference));
    if (list)
        json_array_append_new(list, difference_json(a, b, &difference));
    else
        difference_print(a, b, &difference, to);
    return OK;
}

static Status json_write(json_t *root, FILE *to)
{
    bool whole = root && json_dumpf(root, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF;
    return whole ? OK : FAIL(ERR_IO, "the comparison could not be written");
}

Status compare_runs(char *const *paths, int count, bool json, FILE *to)
{
    Status st = OK;
    Run *first = NULL, *other = NULL;
    json_t *runs = json ? json_array() : NULL, *pairs = json ? json_array() : NULL,
           *root = json ? json_pack("{s:O, s:O}", "runs", runs, "differences", pairs) : NULL;
    if (count < 1) {
        st = FAIL(ERR_ARG, "which run? (towers compare RUN, or towers compare RUN RUN)");
        goto out;
    }
    TRY_OUT(run_read(paths[0], &first));
    TRY_OUT(one_run(first, runs, to));
    for (int i = 1; i < count; i++) {
        TRY_OUT(run_read(paths[i], &other));
        if (!json) fputc('\n', to);
        TRY_OUT(one_run(other, runs, to));
        TRY_OUT(one_pair(first, other, pairs, to));
        run_destroy(other);
        other = NULL;
    }
    if (json) TRY_OUT(json_write(root, to));
out:
    run_destroy(first);
    run_destroy(other);
    json_decref(root);
    json_decref(runs);
    json_decref(pairs);
    return st;
}
