/* Arithmetic of a job: how many batches and steps, and which towers a process holds. */
#include "towers/replica/job.h"

#include <string.h>

int64_t job_batches_per_epoch(const TrainJob *job)
{
    return shares_steps_per_epoch(&job->shares, dataset_info(job->train)->count);
}

int64_t job_steps_per_epoch(const TrainJob *job)
{
    return (job_batches_per_epoch(job) + job->accumulate - 1) / job->accumulate;
}

int64_t job_first_batch(const TrainJob *job, int64_t step)
{
    int64_t steps = job_steps_per_epoch(job);
    return step / steps * job_batches_per_epoch(job) + step % steps * job->accumulate;
}

int64_t job_total_steps(const TrainJob *job)
{
    int64_t steps = job->epochs * job_steps_per_epoch(job);
    return job->max_steps >= 0 && job->max_steps < steps ? job->max_steps : steps;
}

int job_first_tower(const TrainJob *job, int process)
{
    return (int)((int64_t)process * job->shares.towers / job->processes);
}

DeviceConfig job_device(const TrainJob *job, int process)
{
    DeviceConfig device = job->device;
    if (!strcmp(job->backend->name, "cpu")) /* one device for all processes */
        device.ordinal = 0;
    else
        device.ordinal = job->gpu_count ? job->gpu[process % job->gpu_count] : process;
    return device;
}
