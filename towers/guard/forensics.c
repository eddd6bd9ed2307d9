/* Search for the first value that is not finite; see forensics.h. */
#include "towers/guard/forensics.h"

#include "kernels/base/array.h"
#include "towers/guard/capsule.h"
#include "towers/guard/trace.h"
#include "towers/replica/norm_sync.h"

enum { IDS_SHOWN = 8 };

/* ---- the report: lines, each preceded by a newline */

__attribute__((format(printf, 2, 3))) static void report_add(LedgerSearch *search, const char *format, ...)
{
    Text report = text_behind(search->report, sizeof search->report);
    va_list args;
    va_start(args, format);
    text_add(&report, "\n");
    text_vadd(&report, format, args);
    va_end(args);
}

static void report_finding(LedgerSearch *search, const char *start)
{
    char text[512];
    finding_text(&search->found, text, sizeof text);
    report_add(search, "%s%s", start, text);
}

static void report_first_sample(const TowerProcess *p, LedgerSearch *search, const Batch *batch)
{
    char where[512];
    if (!search->found.samples || !batch->ids) return;
    source_where(p->job->train, search->found.sample, where, sizeof where);
    report_add(search, "  in %d of %d samples, the first is number %" PRId64 " (%s)", search->found.samples, batch->n,
               search->found.sample, where);
    for (int32_t i = 0; batch->share > 0 && i < batch->n; i++) {
        int32_t partner = batch->augment[i * IMAGE_RECORD + IMAGE_PARTNER] - 1;
        if (batch->ids[i] != search->found.sample || partner < 0) continue;
        source_where(p->job->train, batch->ids[partner], where, sizeof where);
        report_add(search, "    mixed with number %" PRId64 " (%s), whose share is %.4g", batch->ids[partner], where,
                   batch->share);
        break;
    }
}

/* What process `owner` has found, to the ledgers of all programs. Collective; nobody reads before all have it. */
static Status search_share(TowerProcess *p, int owner)
{
    LedgerSearch search = {0};
    if (p->place.rank == owner) search = p->ledger->search;
    if (job_nodes(p->job) > 1) TRY(comm_broadcast(p->comm, &search, sizeof search, owner));
    int each = job_node_processes(p->job);
    if (p->place.rank / each != owner / each && leads_node(&p->place)) p->ledger->search = search;
    return comm_barrier(p->comm);
}

/* ---- running the step again */

/* State of a search. */
typedef struct Rerun {
    Loader *loader;     /* owned; NULL if the phase takes no images */
    Batch none;         /* the batch of such a phase */
    const Batch *batch; /* the batch with the finding, or the last of the step */
    NormSums sums;      /* owned: of that batch */
    Finding found;
} Rerun;

static void rerun_close(Rerun *rerun)
{
    loader_destroy(rerun->loader);
    free(rerun->sums.values);
}

/* Load the batches that a tower had in this step again; a batch is determined by its number. */
static Status rerun_open(const TowerProcess *p, const Refusal *refusal, int tower, Rerun *rerun)
{
    LoaderConfig config = process_loader(p);
    config.first_tower = tower;
    config.local = 1;
    config.start_step = job_first_batch(p->job, refusal->step - 1);
    config.max_steps = config.start_step + job_step_batches(p->job, refusal->step - 1);
    config.workers = 0;
    *rerun = (Rerun){.found = {.tower = -1, .op = -1}};
    rerun->none = job_batch_without_images(p->job, refusal->step - 1, tower);
    return config.max_steps > config.start_step ? loader_create(&config, &rerun->loader) : OK;
}

static Status rerun_next(Rerun *rerun)
{
    if (rerun->loader) return loader_next(rerun->loader, &rerun->batch);
    rerun->batch = &rerun->none;
    return OK;
}

static TraceJob trace_job(const TowerProcess *p, const Refusal *refusal, int tower, const Batch *batch)
{
    return (TraceJob){.replica = p->replica,
                      .tower = tower,
                      .local = tower - p->place.first_tower,
                      .step = refusal->step,
                      .phase = job_phase_of(p->job, refusal->step - 1),
                      .key = job_random_key(p->job, refusal->step, batch),
                      .scale = refusal->scale,
                      .batch = batch};
}

static int64_t batches_of(const TowerProcess *p, const Refusal *refusal)
{
    int batches = job_step_batches(p->job, refusal->step - 1);
    return batches ? batches : 1;
}

static Status batches_trace(TowerProcess *p, const Refusal *refusal, Rerun *rerun)
{
    int64_t deadline_ns = clock_ns() + p->job->comm.timeout_ms * 1000000 / 2;
    for (int64_t b = 0; b < batches_of(p, refusal) && (b == 0 || rerun->found.place == FOUND_NOTHING); b++) {
        TRY(rerun_next(rerun));
        TraceJob job = trace_job(p, refusal, refusal->tower, rerun->batch);
        job.deadline_ns = deadline_ns;
        if (rerun->batch->n && rerun->found.place == FOUND_NOTHING) TRY(trace_run(&job, &rerun->found));
    }
    return OK;
}

static void capsule_make(TowerProcess *p, const Refusal *refusal, const Rerun *rerun, LedgerSearch *search)
{
    char path[PATH_BYTES];
    if (!p->job->run_dir) return;
    CapsuleSource source = {.batch = rerun->batch,
                            .phase = job_phase_of(p->job, refusal->step - 1),
                            .scale = refusal->scale,
                            .weights_after = refusal->weights,
                            .sums = &rerun->sums,
                            .found = &search->found};
    Status st = capsule_write(p, &source, path);
    if (st == OK && *path)
        report_add(search, "  capsule: towers replay %s", path);
    else
        report_add(search, "  no capsule: %s",
                   st == OK ? "this run has the maximum number of capsules already" : status_message());
}

/* Bad weights explain everything. Statistics and optimizer states do not: the step does not read them. */
static void rerun_report(TowerProcess *p, const Refusal *refusal, int tower, const Finding *state, Status traced,
                         const Rerun *rerun)
{
    LedgerSearch *search = &p->ledger->search;
    search->found = rerun->found.place == FOUND_NOTHING ? *state : rerun->found;
    search->found.tower = tower;
    search->found.step = refusal->step;
    bool late = refusal->weights >= refusal->step;
    if (late)
        report_add(search, "  searched with the weights after step %" PRId64 ", which was already in flight",
                   refusal->weights);
    if (traced != OK)
        report_add(search, "  running the tower's batch again failed: %s", status_message());
    else if (search->found.place == FOUND_NOTHING && late)
        report_add(search,
                   "  the tower's batch, run again op by op, gives only finite values; the weights have changed "
                   "since and may have been the cause");
    else if (search->found.place == FOUND_NOTHING)
        report_add(search, "  the tower's batch, run again op by op, gives only finite values: neither weights nor "
                           "data explain it (suspect the hardware, or the sum over several batches)");
    else
        report_finding(search, "  first in ");
    if (!rerun->batch || !rerun->batch->n) return;
    report_first_sample(p, search, rerun->batch);
    capsule_make(p, refusal, rerun, search);
    char where[512], ids[IDS_SHOWN * 21 + 1];
    Text list = text_start(ids, sizeof ids);
    if (!rerun->batch->ids) return;
    for (int32_t i = 0; i < rerun->batch->n && i < IDS_SHOWN; i++) text_add(&list, " %" PRId64, rerun->batch->ids[i]);
    source_where(p->job->train, rerun->batch->ids[0], where, sizeof where);
    report_add(search, "  samples of the tower:%s%s (%d in all; the first: %s)", ids,
               rerun->batch->n > IDS_SHOWN ? " ..." : "", rerun->batch->n, where);
    for (int32_t i = 1; i < rerun->batch->n && i < IDS_SHOWN && source_info(p->job->train)->h == 0; i++) {
        source_where(p->job->train, rerun->batch->ids[i], where, sizeof where);
        report_add(search, "    %s", where);
    }
}

static Status step_search(TowerProcess *p, const Refusal *refusal)
{
    Status st = OK;
    Rerun rerun;
    Finding state;
    TRY(trace_state(p->replica, p->place.first_tower, refusal->tower - p->place.first_tower, &state));
    TRY(rerun_open(p, refusal, refusal->tower, &rerun));
    if (state.place == FOUND_WEIGHT) rerun.found = state;
    st = batches_trace(p, refusal, &rerun);
    rerun_report(p, refusal, refusal->tower, &state, st, &rerun);
    rerun_close(&rerun);
    return OK;
}

/* ---- towers that share batch-norm statistics (--bn-stats sync) must run again together */

typedef struct Recorder {
    Device *device;
    AllReduce sum;
    void *context;
    NormSums *kept;
} Recorder;

/* Summed in host memory, where the communicator detects a peer that does not answer. */
static Status sum_and_keep(void *context, float *values, int count)
{
    Recorder *recorder = context;
    NormSums *kept = recorder->kept;
    Device *device = recorder->device;
    size_t bytes = (size_t)count * sizeof *values;
    TRY(array_reserve(&kept->values, &kept->room, (size_t)kept->count + (size_t)count, sizeof *values,
                      "batch-norm sums"));
    float *to = kept->values + kept->count;
    kept->count += count;
    TRY(device->backend->download(device, to, values, bytes));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    TRY(recorder->sum(recorder->context, to, count));
    TRY(device->backend->upload(device, values, to, bytes));
    return device->backend->finish(device, STREAM_COMPUTE);
}

/* Sort key of a finding. One tower's NaN reaches every tower through the next batch norm, so the finding at the
 * earliest op is the origin. */
static int64_t earliness(const Finding *found)
{
    enum { AFTER_OPS = 1 << 30 };
    if (found->place == FOUND_NOTHING) return INT64_MAX;
    if (found->place == FOUND_WEIGHT) return -1;
    if (found->place == FOUND_GRADIENT) return AFTER_OPS + 1;
    return found->op < 0 ? AFTER_OPS : found->op;
}

/* The rank with the earliest finding, the lowest rank among equals; -1 if there is none. Equal on all ranks. */
static Status first_of(TowerProcess *p, const Finding *found, int *first)
{
    int64_t least = INT64_MAX;
    *first = -1;
    for (int rank = 0; rank < p->job->processes; rank++) {
        int64_t key = earliness(found);
        TRY(comm_broadcast(p->comm, &key, sizeof key, rank));
        if (key >= least) continue;
        least = key;
        *first = rank;
    }
    return OK;
}

static Status batch_trace_together(TowerProcess *p, const Refusal *refusal, Rerun *rerun)
{
    Device *device = &p->replica->device;
    Recorder recorder = {device, device->allreduce, device->allreduce_context, &rerun->sums};
    TraceJob job = trace_job(p, refusal, p->place.first_tower, rerun->batch);
    job.through = true;
    rerun->sums.count = 0;
    if (!rerun->batch->n) return norm_sync_idle(p, job.phase);
    device->allreduce = sum_and_keep;
    device->allreduce_context = &recorder;
    Status st = trace_run(&job, &rerun->found);
    device->allreduce = recorder.sum;
    device->allreduce_context = recorder.context;
    return st;
}

/* Collective: each rank has one tower. */
static Status together_search(TowerProcess *p, const Refusal *refusal, int *owner)
{
    Status st = OK;
    Rerun rerun;
    Finding state;
    int first = -1;
    TRY(trace_state(p->replica, p->place.first_tower, 0, &state));
    TRY(rerun_open(p, refusal, p->place.first_tower, &rerun));
    for (int64_t b = 0; b < batches_of(p, refusal) && first < 0; b++) {
        TRY_OUT(rerun_next(&rerun));
        TRY_OUT(batch_trace_together(p, refusal, &rerun));
        if (state.place == FOUND_WEIGHT) rerun.found = state;
        TRY_OUT(first_of(p, &rerun.found, &first));
    }
    if (first < 0) first = refusal->tower; /* here each rank has exactly one tower */
    if (first == p->place.rank) {
        p->ledger->search = (LedgerSearch){.found = {.tower = -1, .op = -1}};
        rerun_report(p, refusal, p->place.first_tower, &state, OK, &rerun);
    }
    *owner = first;
out:
    rerun_close(&rerun);
    return st;
}

static Status moved_search(TowerProcess *p, const Refusal *refusal, LedgerSearch *search)
{
    TRY(trace_state(p->replica, p->place.first_tower, refusal->tower - p->place.first_tower, &search->found));
    search->found.step = refusal->step;
    if (search->found.place != FOUND_NOTHING) report_finding(search, "  after the update: ");
    return OK;
}

static Status sum_search(TowerProcess *p, const Refusal *refusal, LedgerSearch *search)
{
    if (refusal->last > refusal->step) {
        report_add(search, "  the gradients are already those of step %" PRId64 ", which was in flight", refusal->last);
        return OK;
    }
    TRY(trace_gradients(p->replica, job_phase_of(p->job, refusal->step - 1), FOUND_SUM, &search->found));
    search->found.step = refusal->step;
    if (search->found.place != FOUND_NOTHING) report_finding(search, "  first in ");
    return OK;
}

Status forensics_search(TowerProcess *p, const Refusal *refusal)
{
    LedgerSearch *search = &p->ledger->search;
    int tower = refusal->tower < 0 ? 0 : refusal->tower, owner = job_tower_rank(p->job, tower);
    if (p->replica->device.allreduce && refusal->tower >= 0 && !refusal->moved) {
        TRY(together_search(p, refusal, &owner));
    } else if (is_local_tower(&p->place, tower)) {
        *search = (LedgerSearch){.found = {.tower = -1, .op = -1}};
        Status st = refusal->tower < 0 ? sum_search(p, refusal, search)
                    : refusal->moved   ? moved_search(p, refusal, search)
                                       : step_search(p, refusal);
        if (st != OK) report_add(search, "  the search for the cause failed: %s", status_message());
    }
    return search_share(p, owner);
}

/* ---- state about to be saved */

Status forensics_state(TowerProcess *p, bool *finite)
{
    Finding found;
    int first = -1;
    TRY(trace_state(p->replica, p->place.first_tower, -1, &found));
    for (int rank = 0; rank < p->job->processes; rank++) {
        char bad = found.place != FOUND_NOTHING;
        TRY(comm_broadcast(p->comm, &bad, 1, rank));
        if (bad && first < 0) first = rank;
    }
    *finite = first < 0;
    if (first < 0) return OK;
    if (first == p->place.rank) {
        found.step = p->run.step;
        p->ledger->search = (LedgerSearch){.found = found};
        report_finding(&p->ledger->search, "  ");
    }
    return search_share(p, first);
}
