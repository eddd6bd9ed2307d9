/* One training step, as run by every tower process: step_run is all of it.
 *
 * Each tower's loss and gradients are those of its own batch, already divided by the samples of the whole global batch,
 * so that the sum over towers is the gradient of the mean over all samples. A step of several batches (--accumulate)
 * keeps the gradients of all but the last and reduces their sum once. Nothing changes before the gate has decided:
 * weights, optimizer state, averages and batch-norm statistics change together in replica_update, or not at all.
 *
 * The gate decides on the device (gate.h). On a GPU the host is up to two steps ahead: when it learns of a step that ends
 * the run, it has already enqueued the next ones; they change nothing, because the gate stays closed from then on. */
#include "towers/train/step.h"
#include "kernels/base/array.h"
#include "towers/replica/hooks.h"
#include "towers/train/summary.h"

enum { SCALE_START = 65536 };

/* ---- set-up */

/* What is sized by the run. */
static Status arrays_create(const TowerProcess *p, StepQueue *q)
{
    size_t towers = (size_t)p->ledger->towers, local = (size_t)p->place.local_towers;
    bool made = (q->held = calloc(local, sizeof *q->held)) && (q->elsewhere_loaded = calloc(towers, sizeof(bool))) &&
                (q->tower = calloc(towers, sizeof *q->tower));
    for (int i = 0; i < STEPS_IN_FLIGHT; i++) made = made && (q->step[i].fed = calloc(local, sizeof(bool)));
    return made ? OK : FAIL(ERR_MEMORY, "no memory for the steps in flight of %zu towers", towers);
}

static void arrays_free(StepQueue *q)
{
    for (int i = 0; i < STEPS_IN_FLIGHT; i++) free(q->step[i].fed);
    for (int i = 0; i < q->fed_count; i++) free(q->fed[i]);
    free(q->fed);
    free(q->held);
    free(q->elsewhere_loaded);
    free(q->tower);
}

Status steps_open(TowerProcess *p)
{
    const TrainJob *job = p->job;
    GateConfig config = {
        .rules = job_gate(job),
        .place = p->place,
        .towers = job->local_batches.towers,
        .l2 = is_root(&p->place) && job->run_dir && job->weight_decay > 0,
        .scaled = loss_is_scaled(job),
    };
    p->queue = calloc(1, sizeof *p->queue);
    if (!p->queue) return FAIL(ERR_MEMORY, "no memory for the steps in flight");
    TRY(arrays_create(p, p->queue));
    TRY(gate_create(p->replica, &config, &p->gate));
    return steps_restart(p);
}

Status steps_restart(TowerProcess *p)
{
    RunState *run = &p->run;
    GateState state = {.skips = (int32_t)run->skipped_in_row};
    for (int i = 0; i < PHASES_MAX; i++) {
        RunPhase *phase = &run->phase[i];
        if (!job_gate(p->job).dynamic)
            phase->loss_scale = p->job->loss_scale > 0 ? p->job->loss_scale : 1;
        else if (!(phase->loss_scale >= 1))
            phase->loss_scale = SCALE_START;
        state.phase[i] = (GatePhase){phase->updates, (float)phase->loss_scale, (int32_t)phase->scale_good};
    }
    p->done = p->queue->written = run->step;
    p->queue->write_after = p->queue->rows = 0;
    memset(p->queue->held, 0, (size_t)p->place.local_towers * sizeof *p->queue->held); /* the loader starts anew */
    return gate_start(p->gate, &state);
}

void steps_close(TowerProcess *p)
{
    gate_destroy(p->gate);
    if (p->queue) {
        step_rows_free(p->queue);
        arrays_free(p->queue);
    }
    free(p->queue);
    p->gate = NULL;
    p->queue = NULL;
}

Status steps_drain(TowerProcess *p, StepOutcome *outcome)
{
    while (p->done < p->run.step) TRY(step_take(p, outcome));
    return p->queue->written < p->done ? step_rows_write(p, p->done) : OK;
}

/* ---- a step */

static Status step_begin(TowerProcess *p, Step **begun)
{
    const TrainJob *job = p->job;
    int batches = job_step_batches(job, p->run.step);
    Step *step = *begun = step_in_flight(p, p->run.step + 1);
    memset(step, 0, offsetof(Step, fed));
    memset(step->fed, 0, (size_t)p->place.local_towers * sizeof *step->fed);
    step->number = p->run.step + 1;
    step->started_ns = clock_ns();
    step->culprit = -1;
    comm_sum_times(p->comm, &step->sums); /* of an evaluation or a test, not of this step */
    step->phase = job_phase_of(job, p->run.step);
    step->batches = batches ? batches : 1;
    step->samples = job_step_samples(job, p->run.step);
    step->scale = (float)loss_scale(step->samples, job->divisor, full_step(job));
    step->lr = process_lr(p, p->run.step);
    step->left_out = rollback_leaves_out(&p->run, step->number);
    bool stop = atomic_load(&p->ledger->run.stop_signal) != 0;
    bool refill = (job->data.bad == BAD_SKIP || job->program.weighted) && job->divisor == LOSS_DIVISOR_SAMPLES;
    return gate_begin(p->gate, &(GateStep){.number = step->number,
                                           .phase = step->phase,
                                           .lr = step->lr,
                                           .closed = step->left_out,
                                           .stop = stop,
                                           .samples = refill ? step->samples : 0});
}

/* The extras of all towers are reduced after the buckets. The gradients of a single tower need no reduction. */
static Status allreduce_end(TowerProcess *p, int phase)
{
    const Buckets *buckets = &p->sums[phase].buckets;
    float *grads = p->replica->arena[ARENA_GRAD];
    size_t end = p->replica->layout->trained_elements, extras = sum_extra_count(p->ledger->towers);
    for (int local = 0; local < p->place.local_towers; local++)
        TRY(comm_allreduce_begin(p->comm, p->place.first_tower + local, end, gate_extras(p->gate, local), extras));
    for (int b = 0; b < buckets->count && p->ledger->towers > 1; b++)
        TRY(comm_allreduce_end(p->comm, buckets->bucket[b].first, grads + buckets->bucket[b].first,
                               buckets->bucket[b].count));
    return comm_allreduce_end(p->comm, end, gate_sum(p->gate), extras);
}

typedef struct Update {
    TowerProcess *p;
    const Step *step;
} Update;

/* Every rank has the same extras and the same sum, so every rank makes the same decision. */
static Status gate_and_update(void *context)
{
    TowerProcess *p = ((const Update *)context)->p;
    const Step *step = ((const Update *)context)->step;
    Replica *r = p->replica;
    const LayoutPhase *range = &r->layout->phase[step->phase];
    if (p->ledger->towers > 1)
        TRY(r->device.backend->square_sum(&r->device, (float *)r->arena[ARENA_GRAD] + range->first, range->elements,
                                          gate_square_of_sum(p->gate)));
    TRY(gate_decide(p->gate));
    return replica_update(r, step->phase, step->fed);
}

static Status fed_number(StepQueue *q, const bool *fed, size_t local, int *number)
{
    for (*number = 0; *number < q->fed_count; ++*number)
        if (memcmp(q->fed[*number], fed, local * sizeof *fed) == 0) return OK;
    TRY(array_grow(&q->fed, q->fed_count, sizeof *q->fed, "the sets of towers that had samples"));
    bool *copy = malloc(local * sizeof *copy);
    if (!copy) return FAIL(ERR_MEMORY, "no memory for a set of %zu towers that had samples", local);
    memcpy(copy, fed, local * sizeof *copy);
    q->fed[q->fed_count++] = copy;
    return OK;
}

static Status step_update(TowerProcess *p, const Step *step)
{
    CaptureKey key = {.of = p->gate, .phase = step->phase};
    TRY(fed_number(p->queue, step->fed, (size_t)p->place.local_towers, &key.index));
    process_activity(p, step->number, ACTIVITY_UPDATE);
    TRY(captured_graphs_run(p->replica->captured, &key, gate_and_update, &(Update){p, step}));
    for (int local = 0; run_hooks && local < p->place.local_towers; local++)
        TRY(run_hooks->updated(p->replica, local, p->place.first_tower + local, step->number, step->left_out));
    return gate_send(p->gate, step->number);
}

Status step_run(TowerProcess *p, StepOutcome *outcome)
{
    Step *step;
    MicroBatch micro;
    TRY(step_begin(p, &step));
    for (int number = 0; number < step->batches * p->place.local_towers; number++) {
        TRY(micro_batch_begin(p, step, number, &micro));
        TRY(micro_batch_feed(&micro));
        TRY(micro_batch_forward(&micro));
        for (int part = 0; part < micro.parts; part++) {
            TRY(micro_batch_backward(&micro, part));
            TRY(micro_batch_allreduce_begin(&micro, part));
        }
        TRY(micro_batch_end(&micro));
    }
    TRY(allreduce_end(p, step->phase));
    comm_sum_times(p->comm, &step->sums);
    TRY(step_update(p, step)); /* the gate decides; then everything is updated, or nothing */
    p->run.step = step->number;

    /* Number of steps that may stay in flight after this one: none if its weights and gradients will be read. Equal on
     * all ranks, although only the root reads them, because all ranks must learn of a refusal or a stop after the same
     * step. The search after a refused step uses whatever state there is by then (forensics.c). */
    bool looked_at = p->job->run_dir && summary_is_due(p, step->number);
    int ahead = looked_at ? 0 : gate_ahead(p->gate);
    if (ahead || is_root(&p->place)) /* other ranks record nothing and start the next step at once */
        process_activity(p, step->number, ahead ? ACTIVITY_REDUCE : ACTIVITY_RECORD); /* waits for the slowest tower */
    while (p->run.step - p->done > ahead) TRY(step_take(p, outcome)); /* count, refuse or record its result */
    return OK;
}
