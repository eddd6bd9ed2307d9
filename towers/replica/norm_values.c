/* Values behind the statistics of batch norms; see norm_values.h. */
#include "towers/replica/norm_values.h"

#include "kernels/base/text.h"

enum { NAME_TEXT = 256 };

static const char VARIANCE[] = "running_var";

bool norm_is_variance(const LayoutEntry *entry)
{
    const char *last = strrchr(entry->name, '.');
    return last && !strcmp(last + 1, VARIANCE);
}

/* Batch norms over the batches of all towers have the same statistics in each tower that has samples. */
static void samples_join(const TrainJob *job, int32_t *samples)
{
    int64_t sum = 0;
    if (job->bn_stats != BN_STATS_SYNC) return;
    for (int t = 0; t < job->local_batches.towers; t++) sum += samples[t];
    for (int t = 0; t < job->local_batches.towers; t++)
        if (samples[t]) samples[t] = (int32_t)sum;
}

/* ---- the check */

/* Some tower, of those whose statistics are exported, sees two values or more in a batch with these samples. */
static bool is_seen(const TrainJob *job, int64_t values_of_one, const int32_t *samples)
{
    for (int t = 0; t < job->local_batches.towers; t++)
        if (samples[t] && values_of_one * samples[t] != 1) return true;
    return false;
}

static bool is_single(const TrainJob *job, int64_t values_of_one, const int32_t *samples)
{
    for (int t = 0; t < job->local_batches.towers; t++)
        if (values_of_one * samples[t] == 1) return true;
    return false;
}

/* The samples of each tower in the last batch of an epoch, if the run comes to it and it is a short one. */
static bool last_batch(const TrainJob *job, int32_t *samples)
{
    int64_t first, rest = source_info(job->train)->count % global_batch_of(&job->local_batches);
    bool reached = job_batches_before(job, job_total_steps(job)) >= job_batches_per_epoch(job);
    for (int t = 0; rest && t < job->local_batches.towers; t++)
        local_batch_of(&job->local_batches, rest, 0, t, &first, &samples[t]);
    return reached && rest;
}

static void lone_text(int layers, const char *name, Text to)
{
    text_add(&to, "the last batch of an epoch gives a tower one sample, of which batch norm %s", name);
    if (layers > 1) text_add(&to, " and %d more", layers - 1);
    text_add(&to, " would take the variance of a single value; there the running statistics stay as they are");
}

Status norm_values_check(const TrainJob *job, const Layout *layout, int32_t layout_samples, char *text, size_t bytes)
{
    Status st = OK;
    size_t towers = (size_t)job->local_batches.towers;
    int layers = 0;
    char name[NAME_TEXT] = "";
    int32_t *most = calloc(2 * towers, sizeof *most), *last; /* the samples of each tower */
    *text = 0;
    if (!most) return FAIL(ERR_MEMORY, "no memory for the samples of %zu towers", towers);
    last = most + towers;
    bool ends = last_batch(job, last);
    memcpy(most, job->local_batches.batch, towers * sizeof *most);
    samples_join(job, most);
    if (ends) samples_join(job, last);
    for (int i = 0; i < layout->running_count; i++) {
        const LayoutEntry *entry = &layout->running[i];
        int64_t values = layout->running_values[entry->first] / layout_samples;
        if (!entry->moves || !norm_is_variance(entry)) continue;
        int stem = (int)(strlen(entry->name) - sizeof VARIANCE);
        if (!is_seen(job, values, most))
            TRY_OUT(
                FAIL(ERR_ARG,
                     "batch norm %.*s would see a single value of a channel in every step (one sample a tower, on a "
                     "map of one pixel), which has no variance; use a larger batch or larger images, --bn-stats sync "
                     "with several towers, or --freeze",
                     stem, entry->name));
        if (!ends || !is_single(job, values, last)) continue;
        if (!layers++) snprintf(name, sizeof name, "%.*s", stem, entry->name);
    }
    if (layers) lone_text(layers, name, text_start(text, bytes));
out:
    free(most);
    return st;
}
