/* The compare command: tables and JSON of loss truth and of differences between runs; see compare.h. */
#include "inception/report/compare.h"

#include "inception/report/norm_drift.h"
#include "inception/report/run_difference.h"
#include "inception/report/waiting.h"
#include "towers/files/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    fprintf(to, "  step %lld, tower %d: %s not finite; checking only the last tower's loss ", (long long)bad->step,
            bad->tower,
            bad->loss && bad->gradient ? "loss and gradient are"
            : bad->loss                ? "the loss is"
                                       : "the gradient is");
    const char *would = bad->measured ? "showed it" : "would show it";
    if (bad->later < 0)
        fprintf(to, bad->measured ? "never showed it\n" : "would never show it\n");
    else if (bad->later == 0)
        fprintf(to, "%s in the same step, after the update\n", would);
    else
        fprintf(to, "%s %lld step%s later, with damaged weights\n", would, (long long)bad->later,
                bad->later == 1 ? "" : "s");
}

static void truth_print(const Run *run, const LossTruth *truth, FILE *to)
{
    fprintf(to, "%s%s%s: %lld steps, %lld of them full%s\n", run->path, run->phase ? ", phase " : "",
            run->phase ? run->phase : "", (long long)truth->steps, (long long)truth->used,
            run->cut ? " (the incomplete last line is ignored)" : "");
    if (truth->towers > 1) {
        fprintf(to, "\n  tower     samples   bias against mean_loss, 95 %% interval     noise variance / that of "
                    "mean_loss   expected\n");
        for (int t = 0; t < truth->towers; t++) tower_row(truth, t, to);
        if (isfinite(truth->last_noise))
            fprintf(to, "\n  noise of one step (standard deviation)   mean_loss %.4g, last tower %.4g\n",
                    truth->mean_noise, truth->last_noise);
        if (isfinite(truth->correlation))
            fprintf(to, "  correlation of the towers' noise         %+.3f\n", truth->correlation);
        if (truth->window > 1)
            fprintf(to, "  averaged over %lld steps, the last tower's loss is no noisier than mean_loss\n",
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
    if (b->phase) fprintf(to, "\nphase %s", b->phase);
    fprintf(to, "\nA %s\nB %s\n\n  %-22s %12s %12s   %10s   95 %% interval\n", a->path, b->path, "", "A", "B", "B - A");
    difference_row("mean_loss", d->a_loss, d->b_loss, &d->loss, 1, to);
    difference_row("test accuracy, %", d->a_accuracy, d->b_accuracy, &d->accuracy, 100, to);
    difference_row("images per second", d->a_speed, d->b_speed, &d->speed, 1, to);
    if (d->steps)
        fprintf(to, "  (losses paired by images seen, from %lld to %lld: %lld pair%s)\n", (long long)d->images_from,
                (long long)d->images_to, (long long)d->steps, d->steps == 1 ? "" : "s");
    else
        fprintf(to, "  (losses not compared: no step of one run covers images that the other has recorded)\n");
    fprintf(to, "\n%s\n", d->verdict);
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
    json_t *made =
        json_pack("{s:o, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s}", "run", json_text(run->path),
                  "steps", (json_int_t)truth->steps, "full_steps", (json_int_t)truth->used, "towers", truth->towers,
                  "last_tower", truth->last, "tower", towers_json(truth), "mean_noise", json_finite(truth->mean_noise),
                  "last_noise", json_finite(truth->last_noise), "correlation", json_finite(truth->correlation),
                  "smoothing_window", (json_int_t)truth->window, "not_finite", bad_json(truth), "slow",
                  waiting_json(run), "norm_drift", norm_drift_json(run), "verdict", truth->verdict);
    if (run->phase) json_object_set_new(made, "phase", json_string(run->phase));
    return made;
}

static json_t *difference_json(const Run *a, const Run *b, const RunDifference *d)
{
    json_t *made = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:b, s:s}", "a",
                             json_text(a->path), "b", json_text(b->path), "a_loss", json_finite(d->a_loss), "b_loss",
                             json_finite(d->b_loss), "loss", estimate_json(&d->loss), "a_accuracy",
                             json_finite(d->a_accuracy), "b_accuracy", json_finite(d->b_accuracy), "accuracy",
                             estimate_json(&d->accuracy), "a_images_per_sec", json_finite(d->a_speed),
                             "b_images_per_sec", json_finite(d->b_speed), "images_per_sec", estimate_json(&d->speed),
                             "paired_steps", (json_int_t)d->steps, "images_from", (json_int_t)d->images_from,
                             "images_to", (json_int_t)d->images_to, "same", d->same, "verdict", d->verdict);
    if (b->phase) json_object_set_new(made, "phase", json_string(b->phase));
    return made;
}

/* ---- a run, or two */

/* ---- ranking of three or more runs */

typedef struct Ranked {
    const Run *run;
    int number; /* position on the command line, from 1 */
    double loss, accuracy, speed;
    double p; /* of the hypothesis that it equals the best run; NaN: unknown */
} Ranked;

static int by_accuracy(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->accuracy != y->accuracy) return x->accuracy > y->accuracy ? -1 : 1;
    return x->number - y->number;
}

static int by_loss(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (isfinite(x->loss) != isfinite(y->loss)) return isfinite(x->loss) ? -1 : 1;
    if (isfinite(x->loss) && x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    return x->number - y->number;
}

/* Rank by test accuracy if all runs have one, else by the loss over the later half of the images that all runs have
 * seen. */
static Status ranks_make(Run *const *runs, int count, Ranked *ranks, int64_t *images, bool *accuracies)
{
    *accuracies = true;
    *images = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t seen;
        TRY(run_images(runs[i], &seen));
        *images = seen < *images ? seen : *images;
    }
    for (int i = 0; i < count; i++) {
        RunDifference itself;
        TRY(run_difference(runs[i], runs[i], &itself));
        ranks[i] = (Ranked){.run = runs[i], .number = i + 1, .accuracy = itself.a_accuracy, .speed = itself.a_speed};
        TRY(run_loss_over(runs[i], *images / 2, *images, &ranks[i].loss));
        *accuracies &= isfinite(ranks[i].accuracy);
    }
    qsort(ranks, (size_t)count, sizeof *ranks, *accuracies ? by_accuracy : by_loss);
    for (int i = 0; i < count; i++) {
        RunDifference d;
        ranks[i].p = NAN;
        if (i > 0) TRY(run_difference(ranks[0].run, ranks[i].run, &d));
        if (i > 0) ranks[i].p = *accuracies ? d.accuracy.p : d.loss.p;
    }
    return OK;
}

static const char *number_text(double value, const char *format, char text[32])
{
    snprintf(text, 32, "-");
    if (isfinite(value)) snprintf(text, 32, format, value);
    return text;
}

static json_t *ranks_json(const Ranked *ranks, int count, int64_t images, bool accuracies)
{
    json_t *rows = json_array();
    for (int i = 0; i < count; i++) {
        const Ranked *r = &ranks[i];
        json_array_append_new(rows,
                              json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "rank", i + 1, "run", json_text(r->run->path),
                                        "mean_loss", json_finite(r->loss), "accuracy", json_finite(r->accuracy),
                                        "images_per_sec", json_finite(r->speed), "p_against_best", json_finite(r->p)));
    }
    return json_pack("{s:s, s:I, s:I, s:o}", "by", accuracies ? "accuracy" : "loss", "images_from",
                     (json_int_t)(images / 2), "images_to", (json_int_t)images, "rows", rows);
}

static Status ranking(Run *const *runs, int count, json_t *root, FILE *to)
{
    int64_t images;
    bool accuracies;
    Ranked *ranks = calloc((size_t)count, sizeof *ranks);
    if (!ranks) return FAIL(ERR_MEMORY, "no memory for a ranking of %d runs", count);
    Status st = ranks_make(runs, count, ranks, &images, &accuracies);
    if (st == OK && root) json_object_set_new(root, "ranking", ranks_json(ranks, count, images, accuracies));
    if (st == OK && !root) {
        char a[32], b[32], c[32], d[32];
        fprintf(to, "\nRanking by %s%s\n\n  rank %12s %16s %18s   %-22s run\n", accuracies ? "test accuracy" : "loss",
                accuracies ? "" : " (not all runs were evaluated)", "mean_loss", "test accuracy, %",
                "images per second", "compared to the best");
        for (int i = 0; i < count; i++) {
            const Ranked *r = &ranks[i];
            const char *mark = i == 0 ? "" : r->p < DIFFERENCE_LEVEL ? "worse" : "possibly equal";
            snprintf(d, sizeof d, "%s", mark);
            if (i > 0 && isfinite(r->p)) snprintf(d, sizeof d, "%s, p = %.2g", mark, r->p);
            fprintf(to, "  %4d %12s %16s %18s   %-22s %s\n", i + 1, number_text(r->loss, "%.5g", a),
                    number_text(100 * r->accuracy, "%.2f", b), number_text(r->speed, "%.4g", c), d, r->run->path);
        }
        fprintf(to, "  (mean_loss over images %lld to %lld, which all runs have seen)\n", (long long)(images / 2),
                (long long)images);
    }
    free(ranks);
    return st;
}

/* Of their first phases: losses of several cannot be ranked together. */
static Status phases_ranking(Run *const *runs, int count, json_t *root, FILE *to)
{
    Status st = OK;
    bool found;
    Run *view = calloc((size_t)count, sizeof *view), **of = calloc((size_t)count, sizeof *of);
    if (!view || !of) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a ranking of %d runs", count));
    for (int i = 0; i < count; i++) {
        TRY_OUT(run_phase(runs[i], 0, &view[i], &found));
        of[i] = &view[i];
    }
    TRY_OUT(ranking(of, count, root, to));
out:
    for (int i = 0; view && i < count; i++) run_phase_free(&view[i]);
    free(view);
    free(of);
    return st;
}

/* ---- the command */

/* One phase of a run, and its difference from the same phase of the first run (NULL: this is the first). */
static Status phase_compare(const Run *first, const Run *run, json_t *runs, json_t *pairs, FILE *to)
{
    LossTruth truth;
    RunDifference difference;
    TRY(loss_truth(run, &truth));
    if (runs)
        json_array_append_new(runs, truth_json(run, &truth));
    else
        truth_print(run, &truth, to);
    loss_truth_clear(&truth);
    if (!first) return OK;
    TRY(run_difference(first, run, &difference));
    if (pairs)
        json_array_append_new(pairs, difference_json(first, run, &difference));
    else
        difference_print(first, run, &difference, to);
    return OK;
}

static Status run_compare(const Run *first, const Run *run, json_t *runs, json_t *pairs, FILE *to)
{
    bool found = true, also = false;
    for (int phase = 0; found; phase++) {
        Run view, other = {0};
        TRY(run_phase(run, phase, &view, &found));
        Status st = found && first ? run_phase(first, phase, &other, &also) : OK;
        if (found && phase > 0 && !runs) fputc('\n', to);
        bool same = also && (view.phase ? other.phase && !strcmp(view.phase, other.phase) : !other.phase);
        if (found && st == OK) st = phase_compare(same ? &other : NULL, &view, runs, pairs, to);
        if (found && st == OK && first && !same && !runs)
            fprintf(to, "\nnot compared with %s, which has no phase %s\n", first->path,
                    view.phase ? view.phase : "train");
        run_phase_free(&view);
        run_phase_free(&other);
        TRY(st);
    }
    return OK;
}

Status compare_runs(char *const *paths, int count, bool json, FILE *to)
{
    Status st = OK;
    Run **run = NULL;
    json_t *runs = json ? json_array() : NULL, *pairs = json ? json_array() : NULL,
           *root = json ? json_pack("{s:O, s:O}", "runs", runs, "differences", pairs) : NULL;
    if (count < 1) TRY_OUT(FAIL(ERR_ARG, "no run given; usage: towers compare RUN..."));
    if (count > 0) run = calloc((size_t)count, sizeof *run);
    if (!run) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %d runs", count));
    for (int i = 0; i < count; i++) {
        TRY_OUT(run_read(paths[i], &run[i]));
        if (i > 0 && !json) fputc('\n', to);
        TRY_OUT(run_compare(i > 0 ? run[0] : NULL, run[i], runs, pairs, to));
    }
    if (count > 2) TRY_OUT(phases_ranking(run, count, root, to));
    if (json) {
        bool whole = root && json_dumpf(root, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF;
        TRY_OUT(whole ? OK : FAIL(ERR_IO, "cannot write the comparison"));
    }
out:
    for (int i = 0; run && i < count; i++) run_destroy(run[i]);
    free(run);
    json_decref(root);
    json_decref(runs);
    json_decref(pairs);
    return st;
}
