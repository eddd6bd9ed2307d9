/* From options to towers: how many there are, their processes, devices and threads, and the batch of each; see job.h. */
#include "inception/job/cores.h"
#include "inception/job/notes.h"
#include "kernels/base/cores.h"
#include "towers/replica/hooks.h"

/* Several nodes on one host share its cores, unless the launcher has bound each to its own, and its quota of
 * processor time. */
static int share_of_cores(const JobFiles *files)
{
    Cores cores;
    int here = files->launch.local_ranks > 1 ? files->launch.local_ranks : 1;
    cores_read("", &cores);
    bool own = cores.bound < (int)sysconf(_SC_NPROCESSORS_ONLN);
    return cores_within(own || cores.bound < here ? cores.bound : cores.bound / here, cores.quota / here);
}

/* Nodes that see the same GPUs divide them, or share them all (hooks_share_gpus). */
static Status share_of_gpus(JobFiles *files, int *devices)
{
    int programs = files->gpu_programs;
    if (programs < 2) return OK;
    files->job.node_on_host = files->gpu_program;
    if (files->job.comm.shared_gpu) return OK;
    if (*devices < programs)
        return FAIL(ERR_DEVICE,
                    "%d programs see the same %d GPU%s, but each needs one of its own; let %s start fewer, or let each "
                    "see other GPUs (CUDA_VISIBLE_DEVICES)",
                    programs, *devices, *devices == 1 ? "" : "s", files->launch.origin);
    *devices /= programs;
    return OK;
}

/* Equally many processes in each program, so that a process's rank tells its node. */
static Status nodes_check(const Options *o, int towers, JobFiles *files)
{
    const TrainJob *job = &files->job;
    int nodes = job_nodes(job);
    if (nodes == 1) return OK;
    char mpi[128];
    bool cpu = job->backend->on_host;
    if (cpu && !files->launch.mpi)
        return FAIL(ERR_UNSUPPORTED,
                    "--device cpu on several hosts sums with MPI, but %s starts programs without it; use mpirun, or "
                    "srun --mpi=pmix",
                    job->launcher);
    if (cpu && !comm_mpi_text(mpi, sizeof mpi))
        return FAIL(ERR_UNSUPPORTED, "--device cpu on several hosts sums with MPI, which this build lacks; install "
                                     "libopenmpi-dev or libmpich-dev and build again");
    if (towers < nodes)
        return FAIL(ERR_ARG, "--towers %d are fewer than the %d programs that %s has started; every program needs one",
                    towers, nodes, job->launcher);
    if (o->processes % nodes > 0)
        return FAIL(ERR_ARG,
                    "--processes %" PRId64 ", the number in the whole run, is not divisible by its %d programs",
                    o->processes, nodes);
    if (o->processes / nodes > towers / nodes)
        return FAIL(ERR_ARG,
                    "--processes %" PRId64 " exceeds the number of towers (%d), of which the smallest program has %d",
                    o->processes, towers, towers / nodes);
    if (towers % nodes)
        job_note(files, "%d towers in %d programs: some have %d towers and some %d", towers, nodes, towers / nodes,
                 towers / nodes + 1);
    return OK;
}

Status job_local_batches(const Options *o, int towers, JobFiles *files)
{
    if (o->tower_batch.count && o->tower_batch.count != towers)
        return FAIL(ERR_ARG, "--tower-batch lists %d batch sizes for %d towers; give one per tower",
                    o->tower_batch.count, towers);
    if (o->global_batch_size > 0 && o->global_batch_size % towers) {
        char smaller[48] = "";
        if (o->global_batch_size > towers)
            snprintf(smaller, sizeof smaller, "%" PRId64 " or ", o->global_batch_size / towers * towers);
        return FAIL(ERR_ARG,
                    "--global-batch-size %" PRId64 " is not divisible by %d towers; use %s%" PRId64
                    ", or --tower-batch for unequal local batches",
                    o->global_batch_size, towers, smaller, (o->global_batch_size / towers + 1) * towers);
    }
    int32_t *batch = calloc((size_t)towers, sizeof *batch);
    if (!batch) return FAIL(ERR_MEMORY, "no memory for the batches of %d towers", towers);
    for (int t = 0; t < towers; t++)
        batch[t] = (int32_t)(o->tower_batch.count          ? o->tower_batch.value[t]
                             : o->global_batch_size > 0    ? o->global_batch_size / towers
                             : o->batch_size == OPTION_MAX ? 1 /* until batch_resolve */
                                                           : o->batch_size);
    free(files->local_batch);
    files->local_batch = batch;
    files->job.local_batches = (LocalBatches){towers, batch};
    return global_batch_of(&files->job.local_batches) > 0
               ? OK
               : FAIL(ERR_ARG, "--tower-batch: at least one batch size must be above 0");
}

static Status gpus_check(const IntList *gpus, int visible, bool shared)
{
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->value[i] >= visible)
            return FAIL(ERR_ARG,
                        "--gpus: there is no GPU %" PRId64
                        "; %d visible, numbered from 0 (see CUDA_VISIBLE_DEVICES); without --gpus all of them are used",
                        gpus->value[i], visible);
        for (int k = 0; k < i && !shared; k++)
            if (gpus->value[k] == gpus->value[i])
                return FAIL(ERR_ARG,
                            "--gpus lists GPU %" PRId64
                            " twice, but each process needs a GPU of its own; towers can share "
                            "one: --towers N --gpus %" PRId64,
                            gpus->value[i], gpus->value[i]);
    }
    return OK;
}

Status job_towers(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    char note[256] = "";
    int devices;
    TRY(backend_device_count(job->backend, &devices));
    bool cpu = job->backend->on_host;
    if (cpu && option_origin(o, "gpus") == ORIGIN_COMMAND_LINE)
        return FAIL(ERR_DEVICE, "--gpus has no effect because the run would use the CPU: %s",
                    o->device == DEVICE_CPU ? "--device cpu" : files->without_gpu);
    job->comm.shared_gpu = !cpu && hooks_share_gpus();
    if (!cpu) TRY(gpus_check(&o->gpus, devices, job->comm.shared_gpu));
    if (!cpu && o->gpus.count) devices = o->gpus.count;
    int nodes = job_nodes(job);
    if (!cpu) TRY(share_of_gpus(files, &devices));
    int towers = o->towers > 0          ? (int)o->towers
                 : o->tower_batch.count ? o->tower_batch.count
                                        : nodes * (cpu ? 1 : devices);
    int room = !cpu ? devices : nodes > 1 ? share_of_cores(files) : cores_allowed();
    if (towers > TOWERS_MAX) return FAIL(ERR_ARG, "--towers %d is above the maximum of %d", towers, TOWERS_MAX);
    TRY(nodes_check(o, towers, files));
    int least = towers / nodes, most = (towers + nodes - 1) / nodes; /* towers of a node */
    job->processes = o->processes > 0 ? (int)o->processes : nodes * (least < room ? least : room);
    if (job->processes > towers)
        return FAIL(ERR_ARG, "--processes %d exceeds the number of towers (%d); every process needs at least one tower",
                    job->processes, towers);
    if (!cpu && job->processes / nodes > devices && !job->comm.shared_gpu)
        return FAIL(ERR_DEVICE,
                    "--processes %d exceeds the number of GPUs (%d), which run one process each; towers can share a "
                    "process: --towers %d --processes %d",
                    job->processes, devices * nodes, towers, devices * nodes);
    job->device.threads = o->threads > 0 ? (int)o->threads : room / most > 1 ? room / most : 1;
    if (cpu && o->threads > 0)
        cores_note(job->device.threads, job->processes / nodes, note, sizeof note);
    else if (cpu)
        cores_quota_note(note, sizeof note);
    if (*note) job_note(files, "%s", note);
    job->gpu_count = o->gpus.count < GPUS_MAX ? o->gpus.count : GPUS_MAX;
    for (int i = 0; i < job->gpu_count; i++) job->gpu[i] = (int)o->gpus.value[i];
    for (; job->comm.shared_gpu && !o->gpus.count && job->gpu_count < devices && job->gpu_count < GPUS_MAX;
         job->gpu_count++)
        job->gpu[job->gpu_count] = job->gpu_count; /* in turn */
    return job_local_batches(o, towers, files);
}
