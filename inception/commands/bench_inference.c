/* bench --inference: timed forward passes as `towers eval` and `towers predict` make them, from pixels in memory to
 * probabilities in memory. The towers of a process use its device one after another; processes work side by side, each on batches of its own,
 * and start their timed batches together. The speed is the sum of theirs. */
#include "inception/commands/commands.h"
#include "inception/commands/speed.h"

#include "kernels/base/clock.h"
#include "towers/files/json.h"
#include "towers/replica/inference.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { LOST = -1 }; /* a process ended without a message */

/* Shared memory of all processes. */
typedef struct Passes {
    size_t bytes;
    int64_t warmup, count; /* for each process */
    int processes;
    atomic_int ready;  /* processes that have warmed up */
    atomic_int failed; /* 1 + the rank of the first one that failed, or LOST */
    Status status;     /* of that one, with its message */
    char why[STATUS_MESSAGE_BYTES];
    double seconds[]; /* [processes][count] */
} Passes;

/* A process: its towers' batches, all of the same synthetic images. */
typedef struct BenchWorker {
    const TrainJob *job;
    Placement place;
    Replica *replica;
    Loader *loader;
    Inference *inference;
    const Batch *batch; /* of the first tower; the others are of its first images */
} BenchWorker;

static Status worker_open(const TrainJob *job, int rank, BenchWorker *w)
{
    *w = (BenchWorker){.job = job, .place = job_placement(job, rank)};
    ReplicaConfig config = {
        .backend = job->backend, .device = job_device(job, rank), .program = job->program, .local = 1};
    const int32_t *batch = job->local_batches.batch + w->place.first_tower;
    int32_t *sizes = calloc((size_t)w->place.local_towers + 1, sizeof *sizes);
    if (!sizes) return FAIL(ERR_MEMORY, "no memory for the batch sizes of %d towers", w->place.local_towers);
    for (int t = 0, count = 0; t < w->place.local_towers; t++)
        if (t == 0 || batch[t] != batch[t - 1]) sizes[count++] = batch[t];
    config.eval_n = sizes;
    Status st = replica_create(&config, &w->replica);
    free(sizes);
    TRY(st);
    TRY(bench_loader(job, batch[0], &w->loader));
    TRY(loader_next(w->loader, &w->batch));
    return inference_open(w->replica, w->loader, true, TTA_NONE, 0, &w->inference);
}

/* A batch of each tower. */
static Status pass_run(BenchWorker *w)
{
    const Inferred *found;
    for (int t = 0; t < w->place.local_towers; t++) {
        Batch batch = *w->batch;
        batch.n = w->job->local_batches.batch[w->place.first_tower + t];
        TRY(inference_begin(w->inference, &batch));
        if (inference_pending(w->inference) > inference_ahead(w->inference)) TRY(inference_end(w->inference, &found));
    }
    return OK;
}

static Status passes_run(BenchWorker *w, Passes *passes)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const Inferred *found;
    double *seconds = passes->seconds + w->place.rank * passes->count;
    for (int64_t i = 0; i < passes->warmup; i++) TRY(pass_run(w));
    while (inference_pending(w->inference)) TRY(inference_end(w->inference, &found));
    atomic_fetch_add(&passes->ready, 1);
    while (atomic_load(&passes->ready) < passes->processes && !atomic_load(&passes->failed)) nanosleep(&pause, NULL);
    for (int64_t i = 0, start = clock_ns(), now; i < passes->count && !atomic_load(&passes->failed); i++, start = now) {
        TRY(pass_run(w));
        now = clock_ns();
        seconds[i] = (double)(now - start) * 1e-9;
    }
    while (inference_pending(w->inference)) TRY(inference_end(w->inference, &found));
    return OK;
}

static Status rank_run(const TrainJob *job, int rank, Passes *passes)
{
    BenchWorker worker;
    int none = 0;
    Status st = worker_open(job, rank, &worker);
    if (st == OK) st = passes_run(&worker, passes);
    if (st != OK && atomic_compare_exchange_strong(&passes->failed, &none, 1 + rank)) {
        passes->status = st;
        snprintf(passes->why, sizeof passes->why, "%s", status_message());
    }
    inference_close(worker.inference);
    loader_destroy(worker.loader);
    replica_destroy(worker.replica);
    return st;
}

/* A process for each rank, as devices cannot be opened before a fork. One that fails ends the others' work. */
static Status ranks_run(const TrainJob *job, Passes *passes)
{
    int started = 0, ended = 0, none = 0;
    for (; started < passes->processes; started++) {
        pid_t pid = fork();
        if (pid == 0) _exit(rank_run(job, started, passes) != OK);
        if (pid < 0) break;
    }
    bool lost = started < passes->processes;
    for (int left = started; left > 0; left--) {
        if (lost) atomic_compare_exchange_strong(&passes->failed, &none, LOST);
        lost |= waitpid(-1, &ended, 0) < 0 || ended != 0;
    }
    if (passes->status != OK) return FAIL(passes->status, "%s", passes->why);
    return lost ? FAIL(ERR_DEVICE, "a process of the benchmark died or could not be started") : OK;
}

static Speed speed_of(const TrainJob *job, const Passes *passes)
{
    Speed speed = {0};
    double *at = calloc((size_t)passes->count, sizeof *at);
    for (int r = 0; r < passes->processes; r++) {
        const double *seconds = passes->seconds + r * passes->count;
        Placement place = job_placement(job, r);
        double images = 0, total = 0;
        for (int t = 0; t < place.local_towers; t++) images += job->local_batches.batch[place.first_tower + t];
        for (int64_t i = 0; i < passes->count; i++) total += seconds[i];
        for (int64_t i = 0; at && i < passes->count; i++) at[i] += images / seconds[i];
        speed.mean += images * (double)passes->count / total;
        speed.seconds += total / (double)passes->count / passes->processes;
    }
    if (at) speed.scatter = series_scatter(at, passes->count);
    free(at);
    return speed;
}

/* As JSON, which all ops of a profile are a part of. */
static Status json_print(const Options *o, const JobFiles *files, const Speed *speed)
{
    json_t *profile = NULL;
    if (o->profile) TRY(profile_run(files, true, stderr, &profile));
    json_t *root = speed_json(&files->job, speed, o->batches, "mode", "inference");
    if (profile) json_object_set_new(root, "profile", profile);
    return json_emit(root, JSON_COMPACT, stdout);
}

static Status speed_print(const Options *o, const JobFiles *files, const Speed *speed)
{
    const TrainJob *job = &files->job;
    if (o->json) return json_print(o, files, speed);
    printf("Mode:        inference\nBatch size:  %" PRId64 " global\nNum batches: %" PRId64 "\n",
           global_batch_of(&job->local_batches), o->batches);
    printf("total images/sec: %.2f +/- %.2f (jitter = %.2f)\n", speed->mean, speed->scatter.error,
           speed->scatter.jitter);
    return o->profile ? profile_run(files, true, stdout, NULL) : OK;
}

Status bench_inference_run(const Options *o, JobFiles *files)
{
    Status st = OK;
    const TrainJob *job = &files->job;
    if (job->program.model->phases)
        return FAIL(ERR_ARG, "--inference: %s predicts no classes", job->program.model->name);
    size_t bytes = sizeof(Passes) + (size_t)(o->batches * job->processes) * sizeof(double);
    Passes *passes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (passes == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the times of %" PRId64 " batches: %s", o->batches, strerror(errno));
    passes->bytes = bytes;
    passes->warmup = o->warmup_batches;
    passes->count = o->batches;
    passes->processes = job->processes;
    TRY_OUT(ranks_run(job, passes));
    Speed speed = speed_of(job, passes);
    TRY_OUT(speed_print(o, files, &speed));
out:
    munmap(passes, bytes);
    return st;
}
