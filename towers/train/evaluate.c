/* Evaluation: the test set is cut into fixed blocks that the processes take in turn, so every sample is evaluated
 * exactly once, in batches whose size does not depend on the number of towers. Counts of correct predictions are
 * integers, so the accuracy is exact. A training run with few enough classes also writes RUN/confusion.csv: one row per
 * true class, one column per predicted class, with their names; the counts are those of the best evaluation. */
#include "towers/train/evaluate.h"
#include "towers/files/csv.h"
#include "towers/replica/inference.h"
#include "towers/replica/norm_running.h"
#include "towers/train/average_precision.h"
#include "towers/train/mistakes.h"
#include "towers/train/samples_log.h"

static bool all_finite(const float *x, int64_t count)
{
    bool finite = true;
    for (int64_t k = 0; k < count; k++) finite &= isfinite(x[k]) != 0;
    return finite;
}

static EvalSample sample_of(int32_t label, const float *probability, int64_t classes)
{
    int64_t predicted = 0;
    for (int64_t i = 1; i < classes; i++)
        if (probability[i] > probability[predicted]) predicted = i;
    return (EvalSample){label, (int32_t)predicted, probability[predicted], -logf(probability[label]),
                        label != predicted};
}

/* The loss of a sample whose classes are decisions of their own, without smoothing. */
static float bce_of(const float *probability, const uint8_t *has, int64_t classes)
{
    double sum = 0;
    for (int64_t k = 0; k < classes; k++)
        sum -= log(fmax((double)(has[k] ? probability[k] : 1 - probability[k]), 1e-38));
    return (float)(sum / (double)classes);
}

/* A sample with any number of classes. `has`: whether it has each class. */
static EvalSample multi_label_of(const float *probability, const uint8_t *has, int64_t classes)
{
    EvalSample sample = {.loss = bce_of(probability, has, classes)};
    float sure = 0;
    for (int64_t k = 0; k < classes; k++) {
        float answer = probability[k] > 0.5f ? probability[k] : 1 - probability[k];
        bool wrong = (probability[k] > 0.5f) != (has[k] != 0);
        if (wrong && answer > sure) sure = answer;
        sample.wrong |= wrong;
    }
    sample.probability = sure;
    return sample;
}

static EvalSample sample_evaluate(const TrainJob *job, const Batch *batch, int32_t i, const float *probability,
                                  uint8_t *has)
{
    int64_t classes = job->program.options.classes;
    int32_t label = batch->labels[i], count = 1;
    const int32_t *labels = &label;
    if (label == LABEL_NONE) return (EvalSample){.label = LABEL_NONE};
    if (!all_finite(probability, classes)) return (EvalSample){label, 0, NAN, NAN, true};
    memset(has, 0, (size_t)classes);
    if (job->program.multi_label) count = source_labels(job->test, batch->ids[i], &labels);
    for (int32_t k = 0; k < count; k++) has[labels[k]] = 1;
    if (job->program.loss == LOSS_SOFTMAX) return sample_of(label, probability, classes);
    if (job->program.multi_label) return multi_label_of(probability, has, classes);
    EvalSample sample = sample_of(label, probability, classes);
    sample.loss = bce_of(probability, has, classes);
    return sample;
}

/* ---- losses of changed probabilities, from logits: finite where a probability is 0 in f32 */

static double logit_of(const Tensor *logits, int64_t sample, int64_t class)
{
    return (double)element_read(logits->dtype, logits->data, sample * logits->pitch + class);
}

/* ln(sum of exp(x[k])), less ln(parts). */
static double log_sum(const double *x, int64_t count, int parts)
{
    double most = x[0], sum = 0;
    for (int64_t k = 1; k < count; k++) most = x[k] > most ? x[k] : most;
    for (int64_t k = 0; k < count; k++) sum += exp(x[k] - most);
    return most + log(sum / parts);
}

/* Of the mean of the probabilities of a sample's views, scaled by the temperature. `x` [classes] receives the logarithms of
 * that mean, over the temperature. */
static double loss_of_logits(const TrainJob *job, const Inferred *found, int32_t i, const uint8_t *has, double *x)
{
    const Tensor *logits = found->logits;
    int views = logits[1].data ? 2 : 1;
    int64_t classes = job->program.options.classes;
    double view[2], whole[2] = {0}, loss = 0;
    bool softmax = job->program.loss == LOSS_SOFTMAX;
    for (int v = 0; softmax && v < views; v++) {
        for (int64_t k = 0; k < classes; k++) x[k] = logit_of(&logits[v], i, k);
        whole[v] = log_sum(x, classes, 1);
    }
    for (int64_t k = 0; k < classes; k++) {
        for (int v = 0; v < views; v++) {
            double one = logit_of(&logits[v], i, k), away = has[k] ? -one : one;
            view[v] = softmax ? one - whole[v] : -fmax(away, 0) - log1p(exp(-fabs(away)));
        }
        x[k] = log_sum(view, views, views) / (job->temperature > 0 ? job->temperature : 1);
        loss -= softmax ? 0 : x[k] / (double)classes;
    }
    return softmax ? log_sum(x, classes, 1) - x[found->batch.labels[i]] : loss;
}

/* Whether one of the sample's classes is among the `few` most probable ones; of equal ones the lower come first. */
static bool is_near(const float *probability, const uint8_t *has, int64_t classes, int few)
{
    for (int64_t label = 0; label < classes; label++) {
        int before = 0;
        for (int64_t k = 0; has[label] && k < classes; k++)
            before += probability[k] > probability[label] || (k < label && probability[k] == probability[label]);
        if (has[label] && before < few) return true;
    }
    return false;
}

/* Take the oldest block in flight: its results into `fields`, the prediction for each sample into the matrix (NULL if
 * there are too many classes) and the ledger. Loss and correct predictions are the program's own, unless the probabilities
 * were changed after it: averaged (--tta), or scaled by a temperature, which leaves the order of the classes. */
static Status block_take(const TowerProcess *p, Inference *inference, float *fields, float *confusion)
{
    const TrainJob *job = p->job;
    const Inferred *found;
    Ledger *ledger = p->ledger;
    int64_t classes = job->program.options.classes, correct[2] = {0};
    bool averaged = job->tta != TTA_NONE, scaled = averaged || job->temperature > 0;
    double loss = 0;
    TRY(inference_end(inference, &found));
    double *room = malloc((size_t)classes * (sizeof *room + 1));
    if (!room) return FAIL(ERR_MEMORY, "no memory for the classes of a sample");
    uint8_t *has = (uint8_t *)(room + classes);
    const Batch *batch = &found->batch;
    for (int32_t i = 0; found->prob && i < batch->n; i++) {
        const float *probability = found->prob + i * found->pitch;
        EvalSample sample = sample_evaluate(job, batch, i, probability, has);
        if (found->logits[0].data && sample.label != LABEL_NONE)
            sample.loss = (float)loss_of_logits(job, found, i, has, room);
        if (ledger->sample) ledger->sample[batch->ids[i]] = sample;
        if (sample.label == LABEL_NONE) continue;
        for (int64_t k = 0; ledger->score && k < classes; k++)
            ledger->score[batch->ids[i] * classes + k] = job->keep_logs ? (float)room[k] : probability[k];
        if (confusion) confusion[sample.label * classes + sample.predicted]++;
        loss += (double)sample.loss;
        correct[0] += !sample.wrong;
        correct[1] += averaged && is_near(probability, has, classes, job->program.multi_label ? 1 : 5);
    }
    float *to = fields + batch->step * BLOCK_FIELDS;
    to[BLOCK_LOSS] = (float)(scaled ? loss : found->loss);
    to[BLOCK_COUNT] = (float)(batch->n - batch->skipped);
    for (int k = 0; k < 2; k++) to[BLOCK_TOP1 + k] = (float)(averaged ? correct[k] : found->correct[k]);
    free(room);
    return OK;
}

/* One "tower" whose batch is a block; this process takes blocks rank, rank + ranks, ... */
static LoaderConfig eval_loader(const TowerProcess *p)
{
    const TrainJob *job = p->job;
    LoaderConfig config = job_loader(job, false);
    config.local_batches = (LocalBatches){.towers = 1, .batch = &job->eval_batch};
    config.local = 1;
    config.start_step = p->place.rank;
    config.stride = p->place.ranks;
    config.depth = config.workers + 2;
    config.max_steps = steps_per_epoch_of(&config.local_batches, source_info(job->test)->count);
    return config;
}

static bool stop_asked(const TowerProcess *p)
{
    return atomic_load(&p->ledger->run.stop_signal) != 0;
}

/* Every process gives the rows of its blocks, `row` bytes for each sample; afterwards every ledger has all of them. */
static Status rows_share(TowerProcess *p, void *rows, size_t row)
{
    Status st = OK;
    size_t ranks = (size_t)p->place.ranks, own = (size_t)p->place.rank, each = (size_t)job_node_processes(p->job);
    size_t block = (size_t)p->job->eval_batch * row, bytes = (size_t)p->ledger->samples * row;
    char *at = rows, *all = calloc(ranks + 1, block), *mine = all + ranks * block;
    if (!all) return FAIL(ERR_MEMORY, "no memory for the results of %zu blocks of an evaluation", ranks);
    for (size_t first = 0; first < bytes; first += ranks * block) {
        size_t here = first + own * block;
        if (here < bytes) memcpy(mine, at + here, bytes - here < block ? bytes - here : block);
        TRY_OUT(comm_gather(p->comm, mine, block, all));
        for (size_t r = 0, from = first; r < ranks && from < bytes; r++, from += block)
            if (leads_node(&p->place) && r / each != own / each)
                memcpy(at + from, all + r * block, bytes - from < block ? bytes - from : block);
    }
out:
    free(all);
    return st;
}

/* With several programs each ledger has the samples of its own blocks; afterwards all have all of them. */
static Status samples_share(TowerProcess *p)
{
    Status st = OK;
    int64_t *rotated = calloc((size_t)p->place.ranks, sizeof *rotated), mine;
    bool leads = leads_node(&p->place);
    if (!rotated) return FAIL(ERR_MEMORY, "no memory for the numbers of %d processes", p->place.ranks);
    TRY_OUT(rows_share(p, p->ledger->sample, sizeof *p->ledger->sample));
    if (p->ledger->score)
        TRY_OUT(rows_share(p, p->ledger->score, (size_t)p->ledger->classes * sizeof *p->ledger->score));
    mine =
        leads ? atomic_load(&p->ledger->run.eval_rotated) : 0; /* all processes of this program have counted theirs */
    TRY_OUT(comm_gather(p->comm, &mine, sizeof mine, rotated));
    for (int r = 0; leads && r < p->place.ranks; r++)
        if (r != p->place.rank) atomic_fetch_add(&p->ledger->run.eval_rotated, rotated[r]);
out:
    free(rotated);
    return st;
}

/* `fields`: [blocks][BLOCK_FIELDS] and the counts after them; filled in for the blocks of this process. */
static Status blocks_run(TowerProcess *p, float *fields)
{
    Status st = OK;
    Loader *loader = NULL;
    Inference *inference = NULL;
    LoaderConfig config = eval_loader(p);
    float *confusion = job_eval_confusion(p->job) ? fields + job_eval_blocks(p->job) * BLOCK_FIELDS : NULL;
    if (config.start_step >= config.max_steps) return OK;
    TRY_OUT(loader_create(&config, &loader));
    TRY_OUT(inference_open(p->replica, loader, confusion || p->ledger->sample, p->job->tta, p->job->temperature,
                           &inference));
    for (int64_t s = config.start_step; s < config.max_steps && !stop_asked(p); s += config.stride) {
        const Batch *batch;
        TRY_OUT(loader_next(loader, &batch));
        bad_samples_log(p, batch, true, p->run.step);
        atomic_fetch_add(&p->ledger->run.eval_rotated, batch->rotated);
        process_activity(p, p->run.step, ACTIVITY_EVAL);
        TRY_OUT(inference_begin(inference, batch));
        if (inference_pending(inference) > inference_ahead(inference))
            TRY_OUT(block_take(p, inference, fields, confusion));
    }
    while (inference_pending(inference)) TRY_OUT(block_take(p, inference, fields, confusion));
out:
    inference_close(inference);
    loader_destroy(loader);
    return st;
}

static EvalResult blocks_total(const float *fields, int64_t blocks)
{
    EvalResult total = {0};
    for (int64_t b = 0; b < blocks; b++, fields += BLOCK_FIELDS) {
        total.loss += (double)fields[BLOCK_LOSS];
        total.count += (int64_t)fields[BLOCK_COUNT];
        total.correct[0] += (int64_t)fields[BLOCK_TOP1];
        total.correct[1] += (int64_t)fields[BLOCK_TOP5];
    }
    total.loss = total.count ? total.loss / (double)total.count : ABSENT;
    return total;
}

/* A full disk does not end the run here; other records will report it. */
static Status confusion_write(const TowerProcess *p, const float *counts)
{
    Draft draft;
    TRY(draft_begin(&draft, "the confusion matrix"));
    FILE *to = draft.to;
    const SourceInfo *info = source_info(p->job->test);
    int32_t classes = p->job->program.options.classes;
    char number[16];
    fputs("class", to);
    for (int32_t k = 0; k < classes; k++) {
        fputc(',', to);
        csv_text(to, class_text(info, k, number));
    }
    for (int32_t k = 0; k < classes; k++) {
        fputc('\n', to);
        csv_text(to, class_text(info, k, number));
        for (int32_t i = 0; i < classes; i++) fprintf(to, ",%" PRId64, (int64_t)counts[k * classes + i]);
    }
    fputc('\n', to);
    if (draft_replace(&draft, OK, p->job->run_dir, "confusion.csv") != OK)
        metrics_log(p->metrics, "no confusion matrix: %s", status_message());
    return OK;
}

/* The matrix belongs to best.safetensors; without better weights the existing one is kept. */
static bool is_best(const TowerProcess *p, const EvalResult *result)
{
    return score_better(SCORE_ACCURACY, eval_score(result), p->run.best[SCORE_ACCURACY]);
}

/* Rank 0 measures, all get the result. */
static Status precision_measure(TowerProcess *p, EvalResult *result)
{
    const TrainJob *job = p->job;
    result->multi_label = job->program.multi_label;
    if (!result->multi_label) return OK;
    if (is_root(&p->place))
        TRY(average_precision(job->test, p->ledger->sample, p->ledger->score, job->program.options.classes, NULL,
                              &result->mean_precision));
    return comm_broadcast(p->comm, &result->mean_precision, sizeof result->mean_precision, 0);
}

Status evaluate(TowerProcess *p, EvalResult *result, bool *whole, StepOutcome *outcome)
{
    Status st = OK;
    int64_t wanted = source_info(p->job->test)->count, blocks = job_eval_blocks(p->job);
    size_t floats = (size_t)job_eval_floats(p->job);
    float *fields = calloc(2 * floats, sizeof *fields); /* and as many zeros, for towers without blocks */
    if (!fields) return FAIL(ERR_MEMORY, "no memory for results of %" PRId64 " blocks of an evaluation", blocks);
    TRY_OUT(statistics_export(p));
    TRY_OUT(blocks_run(p, fields));
    /* Each block is filled in by one process and zero in the others, so the sum and its total are exact and do not
     * depend on which process had which block. */
    fields[floats - EVAL_STOP_FIELDS] = stop_asked(p);
    for (int local = 0; local < p->place.local_towers; local++)
        TRY_OUT(
            comm_allreduce_begin(p->comm, p->place.first_tower + local, 0, local ? fields + floats : fields, floats));
    TRY_OUT(comm_allreduce_end(p->comm, 0, fields, floats));
    if (job_nodes(p->job) > 1 && p->ledger->sample) TRY_OUT(samples_share(p));
    TRY_OUT(comm_barrier(p->comm)); /* the others' results of each sample are in the ledger */
    *result = blocks_total(fields, blocks);
    TRY_OUT(precision_measure(p, result));
    if (fields[floats - EVAL_STOP_FIELDS] > 0) outcome_raise(outcome, STOP);
    *whole = result->count == wanted ||
             (*outcome != STOP && p->job->data.bad == BAD_SKIP && result->count < wanted); /* except skipped samples */
    if (!*whole && *outcome != STOP)
        st = FAIL(ERR_INTERNAL, "evaluation saw %" PRId64 " samples of %" PRId64, result->count, wanted);
    if (st != OK || !*whole || !is_root(&p->place)) goto out;
    rotated_note(p, atomic_load(&p->ledger->run.eval_rotated), wanted, "evaluation");
    if (p->metrics && job_eval_confusion(p->job) && is_best(p, result))
        TRY_OUT(confusion_write(p, fields + blocks * BLOCK_FIELDS));
    if (p->metrics && p->ledger->sample) mistakes_write(p, is_best(p, result));
out:
    free(fields);
    return st;
}
