/* Batch normalization over the batches of all towers: the functions that kernels call in the middle of a layer.
 *
 * Forward, each layer sums {pixels, pixels * mean} and then the squares around the joint mean; backward, {pixels, the
 * two sums of the gradient}. These all-reduces are small and come in the order of the layers, the same on every rank,
 * through the communicator of the gradients, in a range after theirs. A tower without samples joins with zeros in the
 * same order; all sums of a batch precede the first bucket of gradients (step.c). The values are in device memory: on a
 * GPU only the compute stream waits for them. */
#include "towers/replica/norm_sync.h"

static bool is_wanted(const TrainJob *job)
{
    return job->bn_stats == BN_STATS_SYNC && job->local_batches.towers > 1;
}

bool norm_sync_sums(OpKind kind)
{
    return kind == OP_BATCHNORM || kind == OP_BATCHNORM_DX;
}

size_t norm_sync_floats(const TrainJob *job, const Layout *layout)
{
    size_t most = 0;
    for (int i = 0; i < layout->running_count; i++)
        if (layout->running[i].count > most) most = layout->running[i].count;
    return is_wanted(job) ? 1 + 2 * most : 0;
}

static Status statistics_allreduce(void *context, float *values, int count)
{
    TowerProcess *p = context;
    size_t first = comm_config(p->comm)->max_count - norm_sync_floats(p->job, p->replica->layout);
    TRY(comm_allreduce_begin(p->comm, p->place.first_tower, first, values, (size_t)count));
    return comm_allreduce_end(p->comm, first, values, (size_t)count);
}

static Status sums_find(TowerProcess *p, int phase)
{
    Program program;
    PhaseSums *sums = &p->sums[phase];
    ProgramConfig config = p->job->program;
    config.training = true;
    config.phase = phase;
    TRY(program_graph(&config, 1, &program));
    sums->norm = calloc(2 * (size_t)graph_op_count(program.graph) + 1, sizeof *sums->norm);
    if (sums->norm) {
        /* The sums of a training step in order, derived from the op list. */
        for (int i = 0; i < graph_op_count(program.graph); i++) {
            const Op *op = graph_op_at(program.graph, i);
            int channels = graph_value(program.graph, op->in[0])->shape.c;
            if (op->kind == OP_BATCHNORM) {
                sums->norm[sums->norm_count++] = 1 + channels;
                sums->norm[sums->norm_count++] = channels;
            } else if (op->kind == OP_BATCHNORM_DX) {
                sums->norm[sums->norm_count++] = 1 + 2 * channels;
            }
        }
    }
    program_destroy(&program);
    return sums->norm ? OK : FAIL(ERR_MEMORY, "no memory for the sums of the normalizing layers");
}

Status norm_sync_open(TowerProcess *p)
{
    Device *device = &p->replica->device;
    void *zeros;
    if (!is_wanted(p->job)) return OK;
    for (int phase = 0; phase < p->replica->phases; phase++) TRY(sums_find(p, phase));
    TRY(device->backend->alloc(device, norm_sync_floats(p->job, p->replica->layout) * sizeof(float), &zeros));
    p->norm_zeros = zeros;
    device->allreduce = statistics_allreduce;
    device->allreduce_context = p;
    return OK;
}

void norm_sync_close(TowerProcess *p)
{
    if (p->norm_zeros) p->replica->device.backend->release(&p->replica->device, p->norm_zeros);
    p->norm_zeros = NULL;
    for (int phase = 0; phase < PHASES_MAX; phase++) {
        free(p->sums[phase].norm);
        p->sums[phase].norm = NULL;
    }
}

Status norm_sync_idle(TowerProcess *p, int phase)
{
    Device *device = &p->replica->device;
    const PhaseSums *sums = &p->sums[phase];
    for (int i = 0; i < sums->norm_count; i++) {
        TRY(device->backend->fill(device, p->norm_zeros, 0, (size_t)sums->norm[i]));
        TRY(statistics_allreduce(p, p->norm_zeros, sums->norm[i]));
    }
    return OK;
}

size_t job_comm_room(const TrainJob *job, const Layout *layout)
{
    CommConfig sum = job_comm(job, (Placement){.ranks = job->processes, .local_towers = 1});
    replica_sum_sized(layout, &sum);
    return sum.max_count + norm_sync_floats(job, layout);
}
