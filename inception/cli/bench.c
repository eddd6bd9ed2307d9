/* The benchmark protocol of tf_cnn_benchmarks: warm-up steps, then timed steps. At every display interval it prints the
 * mean speed so far with its uncertainty (standard deviation / sqrt(n)) and jitter (1.4826 times the median absolute
 * deviation). */
#include "inception/cli/bench.h"

#include "inception/cli/profile.h"
#include "towers/files/json.h"
#include "towers/record/statistics.h"
#include "towers/train/train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PROFILE_ROUNDS = 7 };

/* Shared memory filled by rank 0's process, which measures and prints. */
typedef struct Timing {
    size_t bytes;
    int64_t warmup, interval, images; /* images per step */
    bool quiet;
    int unwritten; /* errno of a line that could not be printed */
    int64_t count;
    double loss;
    double seconds[]; /* of each timed step */
} Timing;

typedef struct Speed {
    double mean, uncertainty, jitter; /* images per second */
} Speed;

static Speed speed_of(const Timing *timing)
{
    int64_t n = timing->count;
    double total = 0, sum = 0, square = 0;
    double *speed = calloc((size_t)n, sizeof *speed);
    for (int64_t i = 0; i < n; i++) {
        double s = (double)timing->images / timing->seconds[i];
        total += timing->seconds[i];
        sum += s;
        square += s * s;
        if (speed) speed[i] = s;
    }
    double variance = square / (double)n - (sum / (double)n) * (sum / (double)n);
    Speed result = {.mean = (double)timing->images * (double)n / total,
                    .uncertainty = sqrt(fmax(variance, 0) / (double)n)};
    if (speed) {
        double middle = series_median(speed, n);
        for (int64_t i = 0; i < n; i++) speed[i] = fabs(speed[i] - middle);
        result.jitter = 1.4826 * series_median(speed, n);
    }
    free(speed);
    return result;
}

static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    Timing *timing = context;
    if (step == timing->warmup && !timing->quiet) printf("Done warm up\nStep\tImg/sec\ttotal_loss\n");
    if (step > timing->warmup) {
        timing->seconds[timing->count++] = seconds;
        timing->loss = loss;
        if (!timing->quiet && (timing->count == 1 || timing->count % timing->interval == 0)) {
            Speed speed = speed_of(timing);
            printf("%lld\timages/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f\n", (long long)timing->count, speed.mean,
                   speed.uncertainty, speed.jitter, loss);
        }
    }
    /* If the output cannot be written (as behind `| head`), end the run like other tools do. */
    if (fflush(stdout) == 0) return;
    timing->unwritten = errno;
    atomic_store(&ledger->run.stop_signal, SIGPIPE);
}

static Status timing_create(const Options *o, int64_t images, Timing **made)
{
    size_t bytes = sizeof(Timing) + (size_t)o->batches * sizeof(double);
    Timing *timing = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (timing == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the times of %lld steps: %s", (long long)o->batches, strerror(errno));
    timing->bytes = bytes;
    timing->warmup = o->warmup_batches;
    timing->interval = o->log_interval;
    timing->images = images;
    timing->quiet = o->quiet || o->json;
    *made = timing;
    return OK;
}

Status bench_open(Options *o, JobFiles *files)
{
    const int64_t max_batch = 4096; /* upper limit for --batch-size max */
    /* A few batches of synthetic samples, used repeatedly: reading them costs almost nothing. */
    int64_t towers = o->towers > 0 ? o->towers : 8, batch = o->batch_size == OPTION_MAX ? max_batch : o->batch_size,
            share = o->global_batch_size > 0 ? o->global_batch_size : batch * towers;
    for (int t = 0; t < o->tower_batch.count; t++) share += o->tower_batch.value[t];
    bool real = !o->scaling && (o->dataset == DATASET_FMNIST || option_is_set(o, "data-path"));
    TRY(job_open(o, real ? 0 : 2 * share, files));
    files->job.test = NULL;
    files->job.max_steps = o->warmup_batches + o->batches;
    files->job.epochs = files->job.max_steps;
    return OK;
}

static Status json_print(const TrainJob *job, const Timing *timing, const Speed *speed)
{
    json_t *root = json_pack("{s:s, s:o, s:s, s:I, s:i, s:i, s:i, s:s, s:I, s:f, s:f, s:f, s:f}", "model",
                             job->program.model->name, "data", json_text(source_info(job->train)->name), "device",
                             job->backend->name, "global_batch", (json_int_t)shares_global(&job->shares), "towers",
                             job->shares.towers, "processes", job->processes, "threads", job->device.threads, "compute",
                             dtype_name(job->program.compute), "num_steps", (json_int_t)timing->count, "images_per_sec",
                             speed->mean, "uncertainty", speed->uncertainty, "jitter", speed->jitter,
                             "average_wall_time", (double)timing->images / speed->mean);
    if (!root) return FAIL(ERR_MEMORY, "no memory for the result of the benchmark");
    json_object_set_new(root, "last_average_loss", json_finite(timing->loss));
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
    return OK;
}

Status bench_run(const Options *o, JobFiles *files, int *signal_number)
{
    Status st = OK;
    Timing *timing = NULL;
    TRY(timing_create(o, shares_global(&files->job.shares), &timing));
    files->job.on_step = step_seen;
    files->job.on_step_context = timing;
    files->job.quiet = true;
    if (!timing->quiet) {
        int64_t global = shares_global(&files->job.shares);
        const SourceInfo *data = source_info(files->job.train);
        printf("Model:       %s\nDataset:     %s (%s%s%s), %lld images\nMode:        training\nBatch size:  %lld "
               "global\n     "
               "        %lld per device\n",
               files->job.program.model->name, data->name, data->format, files->job.data_path ? ", " : "",
               files->job.data_path ? files->job.data_path : "", (long long)data->count, (long long)global,
               (long long)(global / files->job.shares.towers));
        printf("Num batches: %lld\nDevices:     %d tower%s in %d process%s on %s, %d thread%s each\nData format: "
               "NHWC\nVariables:   replicated\n"
               "==========\nRunning warm up\n",
               (long long)o->batches, files->job.shares.towers, files->job.shares.towers == 1 ? "" : "s",
               files->job.processes, files->job.processes == 1 ? "" : "es", files->job.backend->name,
               files->job.device.threads, files->job.device.threads == 1 ? "" : "s");
        fflush(stdout);
    }
    if (!timing->quiet && timing->warmup == 0) printf("Done warm up\nStep\tImg/sec\ttotal_loss\n");
    st = train_timed(&files->job, signal_number);
    if (timing->unwritten && timing->unwritten != EPIPE)
        st = FAIL(ERR_IO, "cannot write to standard output: %s", strerror(timing->unwritten));
    TRY_OUT(st);
    Speed speed = speed_of(timing);
    static const char rule[] = "----------------------------------------------------------------";
    if (!o->json) printf("%s\ntotal images/sec: %.2f\n%s\n", rule, speed.mean, rule);
    if (o->profile) TRY_OUT(profile_run(files, PROFILE_ROUNDS, o->json ? stderr : stdout));
    if (o->json) TRY_OUT(json_print(&files->job, timing, &speed));
out:
    munmap(timing, timing->bytes);
    return st;
}
