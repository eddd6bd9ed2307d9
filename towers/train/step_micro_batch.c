/* The micro-batches of a step, one batch of one tower each; see step.h. */
#include "towers/train/step.h"

#include "towers/replica/hooks.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/samples_log.h"
#include "towers/train/summary.h"

/* ---- launches: equal in every step, so that a device can repeat them as a captured graph */

typedef enum LaunchKind {
    LAUNCH_FORWARD = 0,
    LAUNCH_OPS,      /* ops between two batch norms that sum over the towers */
    LAUNCH_BACKWARD, /* backward of all but the last batch */
    LAUNCH_BUCKET,   /* backward up to the last gradient of a bucket */
    LAUNCH_BUCKET_KEPT = LAUNCH_BUCKET + BUCKETS_MAX
} LaunchKind;

static int tower_of(const MicroBatch *micro)
{
    return micro->p->place.first_tower + micro->local;
}

static const Buckets *buckets_of(const MicroBatch *micro)
{
    return &micro->p->sums[micro->step->phase].buckets;
}

static Status ops_run(void *context)
{
    const MicroBatch *micro = context;
    if (!micro->program) return OK;
    if (!run_hooks) return plan_run(micro->program->plan, micro->first, micro->end);
    return run_hooks->ops(&micro->p->replica->device, micro->program, tower_of(micro), micro->step->number,
                          micro->first, micro->end);
}

static Status forward_launches(void *context)
{
    const MicroBatch *micro = context;
    TRY(replica_scale(micro->p->replica, micro->program));
    return ops_run(context);
}

/* Accumulate the gradients of all batches but the last; complete those of the last by adding the accumulated ones. */
static Status bucket_complete(const MicroBatch *micro)
{
    Replica *r = micro->p->replica;
    const Bucket *bucket = &buckets_of(micro)->bucket[micro->part];
    float *at = (float *)r->arena[ARENA_GRAD] + bucket->first;
    if (!micro->program) TRY(r->device.backend->fill(&r->device, at, 0, bucket->count));
    if (micro->step->batches > 1) TRY(replica_add_kept(r, micro->local, bucket->first, bucket->count));
    if (run_hooks && micro->part == 0) TRY(run_hooks->gradients(&r->device, tower_of(micro), micro->step->number, at));
    return r->device.backend->square_sum(&r->device, at, bucket->count, gate_square(micro->p->gate, micro->part));
}

static Status backward_launches(void *context)
{
    const MicroBatch *micro = context;
    TRY(ops_run(context));
    if (micro->last)
        TRY(bucket_complete(micro));
    else if (micro->program)
        TRY(replica_keep_gradients(micro->p->replica, micro->local));
    if (micro->part < micro->parts - 1) return OK;
    return gate_contribute(micro->p->gate, micro->local, micro->program, micro->batch->n - micro->batch->skipped,
                           micro->last, buckets_of(micro)->count);
}

static CaptureKey key_of(const MicroBatch *micro, int kind)
{
    return (CaptureKey){.of = micro->program ? (const void *)micro->program->plan : micro->p,
                        .kind = kind,
                        .phase = micro->step->phase,
                        .index = micro->local,
                        .first = micro->first,
                        .end = micro->end,
                        .count = micro->batch->n - micro->batch->skipped};
}

/* Run ops up to `end`. A batch norm that sums over the towers calls the communicator and runs between captured graphs.
 * Launches that a test changes only in this step are not captured. */
static Status micro_batch_launch(MicroBatch *micro, int end, int kind, Launches launches)
{
    Replica *r = micro->p->replica;
    bool changed = run_hooks && run_hooks->changes(tower_of(micro), micro->step->number);
    CapturedGraphs *graphs = changed ? NULL : r->captured;
    bool sums = micro->program && r->device.allreduce;
    CaptureKey key;
    for (int op = micro->first; sums && op < end; op++) {
        if (!norm_sync_sums(plan_call(micro->program->plan, op)->kind)) continue;
        micro->end = op;
        key = key_of(micro, LAUNCH_OPS);
        if (op > micro->first) TRY(captured_graphs_run(graphs, &key, ops_run, micro));
        micro->first = op;
        micro->end = op + 1;
        TRY(ops_run(micro));
        micro->first = op + 1;
    }
    micro->end = end;
    key = key_of(micro, kind);
    return captured_graphs_run(graphs, &key, launches, micro);
}

/* ---- a micro-batch */

/* The next batch of images. A step that takes the same batch as the step before finds it still held. */
static Status images_take(MicroBatch *micro, int number)
{
    TowerProcess *p = micro->p;
    Device *device = &p->replica->device;
    const Batch **held = &p->queue->held[micro->local];
    int64_t wanted = job_first_batch(p->job, micro->step->number - 1) + number;
    if (!*held || (*held)->step != wanted) {
        if (micro->local == 0) {
            if (device->backend->uploaded)
                TRY(device->backend->uploaded(device)); /* wait before loader_step returns the memory */
            memset(p->queue->held, 0, (size_t)p->place.local_towers * sizeof *p->queue->held);
            loader_step(p->loader);
        }
        TRY(loader_batch(p->loader, held));
        /* A run that resumes in the middle of a batch's steps reads it again. */
        bool again = wanted < job_batches_before(p->job, micro->step->number - 1);
        if (!again) TRY(samples_log(p, *held, micro->step->number));
    }
    micro->batch = *held;
    loader_clocks(p->loader, &ledger_row(p->ledger, tower_of(micro), micro->step->number)->loader);
    return OK;
}

/* The samples over which its batch norms take their statistics: the tower's own, or those of all towers. */
static int64_t statistics_samples(const MicroBatch *micro)
{
    const TowerProcess *p = micro->p;
    if (!p->replica->device.allreduce) return micro->batch->n;
    return micro->batch == &micro->none ? global_batch_of(&p->job->local_batches)
                                        : job_batch_samples(p->job, micro->batch->step);
}

Status micro_batch_begin(TowerProcess *p, Step *step, int number, MicroBatch *micro)
{
    int batch = number / p->place.local_towers, local = number % p->place.local_towers;
    bool last = batch == step->batches - 1;
    *micro = (MicroBatch){.p = p, .step = step, .local = local, .last = last};
    micro->parts = last ? buckets_of(micro)->count : 1;
    if (batch == 0) memset(ledger_row(p->ledger, tower_of(micro), step->number), 0, sizeof(LedgerRow));
    if (batch == 0 && p->job->accumulate > 1) TRY(replica_keep_start(p->replica, local));
    tower_activity(p, local, step->number, ACTIVITY_DATA);
    if (job_phase(p->job, step->phase)->takes_batch) {
        TRY(images_take(micro, batch));
    } else {
        micro->none = job_batch_without_images(p->job, step->number - 1, tower_of(micro));
        micro->batch = &micro->none;
    }
    if (p->metrics && micro->batch->pixels && number == 0 &&
        step->number == atomic_load(&p->ledger->run.first_step) + 1)
        TRY(summary_images(p, micro->batch));
    if (!micro->batch->n) return OK;
    step->fed[local] = true;
    TRY(replica_statistics_over(p->replica, local, statistics_samples(micro)));
    micro->program = replica_program(p->replica, step->phase, micro->batch->n);
    if (micro->program) return OK;
    return FAIL(ERR_INTERNAL, "tower %d: no program of the phase %s for a batch of %d", tower_of(micro),
                job_phase(p->job, step->phase)->name, micro->batch->n);
}

Status micro_batch_feed(MicroBatch *micro)
{
    TowerProcess *p = micro->p;
    if (!micro->program) return OK;
    tower_activity(p, micro->local, micro->step->number, ACTIVITY_COPY);
    RandomKey key = job_random_key(p->job, micro->step->number, micro->batch);
    return replica_feed(p->replica, micro->program, micro->batch, micro->local, &key, micro->step->scale);
}

Status micro_batch_forward(MicroBatch *micro)
{
    TowerProcess *p = micro->p;
    if (!micro->program) return norm_sync_idle(p, micro->step->phase);
    tower_activity(p, micro->local, micro->step->number, ACTIVITY_FORWARD);
    TRY(micro_batch_launch(micro, micro->program->forward_end, LAUNCH_FORWARD, forward_launches));
    if (!run_hooks || !micro->last) return OK;
    return run_hooks->loss(&p->replica->device, tower_of(micro), micro->step->number,
                           plan_tensor(micro->program->plan, micro->program->loss).data);
}

Status micro_batch_backward(MicroBatch *micro, int part)
{
    const Bucket *bucket = &buckets_of(micro)->bucket[part];
    const Plan *plan = micro->program ? micro->program->plan : NULL;
    int kind = !micro->last               ? LAUNCH_BACKWARD
               : micro->step->batches > 1 ? LAUNCH_BUCKET_KEPT + part
                                          : LAUNCH_BUCKET + part;
    int end = !plan                      ? 0
              : part == micro->parts - 1 ? plan_op_count(plan)
                                         : plan_ready_after(plan, bucket->first + bucket->count);
    if (part == 0) tower_activity(micro->p, micro->local, micro->step->number, ACTIVITY_BACKWARD);
    micro->part = part;
    micro->first = micro->end;
    return micro_batch_launch(micro, end > micro->first ? end : micro->first, kind, backward_launches);
}

/* With batch norms that sum over the towers, collectives must come in the same order on towers with and without
 * samples; therefore the buckets follow the last of those sums. */
Status micro_batch_allreduce_begin(const MicroBatch *micro, int part)
{
    TowerProcess *p = micro->p;
    bool follow = p->replica->device.allreduce;
    if (!micro->last || p->ledger->towers == 1 || (follow && part < micro->parts - 1)) return OK;
    for (int b = follow ? 0 : part; b <= part; b++) {
        const Bucket *bucket = &buckets_of(micro)->bucket[b];
        TRY(comm_allreduce_begin(p->comm, tower_of(micro), bucket->first,
                                 (float *)p->replica->arena[ARENA_GRAD] + bucket->first, bucket->count));
    }
    return OK;
}

Status micro_batch_end(MicroBatch *micro)
{
    TowerProcess *p = micro->p;
    if (micro->program && p->job->accumulate > 1) TRY(replica_keep_statistics(p->replica, micro->local));
    if (!micro->last) return OK;
    LedgerRow *row = ledger_row(p->ledger, tower_of(micro), micro->step->number);
    row->arrival_ns = clock_ns();
    row->until_sum_ns = row->arrival_ns - micro->step->started_ns;
    tower_activity(p, micro->local, micro->step->number, ACTIVITY_REDUCE);
    return OK;
}
