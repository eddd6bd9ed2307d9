/* Sort an evaluation's samples and write the worst of them to files; see mistakes.h. */
#include "towers/train/mistakes.h"

#include "kernels/base/place.h"
#include "towers/data/images/jpeg_write.h"
#include "towers/data/loading/sheet.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/record/run_read.h"

enum { SHEET_QUALITY = 85 };

/* ---- the list */

/* A probability of NaN sorts last. */
static float confidence(const EvalSample *sample)
{
    return isnan(sample->probability) ? -1 : sample->probability;
}

static int by_confidence(const void *a, const void *b, void *samples)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    float p = confidence((const EvalSample *)samples + x), q = confidence((const EvalSample *)samples + y);
    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

Status mistakes_find(const EvalSample *samples, int64_t count, int64_t **ids, int64_t *found)
{
    *found = 0;
    *ids = malloc((size_t)count * sizeof **ids + 1);
    if (!*ids) return FAIL(ERR_MEMORY, "no memory for a list of %" PRId64 " samples", count);
    for (int64_t i = 0; i < count; i++)
        if (samples[i].wrong) (*ids)[(*found)++] = i;
    qsort_r(*ids, (size_t)*found, sizeof **ids, by_confidence, (void *)samples);
    return OK;
}

const char *class_text(const SourceInfo *info, int32_t class, char number[16])
{
    if (class >= 0 && class < info->classes && info->class_names[class][0]) return info->class_names[class];
    snprintf(number, 16, "%d", class);
    return number;
}

/* A field with the names of `count` labels; with `scores`, of those of `count` classes that are above 0.5. Without memory it
 * stays empty. */
static void classes_csv(const SourceInfo *info, const int32_t *labels, int32_t count, const float *scores, FILE *to)
{
    Draft field;
    char number[16];
    if (draft_begin(&field, "a field") != OK) return;
    for (int32_t k = 0; k < count; k++)
        if (!scores || scores[k] > 0.5f)
            fprintf(field.to, "%s%s", ftell(field.to) ? ";" : "", class_text(info, scores ? k : labels[k], number));
    if (draft_end(&field, OK) == OK) csv_text(to, field.text);
    free(field.text);
}

void mistakes_print(const Source *source, const EvalSample *samples, const float *scores, int classes,
                    const int64_t *ids, int64_t count, FILE *to)
{
    const SourceInfo *info = source_info(source);
    fputs("sample,file,label,predicted,probability,loss\n", to);
    for (int64_t i = 0; i < count; i++) {
        const EvalSample *s = &samples[ids[i]];
        char where[PATH_BYTES];
        const int32_t *labels = &s->label;
        int32_t own = scores ? source_labels(source, ids[i], &labels) : 1;
        source_where(source, ids[i], where, sizeof where);
        fprintf(to, "%" PRId64 ",", ids[i]);
        csv_text(to, where);
        fputc(',', to);
        classes_csv(info, labels, own, NULL, to);
        fputc(',', to);
        classes_csv(info, &s->predicted, scores ? classes : 1, scores ? scores + ids[i] * classes : NULL, to);
        fprintf(to, ",%.6f,%.6g\n", (double)s->probability, (double)s->loss);
    }
}

/* ---- the files of a run */

static Status list_write(const TowerProcess *p, const int64_t *ids, int64_t count)
{
    Draft draft;
    TRY(draft_begin(&draft, "a list of mistakes"));
    mistakes_print(p->job->test, p->ledger->sample, p->ledger->score, p->ledger->classes, ids, count, draft.to);
    return draft_replace(&draft, OK, p->job->run_dir, MISTAKES_CSV);
}

/* By the numbers of the classes, for comparisons with other runs; not of samples with any number of classes. */
static Status predictions_write(const TowerProcess *p)
{
    Draft draft;
    if (p->ledger->score) return OK;
    TRY(draft_begin(&draft, "a list of predictions"));
    fputs("sample,label,predicted,file\n", draft.to);
    for (int64_t i = 0; i < p->ledger->samples; i++) {
        const EvalSample *s = &p->ledger->sample[i];
        char where[PATH_BYTES];
        source_where(p->job->test, i, where, sizeof where);
        fprintf(draft.to, "%" PRId64 ",%d,%d,", i, s->label, s->predicted);
        csv_text(draft.to, where);
        fputc('\n', draft.to);
    }
    return draft_replace(&draft, OK, p->job->run_dir, PREDICTIONS_CSV);
}

static Status sheet_write(TowerProcess *p, const int64_t *ids, int32_t count, bool best)
{
    Status st = OK;
    const TrainJob *job = p->job;
    Transform transform = job_transform(job, false);
    TransformWorker worker = {0};
    Sheet sheet = {0};
    char path[PATH_BYTES];
    uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(path_join(path, job->run_dir, MISTAKES_SHEET));
    if (count == 0) return place_unlink(path) == 0 || errno == ENOENT ? OK : FAIL(ERR_IO, "cannot remove '%s'", path);
    TRY_OUT(transform_worker_init(&worker));
    TRY_OUT(sheet_open(&sheet, count, SHEET_COLUMNS, transform.side, SHEET_CELL, source_info(job->test)->c));
    for (int32_t i = 0; i < count; i++)
        TRY_OUT(sheet_put_sample(&sheet, i, job->test, ids[i], &transform, &worker,
                                 model_mean(job->program.model, &job->program.options)));
    TRY_OUT(jpeg_encode(&sheet.pixels, SHEET_QUALITY, &bytes, &size));
    TRY_OUT(file_replace(path, bytes, size));
    if (best && job->event_interval > 0)
        metrics_outcome(p->metrics, events_image(metrics_events(p->metrics), p->run.step, "mistakes", sheet.pixels.at,
                                                 sheet.pixels.w, sheet.pixels.h, sheet.pixels.c));
out:
    free(bytes);
    sheet_close(&sheet);
    transform_worker_free(&worker);
    return st;
}

void mistakes_write(TowerProcess *p, bool best)
{
    int64_t *ids = NULL, found = 0;
    Status st = mistakes_find(p->ledger->sample, p->ledger->samples, &ids, &found);
    if (found > SHEET_IMAGES) found = SHEET_IMAGES;
    if (st == OK) st = list_write(p, ids, found);
    if (st == OK) st = sheet_write(p, ids, (int32_t)found, best);
    if (st == OK) st = predictions_write(p);
    free(ids);
    if (st != OK) metrics_log(p->metrics, "no lists of mistakes and predictions: %s", status_message());
}
