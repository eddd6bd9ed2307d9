/* The ranking of several runs, as text and as JSON; see ranking.h and compare.h. */
#include "inception/report/ranking.h"

#include "inception/report/compare.h"
#include "inception/report/run_difference.h"
#include "towers/record/run_view.h"

static int by_score(const void *a, const void *b)
{
    const RankedRun *x = a, *y = b;
    if (isfinite(x->score) != isfinite(y->score)) return isfinite(x->score) ? -1 : 1;
    if (isfinite(x->score) && x->score != y->score) return x->score < y->score ? -1 : 1;
    return x->number - y->number;
}

/* Losses and speeds over the later half of the images that all runs have seen, where the rows of all cover them. */
static Status means_take(const Run *runs, int count, RankedRun *ranks, StepSpan *images)
{
    Status st = OK;
    size_t runs_most = count > 0 ? (size_t)count : 0;
    SeenSteps *seen = calloc(runs_most, sizeof *seen);
    SpanMeans *means = calloc(runs_most, sizeof *means);
    if (!seen || !means) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a ranking of %d runs", count));
    images->to = INT64_MAX;
    for (int i = 0; i < count; i++) {
        TRY_OUT(seen_steps_make(&runs[i], &seen[i]));
        if (seen_images(&seen[i]) < images->to) images->to = seen_images(&seen[i]);
    }
    images->from = images->to / 2;
    TRY_OUT(seen_common(seen, count, *images, means));
    for (int i = 0; i < count; i++) ranks[i].loss = means[i].loss, ranks[i].speed = means[i].speed;
out:
    for (int i = 0; seen && i < count; i++) seen_steps_free(&seen[i]);
    free(seen);
    free(means);
    return st;
}

static Status ranks_make(const Run *runs, int count, RankedRun *ranks, StepSpan *images, RankedBy *by)
{
    bool accuracies = true, kids = true, losses = true;
    for (int i = 0; i < count; i++) {
        RunDifference d;
        TRY(run_difference(&runs[0], &runs[i], &d));
        ranks[i] = (RankedRun){.run = &runs[i], .number = i + 1, .accuracy = d.accuracy.b, .kid = d.kid.b, .p = ABSENT};
        kids &= isfinite(d.kid.b) && !d.other_features;
        accuracies &= isfinite(ranks[i].accuracy) && runs[i].multi_label == runs[0].multi_label;
        losses &= runs[i].phase == NULL;
    }
    TRY(means_take(runs, count, ranks, images));
    losses &= !is_absent(ranks[0].loss);
    *by = accuracies ? RANKED_BY_ACCURACY : kids ? RANKED_BY_KID : losses ? RANKED_BY_LOSS : RANKED_BY_NOTHING;
    if (*by == RANKED_BY_NOTHING) return OK;
    for (int i = 0; i < count; i++)
        ranks[i].score = accuracies ? -ranks[i].accuracy : kids ? ranks[i].kid : ranks[i].loss;
    qsort(ranks, (size_t)count, sizeof *ranks, by_score);
    for (int i = 1; i < count; i++) {
        RunDifference d;
        TRY(run_difference(ranks[0].run, ranks[i].run, &d));
        ranks[i].p = (accuracies ? d.accuracy : kids ? d.kid : d.loss).change.p;
    }
    return OK;
}

static const char *const ranked_by[] = {"loss", "accuracy", "kid"};

static json_t *ranks_json(const RankedRun *ranks, int count, StepSpan images, RankedBy by)
{
    if (by == RANKED_BY_NOTHING) return json_null();
    json_t *rows = json_array();
    for (int i = 0; i < count; i++) {
        const RankedRun *r = &ranks[i];
        json_t *row = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "rank", i + 1, "run", json_text(r->run->path),
                                "mean_loss", json_finite(r->loss), "accuracy", json_finite(r->accuracy),
                                "images_per_sec", json_finite(r->speed), "p_against_best", json_finite(r->p));
        if (by == RANKED_BY_KID) json_object_set_new(row, "kid", json_finite(r->kid));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:I, s:I, s:o}", "by", ranked_by[by], "images_from", (json_int_t)images.from, "images_to",
                     (json_int_t)images.to, "rows", rows);
}

void ranked_test_text(const RankedRun *run, char text[RANKING_TEXT])
{
    if (is_not_finite(run->score))
        snprintf(text, RANKING_TEXT, "worse: not finite");
    else if (is_absent(run->p))
        snprintf(text, RANKING_TEXT, "not tested");
    else
        snprintf(text, RANKING_TEXT, "%s, p = %.2g", run->p < DIFFERENCE_LEVEL ? "worse" : "not significant", run->p);
}

const char *ranking_name(const Ranking *ranking)
{
    return ranking->by == RANKED_BY_LOSS      ? "the training loss"
           : ranking->by == RANKED_BY_KID     ? "the KID of the generated images"
           : ranking->by == RANKED_BY_NOTHING ? "nothing"
           : ranking->row[0].run->multi_label ? "the last test mAP"
                                              : "the last test accuracy";
}

void ranked_score_text(const Ranking *ranking, const RankedRun *run, char text[RANKING_TEXT])
{
    if (ranking->by == RANKED_BY_ACCURACY)
        number_text(100 * run->accuracy, "%.2f %%", text);
    else
        number_text(ranking->by == RANKED_BY_KID ? run->kid : run->loss, "%.5g", text);
}

static void ranks_print(const RankedRun *ranks, int count, StepSpan images, RankedBy by, FILE *to)
{
    char loss[NUMBER_TEXT], score[NUMBER_TEXT], speed[NUMBER_TEXT], test[RANKING_TEXT] = "";
    bool kids = by == RANKED_BY_KID, multi_label = ranks[0].run->multi_label;
    if (by == RANKED_BY_NOTHING) {
        fputs(ranks[0].run->phase
                  ? "\nNo ranking: the losses of phases that train against each other tell nothing about the images; "
                    "--features CLASSIFIER measures them by KID during training, for all runs by the same network\n"
                  : "\nNo ranking: not all runs were evaluated, and they have no recorded steps over the same images\n",
              to);
        return;
    }
    text_printf(to, "\nRanking by %s\n\n  rank %12s %16s %18s   %-26s run\n",
                by == RANKED_BY_LOSS ? "loss (not all runs were evaluated)"
                : kids               ? "KID of the generated images, lowest first"
                : multi_label        ? "test mAP"
                                     : "test accuracy",
                "mean_loss",
                kids          ? "KID"
                : multi_label ? "test mAP, %"
                              : "test accuracy, %",
                "images per second", "difference from the best");
    for (int i = 0; i < count; i++) {
        const RankedRun *r = &ranks[i];
        if (i > 0) ranked_test_text(r, test);
        text_printf(to, "  %4d %12s %16s %18s   %-26s %s\n", i + 1, number_text(r->loss, "%.5g", loss),
                    kids ? number_text(r->kid, "%.5f", score) : number_text(100 * r->accuracy, "%.2f", score),
                    number_text(r->speed, "%.4g", speed), test, r->run->path);
    }
    if (!is_absent(ranks[0].loss))
        fprintf(to, "  (mean_loss and speed over images %" PRId64 " to %" PRId64 ", which all runs have seen)\n",
                images.from, images.to);
    fprintf(to,
            "  (not significant: p is not below %g, so chance alone may have made the difference; the runs may still "
            "differ)\n",
            DIFFERENCE_LEVEL);
}

Status ranking_make(Run *const *runs, int count, Ranking *ranking)
{
    bool found;
    *ranking = (Ranking){.count = count,
                         .view = calloc((size_t)count, sizeof *ranking->view),
                         .row = calloc((size_t)count, sizeof *ranking->row)};
    if (!ranking->view || !ranking->row) return FAIL(ERR_MEMORY, "no memory for a ranking of %d runs", count);
    for (int i = 0; i < count; i++) TRY(run_phase(runs[i], 0, &ranking->view[i], &found));
    return ranks_make(ranking->view, count, ranking->row, &ranking->images, &ranking->by);
}

void ranking_clear(Ranking *ranking)
{
    for (int i = 0; ranking->view && i < ranking->count; i++) run_view_free(&ranking->view[i]);
    free(ranking->view);
    free(ranking->row);
    *ranking = (Ranking){0};
}

Status ranking_emit(Run *const *runs, int count, json_t *root, FILE *to)
{
    Ranking ranking;
    Status st = ranking_make(runs, count, &ranking);
    if (st == OK && root)
        json_object_set_new(root, "ranking", ranks_json(ranking.row, count, ranking.images, ranking.by));
    else if (st == OK)
        ranks_print(ranking.row, count, ranking.images, ranking.by, to);
    ranking_clear(&ranking);
    return st;
}
