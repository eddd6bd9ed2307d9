/* Evaluation: the test set in fixed blocks, dealt to the processes in turn, so every sample is seen exactly once, in
 * batches whose size does not depend on the number of towers. Hits are whole numbers: the accuracy is exact. */
#include "towers/process.h"

#include <stdlib.h>

/* What is known of one block. Each is exact in f32: the loss comes as one, a block has less than 2^24 samples. */
typedef enum BlockLane { BLOCK_LOSS = 0, BLOCK_COUNT, BLOCK_TOP1, BLOCK_TOP5, BLOCK_LANES } BlockLane;

static int64_t block_count(const TrainJob *job)
{
    return (dataset_info(job->test)->count + job->eval_batch - 1) / job->eval_batch;
}

int64_t evaluate_floats(const TrainJob *job)
{
    return block_count(job) * BLOCK_LANES;
}

static Status block_run(TowerProcess *p, const Batch *batch, float *lanes)
{
    double loss;
    int64_t hits[2];
    Program *program = replica_program(p->replica, false, batch->n);
    if (!program) return FAIL(ERR_INTERNAL, "no evaluation program for a batch of %d", batch->n);
    TRY(replica_feed(p->replica, program, batch, 0, p->job->seed, 0));
    TRY(plan_run(program->plan, 0, plan_op_count(program->plan)));
    TRY(replica_read_loss(p->replica, program, &loss, hits));
    lanes[BLOCK_LOSS] = (float)loss;
    lanes[BLOCK_COUNT] = (float)batch->n;
    lanes[BLOCK_TOP1] = (float)hits[0];
    lanes[BLOCK_TOP5] = (float)hits[1];
    return OK;
}

/* One "tower" whose batch is a block; this process takes blocks rank, rank + ranks, ... */
static LoaderConfig eval_loader(const TowerProcess *p)
{
    const TrainJob *job = p->job;
    LoaderConfig config = {
        .dataset = job->test,
        .shares = {.towers = 1, .batch = {job->eval_batch}},
        .local = 1,
        .seed = job->seed,
        .side = job->program.options.side,
        .pad = (job->program.canvas - job->program.options.side) / 2,
        .start_step = p->rank,
        .stride = comm_config(p->comm)->ranks,
        .workers = job->workers ? 1 : 0,
        .depth = 3,
    };
    config.max_steps = shares_steps_per_epoch(&config.shares, dataset_info(job->test)->count);
    return config;
}

/* `lanes` [blocks][BLOCK_LANES]: filled for the blocks of this process. */
static Status blocks_run(TowerProcess *p, float *lanes)
{
    Status st = OK;
    Loader *loader = NULL;
    LoaderConfig config = eval_loader(p);
    if (config.start_step >= config.max_steps) return OK;
    TRY_OUT(loader_create(&config, &loader));
    for (int64_t s = config.start_step; s < config.max_steps; s += config.stride) {
        const Batch *batch;
        TRY_OUT(loader_next(loader, &batch));
        for (int slot = 0; slot < p->local; slot++) ledger_phase(p->ledger, p->first + slot, p->run.step, PHASE_EVAL);
        TRY_OUT(block_run(p, batch, lanes + s * BLOCK_LANES));
    }
out:
    loader_destroy(loader);
    return st;
}

/* Every block is known to one process, the others add zeros: the table is exact, and so is its total, which does not
 * depend on who had which block. */
static Status blocks_gather(TowerProcess *p, float *lanes, size_t floats)
{
    for (int slot = 0; slot < p->local; slot++)
        TRY(comm_give(p->comm, p->first + slot, 0, slot ? lanes + floats : lanes, floats));
    return comm_sum(p->comm, 0, lanes, floats);
}

static EvalResult blocks_total(const float *lanes, int64_t blocks)
{
    EvalResult total = {0};
    for (int64_t b = 0; b < blocks; b++, lanes += BLOCK_LANES) {
        total.loss += (double)lanes[BLOCK_LOSS];
        total.count += (int64_t)lanes[BLOCK_COUNT];
        total.hits[0] += (int64_t)lanes[BLOCK_TOP1];
        total.hits[1] += (int64_t)lanes[BLOCK_TOP5];
    }
    total.loss /= (double)total.count;
    return total;
}

Status evaluate(TowerProcess *p, EvalResult *result)
{
    Status st = OK;
    int64_t wanted = dataset_info(p->job->test)->count, blocks = block_count(p->job);
    size_t floats = (size_t)evaluate_floats(p->job);
    float *lanes = calloc(2 * floats, sizeof *lanes); /* and as many zeros, for the towers without blocks */
    if (!lanes) return FAIL(ERR_MEMORY, "results of %lld blocks of an evaluation", (long long)blocks);
    TRY_OUT(statistics_export(p));
    TRY_OUT(blocks_run(p, lanes));
    TRY_OUT(blocks_gather(p, lanes, floats));
    *result = blocks_total(lanes, blocks);
    if (result->count != wanted)
        st = FAIL(ERR_INTERNAL, "evaluation saw %lld samples of %lld", (long long)result->count, (long long)wanted);
out:
    free(lanes);
    return st;
}
