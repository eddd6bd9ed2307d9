/* One training step, as every tower process runs it.
 *
 *   feed -> forward -> loss -> backward, bucket by bucket given to the sum -> sum over towers -> verdict -> update;
 *   then, once the results are here, record (step_record.c)
 *
 * Each tower's loss and gradients are those of its own batch, already divided by the samples of the whole global batch,
 * so that the sum over towers is the gradient of the mean over all samples. A step of several batches (--accumulate)
 * keeps the gradients of all but the last and gives their sum once. Nothing moves before the verdict: weights,
 * optimizer memory, averages and batch-norm statistics change together in replica_update, or not at all.
 *
 * The verdict is given on the device (judge.h). On a GPU the host is up to two steps ahead: it hears of a step that
 * ends the run after it has asked for the next ones, which change nothing, because the gate stays closed from
 * then on. */
#include "towers/train/step.h"
#include "kernels/text.h"
#include "towers/guard/forensics.h"
#include "towers/guard/poison.h"
#include "towers/replica/fault.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/samples_log.h"
#include "towers/train/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const float SCALE_START = 65536, SCALE_MAX = 16777216;
_Static_assert((int)CAPTURE_TOWERS == (int)TOWERS_MAX, "a key names every tower");
enum { SCALE_GROWS_AFTER = 2000, UNDER_WAY = GATE_AHEAD + 1, POLLS = 200, POLL_NS = 20000 };

struct StepQueue {
    int64_t taken_ns; /* when the last step was taken */
    bool complained;  /* the log knows that a graph could not be recorded */
    Step step[UNDER_WAY];
};

static float *grads(TowerProcess *p)
{
    return p->replica->arena[ARENA_GRAD];
}

/* Without a fixed scale it is found while training. */
static bool loss_scale_moves(const TrainJob *job)
{
    return job->program.compute == DTYPE_F16 && job->loss_scale <= 0;
}

static size_t grad_count(const TowerProcess *p)
{
    return p->replica->layout->trained_elements;
}

/* ---- a tower's turn */

/* A single tower agrees with itself: its gradients are the sum, where they lie. */
static bool is_alone(const TowerProcess *p)
{
    return p->ledger->towers == 1;
}

/* What runs between two calls of NCCL: launches that are the same in every step, so that a device can repeat them. */
typedef enum LaunchKind {
    LAUNCH_FORWARD = 0,
    LAUNCH_OPS,      /* between two batch norms that sum over the towers */
    LAUNCH_BACKWARD, /* of all but the last batch */
    LAUNCH_UPDATE,
    LAUNCH_BUCKET, /* backward up to its last gradient */
    LAUNCH_BUCKET_KEPT = LAUNCH_BUCKET + BUCKETS_MAX
} LaunchKind;

typedef struct Turn {
    TowerProcess *p;
    const Step *step;
    Program *program;       /* NULL: a tower without samples, which agrees to the others' gradients */
    int slot, n;            /* n: samples that count */
    int bucket, first, end; /* ops */
} Turn;

/* Ops first .. end - 1; one by one where a test wants a number in between to be wrong. */
static Status ops_run(const Turn *turn)
{
    TowerProcess *p = turn->p;
    int tower = p->place.first_tower + turn->slot;
    if (!turn->program) return OK;
    return poison_run(&p->replica->device, turn->program, tower, turn->step->number, turn->first, turn->end);
}

static Status ops_launches(void *context)
{
    return ops_run(context);
}

static Status forward_launches(void *context)
{
    const Turn *turn = context;
    TRY(replica_scale(turn->p->replica, turn->program));
    return ops_run(turn);
}

static Status tally(const Turn *turn, bool last)
{
    const TowerProcess *p = turn->p;
    return gate_contribute(p->gate, turn->slot, turn->program, turn->n, last, p->buckets.count);
}

/* A batch whose gradients are kept. */
static Status backward_launches(void *context)
{
    const Turn *turn = context;
    TRY(ops_run(turn));
    if (turn->program) TRY(replica_keep_gradients(turn->p->replica, turn->slot));
    return tally(turn, false);
}

/* The last batch, up to the last gradient of a bucket. */
static Status bucket_launches(void *context)
{
    const Turn *turn = context;
    TowerProcess *p = turn->p;
    Device *device = &p->replica->device;
    const Bucket *bucket = &p->buckets.bucket[turn->bucket];
    float *at = grads(p) + bucket->first;
    TRY(ops_run(turn));
    if (!turn->program) TRY(device->backend->fill(device, at, 0, bucket->count));
    if (turn->step->batches > 1) TRY(replica_add_kept(p->replica, turn->slot, bucket->first, bucket->count));
    if (turn->bucket == 0) TRY(poison_gradients(device, p->place.first_tower + turn->slot, turn->step->number, at));
    TRY(device->backend->square_sum(device, at, bucket->count, gate_square(p->gate, turn->bucket)));
    return turn->bucket == p->buckets.count - 1 ? tally(turn, true) : OK;
}

/* What a test makes go wrong in this step alone is not recorded. */
static Status launches_record(Turn *turn, int kind, Launches launches)
{
    TowerProcess *p = turn->p;
    CaptureKey key = {
        .of = p, .kind = kind, .slot = turn->slot, .first = turn->first, .end = turn->end, .count = turn->n};
    if (turn->program) key.of = turn->program->plan;
    if (fault_poison(p->place.first_tower + turn->slot, turn->step->number)) return launches(turn);
    return captured_graphs_run(p->replica->captured, &key, launches, turn);
}

/* A batch norm that sums over the towers calls the communicator: it runs by itself, between stretches. */
static Status launches_run(Turn *turn, int kind, Launches launches)
{
    int end = turn->end;
    bool sums = turn->program && turn->p->replica->device.towers_sum;
    for (int op = turn->first; sums && op < end; op++) {
        if (!norm_sync_sums(plan_call(turn->program->plan, op)->kind)) continue;
        turn->end = op;
        if (op > turn->first) TRY(launches_record(turn, LAUNCH_OPS, ops_launches));
        turn->first = op;
        turn->end = op + 1;
        TRY(ops_run(turn));
        turn->first = op + 1;
    }
    turn->end = end;
    return launches_record(turn, kind, launches);
}

static Status bucket_give(const Turn *turn, int i)
{
    TowerProcess *p = turn->p;
    const Bucket *b = &p->buckets.bucket[i];
    return is_alone(p) ? OK
                       : comm_allreduce_begin(p->comm, p->place.first_tower + turn->slot, b->first, grads(p) + b->first,
                                              b->count);
}

/* Backward of a step's last batch, in stretches: a bucket is given to the sum as soon as its last gradient is final.
 * Where batch norms sum too, collectives must come in one order on towers with and without samples: the buckets come
 * behind all of those. */
static Status backward_give(Turn *turn)
{
    TowerProcess *p = turn->p;
    Plan *plan = turn->program ? turn->program->plan : NULL;
    int kind = turn->step->batches > 1 ? LAUNCH_BUCKET_KEPT : LAUNCH_BUCKET;
    bool at_once = !p->replica->device.towers_sum;
    for (int i = 0; i < p->buckets.count; i++) {
        const Bucket *b = &p->buckets.bucket[i];
        bool last = i == p->buckets.count - 1;
        int ready = !plan ? 0 : last ? plan_op_count(plan) : plan_ready_after(plan, b->first + b->count);
        turn->bucket = i;
        turn->first = turn->end;
        turn->end = ready > turn->first ? ready : turn->first;
        TRY(launches_run(turn, kind + i, bucket_launches));
        if (at_once) TRY(bucket_give(turn, i));
    }
    for (int i = 0; i < p->buckets.count && !at_once; i++) TRY(bucket_give(turn, i));
    return OK;
}

static Status forward(Turn *turn, const Batch *batch)
{
    TowerProcess *p = turn->p;
    int tower = p->place.first_tower + turn->slot;
    ledger_activity(p->ledger, tower, turn->step->number, ACTIVITY_COPY);
    fault_strike(tower, turn->step->number, ACTIVITY_COPY);
    TRY(replica_feed(p->replica, turn->program, batch, turn->slot, p->job->seed, turn->step->scale));
    ledger_activity(p->ledger, tower, turn->step->number, ACTIVITY_FORWARD);
    fault_strike(tower, turn->step->number, ACTIVITY_FORWARD);
    turn->end = turn->program->forward_end;
    return launches_run(turn, LAUNCH_FORWARD, forward_launches);
}

static Status backward(Turn *turn, bool last)
{
    TowerProcess *p = turn->p;
    int tower = p->place.first_tower + turn->slot;
    ledger_activity(p->ledger, tower, turn->step->number, ACTIVITY_BACKWARD);
    fault_strike(tower, turn->step->number, ACTIVITY_BACKWARD);
    if (last) return backward_give(turn);
    turn->first = turn->end;
    if (turn->program) turn->end = plan_op_count(turn->program->plan);
    return launches_run(turn, LAUNCH_BACKWARD, backward_launches);
}

/* One batch of one tower: the last one of a step gives the gradients of all of them. */
static Status tower_turn(TowerProcess *p, int slot, const Batch *batch, bool last, Step *step)
{
    int tower = p->place.first_tower + slot;
    Program *program = batch->n ? replica_program(p->replica, true, batch->n) : NULL;
    Turn turn = {.p = p, .step = step, .program = program, .slot = slot, .n = batch->n - batch->skipped};
    if (batch->n && !program) return FAIL(ERR_INTERNAL, "tower %d: no program for a batch of %d", tower, batch->n);
    step->fed[slot] |= batch->n > 0;
    if (program)
        TRY(forward(&turn, batch));
    else
        TRY(norm_sync_idle(p));
    if (program && last)
        TRY(poison_device_loss(&p->replica->device, tower, step->number,
                               plan_tensor(program->plan, program->loss).data));
    TRY(backward(&turn, last));
    if (program && p->job->accumulate > 1) TRY(replica_keep_statistics(p->replica, slot));
    return OK;
}

static Status towers_run(TowerProcess *p, Step *step)
{
    for (int turn = 0; turn < step->batches * p->place.local_towers; turn++) {
        int batch_number = turn / p->place.local_towers, slot = turn % p->place.local_towers,
            tower = p->place.first_tower + slot;
        bool last = batch_number == step->batches - 1;
        const Batch *batch;
        LedgerRow *row = ledger_row(p->ledger, tower, step->number);
        if (batch_number == 0) memset(row, 0, sizeof *row);
        if (batch_number == 0 && p->job->accumulate > 1) TRY(replica_keep_start(p->replica, slot));
        ledger_activity(p->ledger, tower, step->number, ACTIVITY_DATA);
        fault_strike(tower, step->number, ACTIVITY_DATA);
        if (p->replica->device.backend->uploaded) TRY(p->replica->device.backend->uploaded(&p->replica->device));
        TRY(loader_next(p->loader, &batch));
        TRY(samples_log(p, batch, step->number));
        if (p->metrics && turn == 0 && step->number == atomic_load(&p->ledger->run.first_step) + 1)
            TRY(summary_images(p, batch));
        TRY(tower_turn(p, slot, batch, last, step));
        if (!last) continue;
        row->arrival_ns = clock_ns();
        ledger_activity(p->ledger, tower, step->number, ACTIVITY_REDUCE);
    }
    return OK;
}

/* ---- agreement */

static Status sum_over_towers(TowerProcess *p)
{
    size_t end = grad_count(p), extras = sum_extra_count(p->ledger->towers);
    for (int slot = 0; slot < p->place.local_towers; slot++)
        TRY(comm_allreduce_begin(p->comm, p->place.first_tower + slot, end, gate_extras(p->gate, slot), extras));
    for (int b = 0; b < p->buckets.count && !is_alone(p); b++)
        TRY(comm_allreduce_end(p->comm, p->buckets.bucket[b].first, grads(p) + p->buckets.bucket[b].first,
                               p->buckets.bucket[b].count));
    return comm_allreduce_end(p->comm, end, gate_sum(p->gate), extras);
}

/* ---- the verdict and the commit: every rank has the same extras and the same sum, so every rank decides alike */

static Status update_launches(void *context)
{
    const Turn *turn = context;
    TowerProcess *p = turn->p;
    Device *device = &p->replica->device;
    if (!is_alone(p)) TRY(device->backend->square_sum(device, grads(p), grad_count(p), gate_square_of_sum(p->gate)));
    TRY(gate_decide(p->gate));
    return replica_update(p->replica, turn->step->fed);
}

static Status update(TowerProcess *p, const Step *step)
{
    CaptureKey key = {.of = p, .kind = LAUNCH_UPDATE};
    memcpy(key.towers, step->fed, sizeof key.towers);
    TRY(captured_graphs_run(p->replica->captured, &key, update_launches, &(Turn){.p = p, .step = step}));
    for (int slot = 0; slot < p->place.local_towers; slot++) {
        if (!step->left_out) TRY(poison_state(p->replica, slot, p->place.first_tower + slot, step->number));
        TRY(poison_bit(p->replica, p->place.first_tower + slot, step->number));
    }
    return gate_send(p->gate, step->number);
}

/* What came through the sum must be what the step was made of, or the towers are not in the same step. */
static Status samples_check(TowerProcess *p, Step *step, int towers)
{
    const TrainJob *job = p->job;
    int64_t count = 0;
    for (int t = 0; t < towers; t++) count += step->loss[t].count;
    step->skipped = step->samples - count;
    if (step->skipped > 0 && job->bad_samples == BAD_SKIP) {
        p->run.bad_samples += step->skipped;
        if (p->run.bad_samples <= job->bad_limit) return OK;
        return FAIL(ERR_FORMAT,
                    "step %lld: %lld samples could not be decoded so far, more than --bad-samples limit:%lld; "
                    "they are listed in %s/" BAD_SAMPLES_FILE,
                    (long long)step->number, (long long)p->run.bad_samples, (long long)job->bad_limit,
                    job->run_dir ? job->run_dir : "RUN");
    }
    if (count == step->samples) return OK;
    return FAIL(ERR_INTERNAL, "step %lld: the towers processed %lld samples, expected %lld", (long long)step->number,
                (long long)count, (long long)step->samples);
}

/* What the verdict was, once it is here. */
static Status verdict_read(TowerProcess *p, Step *step)
{
    GateResult result;
    gate_read(p->gate, step->number, &result, step->found);
    for (int t = 0; t < p->ledger->towers; t++) step->loss[t] = step->found[t].loss;
    step->grad_norm = result.report.grad_norm;
    step->l2 = result.l2;
    step->commit = result.report.commit;
    step->overflow = result.report.overflow;
    step->loss_scale = result.report.scale;
    nan_check_pass(step->loss, p->ledger->towers, p->job->nan_check, &step->culprit);
    if (step->overflow) step->culprit = -1;
    p->stop |= result.stop;
    p->run.loss_scale = result.report.next_scale;
    p->run.scale_good = result.report.good;
    return samples_check(p, step, p->ledger->towers);
}

static void verdict_count(TowerProcess *p, const Step *step)
{
    if (step->commit) {
        p->run.updates++;
        p->run.skipped_in_row = 0;
    } else if (step->overflow) {
        p->run.overflows++;
    } else {
        p->run.skipped++;
        p->run.skipped_in_row++;
    }
}

/* The message of a step that was refused: which tower, which step, loss or gradient. */
static Status refusal(const TowerProcess *p, const Step *step)
{
    double loss = step->culprit >= 0 ? tower_loss_mean(&step->loss[step->culprit]) : 0;
    if (p->job->nan_check == NAN_CHECK_LAST)
        return FAIL(ERR_NUMERIC, "Model diverged with loss = NaN (last tower, step %lld, after the update)%s",
                    (long long)step->number, p->ledger->search.report);
    if (step->culprit < 0)
        return FAIL(
            ERR_NUMERIC,
            "step %lld: the sum of the gradients over all towers is not finite, though each tower's is; nothing "
            "was committed; try a lower --lr or --clip-norm%s",
            (long long)step->number, p->ledger->search.report);
    const TowerResult *found = &step->found[step->culprit];
    return FAIL(
        ERR_NUMERIC,
        "tower %d, step %lld: %s not finite (loss %g, gradient norm %g); nothing was committed, the weights are "
        "those after step %lld; try a lower --lr, or --nan-policy skip%s",
        step->culprit, (long long)step->number,
        found->loss_finite   ? "the gradient is"
        : found->grad_finite ? "the loss is"
                             : "loss and gradient are",
        loss, found->grad_norm, (long long)step->number - 1, p->ledger->search.report);
}

static Status skip(TowerProcess *p, const Step *step)
{
    const char *report = p->ledger->search.report;
    if (p->run.skipped_in_row > p->job->nan_limit)
        return FAIL(ERR_NUMERIC, "step %lld: %lld steps in a row were not finite (tower %d is the first at fault)%s",
                    (long long)step->number, (long long)p->run.skipped_in_row, step->culprit, report);
    if (!is_root(&p->place)) return OK;
    ledger_note(p->ledger, "step %lld is not finite and is left out (%lld so far)%s", (long long)step->number,
                (long long)p->run.skipped, report);
    return process_log(p, "step %lld is left out%s", (long long)step->number, report);
}

/* Until the results of a step are here, or a peer has left, or the deadline of a collective. */
static Status arrival_wait(TowerProcess *p, int64_t number)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t deadline = clock_ns() + p->job->comm_timeout_ms * 1000000ll;
    for (int polls = 0;; polls++) {
        bool here;
        TRY(gate_arrived(p->gate, number, &here));
        if (here) return OK;
        if (polls % 64 == 63) TRY(comm_look(p->comm));
        if (clock_ns() > deadline)
            return FAIL(ERR_COMM, "the results of step %lld did not arrive within %.1f s (--comm-timeout)",
                        (long long)number, (double)p->job->comm_timeout_ms / 1000);
        if (polls > POLLS) nanosleep(&pause, NULL);
    }
}

/* The weights are those after this step: the one before the refused one, unless the gate let through what was under way
 * by then. */
static int64_t weights_after(const TowerProcess *p, const Step *refused)
{
    bool open = p->job->nan_policy == NAN_POLICY_SKIP && p->run.skipped_in_row <= p->job->nan_limit;
    return open && p->run.step > refused->number ? p->run.step : refused->number - 1;
}

/* Every rank comes here with the same step. OK: the run goes on. */
static Status refuse(TowerProcess *p, Step *step)
{
    bool moved = p->job->nan_check == NAN_CHECK_LAST;
    TRY(arrival_wait(p, p->run.step)); /* the search waits for the device, which must not wait for a peer that left */
    TRY(forensics_search(p, &(Refusal){step->number, step->culprit, step->scale * step->loss_scale, moved, p->run.step,
                                       weights_after(p, step)}));
    if (step->culprit >= 0) step->culprit = p->ledger->search.found.tower; /* another, if towers normalize together */
    if (moved || p->job->nan_policy == NAN_POLICY_STOP) return refusal(p, step);
    if (p->job->nan_policy == NAN_POLICY_SKIP) return skip(p, step);
    p->go_back = true;
    return OK;
}

/* ---- what is told */

/* A step that ends the run is recorded too, so that its towers' losses can be looked at; the message outlives that. */
static Status record_refused(TowerProcess *p, const Step *step, Status cause)
{
    StatusText words;
    status_keep(&words);
    TRY(step_record(p, step));
    return status_restore(cause, &words);
}

static Status overflow_tell(TowerProcess *p, const Step *step)
{
    if (!step->overflow || !p->metrics) return OK;
    return metrics_log(p->metrics,
                       "step %lld: skipped because a gradient overflowed at loss scale %g; the loss scale is now %g",
                       (long long)step->number, (double)step->loss_scale, p->run.loss_scale);
}

static Status recording_tell(TowerProcess *p)
{
    const char *why = captured_graphs_refusal(p->replica->captured);
    if (!why || !p->metrics || p->queue->complained) return OK;
    p->queue->complained = true;
    return metrics_log(p->metrics, "%s", why);
}

static Status step_tell(TowerProcess *p, const Step *step, Status refused)
{
    if (refused != OK) return record_refused(p, step, refused);
    TRY(overflow_tell(p, step));
    TRY(recording_tell(p));
    return step_record(p, step);
}

/* ---- the steps under way */

static Step *queue_at(TowerProcess *p, int64_t number)
{
    return &p->queue->step[number % UNDER_WAY];
}

static GateState verdict_start(TowerProcess *p)
{
    const TrainJob *job = p->job;
    if (!loss_scale_moves(job))
        p->run.loss_scale = job->loss_scale > 0 ? job->loss_scale : 1;
    else if (!(p->run.loss_scale >= 1))
        p->run.loss_scale = (double)SCALE_START;
    return (GateState){.updates = p->run.updates,
                       .scale = (float)p->run.loss_scale,
                       .good = (int32_t)p->run.scale_good,
                       .skips = (int32_t)p->run.skipped_in_row};
}

Status steps_open(TowerProcess *p)
{
    const TrainJob *job = p->job;
    GateConfig config = {
        .rules = {.check = (GateCheck)job->nan_check,
                  .skip = job->nan_policy == NAN_POLICY_SKIP,
                  .skips_max = job->nan_limit,
                  .dynamic = loss_scale_moves(job),
                  .grow_after = SCALE_GROWS_AFTER,
                  .scale_max = SCALE_MAX,
                  .clip_norm = job->clip_norm,
                  .ema_decay = job->ema_decay,
                  .bn_decay = job->bn_decay},
        .place = p->place,
        .towers = job->shares.towers,
        .l2 = is_root(&p->place) && job->run_dir && job->weight_decay > 0,
        .scaled = loss_is_scaled(job),
    };
    p->queue = calloc(1, sizeof *p->queue);
    if (!p->queue) return FAIL(ERR_MEMORY, "no memory for the steps in flight");
    TRY(gate_create(p->replica, &config, &p->gate));
    return steps_restart(p);
}

Status steps_restart(TowerProcess *p)
{
    GateState start = verdict_start(p);
    p->done = p->run.step;
    return gate_start(p->gate, &start);
}

void steps_close(TowerProcess *p)
{
    gate_destroy(p->gate);
    free(p->queue);
    p->gate = NULL;
    p->queue = NULL;
}

Status step_take(TowerProcess *p)
{
    if (p->done == p->run.step) return OK;
    Step *step = queue_at(p, p->done + 1);
    TRY(arrival_wait(p, step->number));
    int64_t now = clock_ns(), since = step->started_ns > p->queue->taken_ns ? step->started_ns : p->queue->taken_ns;
    step->seconds = (double)(now - since) * 1e-9;
    p->queue->taken_ns = now;
    RunState before = p->run;
    TRY(verdict_read(p, step));
    verdict_count(p, step);
    step_to_ledger(p, step);
    Status refused = (step->culprit < 0 && step->commit) || step->overflow || step->left_out ? OK : refuse(p, step);
    bool stays = refused == OK && !p->go_back;
    if (stays) p->done = step->number;
    if (step->commit) step_to_epoch(p, step);
    Status told = p->metrics ? step_tell(p, step, refused) : refused;
    if (stays) return told;
    p->run = before; /* who goes on from here takes this step again; those after it have changed nothing */
    p->run.step = p->done;
    return told;
}

Status steps_drain(TowerProcess *p)
{
    while (p->done < p->run.step) TRY(step_take(p));
    return OK;
}

/* The batches of this step: as many as are left of the epoch, at most job->accumulate. */
static void samples_count(const TowerProcess *p, Step *step)
{
    const TrainJob *job = p->job;
    int64_t batches = job_batches_per_epoch(job), first = job_first_batch(job, p->run.step) % batches,
            global = shares_global(&job->shares), left = source_info(job->train)->count - first * global;
    step->batches = (int)(batches - first < job->accumulate ? batches - first : job->accumulate);
    step->samples = step->batches * global < left ? step->batches * global : left;
}

static void activity_all(TowerProcess *p, const Step *step, Activity activity)
{
    for (int slot = 0; slot < p->place.local_towers; slot++)
        ledger_activity(p->ledger, p->place.first_tower + slot, step->number, activity);
}

/* How many steps may be under way behind this one: none where its weights and gradients are to be looked at. Equal on
 * all ranks, though only rank 0 looks: they must hear of a refusal, or of a stop, after the same step. A search after a
 * refused step makes do with what is there by then (forensics.c). */
static int steps_ahead(const TowerProcess *p, const Step *step)
{
    bool looked_at = p->job->run_dir && summary_is_due(p, step->number);
    return looked_at ? 0 : gate_ahead(p->gate);
}

Status step_run(TowerProcess *p)
{
    const TrainJob *job = p->job;
    Step *step = queue_at(p, p->run.step + 1);
    *step = (Step){.number = p->run.step + 1, .started_ns = clock_ns(), .culprit = -1};
    step->left_out = rollback_leaves_out(&p->run, step->number);
    samples_count(p, step);
    step->scale = (float)loss_scale(step->samples, job->divisor, full_step(job));
    step->lr = schedule_lr(&job->schedule, p->run.step, p->steps_per_epoch, p->total_steps);

    bool stop = atomic_load(&p->ledger->run.stop_signal) != 0;
    bool refill = job->bad_samples == BAD_SKIP && job->divisor == LOSS_DIVISOR_SAMPLES;
    TRY(gate_begin(p->gate, step->number, step->lr, step->left_out, stop, refill ? step->samples : 0));
    TRY(towers_run(p, step));
    TRY(sum_over_towers(p));
    activity_all(p, step, ACTIVITY_UPDATE);
    TRY(update(p, step));
    p->run.step = step->number;
    int ahead = steps_ahead(p, step);
    if (ahead || is_root(&p->place)) /* the others have nothing to record, and begin the next step at once */
        activity_all(p, step,
                     ahead ? ACTIVITY_REDUCE : ACTIVITY_RECORD); /* what keeps it waiting is the slowest tower */
    while (p->run.step - p->done > ahead) TRY(step_take(p));
    return OK;
}
