/* Speed as JSON, and the images of a measurement; see speed.h. */
#include "inception/commands/speed.h"

#include "towers/files/json.h"

json_t *speed_json(const TrainJob *job, const Speed *speed, int64_t steps, const char *key, const char *value)
{
    return json_pack("{s:s, s:o, s:s, s:I, s:i, s:i, s:i, s:s, s:I, s:f, s:f, s:f, s:f}", "model",
                     job->program.model->name, key, json_text(value), "device", job->backend->name, "global_batch",
                     (json_int_t)global_batch_of(&job->local_batches), "towers", job->local_batches.towers, "processes",
                     job->processes, "threads", job->device.threads, "compute", dtype_name(job->program.compute),
                     "num_steps", (json_int_t)steps, "images_per_sec", speed->mean, "uncertainty", speed->scatter.error,
                     "jitter", speed->scatter.jitter, "average_wall_time", speed->seconds);
}

Status bench_loader(const TrainJob *job, int32_t batch, Loader **made)
{
    return loader_create(&(LoaderConfig){.source = job->train,
                                         .local_batches = {.towers = 1, .batch = &batch},
                                         .local = 1,
                                         .transform = job_transform(job, false),
                                         .max_steps = 1,
                                         .depth = 2},
                         made);
}
