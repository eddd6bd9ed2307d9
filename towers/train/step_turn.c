/* The turns of a step, one batch of one tower each; see step.h. */
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

static int tower_of(const Turn *turn)
{
    return turn->p->place.first_tower + turn->local;
}

static const Buckets *buckets_of(const Turn *turn)
{
    return &turn->p->sums[turn->step->phase].buckets;
}

static Status ops_run(void *context)
{
    const Turn *turn = context;
    if (!turn->program) return OK;
    if (!run_hooks) return plan_run(turn->program->plan, turn->first, turn->end);
    return run_hooks->ops(&turn->p->replica->device, turn->program, tower_of(turn), turn->step->number, turn->first,
                          turn->end);
}

static Status forward_launches(void *context)
{
    const Turn *turn = context;
    TRY(replica_scale(turn->p->replica, turn->program));
    return ops_run(context);
}

/* Accumulate the gradients of all batches but the last; complete those of the last by adding the accumulated ones. */
static Status bucket_complete(const Turn *turn)
{
    Replica *r = turn->p->replica;
    const Bucket *bucket = &buckets_of(turn)->bucket[turn->part];
    float *at = (float *)r->arena[ARENA_GRAD] + bucket->first;
    if (!turn->program) TRY(r->device.backend->fill(&r->device, at, 0, bucket->count));
    if (turn->step->batches > 1) TRY(replica_add_kept(r, turn->local, bucket->first, bucket->count));
    if (run_hooks && turn->part == 0) TRY(run_hooks->gradients(&r->device, tower_of(turn), turn->step->number, at));
    return r->device.backend->square_sum(&r->device, at, bucket->count, gate_square(turn->p->gate, turn->part));
}

static Status backward_launches(void *context)
{
    const Turn *turn = context;
    TRY(ops_run(context));
    if (turn->last)
        TRY(bucket_complete(turn));
    else if (turn->program)
        TRY(replica_keep_gradients(turn->p->replica, turn->local));
    if (turn->part < turn->parts - 1) return OK;
    return gate_contribute(turn->p->gate, turn->local, turn->program, turn->batch->n - turn->batch->skipped, turn->last,
                           buckets_of(turn)->count);
}

static CaptureKey key_of(const Turn *turn, int kind)
{
    return (CaptureKey){.of = turn->program ? (const void *)turn->program->plan : turn->p,
                        .kind = kind,
                        .phase = turn->step->phase,
                        .index = turn->local,
                        .first = turn->first,
                        .end = turn->end,
                        .count = turn->batch->n - turn->batch->skipped};
}

/* Run ops up to `end`. A batch norm that sums over the towers calls the communicator and runs between captured graphs.
 * Launches that a test changes only in this step are not captured. */
static Status turn_launch(Turn *turn, int end, int kind, Launches launches)
{
    Replica *r = turn->p->replica;
    bool changed = run_hooks && run_hooks->changes(tower_of(turn), turn->step->number);
    CapturedGraphs *graphs = changed ? NULL : r->captured;
    bool sums = turn->program && r->device.towers_sum;
    CaptureKey key;
    for (int op = turn->first; sums && op < end; op++) {
        if (!norm_sync_sums(plan_call(turn->program->plan, op)->kind)) continue;
        turn->end = op;
        key = key_of(turn, LAUNCH_OPS);
        if (op > turn->first) TRY(captured_graphs_run(graphs, &key, ops_run, turn));
        turn->first = op;
        turn->end = op + 1;
        TRY(ops_run(turn));
        turn->first = op + 1;
    }
    turn->end = end;
    key = key_of(turn, kind);
    return captured_graphs_run(graphs, &key, launches, turn);
}

/* ---- a turn */

/* The next batch of images. A step that takes the same batch as the step before finds it still held. */
static Status images_take(Turn *turn, int number)
{
    TowerProcess *p = turn->p;
    Device *device = &p->replica->device;
    const Batch **held = &p->queue->held[turn->local];
    int64_t wanted = job_first_batch(p->job, turn->step->number - 1) + number;
    if (!*held || (*held)->step != wanted) {
        if (turn->local == 0) {
            if (device->backend->uploaded)
                TRY(device->backend->uploaded(device)); /* wait before loader_step returns the memory */
            memset(p->queue->held, 0, (size_t)p->place.local_towers * sizeof *p->queue->held);
            loader_step(p->loader);
        }
        TRY(loader_batch(p->loader, held));
        /* A run that resumes in the middle of a batch's steps reads it again. */
        bool again = wanted < job_batches_before(p->job, turn->step->number - 1);
        if (!again) TRY(samples_log(p, *held, turn->step->number));
    }
    turn->batch = *held;
    loader_clocks(p->loader, &ledger_row(p->ledger, tower_of(turn), turn->step->number)->loader);
    return OK;
}

/* The samples over which this turn's batch norms take their statistics: the tower's own, or those of all towers. */
static int64_t statistics_samples(const Turn *turn)
{
    const TowerProcess *p = turn->p;
    if (!p->replica->device.towers_sum) return turn->batch->n;
    return turn->batch == &turn->none ? global_batch_of(&p->job->local_batches) : job_batch_samples(p->job, turn->batch->step);
}

Status turn_begin(TowerProcess *p, Step *step, int number, Turn *turn)
{
    int batch = number / p->place.local_towers, local = number % p->place.local_towers;
    bool last = batch == step->batches - 1;
    *turn = (Turn){.p = p, .step = step, .local = local, .last = last};
    turn->parts = last ? buckets_of(turn)->count : 1;
    if (batch == 0) memset(ledger_row(p->ledger, tower_of(turn), step->number), 0, sizeof(LedgerRow));
    if (batch == 0 && p->job->accumulate > 1) TRY(replica_keep_start(p->replica, local));
    tower_activity(p, local, step->number, ACTIVITY_DATA);
    if (job_phase(p->job, step->phase)->takes_batch) {
        TRY(images_take(turn, batch));
    } else {
        turn->none = job_batch_without_images(p->job, step->number - 1, tower_of(turn));
        turn->batch = &turn->none;
    }
    if (p->metrics && turn->batch->pixels && number == 0 && step->number == atomic_load(&p->ledger->run.first_step) + 1)
        TRY(summary_images(p, turn->batch));
    if (!turn->batch->n) return OK;
    step->fed[local] = true;
    TRY(replica_statistics_over(p->replica, local, statistics_samples(turn)));
    turn->program = replica_program(p->replica, step->phase, turn->batch->n);
    if (turn->program) return OK;
    return FAIL(ERR_INTERNAL, "tower %d: no program of the phase %s for a batch of %d", tower_of(turn),
                job_phase(p->job, step->phase)->name, turn->batch->n);
}

Status turn_feed(Turn *turn)
{
    TowerProcess *p = turn->p;
    if (!turn->program) return OK;
    tower_activity(p, turn->local, turn->step->number, ACTIVITY_COPY);
    RandomKey key = job_random_key(p->job, turn->step->number, turn->batch);
    return replica_feed(p->replica, turn->program, turn->batch, turn->local, &key, turn->step->scale);
}

Status turn_forward(Turn *turn)
{
    TowerProcess *p = turn->p;
    if (!turn->program) return norm_sync_idle(p, turn->step->phase);
    tower_activity(p, turn->local, turn->step->number, ACTIVITY_FORWARD);
    TRY(turn_launch(turn, turn->program->forward_end, LAUNCH_FORWARD, forward_launches));
    if (!run_hooks || !turn->last) return OK;
    return run_hooks->loss(&p->replica->device, tower_of(turn), turn->step->number,
                           plan_tensor(turn->program->plan, turn->program->loss).data);
}

Status turn_backward(Turn *turn, int part)
{
    const Bucket *bucket = &buckets_of(turn)->bucket[part];
    const Plan *plan = turn->program ? turn->program->plan : NULL;
    int kind = !turn->last               ? LAUNCH_BACKWARD
               : turn->step->batches > 1 ? LAUNCH_BUCKET_KEPT + part
                                         : LAUNCH_BUCKET + part;
    int end = !plan                     ? 0
              : part == turn->parts - 1 ? plan_op_count(plan)
                                        : plan_ready_after(plan, bucket->first + bucket->count);
    if (part == 0) tower_activity(turn->p, turn->local, turn->step->number, ACTIVITY_BACKWARD);
    turn->part = part;
    turn->first = turn->end;
    return turn_launch(turn, end > turn->first ? end : turn->first, kind, backward_launches);
}

/* With batch norms that sum over the towers, collectives must come in the same order on towers with and without
 * samples; therefore the buckets follow the last of those sums. */
Status turn_allreduce_begin(const Turn *turn, int part)
{
    TowerProcess *p = turn->p;
    bool follow = p->replica->device.towers_sum;
    if (!turn->last || p->ledger->towers == 1 || (follow && part < turn->parts - 1)) return OK;
    for (int b = follow ? 0 : part; b <= part; b++) {
        const Bucket *bucket = &buckets_of(turn)->bucket[b];
        TRY(comm_allreduce_begin(p->comm, tower_of(turn), bucket->first,
                                 (float *)p->replica->arena[ARENA_GRAD] + bucket->first, bucket->count));
    }
    return OK;
}

Status turn_end(Turn *turn)
{
    TowerProcess *p = turn->p;
    if (turn->program && p->job->accumulate > 1) TRY(replica_keep_statistics(p->replica, turn->local));
    if (!turn->last) return OK;
    LedgerRow *row = ledger_row(p->ledger, tower_of(turn), turn->step->number);
    row->arrival_ns = clock_ns();
    row->until_sum_ns = row->arrival_ns - turn->step->started_ns;
    tower_activity(p, turn->local, turn->step->number, ACTIVITY_REDUCE);
    return OK;
}
