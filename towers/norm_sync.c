/* Batch normalization over the batches of all towers: what the kernels call in the middle of a layer.
 *
 * Forward, each layer sums {pixels, pixels * mean} and then the squares around the joint mean; backward, {pixels, the
 * two sums of the gradient}. They are small and in the layers' order, the same on every rank, through the same
 * communicator as the gradients, in a range behind theirs. A tower without samples joins with zeros. */
#include "towers/process.h"

#include <stdlib.h>
#include <string.h>

static bool is_wanted(const TrainJob *job)
{
    return job->bn_stats == BN_STATS_SYNC && job->shares.towers > 1;
}

size_t norm_sync_floats(const TrainJob *job, const Layout *layout)
{
    size_t most = 0;
    for (int i = 0; i < layout->state_count; i++)
        if (layout->states[i].count > most) most = layout->states[i].count;
    return is_wanted(job) ? 1 + 2 * most : 0;
}

static Status towers_sum(void *context, float *values, int count)
{
    TowerProcess *p = context;
    size_t first = comm_config(p->comm)->max_count - norm_sync_floats(p->job, p->replica->layout);
    TRY(comm_give(p->comm, p->first, first, values, (size_t)count));
    return comm_sum(p->comm, first, values, (size_t)count);
}

/* The sums of a training step, in order, from the op list. */
static void sums_list(const Graph *g, TowerProcess *p)
{
    for (int i = 0; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        int channels = graph_value(g, op->in[0])->shape.c;
        if (op->kind == OP_BATCHNORM) {
            p->norm_sums[p->norm_sum_count++] = 1 + channels;
            p->norm_sums[p->norm_sum_count++] = channels;
        } else if (op->kind == OP_BATCHNORM_DX) {
            p->norm_sums[p->norm_sum_count++] = 1 + 2 * channels;
        }
    }
}

Status norm_sync_open(TowerProcess *p)
{
    Program program;
    ProgramConfig config = p->job->program;
    if (!is_wanted(p->job)) return OK;
    config.training = true;
    TRY(program_graph(&config, 1, &program));
    p->norm_sums = calloc(2 * (size_t)graph_op_count(program.graph) + 1, sizeof *p->norm_sums);
    if (p->norm_sums) sums_list(program.graph, p);
    program_destroy(&program);
    if (!p->norm_sums) return FAIL(ERR_MEMORY, "sums of the normalizing layers");
    p->replica->device.towers_sum = towers_sum;
    p->replica->device.towers_context = p;
    return replica_statistics_over(p->replica, 0, shares_global(&p->job->shares));
}

void norm_sync_close(TowerProcess *p)
{
    free(p->norm_sums);
    p->norm_sums = NULL;
}

/* The gradients' arena is not used by a tower that has none: it is filled with zeros afterwards. */
Status norm_sync_idle(TowerProcess *p)
{
    for (int i = 0; i < p->norm_sum_count; i++) {
        memset(p->scratch, 0, (size_t)p->norm_sums[i] * sizeof *p->scratch);
        TRY(towers_sum(p, p->scratch, p->norm_sums[i]));
    }
    return OK;
}
