/* Batch-norm running statistics of all towers: which are exported (BnStats), and how far they have drifted apart.
 * Towers exchange them by all-reduce, so every rank has the result. */

#include "towers/replica/norm_running.h"
#include "towers/replica/norm_values.h"
#include "towers/store/safetensors.h"

/* ---- sums */

/* How each tower's statistics are transformed before they are added. */
typedef struct Pick {
    int only;        /* this tower only, the others are zeros; -1: the mean of all that have this running statistic */
    bool by_samples; /* the mean has weights: samples */
    const float *around; /* [running_elements] squares of the distance from this; NULL: the values themselves */
    bool biased;         /* use biased variances */
} Pick;

/* A tower that never sees more than one value of a channel has no statistics of that batch norm (norm_values.h). */
static bool tower_has(const TowerProcess *p, const LayoutEntry *running, int tower)
{
    int64_t samples = p->job->local_batches.batch[tower];
    if (samples && p->job->bn_stats == BN_STATS_SYNC) samples = global_batch_of(&p->job->local_batches);
    return samples && replica_values(p->replica, running->first, samples) != 1;
}

/* The samples of all towers that have this running statistic; by_samples false: the number of these towers. */
static int64_t weights_sum(const TowerProcess *p, const LayoutEntry *running, bool by_samples)
{
    int64_t sum = 0;
    for (int t = 0; t < p->job->local_batches.towers; t++)
        if (tower_has(p, running, t)) sum += by_samples ? p->job->local_batches.batch[t] : 1;
    return sum;
}

static float weight_of(const TowerProcess *p, const Pick *pick, const LayoutEntry *running, int tower)
{
    if (pick->only >= 0) return pick->only == tower ? 1 : 0;
    if (!tower_has(p, running, tower)) return 0;
    double own = pick->by_samples ? (double)p->job->local_batches.batch[tower] : 1;
    return (float)(own / (double)weights_sum(p, running, pick->by_samples));
}

/* `running` of a tower: all of its statistics, which become its part of the sum. */
static void running_pick(const TowerProcess *p, const Pick *pick, int tower, float *running)
{
    const Layout *layout = p->replica->layout;
    for (int k = 0; k < layout->running_count; k++) {
        const LayoutEntry *entry = &layout->running[k];
        float weight = weight_of(p, pick, entry, tower);
        for (size_t i = entry->first; i < entry->first + entry->count; i++) {
            float x = weight == 0 ? 0 : running[i]; /* multiplication would keep NaN and Inf */
            if (weight != 0 && pick->biased) x /= replica_unbias(p->replica, i, p->job->local_batches.batch[tower]);
            if (weight != 0 && pick->around) x = (x - pick->around[i]) * (x - pick->around[i]);
            running[i] = weight * x;
        }
    }
}

/* Sum over towers of each tower's statistics, transformed by `pick`; host memory, [running_elements]. */
static Status running_sum(TowerProcess *p, float **running, Pick pick, float *sum)
{
    Status st = OK;
    size_t elements = p->replica->layout->running_elements;
    float *mine = calloc(elements, sizeof *mine);
    if (!mine) return FAIL(ERR_MEMORY, "no memory for the statistics of a tower (%zu floats)", elements);
    for (int local = 0; local < p->place.local_towers; local++) {
        TRY_OUT(replica_download(p->replica, mine, running[local], elements * sizeof *mine));
        running_pick(p, &pick, p->place.first_tower + local, mine);
        TRY_OUT(comm_allreduce_begin(p->comm, p->place.first_tower + local, 0, mine, elements));
    }
    TRY_OUT(comm_allreduce_end(p->comm, 0, sum, elements));
out:
    free(mine);
    return st;
}

Status running_gather(TowerProcess *p, float **running, float **found)
{
    Status st = OK;
    const Backend *backend = p->replica->device.backend;
    size_t elements = p->replica->layout->running_elements, most = 0, ranks = (size_t)p->job->processes;
    for (int r = 0; r < p->job->processes; r++) {
        size_t towers = (size_t)job_placement(p->job, r).local_towers;
        most = towers > most ? towers : most;
    }
    size_t part = most * elements;
    float *mine = calloc((ranks + 1) * part, sizeof *mine), *all = mine + part;
    float *sorted = calloc((size_t)p->ledger->towers * elements, sizeof *sorted);
    if (!mine || !sorted)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the statistics of %d towers (%zu floats each)", p->ledger->towers,
                     elements));
    for (int local = 0; local < p->place.local_towers; local++)
        TRY_OUT(backend->download(&p->replica->device, mine + (size_t)local * elements, running[local],
                                  elements * sizeof *mine));
    TRY_OUT(backend->finish(&p->replica->device, STREAM_COMPUTE));
    TRY_OUT(comm_gather(p->comm, mine, part * sizeof *mine, all));
    for (int r = 0; r < p->job->processes; r++) {
        Placement place = job_placement(p->job, r);
        memcpy(sorted + (size_t)place.first_tower * elements, all + (size_t)r * part,
               (size_t)place.local_towers * elements * sizeof *sorted);
    }
    *found = sorted;
    sorted = NULL;
out:
    free(mine);
    free(sorted);
    return st;
}

/* The first or last tower that has statistics of all batch norms. With BN_STATS_SYNC all that have samples have the same
 * statistics: the first of the largest local batch, which has some in every step (local_batch.h). */
static int tower_with_statistics(const TowerProcess *p)
{
    const Layout *layout = p->replica->layout;
    const int32_t *batch = p->job->local_batches.batch;
    BnStats policy = p->job->bn_stats;
    int found = -1;
    for (int t = 0; t < p->job->local_batches.towers; t++) {
        bool has = batch[t] > 0;
        for (int k = 0; k < layout->running_count; k++) has &= tower_has(p, &layout->running[k], t);
        if (!has) continue;
        if (found < 0 || policy == BN_STATS_LAST || (policy == BN_STATS_SYNC && batch[t] > batch[found])) found = t;
    }
    return found < 0 ? 0 : found; /* an evaluation alone: all towers have the statistics of the file */
}

/* ---- exported statistics */

static const LayoutEntry *mean_of(const Layout *layout, const LayoutEntry *variance)
{
    char name[ST_MAX_NAME];
    int stem = (int)(strlen(variance->name) - strlen("running_var"));
    snprintf(name, sizeof name, "%.*srunning_mean", stem, variance->name);
    return layout_running(layout, name);
}

/* Combine to mean of variances plus variance of means, unbiased: the statistics of all towers' samples together. */
static void pool_variances(const TowerProcess *p, const float *spread, float *running)
{
    const Layout *layout = p->replica->layout;
    for (int i = 0; i < layout->running_count; i++) {
        const LayoutEntry *variance = &layout->running[i],
                          *mean = norm_is_variance(variance) ? mean_of(layout, variance) : NULL;
        int64_t samples = mean ? weights_sum(p, variance, true) : 0;
        for (size_t k = 0; samples && k < variance->count; k++)
            running[variance->first + k] = (running[variance->first + k] + spread[mean->first + k]) *
                                           replica_unbias(p->replica, variance->first + k, samples);
    }
}

/* Frozen statistics are equal in all towers; averaging them would only add rounding errors. */
static Status frozen_copy(Replica *r, const float *running, float *merged)
{
    const Backend *backend = r->device.backend;
    for (int i = 0; i < r->layout->running_count; i++) {
        const LayoutEntry *entry = &r->layout->running[i];
        if (entry->moves) continue;
        TRY(backend->download(&r->device, merged + entry->first, running + entry->first,
                              entry->count * sizeof *merged));
    }
    return backend->finish(&r->device, STREAM_COMPUTE);
}

static Status running_merge(TowerProcess *p, float **running, float *merged)
{
    Status st = OK;
    const Layout *layout = p->replica->layout;
    BnStats policy = p->job->bn_stats;
    bool pooled = policy == BN_STATS_POOLED && p->ledger->towers > 1, moved = p->run.step > 0;
    if (!moved || (policy != BN_STATS_MEAN && policy != BN_STATS_POOLED)) /* what has not moved is of no batch */
        return running_sum(p, running, (Pick){.only = tower_with_statistics(p)}, merged);
    TRY(running_sum(p, running, (Pick){.only = -1, .by_samples = pooled, .biased = pooled}, merged));
    if (!pooled) return OK;
    float *spread = calloc(layout->running_elements, sizeof *spread);
    if (!spread) return FAIL(ERR_MEMORY, "no memory for the pooled statistics (%zu floats)", layout->running_elements);
    TRY_OUT(running_sum(p, running, (Pick){.only = -1, .by_samples = true, .around = merged}, spread));
    pool_variances(p, spread, merged);
out:
    free(spread);
    return st;
}

Status statistics_export(TowerProcess *p)
{
    Status st = OK;
    Replica *r = p->replica;
    size_t elements = r->layout->running_elements;
    if (!elements) return OK;
    float *merged = calloc(elements, sizeof *merged);
    if (!merged) return FAIL(ERR_MEMORY, "no memory for the exported statistics (%zu floats)", elements);
    TRY_OUT(running_merge(p, r->ema ? r->ema_running : r->running, merged));
    TRY_OUT(frozen_copy(r, r->ema ? r->ema_running[0] : r->running[0], merged));
    r->fold_stale = true;
    TRY_OUT(replica_upload(r, r->eval_running, merged, elements * sizeof *merged));
out:
    free(merged);
    return st;
}

/* ---- drift */

/* The largest standard deviation over towers of any channel: of the means relative to the layer's deviation, of the
 * variances relative to themselves. */
static LayerRecord layer_drift(const Layout *layout, const LayoutEntry *variance, const float *mean,
                               const float *spread)
{
    const LayoutEntry *center = mean_of(layout, variance);
    LayerRecord drift = {.name = variance->name};
    for (size_t k = 0; k < variance->count; k++) {
        double var = fmax((double)mean[variance->first + k], 1e-30);
        if (center) drift.weight = fmax(drift.weight, sqrt((double)spread[center->first + k] / var));
        drift.gradient = fmax(drift.gradient, sqrt((double)spread[variance->first + k]) / var);
    }
    return drift;
}

static Status drift_write(TowerProcess *p, const float *mean, const float *spread)
{
    const Layout *layout = p->replica->layout;
    int count = 0;
    LayerRecord *drifts = calloc((size_t)layout->running_count + 1, sizeof *drifts);
    if (!drifts) return FAIL(ERR_MEMORY, "no memory for the drift of %d layers", layout->running_count);
    for (int i = 0; i < layout->running_count; i++)
        if (norm_is_variance(&layout->running[i]))
            drifts[count++] = layer_drift(layout, &layout->running[i], mean, spread);
    metrics_norms(p->metrics, p->run.step, drifts, count);
    free(drifts);
    return OK;
}

Status norm_drift_record(TowerProcess *p)
{
    Status st = OK;
    size_t elements = p->replica->layout->running_elements;
    if (!elements || p->ledger->towers == 1) return OK;
    float *mean = calloc(2 * elements, sizeof *mean), *spread = mean + elements;
    if (!mean) return FAIL(ERR_MEMORY, "no memory for the drift of %zu statistics", elements);
    TRY_OUT(running_sum(p, p->replica->running, (Pick){.only = -1}, mean));
    TRY_OUT(running_sum(p, p->replica->running, (Pick){.only = -1, .around = mean}, spread));
    if (p->metrics) TRY_OUT(drift_write(p, mean, spread));
out:
    free(mean);
    return st;
}
