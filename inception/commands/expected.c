/* train --dry-run: what a run would take, from a few steps of one tower in this process. */
#include "inception/commands/commands.h"
#include "kernels/base/clock.h"
#include "towers/data/loading/loader.h"
#include "towers/record/statistics.h"
#include "towers/replica/tower_process.h"

enum { STEPS_TIMED = 5 };
static const double SECONDS_TIMED = 3; /* or as many steps as that */

/* Seconds of one batch, forward and backward, and its update: the median, after a first one that prepares kernels. */
static Status batch_time(const TrainJob *job, Replica *replica, const Batch *batch, double *seconds, int *steps)
{
    double times[STEPS_TIMED], all = 0;
    Program *program = replica_program(replica, 0, batch->n);
    for (*steps = -1; *steps < STEPS_TIMED && all < SECONDS_TIMED; ++*steps) {
        int64_t start = clock_ns();
        RandomKey key = job_random_key(job, 1, batch);
        TRY(replica_feed(replica, program, batch, 0, &key, 1.0f / (float)batch->n));
        TRY(plan_run(program->plan, 0, plan_op_count(program->plan)));
        TRY(replica->device.backend->finish(&replica->device, STREAM_COMPUTE));
        double took = (double)(clock_ns() - start) * 1e-9;
        if (*steps >= 0) times[*steps] = took, all += took;
    }
    *seconds = series_median(times, *steps);
    return OK;
}

/* The towers of a process use its device one after another, those of several processes compute at the same time. */
static void length_print(const TrainJob *job, double batch, int steps, FILE *to)
{
    char text[DURATION_TEXT];
    int towers = (job->local_batches.towers + job->processes - 1) / job->processes;
    double step = batch * towers * job->accumulate;
    text_printf(to,
                "expected       %s of computation, by %d steps of one tower here: %.3g s a step of all, without "
                "evaluations and waiting for images\n",
                duration_text(step * (double)job_total_steps(job), text), steps, step);
}

/* The first batch of the first tower that has images, as training makes it. */
static LoaderConfig first_batch(const TrainJob *job)
{
    LoaderConfig config = job_loader(job, true);
    config.local_batches = job->local_batches;
    while (job->local_batches.batch[config.first_tower] == 0) config.first_tower++;
    config.local = 1;
    config.max_steps = 1;
    config.depth = 2;
    return config;
}

Status expected_print(const JobFiles *files, FILE *to)
{
    Status st = OK;
    TrainJob job = files->job;
    Replica *replica = NULL;
    Loader *loader = NULL;
    const Batch *batch;
    double seconds = 0;
    int steps = 0;
    if (job.program.model->phases || job_total_steps(&job) == 0) return OK; /* its steps differ */
    job_stage(&job, 0);
    LoaderConfig images = first_batch(&job);
    ReplicaConfig config = {.backend = job.backend,
                            .device = job_device(&job, 0),
                            .program = job.program,
                            .local = 1,
                            .optimizer = job.optimizer,
                            .seed = job.seed};
    TRY_OUT(loader_create(&images, &loader));
    TRY_OUT(loader_next(loader, &batch));
    config.train_n = (const int32_t[]){batch->n, 0};
    TRY_OUT(replica_create(&config, &replica));
    TRY_OUT(batch_time(&job, replica, batch, &seconds, &steps));
    length_print(&job, seconds, steps, to);
out:
    loader_destroy(loader);
    replica_destroy(replica);
    if (st != ERR_MEMORY) return st;
    text_printf(to, "expected       not timed here, beside the data of this command: %s\n", status_message());
    return OK; /* the run itself was found to fit */
}
