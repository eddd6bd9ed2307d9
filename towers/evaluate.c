/* Evaluation: the test set in fixed blocks, dealt to the processes in turn, so every sample is seen exactly once, in
 * batches whose size does not depend on the number of towers. Hits are whole numbers: the accuracy is exact. */
#include "towers/process.h"

#include <math.h>

typedef struct Tally {
    double loss; /* sum */
    int64_t count, hits[2];
} Tally;

static Status block_run(TowerProcess *p, const Batch *batch, Tally *tally)
{
    double loss;
    int64_t hits[2];
    Program *program = replica_program(p->replica, false, batch->n);
    if (!program) return FAIL(ERR_INTERNAL, "no evaluation program for a batch of %d", batch->n);
    TRY(replica_feed(p->replica, program, batch, 0, p->job->seed, 0));
    TRY(plan_run(program->plan, 0, plan_op_count(program->plan)));
    TRY(replica_read_loss(p->replica, program, &loss, hits));
    tally->loss += loss;
    tally->count += batch->n;
    tally->hits[0] += hits[0];
    tally->hits[1] += hits[1];
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

static Status tally_blocks(TowerProcess *p, Tally *tally)
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
        TRY_OUT(block_run(p, batch, tally));
    }
out:
    loader_destroy(loader);
    return st;
}

/* Whole numbers below 2^24 are exact in f32: counts go in two parts, the loss as a double in three. */
enum { PART = 1 << 12, TALLY_FLOATS = 9 };

static void count_split(int64_t count, float *to)
{
    to[0] = (float)(count / PART);
    to[1] = (float)(count % PART);
}

static int64_t count_join(const float *from)
{
    return (int64_t)from[0] * PART + (int64_t)from[1];
}

static Status tally_sum(TowerProcess *p, Tally *tally)
{
    const float zeros[TALLY_FLOATS] = {0};
    float part[TALLY_FLOATS], sum[TALLY_FLOATS];
    count_split(tally->count, part);
    count_split(tally->hits[0], part + 2);
    count_split(tally->hits[1], part + 4);
    part[6] = (float)tally->loss;
    part[7] = (float)(tally->loss - (double)part[6]);
    part[8] = (float)(tally->loss - (double)part[6] - (double)part[7]);
    for (int slot = 0; slot < p->local; slot++)
        TRY(comm_give(p->comm, p->first + slot, 0, slot ? zeros : part, TALLY_FLOATS));
    TRY(comm_sum(p->comm, 0, sum, TALLY_FLOATS));
    *tally = (Tally){
        .loss = (double)sum[6] + (double)sum[7] + (double)sum[8],
        .count = count_join(sum),
        .hits = {count_join(sum + 2), count_join(sum + 4)},
    };
    return OK;
}

Status evaluate(TowerProcess *p, EvalResult *result)
{
    Tally tally = {0};
    TRY(statistics_export(p));
    TRY(tally_blocks(p, &tally));
    TRY(tally_sum(p, &tally));
    int64_t wanted = dataset_info(p->job->test)->count;
    if (tally.count != wanted)
        return FAIL(ERR_INTERNAL, "evaluation saw %lld samples of %lld", (long long)tally.count, (long long)wanted);
    *result = (EvalResult){
        .count = tally.count, .hits = {tally.hits[0], tally.hits[1]}, .loss = tally.loss / (double)tally.count};
    return OK;
}
