/* Records of a step: the ledger's rows, the sums of the epoch, a row of metrics; see step.h. */
#include "towers/train/step.h"

#include "kernels/text.h"
#include "towers/train/activities.h"
#include "towers/train/summary.h"

#include <math.h>
#include <string.h>

static const double LOSS_DECAY = 0.9; /* of the averaged losses */

void step_to_ledger(TowerProcess *p, const Step *step)
{
    for (int t = 0; t < p->ledger->towers; t++) {
        LedgerRow *row = ledger_row(p->ledger, t, step->number);
        const TowerResult *found = &step->found[t];
        row->loss = found->loss;
        row->phase = step->phase;
        memcpy(row->term, found->term, sizeof row->term);
        row->loss_finite = found->loss_finite;
        row->grad_finite = found->grad_finite;
        row->grad_norm = found->grad_norm;
        for (int k = 0; k < 2; k++) row->correct[k] = found->correct[k];
        row->step = step->number;
    }
}

void step_to_epoch(TowerProcess *p, const Step *step)
{
    double sum = 0;
    if (step->phase > 0) return;
    for (int t = 0; t < p->ledger->towers; t++) {
        const TowerResult *found = &step->found[t];
        sum += found->loss.sum;
        p->run.epoch_count += found->loss.count;
        p->run.epoch_weight += tower_loss_weight(&found->loss);
        p->run.epoch_correct += found->correct[0];
    }
    p->run.epoch_sum += sum;
    p->run.epoch_constant_sum += sum / (double)full_step(p->job);
}

/* The original trainer's moving averages of losses: decay 0.9 from zero, with bias correction. A loss that is not
 * finite would never leave them and is ignored. */
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

static const Program *program_of_phase(const TowerProcess *p, int phase)
{
    for (int i = 0; i < p->replica->train_count; i++)
        if (p->replica->train[i].phase == phase) return &p->replica->train[i];
    return NULL;
}

/* Arrays that a record points to, with a value per tower or term. */
typedef struct StepColumns {
    double norm[TOWERS_MAX], head[MODEL_HEADS];
    int64_t arrival[TOWERS_MAX], correct; /* arrival: microseconds after the step's start; correct: of all towers */
    int heads, terms;
    TermRecord term[PHASE_TERMS];
    double tower_term[PHASE_TERMS][TOWERS_MAX];
    ActivityRecord activities;
} StepColumns;

/* The standard deviation of values with this mean and this mean of squares. */
static double spread_of(double mean, double square)
{
    double variance = square - mean * mean;
    return isfinite(variance) && variance < 0 ? 0 : sqrt(variance);
}

/* Each term as a mean over the samples of each tower, and over those of all towers, divided like the loss. */
static void terms_fill(const TowerProcess *p, const Step *step, StepColumns *columns)
{
    const Program *program = program_of_phase(p, step->phase);
    int towers = p->ledger->towers, count = program ? program->term_count : 0;
    bool heads = program && program->correct.id;
    for (int i = 0; i < count; i++) {
        TowerLoss sum[TOWERS_MAX];
        double *of = columns->tower_term[i];
        for (int t = 0; t < towers; t++) {
            const TowerResult *found = &step->found[t];
            sum[t] = (TowerLoss){found->term[i], found->loss.count, found->loss.finite, found->loss.weight};
            of[t] = tower_loss_mean(&sum[t]);
        }
        TermRecord *term = &columns->term[i];
        *term = (TermRecord){program->term[i].name, mean_loss(sum, towers, p->job->divisor, full_step(p->job)), of};
        if (heads) columns->head[i] = term->mean;
        if (!program->term[i].spread) continue;
        for (int t = 0; t < towers; t++) of[t] = spread_of(columns->tower_term[i - 1][t], of[t]);
        term->mean = spread_of(term[-1].mean, term->mean);
    }
    columns->heads = heads ? count : 0;
    columns->terms = heads ? 0 : count;
}

static void columns_fill(const TowerProcess *p, const Step *step, StepColumns *columns)
{
    columns->correct = 0;
    terms_fill(p, step, columns);
    activities_read(p, step->number, &columns->activities);
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step->number);
        columns->norm[t] = step->found[t].grad_norm;
        columns->arrival[t] = (row->arrival_ns - step->started_ns) / 1000;
        columns->correct += step->found[t].correct[0];
    }
}

static StepRecord record_of(const TowerProcess *p, const Step *step, const StepColumns *columns)
{
    double mean = mean_loss(step->loss, p->ledger->towers, p->job->divisor, full_step(p->job));
    int last = p->place.first_tower + p->place.local_towers - 1; /* of this process */
    bool timed = job_groups(p->job) == 1; /* the ledger has the times of this program's towers only */
    return (StepRecord){
        .step = step->number,
        .epoch = (step->number - 1) / p->steps_per_epoch,
        .lr = step->lr,
        .images = step->samples - step->skipped,
        .images_per_sec = (double)step->samples / step->seconds,
        .tower = step->loss,
        .towers = p->ledger->towers,
        .mean_loss = mean,
        .base_loss = mean,
        .total_loss = mean + step->l2,
        .phase = p->replica->phases > 1 ? job_phase(p->job, step->phase)->name : NULL,
        .term = columns->term,
        .terms = columns->terms,
        .head_loss = columns->head,
        .heads = columns->heads,
        .l2_loss = step->l2,
        .grad_norm = step->grad_norm,
        .tower_grad_norm = columns->norm,
        .arrival_us = timed ? columns->arrival : NULL,
        .data_us = timed ? columns->activities.us[0] : NULL,
        .copy_us = timed ? columns->activities.us[1] : NULL,
        .forward_us = timed ? columns->activities.us[2] : NULL,
        .backward_us = timed ? columns->activities.us[3] : NULL,
        .sums = step->sums.sums,
        .sum_begin_us = (step->sums.begun_ns - step->started_ns) / 1000,
        .backward_end_us = columns->arrival[last],
        .sum_end_us = (step->sums.ended_ns - step->started_ns) / 1000,
        .sum_busy_us = step->sums.busy_ns / 1000,
        .slow_tower = columns->activities.slow_tower,
        .slow_activity = columns->activities.slow_activity,
        .top1 = p->job->program.model->phases   ? NAN
                : step->samples > step->skipped ? (double)columns->correct / (double)(step->samples - step->skipped)
                                                : 0,
        .skipped = !step->commit,
        .loss_scale = loss_is_scaled(p->job) ? (double)step->loss_scale : 0,
        .overflow = step->overflow,
        .restarts = p->job->restarts,
    };
}

static void run_show(TowerProcess *p, const Step *step, const StepColumns *columns)
{
    const TrainJob *job = p->job;
    LedgerRun *run = &p->ledger->run;
    double loss = reported_loss(step->loss, p->ledger->towers, job->report, job->divisor, full_step(job));
    LedgerShown shown = {p->done, step->samples, loss + (job->report_l2 ? step->l2 : 0), step->lr, step->seconds, ""};
    const Program *program = program_of_phase(p, step->phase);
    int tower =
        reported_tower(step->loss, p->ledger->towers, job->report); /* terms are those of the loss beside them */
    Text terms = text_start(shown.terms, sizeof shown.terms);
    for (int i = 0; i < columns->terms; i++) {
        const TermRecord *term = &columns->term[i];
        if (program->term[i].shown)
            text_add(&terms, "  %s %.4g", term->name, tower < 0 ? term->mean : term->tower[tower]);
    }
    run->shown[p->done % LEDGER_STEPS] = shown;
    atomic_store(&run->skipped, p->run.skipped);
    atomic_store(&run->overflows, p->run.overflows);
    atomic_store(&run->bad_samples, p->run.bad_samples);
    atomic_store(&run->step, p->done);
}

Status step_record(TowerProcess *p, const Step *step)
{
    StepColumns columns;
    TRY(activities_watch(p, step->number));
    columns_fill(p, step, &columns);
    StepRecord record = record_of(p, step, &columns);
    if (p->replica->phases == 1) averages_move(&p->run, record.base_loss, record.total_loss, &record);
    if (p->done == step->number) run_show(p, step, &columns); /* except a step that ends the run */
    TRY(metrics_step(p->metrics, &record));
    if (step->commit) TRY(summary_step(p, step->number));
    const char *warning = metrics_warning(p->metrics);
    if (warning) ledger_note(p->ledger, "%s", warning);
    return OK;
}
