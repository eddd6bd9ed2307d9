/* Values derived from a job: numbers of batches and steps, and the towers of a process. */
#include "towers/replica/job.h"
#include "kernels/base/timeouts.h"

enum {
    CONFUSION_CLASSES = 1000,
    SCALE_GROWS_AFTER = 2000, /* good steps before the loss scale grows */
    SCALE_MAX = 1 << 24
};

int64_t job_batches_per_epoch(const TrainJob *job)
{
    return steps_per_epoch_of(&job->local_batches, source_info(job->train)->count);
}

/* ---- cycles of phases */

int job_repeats(const TrainJob *job, int phase)
{
    return job->repeats[phase] > 0 ? job->repeats[phase] : job_phase(job, phase)->repeats;
}

int job_cycle(const TrainJob *job)
{
    int steps = 0;
    for (int p = 0; p < program_phases(job->program.model); p++) steps += job_repeats(job, p);
    return steps;
}

int job_phase_of(const TrainJob *job, int64_t step)
{
    int phase = 0, place = (int)(step % job_cycle(job));
    while (place >= job_repeats(job, phase)) place -= job_repeats(job, phase++);
    return phase;
}

/* Batches that the first `steps` steps of a cycle take. */
static int cycle_batches(const TrainJob *job, int steps)
{
    int batches = 0;
    for (int p = 0; p < program_phases(job->program.model) && steps > 0; p++) {
        int repeats = job_repeats(job, p), taken = steps < repeats ? steps : repeats;
        if (job_phase(job, p)->takes_batch) batches += job->same_batch ? 1 : taken;
        steps -= taken;
    }
    return batches;
}

int64_t job_steps_per_epoch(const TrainJob *job)
{
    int64_t batches = job_batches_per_epoch(job);
    if (!job->program.model->phases) return (batches + job->accumulate - 1) / job->accumulate;
    int per_cycle = cycle_batches(job, job_cycle(job));
    return (batches + per_cycle - 1) / per_cycle * job_cycle(job);
}

int64_t job_batches_before(const TrainJob *job, int64_t step)
{
    int64_t steps = job_steps_per_epoch(job), cycle = job_cycle(job);
    if (!job->program.model->phases) return step / steps * job_batches_per_epoch(job) + step % steps * job->accumulate;
    return step / cycle * cycle_batches(job, (int)cycle) + cycle_batches(job, (int)(step % cycle));
}

int64_t job_first_batch(const TrainJob *job, int64_t step)
{
    int64_t before = job_batches_before(job, step);
    bool same = job->same_batch && step > 0 && job_step_batches(job, step) && step % job_cycle(job) &&
                job_phase_of(job, step) == job_phase_of(job, step - 1);
    return same ? before - 1 : before;
}

int job_step_batches(const TrainJob *job, int64_t step)
{
    if (job->program.model->phases) return job_phase(job, job_phase_of(job, step))->takes_batch;
    int64_t batches = job_batches_per_epoch(job), left = batches - job_first_batch(job, step) % batches;
    return (int)(left < job->accumulate ? left : job->accumulate);
}

int64_t job_step_samples(const TrainJob *job, int64_t step)
{
    int64_t global = global_batch_of(&job->local_batches), count = job_step_batches(job, step);
    if (!count) return global;
    int64_t first = job_first_batch(job, step) % job_batches_per_epoch(job),
            left = source_info(job->train)->count - first * global;
    return count * global < left ? count * global : left;
}

int64_t job_batch_samples(const TrainJob *job, int64_t batch)
{
    int64_t global = global_batch_of(&job->local_batches);
    int64_t left = source_info(job->train)->count - batch % job_batches_per_epoch(job) * global;
    return global < left ? global : left;
}

Batch job_batch_without_images(const TrainJob *job, int64_t step, int tower)
{
    Batch batch = {.step = job_first_batch(job, step), .tower = tower, .n = job->local_batches.batch[tower]};
    for (int t = 0; t < tower; t++) batch.first += job->local_batches.batch[t];
    return batch;
}

RandomKey job_random_key(const TrainJob *job, int64_t step, const Batch *batch)
{
    int64_t before = batch->step - job_first_batch(job, step - 1);
    return (RandomKey){job->seed, step - 1, before * global_batch_of(&job->local_batches) + batch->first};
}

/* ---- stages */

static int32_t stage_side(const TrainJob *job, int64_t epoch)
{
    int32_t side = 0;
    for (int i = 0; i < job->side_count; i++)
        if (epoch >= job->sides[i].epoch) side = job->sides[i].side;
    return side;
}

/* The patterns of the parameters that are frozen at first, and in this epoch. */
static const char *freeze_first(const TrainJob *job)
{
    return job->unfrozen ? job->unfrozen : job->program.freeze;
}

static const char *freeze_in(const TrainJob *job, int64_t epoch)
{
    return job->unfreeze_epoch > 0 && epoch + 1 >= job->unfreeze_epoch ? NULL : freeze_first(job);
}

void job_stage(TrainJob *job, int64_t step)
{
    int64_t epoch = step / job_steps_per_epoch(job);
    const char *first = freeze_first(job), *now = freeze_in(job, epoch);
    job->program.train_side = stage_side(job, epoch);
    job->program.freeze = now;
    job->unfrozen = now ? NULL : first;
}

bool job_stage_is(const TrainJob *job, int64_t step)
{
    int64_t epoch = step / job_steps_per_epoch(job);
    return stage_side(job, epoch) == job->program.train_side && freeze_in(job, epoch) == job->program.freeze;
}

int64_t job_unfreeze_step(const TrainJob *job)
{
    return (job->unfreeze_epoch - 1) * job_steps_per_epoch(job);
}

bool job_stage_ends(const TrainJob *job, int64_t step)
{
    return step < job_total_steps(job) && !job_stage_is(job, step);
}

/* ---- numbers of steps */

int64_t job_total_steps(const TrainJob *job)
{
    int64_t steps = job->epochs * job_steps_per_epoch(job);
    return job->max_steps >= 0 && job->max_steps < steps ? job->max_steps : steps;
}

Placement job_placement(const TrainJob *job, int rank)
{
    int64_t towers = job->local_batches.towers, nodes = job_nodes(job), each = job_node_processes(job);
    int64_t node = rank / each, number = rank % each, before = node * towers / nodes,
            count = (node + 1) * towers / nodes - before;
    int64_t first = before + number * count / each, end = before + (number + 1) * count / each;
    Placement place = {.rank = rank,
                       .ranks = job->processes,
                       .local_rank = (int)(job->node_on_host * each + number),
                       .node = (int)node,
                       .nodes = (int)nodes,
                       .first_tower = (int)first,
                       .local_towers = (int)(end - first),
                       .origin = job->launcher};
    if (job->host && node == job->node) snprintf(place.host, sizeof place.host, "%s", job->host);
    return place;
}

int job_tower_rank(const TrainJob *job, int tower)
{
    int rank = 0;
    for (int r = 0; r < job->processes; r++)
        if (job_placement(job, r).first_tower <= tower) rank = r;
    return rank;
}

DeviceConfig job_device(const TrainJob *job, int local_rank)
{
    DeviceConfig device = job->device;
    if (job->backend->on_host) /* one device for all processes */
        device.ordinal = 0;
    else
        device.ordinal = job->gpu_count ? job->gpu[local_rank % job->gpu_count] : local_rank;
    return device;
}

CommConfig job_comm(const TrainJob *job, Placement place)
{
    CommConfig comm = job->comm;
    comm.place = place;
    comm.towers = job->local_batches.towers;
    comm.grace_ms = SUPERVISOR_FIRST_MS;
    comm.staged = job->test ? (size_t)job_eval_floats(job) : 0;
    return comm;
}

GateRules job_gate(const TrainJob *job)
{
    GateRules rules = job->gate;
    rules.skip = job->nan_policy == NAN_POLICY_SKIP;
    rules.dynamic = job->program.compute == DTYPE_F16 && job->loss_scale <= 0; /* else it is fixed */
    rules.grow_after = SCALE_GROWS_AFTER;
    rules.scale_max = SCALE_MAX;
    return rules;
}

TargetRule job_targets(const TrainJob *job, bool training)
{
    const ProgramConfig *program = &job->program;
    return (TargetRule){.classes = program->options.classes,
                        .smoothing = program->smoothing,
                        .multi_label = program->multi_label,
                        .weight = training ? job->data.class_weight : NULL};
}

LoaderConfig job_loader(const TrainJob *job, bool training)
{
    const ProgramConfig *program = &job->program;
    bool targets = program->targets && (training || program->loss == LOSS_BCE);
    return (LoaderConfig){
        .source = training ? job->train : job->test,
        .seed = job->seed,
        .shuffle = training,
        .window = training ? job->data.window : 0,
        .sampler = training ? job->data.sampler : SAMPLER_ONCE,
        .mix = training ? job->data.mix : (MixRule){0},
        .targets = targets ? job_targets(job, training) : (TargetRule){0},
        .transform = job_transform(job, training),
        .bad = job->data.bad,
        .workers = job->data.workers,
        .memory = job->data.memory / job_node_processes(job),
    };
}

int64_t job_eval_blocks(const TrainJob *job)
{
    return (source_info(job->test)->count + job->eval_batch - 1) / job->eval_batch;
}

int64_t job_eval_confusion(const TrainJob *job)
{
    int64_t classes = job->program.options.classes;
    return classes <= CONFUSION_CLASSES && !job->program.multi_label ? classes * classes : 0;
}

int64_t job_eval_floats(const TrainJob *job)
{
    return job_eval_blocks(job) * BLOCK_FIELDS + job_eval_confusion(job) + EVAL_STOP_FIELDS;
}

Transform job_transform(const TrainJob *job, bool training)
{
    Transform transform = training ? job->data.train : job->data.eval;
    ProgramConfig program = training ? program_training(&job->program) : job->program;
    transform.side = program.options.side;
    transform.pad = (program.canvas - transform.side) / 2;
    transform.resize = (int32_t)((int64_t)transform.resize * transform.side / job->program.options.side);
    return transform;
}
