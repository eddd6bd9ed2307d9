/* The compare command: tables and JSON of loss truth and of differences between runs; see compare.h. */
#include "inception/report/compare.h"

#include "inception/report/report_data.h"
#include "inception/report/run_difference.h"
#include "towers/files/utf8.h"
#include "towers/record/run_view.h"

enum { TERMS_MAX = 16, NAME_TEXT = 64 };

/* A term that a phase of both runs has. */
typedef struct TermDifference {
    char name[NAME_TEXT];
    Measured measured;
} TermDifference;

/* ---- text */

static void tower_row(const LossTruth *truth, int t, FILE *to)
{
    const TowerTruth *tower = &truth->tower[t];
    const char *mark = t == truth->last ? "last" : t == truth->first ? "first" : "";
    if (!tower->share) {
        text_printf(to, "  %3d %-5s %7d   no samples\n", t, "", 0);
        return;
    }
    text_printf(to, "  %3d %-5s %7" PRId64 "   ", t, mark, tower->share);
    if (isfinite(tower->bias.error))
        fprintf(to, "%+10.5f  %+9.5f to %+9.5f   ", tower->bias.mean, tower->bias.low, tower->bias.high);
    else
        text_printf(to, "%-36s", "   too few steps");
    if (isfinite(tower->ratio.error))
        fprintf(to, "%6.3f  %6.3f to %6.3f   %6.3g\n", tower->ratio.mean, tower->ratio.low, tower->ratio.high,
                tower->expected);
    else
        text_printf(to, "%-27s%6.3g\n", "too few steps", tower->expected);
}

static void bad_row(const BadStep *bad, FILE *to)
{
    text_printf(to, "  step %" PRId64 ", tower %d: %s not finite; checking only the last tower's loss ", bad->step,
                bad->tower,
                bad->loss && bad->gradient ? "loss and gradient are"
                : bad->loss                ? "the loss is"
                                           : "the gradient is");
    const char *would = bad->measured ? "showed it" : "would show it";
    if (bad->later < 0)
        fprintf(to, bad->measured ? "never showed it\n" : "would never show it\n");
    else if (bad->later == 0)
        text_printf(to, "%s in the same step, after the update\n", would);
    else
        text_printf(to, "%s %" PRId64 " step%s later, with damaged weights\n", would, bad->later,
                    bad->later == 1 ? "" : "s");
}

static void truth_print(const Run *run, const LossTruth *truth, FILE *to)
{
    text_printf(to, "%s%s%s: %" PRId64 " step%s", run->path, run->phase ? ", phase " : "", run->phase ? run->phase : "",
                truth->steps, truth->steps == 1 ? "" : "s");
    if (truth->towers > 1 && truth->used < truth->steps) text_printf(to, ", %" PRId64 " of them full", truth->used);
    fputs(run->cut ? " (the incomplete last line is ignored)\n" : "\n", to);
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
            fprintf(to, "  averaged over %" PRId64 " steps, the last tower's loss is no noisier than mean_loss\n",
                    truth->window);
    }
    for (int64_t i = 0; i < truth->bad_count; i++) bad_row(&truth->bad[i], to);
    waiting_text(run, to);
    norm_drift_text(run, to);
}

static void difference_row(const char *what, const Measured *m, double unit, FILE *to)
{
    char a[NUMBER_TEXT], b[NUMBER_TEXT];
    const Estimate *e = &m->change;
    text_printf(to, "  %-22s %12s %12s   ", what, number_text(m->a * unit, "%.5g", a),
                number_text(m->b * unit, "%.5g", b));
    if (is_absent(e->mean) && (is_not_finite(m->a) || is_not_finite(m->b)))
        text_printf(to, "%10s   not finite\n", "-");
    else if (is_absent(e->mean))
        text_printf(to, "%10s   not in both runs\n", "-");
    else if (isfinite(e->error))
        fprintf(to, "%+10.4g   %+9.4g to %+9.4g   p = %.3g\n", e->mean * unit, e->low * unit, e->high * unit, e->p);
    else
        fprintf(to, "%+10.4g   not enough data for an interval\n", e->mean * unit);
}

/* How accuracies were compared. */
static void accuracy_note(const RunDifference *d, FILE *to)
{
    const PairedAccuracy *p = &d->paired;
    if (is_absent(d->accuracy.change.p)) return;
    if (p->images)
        fprintf(to,
                "  (accuracies compared image by image, by McNemar's exact test: of %" PRId64
                " images only A is right for %" PRId64 ", only B for %" PRId64 ")\n",
                p->images, p->only_a, p->only_b);
    else
        fprintf(to, "  (accuracies compared as shares of two sets of images: the runs have no predictions.csv for the "
                    "same images, by which the test would be finer)\n");
}

/* Which losses were compared, and why others were not. */
static void losses_note(const RunDifference *d, FILE *to)
{
    if (d->steps)
        text_printf(to, "  (losses paired by images seen, from %" PRId64 " to %" PRId64 ": %" PRId64 " pair%s)\n",
                    d->images_from, d->images_to, d->steps, d->steps == 1 ? "" : "s");
    else if (!d->images_known)
        fputs("  (losses and speeds not compared: a run of an older version has rows for some steps only, without the "
              "images between them)\n",
              to);
    else if (!d->a_lost && !d->b_lost)
        fputs("  (losses and speeds not compared: no step of one run covers images that the other has recorded)\n", to);
    if (d->a_lost || d->b_lost)
        fprintf(to, "  (steps whose loss is not finite: %" PRId64 " of A, %" PRId64 " of B; they are left out)\n",
                d->a_lost, d->b_lost);
}

static void terms_verdict(const TermDifference *terms, int count, FILE *to)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        double p = terms[i].measured.change.p;
        if (!(p < DIFFERENCE_LEVEL / count)) continue; /* several are tested, so each must be clearer */
        text_printf(to, "%s%s (p = %.2g)", any ? ", " : "Terms that differ: ", terms[i].name, p);
        any = true;
    }
    if (any) fputs(".\n", to);
}

static void difference_print(const Run *a, const Run *b, const RunDifference *d, const TermDifference *terms, int count,
                             FILE *to)
{
    bool predicts = !is_absent(d->accuracy.a) || !is_absent(d->accuracy.b),
         generates = !is_absent(d->kid.a) || !is_absent(d->kid.b);
    if (b->phase) text_printf(to, "\nphase %s", b->phase);
    text_printf(to, "\nA %s\nB %s\n\n  %-22s %12s %12s   %10s   95 %% interval\n", a->path, b->path, "", "A", "B",
                "B - A");
    difference_row("mean_loss", &d->loss, 1, to);
    for (int i = 0; i < count; i++) difference_row(terms[i].name, &terms[i].measured, 1, to);
    if (predicts || !b->phase)
        difference_row(a->multi_label ? "test mAP, %" : "test accuracy, %", &d->accuracy, 100, to);
    if (generates && !d->other_features) difference_row("KID of the images", &d->kid, 1, to);
    difference_row("images per second", &d->speed, 1, to);
    losses_note(d, to);
    if (predicts) accuracy_note(d, to);
    if (d->other_features) fprintf(to, "  (KID not compared: the features are those of different networks)\n");
    if (*d->subjects) text_printf(to, "\n%s\n", d->subjects);
    text_printf(to, "\n%s\n", d->verdict);
    terms_verdict(terms, count, to);
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
    if (run->phase) json_object_set_new(made, "phase", json_text(run->phase));
    return made;
}

static json_t *terms_json(const TermDifference *terms, int count)
{
    json_t *all = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(all, json_pack("{s:o, s:o, s:o, s:o}", "term", json_text(terms[i].name), "a",
                                             json_finite(terms[i].measured.a), "b", json_finite(terms[i].measured.b),
                                             "difference", estimate_json(&terms[i].measured.change)));
    return all;
}

/* The number of both runs as "a_KEY" and "b_KEY", and the change as "KEY". */
static void measured_put(json_t *made, const char *key, const Measured *m)
{
    char name[NAME_TEXT];
    snprintf(name, sizeof name, "a_%s", key);
    json_object_set_new(made, name, json_finite(m->a));
    *name = 'b';
    json_object_set_new(made, name, json_finite(m->b));
    json_object_set_new(made, key, estimate_json(&m->change));
}

static json_t *difference_json(const Run *a, const Run *b, const RunDifference *d, const TermDifference *terms,
                               int count)
{
    json_t *made =
        json_pack("{s:o, s:o, s:I, s:I, s:I, s:b, s:o, s:s}", "a", json_text(a->path), "b", json_text(b->path),
                  "paired_steps", (json_int_t)d->steps, "images_from", (json_int_t)d->images_from, "images_to",
                  (json_int_t)d->images_to, "same", d->same, "subjects", json_text(d->subjects), "verdict", d->verdict);
    measured_put(made, "loss", &d->loss);
    measured_put(made, "accuracy", &d->accuracy);
    if (d->paired.images)
        json_object_set_new(made, "accuracy_pairs",
                            json_pack("{s:I, s:I, s:I}", "images", (json_int_t)d->paired.images, "only_a",
                                      (json_int_t)d->paired.only_a, "only_b", (json_int_t)d->paired.only_b));
    measured_put(made, "images_per_sec", &d->speed);
    if (b->phase) json_object_set_new(made, "phase", json_text(b->phase));
    if (count) json_object_set_new(made, "terms", terms_json(terms, count));
    if (is_absent(d->kid.a) && is_absent(d->kid.b)) return made;
    measured_put(made, "kid", &d->kid);
    json_object_set_new(made, "same_features", json_boolean(!d->other_features));
    return made;
}

/* ---- the terms of a phase */

static double later_mean(const Run *run)
{
    return steps_mean(run, run->steps / 2, offsetof(RunStep, mean_loss));
}

static void term_row(const char *name, const Run *view, const LossTruth *truth, FILE *to)
{
    const TowerTruth *last = &truth->tower[truth->last];
    text_printf(to, "  %-22s %12.5g   %12.4g", name, later_mean(view), truth->mean_noise);
    if (truth->towers > 1 && isfinite(last->ratio.error))
        fprintf(to, "   %12.4g   %6.3f  %6.3f to %6.3f   %6.3g", truth->last_noise, last->ratio.mean, last->ratio.low,
                last->ratio.high, last->expected);
    fputc('\n', to);
}

/* The last KID of the run, in `row` or as a line. */
static void kid_report(const Run *run, json_t *row, FILE *to)
{
    const RunKid *kid = run_last_kid(run);
    char features[NAME_TEXT];
    if (!kid) return;
    utf8_escape(features, sizeof features, run->features_name[kid->features]);
    if (row)
        json_object_set_new(row, "kid",
                            json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)kid->step, "value",
                                      json_finite(kid->kid), "deviation", json_finite(kid->deviation), "features",
                                      json_text(features)));
    else
        text_printf(to, "\n  KID of the images after step %" PRId64 ": %.5f (deviation %.5f), features of %s\n",
                    kid->step, kid->kid, kid->deviation, features);
}

/* Every term as a loss: what the values of the towers say about the mean. Appended to `all`, or a table. */
static Status terms_truth(const Run *run, json_t *all, FILE *to)
{
    bool any = false;
    for (int k = 0; k < run->term_names; k++) {
        Run view;
        LossTruth truth;
        bool found;
        char name[NAME_TEXT];
        utf8_escape(name, sizeof name, run->term_name[k]);
        TRY(run_term(run, k, &view, &found));
        Status st = found ? loss_truth(&view, &truth) : OK;
        bool made = found && st == OK;
        if (made && all)
            json_array_append_new(all,
                                  json_pack("{s:o, s:o, s:o, s:o, s:o}", "term", json_text(name), "mean",
                                            json_finite(later_mean(&view)), "mean_noise", json_finite(truth.mean_noise),
                                            "last_noise", json_finite(truth.last_noise), "tower", towers_json(&truth)));
        if (made && !all) {
            if (!any)
                text_printf(to, "\n  %-22s %12s   %12s%s\n", "term", "later half", "noise",
                            run->towers > 1 ? "     last tower   noise variance / that of the mean   expected" : "");
            any = true;
            term_row(name, &view, &truth, to);
        }
        if (made) loss_truth_clear(&truth);
        run_view_free(&view);
        TRY(st);
    }
    return OK;
}

/* Compare a term that both runs have over the same images, as losses are. */
static Status term_difference(const Run *a, int a_name, const Run *b, int b_name, TermDifference *term, bool *found)
{
    Run x, y = {0};
    RunDifference d;
    bool both = false;
    utf8_escape(term->name, sizeof term->name, b->term_name[b_name]);
    TRY(run_term(a, a_name, &x, found));
    Status st = *found ? run_term(b, b_name, &y, &both) : OK;
    *found = both;
    if (st == OK && both) st = run_difference(&x, &y, &d);
    if (st == OK && both) term->measured = d.loss;
    run_view_free(&x);
    run_view_free(&y);
    return st;
}

static Status terms_compare(const Run *a, const Run *b, TermDifference terms[TERMS_MAX], int *count)
{
    *count = 0;
    for (int k = 0; k < b->term_names; k++)
        for (int i = 0; i < a->term_names && *count < TERMS_MAX; i++) {
            bool found = false;
            if (!strcmp(a->term_name[i], b->term_name[k])) TRY(term_difference(a, i, b, k, &terms[*count], &found));
            *count += found;
        }
    return OK;
}

/* ---- the command */

/* One phase of a run, and its difference from the same phase of the first run (NULL: this is the first). */
static Status phase_compare(const Run *first, const Run *run, json_t *root, FILE *to)
{
    LossTruth truth;
    RunDifference difference;
    TermDifference terms[TERMS_MAX];
    json_t *row = NULL, *all = root && run->term_names ? json_array() : NULL;
    int count;
    TRY(loss_truth(run, &truth));
    if (root)
        json_array_append_new(json_object_get(root, "runs"), row = truth_json(run, &truth));
    else
        truth_print(run, &truth, to);
    if (all) json_object_set_new(row, "terms", all);
    Status st = terms_truth(run, all, to);
    kid_report(run, row, to);
    if (!root && (truth.towers > 1 || truth.bad_count)) text_printf(to, "\n%s\n", truth.verdict);
    loss_truth_clear(&truth);
    TRY(st);
    if (!first) return OK;
    TRY(run_difference(first, run, &difference));
    TRY(terms_compare(first, run, terms, &count));
    if (root)
        json_array_append_new(json_object_get(root, "differences"),
                              difference_json(first, run, &difference, terms, count));
    else
        difference_print(first, run, &difference, terms, count, to);
    return OK;
}

static Status run_compare(const Run *first, const Run *run, json_t *root, FILE *to)
{
    bool found = true, also = false;
    for (int phase = 0; found; phase++) {
        Run view, other = {0};
        TRY(run_phase(run, phase, &view, &found));
        Status st = found && first ? run_phase(first, phase, &other, &also) : OK;
        if (found && phase > 0 && !root) fputc('\n', to);
        bool same = also && (view.phase ? other.phase && !strcmp(view.phase, other.phase) : !other.phase);
        if (found && st == OK) st = phase_compare(same ? &other : NULL, &view, root, to);
        if (found && st == OK && first && !same && !root)
            text_printf(to, "\nnot compared with %s, which has no phase %s\n", first->path,
                        view.phase ? view.phase : "train");
        run_view_free(&view);
        run_view_free(&other);
        TRY(st);
    }
    return OK;
}

Status compare_runs(char *const *paths, int count, bool json, const char *page, FILE *to)
{
    Status st = OK;
    Run **run = NULL;
    json_t *settings, *root = json ? json_pack("{s:[], s:[]}", "runs", "differences") : NULL;
    if (count < 1) TRY_OUT(FAIL(ERR_ARG, "no run given; usage: towers compare RUN..."));
    if (count > 0) run = calloc((size_t)count, sizeof *run);
    if (!run) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %d runs", count));
    for (int i = 0; i < count; i++) {
        TRY_OUT(run_read(paths[i], 0, &run[i]));
        if (i > 0 && !json) fputc('\n', to);
        TRY_OUT(run_compare(i > 0 ? run[0] : NULL, run[i], root, to));
    }
    if (count > 1) {
        TRY_OUT(setting_differences((const Run *const *)run, count, &settings));
        if (root)
            json_object_set_new(root, "settings", settings);
        else
            setting_differences_print((const Run *const *)run, count, settings, to);
        if (!root) json_decref(settings);
        TRY_OUT(fold_scores((const Run *const *)run, count, root, to));
    }
    if (count > 2) TRY_OUT(ranking_emit(run, count, root, to));
    if (page) TRY_OUT(compare_page(run, count, page));
    if (json) st = json_emit(json_incref(root), JSON_INDENT(2), to);
out:
    for (int i = 0; run && i < count; i++) run_destroy(run[i]);
    free(run);
    json_decref(root);
    return st;
}
