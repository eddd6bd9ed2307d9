/* Records of a step: the ledger's rows, the sums of the epoch, a row of metrics; see step.h. */
#include "towers/train/step.h"

#include "kernels/base/clock.h"
#include "towers/record/prometheus.h"
#include "towers/train/activities.h"
#include "towers/train/summary.h"

static const double LOSS_DECAY = 0.9; /* of the averaged losses */
static const double WRITE_SECONDS = 0.25;

void step_to_ledger(TowerProcess *p, const Step *step)
{
    for (int t = 0; t < p->ledger->towers; t++) {
        LedgerRow *row = ledger_row(p->ledger, t, step->number);
        row->loss = p->queue->tower[t];
        row->phase = step->phase;
        row->step = step->number;
    }
}

static const Program *program_of_phase(const TowerProcess *p, int phase)
{
    for (int i = 0; i < p->replica->train_count; i++)
        if (p->replica->train[i].phase == phase) return &p->replica->train[i];
    return NULL;
}

int epoch_term_number(const TowerProcess *p, int term)
{
    const Program *program = program_of_phase(p, 0);
    for (int i = 0; program && i < program->term_count; i++)
        if (!strcmp(program->term[i].name, epoch_term[term])) return i;
    return -1;
}

void step_to_epoch(TowerProcess *p, const Step *step)
{
    double sum = 0;
    if (step->phase > 0) return;
    for (int t = 0; t < p->ledger->towers; t++) {
        const TowerLoss *tower = &p->queue->tower[t];
        sum += tower->sum;
        p->run.epoch_count += tower->count;
        p->run.epoch_weight += tower_loss_weight(tower);
        p->run.epoch_correct += tower->correct[0];
    }
    for (int i = 0; i < EPOCH_TERMS; i++) {
        int term = epoch_term_number(p, i);
        for (int t = 0; term >= 0 && t < p->ledger->towers; t++) p->run.epoch_term[i] += p->queue->tower[t].term[term];
    }
    p->run.epoch_steps++;
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

/* A row of metrics: what is known of the whole step. row_write completes it with what is known of each tower. */
struct StepRow {
    StepRecord record; /* points to the arrays below */
    int phase;
    int64_t started_ns;
    double head[MODEL_HEADS];
    TermRecord term[PHASE_TERMS];
};

static Status rows_create(TowerProcess *p)
{
    StepQueue *queue = p->queue;
    size_t towers = (size_t)p->ledger->towers;
    if (queue->row) return OK;
    queue->row = calloc(STEPS_UNWRITTEN, sizeof *queue->row);
    queue->times = calloc(towers, (1 + STRAGGLER_ACTIVITIES) * sizeof *queue->times);
    queue->term = calloc(towers, PHASE_TERMS * sizeof *queue->term);
    bool made = queue->row && queue->times && queue->term;
    return made ? OK : FAIL(ERR_MEMORY, "no memory for the records of %d steps", STEPS_UNWRITTEN);
}

void step_rows_free(StepQueue *queue)
{
    free(queue->row);
    free(queue->times);
    free(queue->term);
    free(queue->telemetry);
}

/* The standard deviation of values with this mean and this mean of squares. */
static double spread_of(double mean, double square)
{
    double variance = square - mean * mean;
    return isfinite(variance) && variance < 0 ? 0 : sqrt(variance);
}

/* A term as a mean over the samples of a tower. */
static Number tower_term(const Program *program, int i, const TowerLoss *tower)
{
    Number mean = tower_term_mean(tower, i);
    return program->term[i].spread ? spread_of(tower_term_mean(tower, i - 1), mean) : mean;
}

/* Each term as a mean over the samples of all towers, divided like the loss. */
static void terms_fill(const TowerProcess *p, const Step *step, StepRow *row)
{
    const Program *program = program_of_phase(p, step->phase);
    int count = program ? program->term_count : 0;
    bool heads = program && program->correct.id;
    for (int i = 0; i < count; i++) {
        Number mean = mean_term(p->queue->tower, p->ledger->towers, i, p->job->divisor, full_step(p->job));
        if (program->term[i].spread) mean = spread_of(row->term[i - 1].mean, mean);
        row->term[i] = (TermRecord){program->term[i].name, mean, NULL};
        if (heads) row->head[i] = mean;
    }
    row->record.head_loss = row->head;
    row->record.heads = heads ? count : 0;
    row->record.term = row->term;
    row->record.terms = heads ? 0 : count;
}

static StepRecord record_of(const TowerProcess *p, const Step *step)
{
    const TowerLoss *towers = p->queue->tower;
    Number mean = mean_loss(towers, p->ledger->towers, p->job->divisor, full_step(p->job));
    int last = p->place.first_tower + p->place.local_towers - 1; /* of this process */
    int64_t correct = 0;
    double weight = 0;
    for (int t = 0; t < p->ledger->towers; t++) {
        correct += towers[t].correct[0];
        weight += towers[t].weight;
    }
    return (StepRecord){
        .step = step->number,
        .epoch = (step->number - 1) / p->steps_per_epoch,
        .lr = step->lr,
        .images = step->samples - step->skipped,
        .images_seen = p->run.images_seen,
        .weight = p->job->program.weighted ? weight : 0,
        .images_per_sec = (double)step->samples / step->seconds,
        .wall_seconds = step->wall,
        .towers = p->ledger->towers,
        .mean_loss = mean,
        .base_loss = mean,
        .total_loss = mean + step->l2,
        .phase = p->replica->phases > 1 ? job_phase(p->job, step->phase)->name : NULL,
        .l2_loss = step->l2,
        .grad_norm = step->grad_norm,
        .sums = step->sums.sums,
        .sum_begin_us = (step->sums.begun_ns - step->started_ns) / 1000,
        .backward_end_us = ledger_row(p->ledger, last, step->number)->until_sum_ns / 1000,
        .sum_end_us = (step->sums.ended_ns - step->started_ns) / 1000,
        .sum_busy_us = step->sums.busy_ns / 1000,
        .top1 = p->job->program.model->phases || step->samples == step->skipped
                    ? ABSENT
                    : (double)correct / (double)(step->samples - step->skipped),
        .skipped = !step->commit,
        .loss_scale = loss_is_scaled(p->job) ? (double)step->loss_scale : 0,
        .overflow = step->overflow,
        .restarts = p->job->restarts,
    };
}

static void run_show(TowerProcess *p, const Step *step, const StepRow *row)
{
    const TrainJob *job = p->job;
    LedgerRun *run = &p->ledger->run;
    Number loss = reported_loss(p->queue->tower, p->ledger->towers, job->report, job->divisor, full_step(job));
    LedgerShown shown = {p->done, step->samples, loss + (job->report_l2 ? step->l2 : 0), step->lr, step->seconds, ""};
    const Program *program = program_of_phase(p, step->phase);
    int tower = reported_tower(p->queue->tower, p->ledger->towers, job->report); /* of the loss beside the terms */
    char number[NUMBER_TEXT];
    Text terms = text_start(shown.terms, sizeof shown.terms);
    for (int i = 0; i < row->record.terms; i++) {
        const TermRecord *term = &row->term[i];
        if (program->term[i].shown)
            text_add(
                &terms, "  %s %s", term->name,
                number_text(tower < 0 ? term->mean : tower_term(program, i, &p->queue->tower[tower]), "%.4g", number));
    }
    run->shown[p->done % LEDGER_STEPS] = shown;
    atomic_store(&run->skipped, p->run.skipped);
    atomic_store(&run->overflows, p->run.overflows);
    atomic_store(&run->bad_samples, p->run.bad_samples);
    atomic_store(&run->step, p->done);
}

Status step_record(TowerProcess *p, const Step *step)
{
    StepQueue *queue = p->queue;
    TRY(rows_create(p));
    if (queue->rows == STEPS_UNWRITTEN) return FAIL(ERR_INTERNAL, "too many steps wait for their records");
    StepRow *row = &queue->row[queue->rows++];
    row->started_ns = step->started_ns;
    row->phase = step->phase;
    row->record = record_of(p, step);
    terms_fill(p, step, row);
    if (p->replica->phases == 1) averages_move(&p->run, row->record.base_loss, row->record.total_loss, &row->record);
    if (p->done == step->number) run_show(p, step, row); /* except a step that ends the run */
    return step->commit ? summary_step(p, step->number, step->unscale) : OK;
}

/* ---- the row */

/* What the ledger says of each tower. */
static void row_towers_fill(const TowerProcess *p, StepRow *row)
{
    StepQueue *queue = p->queue;
    const Program *program = program_of_phase(p, row->phase);
    int towers = p->ledger->towers;
    for (int t = 0; t < towers; t++) queue->tower[t] = ledger_row(p->ledger, t, row->record.step)->loss;
    row->record.tower = queue->tower;
    for (int i = 0; i < row->record.terms; i++) {
        Number *term = queue->term + (size_t)i * (size_t)towers;
        for (int t = 0; t < towers; t++) term[t] = tower_term(program, i, &queue->tower[t]);
        row->term[i].tower = term;
    }
}

static Status numbers_write(TowerProcess *p)
{
    const EpochRecord *tested = &p->ledger->run.tested;
    RunNumbers numbers = {p->total_steps, p->exported_time, tested->epoch > 0 ? tested : NULL};
    return prometheus_write(p->job->prometheus, p->job->run_dir, p->exported, &numbers);
}

void evaluation_export(TowerProcess *p)
{
    if (p->exported) metrics_outcome(p->metrics, numbers_write(p));
}

/* --prometheus: at most once a second, and the last step. */
static void numbers_export(TowerProcess *p, const StepRecord *record)
{
    int64_t now = clock_ns();
    bool last = record->step == p->total_steps;
    if (!p->job->prometheus || (now - p->exported_ns < 1000000000ll && !last)) return;
    p->exported_ns = now;
    char *text;
    Status st = prometheus_step(p->job->run_dir, record, &text);
    if (st == OK) {
        free(p->exported);
        p->exported = text;
        p->exported_time = clock_date();
    }
    metrics_outcome(p->metrics, st == OK ? numbers_write(p) : st);
}

/* timed: the ledger has the times of all towers. */
static Status row_write(TowerProcess *p, StepRow *row, bool timed)
{
    StepQueue *queue = p->queue;
    StepRecord *record = &row->record;
    ActivityRecord times = {.arrival_us = queue->times};
    for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) times.us[k] = queue->times + (1 + k) * p->ledger->towers;
    if (timed) TRY(activities_watch(p, record->step));
    activities_read(p, record->step, row->started_ns, &times);
    row_towers_fill(p, row);
    record->slow_tower = times.slow_tower;
    record->slow_activity = times.slow_activity;
    if (timed) {
        record->arrival_us = times.arrival_us;
        record->data_us = times.us[0];
        record->copy_us = times.us[1];
        record->forward_us = times.us[2];
        record->backward_us = times.us[3];
    }
    if (p->job->backend->telemetry && !queue->telemetry)
        queue->telemetry = calloc((size_t)p->ledger->towers, sizeof *queue->telemetry);
    record->telemetry_ns = queue->telemetry ? activities_telemetry(p, queue->telemetry) : 0;
    record->telemetry = record->telemetry_ns ? queue->telemetry : NULL;
    metrics_step(p->metrics, record);
    numbers_export(p, record);
    const char *warning = metrics_warning(p->metrics);
    if (warning) ledger_note(p->ledger, "%s", warning);
    return OK;
}

static Status rows_write(TowerProcess *p, bool timed)
{
    StepQueue *queue = p->queue;
    int rows = queue->rows;
    queue->rows = 0;
    for (int i = 0; i < rows; i++) TRY(row_write(p, &queue->row[i], timed));
    return OK;
}

bool steps_are_due(const TowerProcess *p, int64_t last)
{
    if (job_nodes(p->job) == 1) return true;
    return last - p->queue->written >= p->queue->write_after || summary_is_due(p, last);
}

Status step_rows_write(TowerProcess *p, int64_t last)
{
    StepQueue *queue = p->queue;
    if (job_nodes(p->job) > 1 && p->job->run_dir && last > queue->written) {
        double seconds = queue->rows ? queue->step[last % STEPS_IN_FLIGHT].seconds : 1;
        int after = seconds * STEPS_UNWRITTEN < WRITE_SECONDS ? STEPS_UNWRITTEN : (int)fmax(1, WRITE_SECONDS / seconds);
        TRY(activities_gather(p, queue->written + 1, last, &after));
        queue->write_after = after;
    }
    queue->written = last;
    return rows_write(p, true);
}

void step_rows_flush(TowerProcess *p)
{
    if (p->metrics && p->queue && p->queue->rows && rows_write(p, false) != OK)
        ledger_note(p->ledger, "the last steps were not recorded: %s", status_message());
}
