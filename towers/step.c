/* One training step, as every tower process runs it.
 *
 *   feed -> forward -> loss -> backward, bucket by bucket given to the sum -> sum over towers -> verdict -> update ->
 * record
 *
 * Each tower's loss and gradients are those of its own batch, already divided by the samples of the whole global batch,
 * so that the sum over towers is the gradient of the mean over all samples. A step of several batches (--accumulate)
 * keeps the gradients of all but the last and gives their sum once. Nothing moves before the verdict: weights,
 * optimizer memory, averages and batch-norm statistics change together in replica_update, or not at all. */
#include "towers/fault.h"
#include "towers/forensics.h"
#include "towers/poison.h"
#include "towers/rollback.h"
#include "towers/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LOSS_DECAY = 0.9;

typedef struct Step {
    int64_t number;  /* from 1, as people count */
    int batches;     /* global batches: 1, or up to job->accumulate */
    int64_t samples; /* of all of them */
    int64_t started_ns, wait_ns;
    float scale;                /* of every sample's gradient */
    bool fed[TOWERS_MAX];       /* local towers that had samples */
    TowerLoss loss[TOWERS_MAX]; /* of all towers, from the ledger */
    double grad_norm;           /* of the averaged gradient */
    double l2;                  /* of the weights that the forward pass used */
    int culprit;                /* first tower at fault, or -1 */
    bool commit;
    bool left_out; /* a rollback has found it to blame: it runs, but moves nothing */
    double lr;
} Step;

static float *grads(TowerProcess *p)
{
    return p->replica->arena[ARENA_GRAD];
}

static size_t grad_count(const TowerProcess *p)
{
    return p->replica->layout->param_elements;
}

/* Samples of a full step. */
static int64_t full_step(const TrainJob *job)
{
    return shares_global(&job->shares) * job->accumulate;
}

/* ---- a tower's turn */

/* A single tower agrees with itself: its gradients are the sum, where they lie. */
static bool is_alone(const TowerProcess *p)
{
    return p->ledger->towers == 1;
}

/* In f16 gradients below 6e-8 would be lost: there they are computed this many times too large, up to the update. */
static double gradients_enlarged(const TrainJob *job)
{
    const double f16_scale = 1024;
    return job->program.compute == DTYPE_F16 ? f16_scale : 1;
}

/* Backward up to the last gradient of a bucket. */
static Status backward_to(TowerProcess *p, Program *program, int tower, int64_t step, int bucket, int *done)
{
    const Bucket *b = &p->buckets.bucket[bucket];
    bool last = bucket == p->buckets.count - 1;
    int ready = last ? plan_op_count(program->plan) : plan_ready_after(program->plan, b->first + b->count);
    if (ready <= *done) return OK;
    TRY(poison_run(&p->replica->device, program, tower, step, *done, ready));
    *done = ready;
    return OK;
}

/* Backward of a step's last batch, in segments: a bucket is given to the sum as soon as its last gradient is final.
 * Without a program (a tower without samples agrees to the others' gradients) the gradients are zeros. */
static Status backward_give(TowerProcess *p, Program *program, int slot, const Step *step, LedgerRow *row)
{
    int tower = p->first + slot, done = program ? program->forward_end : 0;
    double square = 0;
    if (!program) TRY(p->replica->device.backend->fill(&p->replica->device, grads(p), 0, grad_count(p)));
    for (int i = 0; i < p->buckets.count; i++) {
        const Bucket *bucket = &p->buckets.bucket[i];
        double part;
        if (program) TRY(backward_to(p, program, tower, step->number, i, &done));
        if (step->batches > 1) TRY(replica_add_kept(p->replica, slot, bucket->first, bucket->count));
        TRY(replica_drop_frozen(p->replica, bucket->first, bucket->count));
        if (i == 0) poison_loss(tower, step->number, &row->loss.sum);
        if (i == 0) TRY(poison_gradients(&p->replica->device, tower, step->number, grads(p)));
        TRY(replica_square_sum(p->replica, grads(p) + bucket->first, bucket->count, &part));
        square += part;
        if (!is_alone(p)) TRY(comm_give(p->comm, tower, bucket->first, grads(p) + bucket->first, bucket->count));
    }
    row->grad_norm = sqrt(square) / gradients_enlarged(p->job);
    row->grad_finite = isfinite(square);
    return OK;
}

static Status forward(TowerProcess *p, Program *program, int slot, const Batch *batch, const Step *step, LedgerRow *row)
{
    int tower = p->first + slot;
    LossRead read;
    ledger_phase(p->ledger, tower, step->number, PHASE_COPY);
    fault_strike(tower, step->number, PHASE_COPY);
    TRY(replica_feed(p->replica, program, batch, slot, p->job->seed, step->scale));
    ledger_phase(p->ledger, tower, step->number, PHASE_FORWARD);
    fault_strike(tower, step->number, PHASE_FORWARD);
    TRY(poison_run(&p->replica->device, program, tower, step->number, 0, program->forward_end));
    TRY(replica_read_loss(p->replica, program, &read));
    row->loss.sum += read.sum;
    row->loss.count += batch->n;
    for (int k = 0; k < 2; k++) row->hits[k] += read.hits[k];
    for (int k = 0; k < MODEL_HEADS; k++) row->head[k] += read.head[k];
    return OK;
}

/* One batch of one tower: the last one of a step gives the gradients of all of them. */
static Status tower_turn(TowerProcess *p, int slot, const Batch *batch, bool last, Step *step)
{
    int tower = p->first + slot;
    LedgerRow *row = ledger_row(p->ledger, tower, step->number);
    Program *program = batch->n ? replica_program(p->replica, true, batch->n) : NULL;
    if (batch->n && !program) return FAIL(ERR_INTERNAL, "tower %d: no program for a batch of %d", tower, batch->n);
    step->fed[slot] |= batch->n > 0;
    if (program)
        TRY(forward(p, program, slot, batch, step, row));
    else
        TRY(norm_sync_idle(p));
    ledger_phase(p->ledger, tower, step->number, PHASE_BACKWARD);
    fault_strike(tower, step->number, PHASE_BACKWARD);
    if (last)
        TRY(backward_give(p, program, slot, step, row));
    else if (program) {
        TRY(poison_run(&p->replica->device, program, tower, step->number, program->forward_end,
                       plan_op_count(program->plan)));
        TRY(replica_keep_gradients(p->replica, slot));
    }
    if (program && p->job->accumulate > 1) TRY(replica_keep_statistics(p->replica, slot));
    row->loss_finite = isfinite(row->loss.sum);
    row->loss.finite = row->loss_finite && row->grad_finite;
    return OK;
}

static Status towers_run(TowerProcess *p, Step *step)
{
    for (int turn = 0; turn < step->batches * p->local; turn++) {
        int batch_number = turn / p->local, slot = turn % p->local, tower = p->first + slot;
        bool last = batch_number == step->batches - 1;
        const Batch *batch;
        LedgerRow *row = ledger_row(p->ledger, tower, step->number);
        if (batch_number == 0) memset(row, 0, sizeof *row);
        if (batch_number == 0 && p->job->accumulate > 1) TRY(replica_keep_start(p->replica, slot));
        ledger_phase(p->ledger, tower, step->number, PHASE_DATA);
        fault_strike(tower, step->number, PHASE_DATA);
        TRY(loader_next(p->loader, &batch));
        if (p->metrics && turn == 0 && step->number == atomic_load(&p->ledger->run.first_step) + 1)
            TRY(summary_images(p, batch));
        TRY(tower_turn(p, slot, batch, last, step));
        if (!last) continue;
        row->arrival_ns = clock_ns();
        row->step = step->number;
        ledger_phase(p->ledger, tower, step->number, PHASE_REDUCE);
    }
    return OK;
}

/* ---- agreement */

/* What came through the sum must be what the ledger says, or the towers are not in the same step. */
static Status lanes_check(const TowerProcess *p, const Step *step, const float *lanes)
{
    const double exact = 1 << 24; /* whole numbers that an f32 holds */
    int bad = 0;
    for (int t = 0; t < p->ledger->towers; t++) bad += !ledger_row(p->ledger, t, step->number)->loss.finite;
    if (lanes[SUM_LANE_NONFINITE] == (float)bad &&
        (lanes[SUM_LANE_SAMPLES] == (float)step->samples || (double)step->samples > exact))
        return OK;
    return FAIL(ERR_INTERNAL,
                "step %lld: the towers summed up %g samples and %g that are not finite, the ledger has %lld and %d",
                (long long)step->number, (double)lanes[SUM_LANE_SAMPLES], (double)lanes[SUM_LANE_NONFINITE],
                (long long)step->samples, bad);
}

static Status sum_over_towers(TowerProcess *p, const Step *step)
{
    float lanes[SUM_LANES] = {0};
    size_t end = grad_count(p);
    for (int slot = 0; slot < p->local; slot++) {
        const LedgerRow *row = ledger_row(p->ledger, p->first + slot, step->number);
        lanes[SUM_LANE_STOP] = atomic_load(&p->ledger->run.stop_signal) ? 1 : 0;
        lanes[SUM_LANE_NONFINITE] = row->loss.finite ? 0 : 1;
        lanes[SUM_LANE_SAMPLES] = (float)row->loss.count;
        TRY(comm_give(p->comm, p->first + slot, end, lanes, SUM_LANES));
    }
    for (int b = 0; b < p->buckets.count && !is_alone(p); b++)
        TRY(comm_sum(p->comm, p->buckets.bucket[b].first, grads(p) + p->buckets.bucket[b].first,
                     p->buckets.bucket[b].count));
    TRY(comm_sum(p->comm, end, lanes, SUM_LANES));
    p->stop = lanes[SUM_LANE_STOP] > 0;
    return lanes_check(p, step, lanes);
}

/* May the step commit? Every rank sees the same rows and the same sum, so every rank decides alike. */
static Status verdict(TowerProcess *p, Step *step)
{
    double square = 0;
    for (int t = 0; t < p->ledger->towers; t++) step->loss[t] = ledger_row(p->ledger, t, step->number)->loss;
    if (!is_alone(p)) TRY(replica_square_sum(p->replica, grads(p), grad_count(p), &square));
    step->grad_norm =
        is_alone(p) ? ledger_row(p->ledger, 0, step->number)->grad_norm : sqrt(square) / gradients_enlarged(p->job);
    bool passed = nan_check_pass(step->loss, p->ledger->towers, p->job->nan_check, &step->culprit);
    bool sum_finite = isfinite(step->grad_norm) || p->job->nan_check != NAN_CHECK_ALL;
    step->left_out = rollback_leaves_out(&p->run, step->number);
    step->commit = ((passed && sum_finite) || p->job->nan_check == NAN_CHECK_LAST) && !step->left_out;
    return OK;
}

/* ---- the commit */

static Status update(TowerProcess *p, Step *step)
{
    const TrainJob *job = p->job;
    double clip = job->clip_norm > 0 && step->grad_norm > job->clip_norm ? job->clip_norm / step->grad_norm : 1;
    double warm = (1.0 + (double)p->run.updates) / (10.0 + (double)p->run.updates); /* TensorFlow's num_updates */
    UpdateInfo info = {
        .lr = step->lr,
        .grad_scale = clip / gradients_enlarged(job),
        .ema_decay = job->ema_decay < warm ? job->ema_decay : warm,
        .bn_decay = job->bn_decay,
        .step = p->run.updates + 1,
        .commit = step->commit,
    };
    if (step->commit) {
        TRY(replica_update(p->replica, &info, step->fed));
        p->run.updates++;
        p->run.skipped_in_row = 0;
    } else {
        p->run.skipped++;
        p->run.skipped_in_row++;
    }
    for (int slot = 0; step->commit && slot < p->local; slot++)
        TRY(poison_state(p->replica, slot, p->first + slot, step->number));
    for (int slot = 0; slot < p->local; slot++)
        if (fault_once(FAULT_BITFLIP, p->first + slot, step->number))
            ((uint32_t *)p->replica->arena[ARENA_PARAM])[0] ^= 1u << 20;
    return OK;
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
    const LedgerRow *row = ledger_row(p->ledger, step->culprit, step->number);
    return FAIL(
        ERR_NUMERIC,
        "tower %d, step %lld: %s not finite (loss %g, gradient norm %g); nothing was committed, the weights are "
        "those after step %lld; try a lower --lr, or --nan-policy skip%s",
        step->culprit, (long long)step->number,
        row->loss_finite   ? "the gradient is"
        : row->grad_finite ? "the loss is"
                           : "loss and gradient are",
        loss, row->grad_norm, (long long)step->number - 1, p->ledger->search.report);
}

static Status skip(TowerProcess *p, const Step *step)
{
    const char *report = p->ledger->search.report;
    if (p->run.skipped_in_row > p->job->nan_limit)
        return FAIL(ERR_NUMERIC, "step %lld: %lld steps in a row were not finite (tower %d is the first at fault)%s",
                    (long long)step->number, (long long)p->run.skipped_in_row, step->culprit, report);
    if (p->rank != 0) return OK;
    ledger_note(p->ledger, "step %lld is not finite and is left out (%lld so far)%s", (long long)step->number,
                (long long)p->run.skipped, report);
    return process_log(p, "step %lld is left out%s", (long long)step->number, report);
}

/* Every rank comes here with the same step. OK: the run goes on. */
static Status refuse(TowerProcess *p, Step *step)
{
    bool moved = p->job->nan_check == NAN_CHECK_LAST;
    TRY(forensics_search(p, &(Refusal){step->number, step->culprit, step->scale, moved}));
    if (step->culprit >= 0) step->culprit = p->ledger->search.found.tower; /* another, if towers normalize together */
    if (moved || p->job->nan_policy == NAN_POLICY_STOP) return refusal(p, step);
    if (p->job->nan_policy == NAN_POLICY_SKIP) return skip(p, step);
    p->go_back = true;
    return OK;
}

/* ---- what is remembered */

static void epoch_add(TowerProcess *p, const Step *step)
{
    double sum = 0;
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step->number);
        sum += row->loss.sum;
        p->run.epoch_count += row->loss.count;
        p->run.epoch_hits += row->hits[0];
    }
    p->run.epoch_sum += sum;
    p->run.epoch_constant_sum += sum / (double)full_step(p->job);
}

static void run_show(TowerProcess *p, const Step *step, double seconds)
{
    const TrainJob *job = p->job;
    LedgerRun *run = &p->ledger->run;
    double loss = reported_loss(step->loss, p->ledger->towers, job->report, job->divisor, full_step(job));
    LedgerShown shown = {p->run.step, step->samples, loss + (job->report_l2 ? step->l2 : 0), step->lr, seconds};
    run->shown[p->run.step % LEDGER_STEPS] = shown;
    atomic_store(&run->skipped, p->run.skipped);
    atomic_store(&run->step, p->run.step);
}

/* The original trainer's averages of losses: decay 0.9 from zero, corrected for the start. A loss that is not finite
 * would stay in them for ever and is left out. */
static void averages_move(RunState *run, double base, double total, StepRecord *rec)
{
    if (isfinite(base) && isfinite(total)) {
        run->base_average = LOSS_DECAY * run->base_average + (1 - LOSS_DECAY) * base;
        run->total_average = LOSS_DECAY * run->total_average + (1 - LOSS_DECAY) * total;
        run->averaged++;
    }
    double weight = 1 - pow(LOSS_DECAY, (double)run->averaged);
    rec->averages = run->averaged > 0;
    rec->base_average = rec->averages ? run->base_average / weight : 0;
    rec->total_average = rec->averages ? run->total_average / weight : 0;
}

/* The mean loss of each head over all towers, divided like the loss; returns how many heads there are, 0 for one. */
static int heads_mean(const TowerProcess *p, const Step *step, double mean[MODEL_HEADS])
{
    TowerLoss head[TOWERS_MAX];
    int count = p->replica->train[0].head_count;
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < p->ledger->towers; t++) {
            const LedgerRow *row = ledger_row(p->ledger, t, step->number);
            head[t] = (TowerLoss){row->head[i], row->loss.count, row->loss.finite};
        }
        mean[i] = mean_loss(head, p->ledger->towers, p->job->divisor, full_step(p->job));
    }
    return count;
}

static Status record(TowerProcess *p, const Step *step)
{
    double seconds = (double)(clock_ns() - step->started_ns) * 1e-9, norm[TOWERS_MAX], head[MODEL_HEADS];
    int64_t arrival[TOWERS_MAX], hits = 0;
    PhaseRecord phases;
    TRY(phases_watch(p, step->number));
    phases_read(p, step->number, &phases);
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step->number);
        norm[t] = row->grad_norm;
        arrival[t] = (row->arrival_ns - step->started_ns) / 1000;
        hits += row->hits[0];
    }
    double mean = mean_loss(step->loss, p->ledger->towers, p->job->divisor, full_step(p->job));
    StepRecord rec = {
        .step = step->number,
        .epoch = (step->number - 1) / p->steps_per_epoch,
        .lr = step->lr,
        .images = step->samples,
        .images_per_sec = (double)step->samples / seconds,
        .tower = step->loss,
        .towers = p->ledger->towers,
        .mean_loss = mean,
        .base_loss = mean,
        .total_loss = mean + step->l2,
        .head_loss = head,
        .heads = heads_mean(p, step, head),
        .l2_loss = step->l2,
        .grad_norm = step->grad_norm,
        .tower_grad_norm = norm,
        .arrival_us = arrival,
        .data_us = phases.us[0],
        .copy_us = phases.us[1],
        .forward_us = phases.us[2],
        .backward_us = phases.us[3],
        .slow_tower = phases.slow_tower,
        .slow_phase = phases.slow_phase,
        .top1 = step->samples ? (double)hits / (double)step->samples : 0,
        .skipped = !step->commit,
    };
    averages_move(&p->run, rec.base_loss, rec.total_loss, &rec);
    if (p->run.step == step->number) run_show(p, step, seconds); /* not one that ends the run */
    TRY(metrics_step(p->metrics, &rec));
    if (step->commit) TRY(summary_step(p, step->number));
    const char *warning = metrics_warning(p->metrics);
    if (warning) ledger_note(p->ledger, "%s", warning);
    return OK;
}

/* The batches of this step: as many as are left of the epoch, at most job->accumulate. */
static void samples_count(const TowerProcess *p, Step *step)
{
    const TrainJob *job = p->job;
    int64_t batches = job_batches_per_epoch(job), first = job_first_batch(job, p->run.step) % batches,
            global = shares_global(&job->shares), left = dataset_info(job->train)->count - first * global;
    step->batches = (int)(batches - first < job->accumulate ? batches - first : job->accumulate);
    step->samples = step->batches * global < left ? step->batches * global : left;
}

/* A step that ends the run is recorded too, so that its towers' losses can be looked at; the message outlives that. */
static Status record_refused(TowerProcess *p, const Step *step, Status cause)
{
    StatusText words;
    status_keep(&words);
    TRY(record(p, step));
    return status_restore(cause, &words);
}

Status step_run(TowerProcess *p)
{
    const TrainJob *job = p->job;
    Step step = {.number = p->run.step + 1, .started_ns = clock_ns(), .culprit = -1};
    samples_count(p, &step);
    step.scale = (float)(loss_scale(step.samples, job->divisor, full_step(job)) * gradients_enlarged(job));
    step.lr = schedule_lr(&job->schedule, p->run.step, p->steps_per_epoch, p->total_steps);

    TRY(towers_run(p, &step));
    TRY(sum_over_towers(p, &step));
    TRY(verdict(p, &step));
    if (p->metrics && job->weight_decay > 0) TRY(replica_l2(p->replica, &step.l2));
    for (int slot = 0; slot < p->local; slot++) ledger_phase(p->ledger, p->first + slot, step.number, PHASE_UPDATE);
    TRY(update(p, &step));
    Status refused = (step.culprit < 0 && step.commit) || step.left_out ? OK : refuse(p, &step);
    if (refused == OK && !p->go_back) p->run.step++;
    if (step.commit) epoch_add(p, &step);
    for (int slot = 0; slot < p->local; slot++) ledger_phase(p->ledger, p->first + slot, step.number, PHASE_RECORD);
    if (!p->metrics) return refused;
    return refused == OK ? record(p, &step) : record_refused(p, &step, refused);
}
