/* The ranking of several runs as text and as JSON; see compare.h. */
#include "inception/report/compare.h"

#include "inception/report/run_difference.h"
#include "kernels/text.h"
#include "towers/record/run_view.h"

/* What makes a run better than another. The loss of a phase tells nothing: that of a critic falls with its success and
 * rises with that of the generator. */
typedef enum RankedBy { RANKED_BY_LOSS = 0, RANKED_BY_ACCURACY, RANKED_BY_KID, RANKED_BY_NOTHING } RankedBy;

typedef struct RankedRun {
    const Run *run;
    int number; /* position on the command line, from 1 */
    double loss, accuracy, kid, speed;
    double score; /* the least is the best, what is not finite the worst */
    double p;     /* of the hypothesis that it equals the best run; NaN: unknown */
} RankedRun;

static int by_score(const void *a, const void *b)
{
    const RankedRun *x = a, *y = b;
    if (isfinite(x->score) != isfinite(y->score)) return isfinite(x->score) ? -1 : 1;
    if (isfinite(x->score) && x->score != y->score) return x->score < y->score ? -1 : 1;
    return x->number - y->number;
}

/* Rank by test accuracy if all runs have one, or by KID if all have one of the same features; else by the loss over the
 * later half of the images that all runs have seen. */
static Status ranks_make(const Run *runs, int count, RankedRun *ranks, int64_t *images, RankedBy *by)
{
    bool accuracies = true, kids = true, phases = false;
    *images = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t seen;
        TRY(run_images(&runs[i], &seen));
        *images = seen < *images ? seen : *images;
    }
    for (int i = 0; i < count; i++) {
        RunDifference d;
        TRY(run_difference(&runs[0], &runs[i], &d));
        ranks[i] = (RankedRun){.run = &runs[i], .number = i + 1, .kid = d.kid.b};
        kids &= isfinite(d.kid.b) && !d.other_features;
        TRY(run_difference(&runs[i], &runs[i], &d));
        ranks[i].accuracy = d.accuracy.a;
        ranks[i].speed = d.speed.a;
        TRY(run_loss_over(&runs[i], *images / 2, *images, &ranks[i].loss));
        accuracies &= isfinite(ranks[i].accuracy) && runs[i].several == runs[0].several;
        phases |= runs[i].phase != NULL;
    }
    *by = accuracies ? RANKED_BY_ACCURACY : kids ? RANKED_BY_KID : phases ? RANKED_BY_NOTHING : RANKED_BY_LOSS;
    if (*by == RANKED_BY_NOTHING) return OK;
    for (int i = 0; i < count; i++)
        ranks[i].score = accuracies ? -ranks[i].accuracy : kids ? ranks[i].kid : ranks[i].loss;
    qsort(ranks, (size_t)count, sizeof *ranks, by_score);
    for (int i = 0; i < count; i++) {
        RunDifference d;
        ranks[i].p = NAN;
        if (i > 0) TRY(run_difference(ranks[0].run, ranks[i].run, &d));
        if (i > 0) ranks[i].p = (accuracies ? d.accuracy : kids ? d.kid : d.loss).change.p;
    }
    return OK;
}

static const char *number_text(double value, const char *format, char text[32])
{
    snprintf(text, 32, "-");
    if (isfinite(value)) snprintf(text, 32, format, value);
    return text;
}

static const char *const ranked_by[] = {"loss", "accuracy", "kid"};

static json_t *ranks_json(const RankedRun *ranks, int count, int64_t images, RankedBy by)
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
    return json_pack("{s:s, s:I, s:I, s:o}", "by", ranked_by[by], "images_from", (json_int_t)(images / 2), "images_to",
                     (json_int_t)images, "rows", rows);
}

static void ranks_print(const RankedRun *ranks, int count, int64_t images, RankedBy by, FILE *to)
{
    char a[32], b[32], c[32], d[32];
    bool kids = by == RANKED_BY_KID, several = ranks[0].run->several;
    if (by == RANKED_BY_NOTHING) {
        fprintf(to, "\nNo ranking: the losses of phases that train against each other tell nothing about the images; "
                    "--features CLASSIFIER measures them by KID during training, for all runs by the same network\n");
        return;
    }
    text_printf(to, "\nRanking by %s\n\n  rank %12s %16s %18s   %-22s run\n",
                by == RANKED_BY_LOSS ? "loss (not all runs were evaluated)"
                : kids               ? "KID of the generated images, lowest first"
                : several            ? "test mAP"
                                     : "test accuracy",
                "mean_loss",
                kids      ? "KID"
                : several ? "test mAP, %"
                          : "test accuracy, %",
                "images per second", "compared to the best");
    for (int i = 0; i < count; i++) {
        const RankedRun *r = &ranks[i];
        const char *mark = i == 0 ? "" : r->p < DIFFERENCE_LEVEL ? "worse" : "possibly equal";
        snprintf(d, sizeof d, "%s", mark);
        if (i > 0 && isfinite(r->p)) snprintf(d, sizeof d, "%s, p = %.2g", mark, r->p);
        text_printf(to, "  %4d %12s %16s %18s   %-22s %s\n", i + 1, number_text(r->loss, "%.5g", a),
                    kids ? number_text(r->kid, "%.5f", b) : number_text(100 * r->accuracy, "%.2f", b),
                    number_text(r->speed, "%.4g", c), d, r->run->path);
    }
    fprintf(to, "  (mean_loss over images %" PRId64 " to %" PRId64 ", which all runs have seen)\n", images / 2, images);
}

Status ranking_emit(Run *const *runs, int count, json_t *root, FILE *to)
{
    Status st = OK;
    bool found;
    int64_t images;
    RankedBy by;
    Run *view = calloc((size_t)count, sizeof *view);
    RankedRun *ranks = calloc((size_t)count, sizeof *ranks);
    if (!view || !ranks) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a ranking of %d runs", count));
    for (int i = 0; i < count; i++) TRY_OUT(run_phase(runs[i], 0, &view[i], &found));
    TRY_OUT(ranks_make(view, count, ranks, &images, &by));
    if (root)
        json_object_set_new(root, "ranking", ranks_json(ranks, count, images, by));
    else
        ranks_print(ranks, count, images, by, to);
out:
    for (int i = 0; view && i < count; i++) run_view_free(&view[i]);
    free(view);
    free(ranks);
    return st;
}
