/* bench: timed training steps, by the benchmark protocol of tf_cnn_benchmarks and in its format, so that its scripts
 * can read the output: warm-up steps, then timed steps. At every display interval it prints the mean speed so far with
 * its uncertainty and jitter. */
#include "inception/commands/commands.h"
#include "inception/commands/speed.h"

#include "inception/options/recipe.h"
#include "towers/files/json.h"
#include "towers/guard/memory_check.h"
#include "towers/store/pretrained.h"

#include <signal.h>
#include <sys/mman.h>

enum { ALL_PHASES = -1 };

/* Shared memory filled by rank 0's process, which measures and prints. */
typedef struct Timing {
    size_t bytes;
    const TrainJob *job; /* borrowed; at the same address in every process */
    int64_t warmup, interval;
    bool quiet;
    int unwritten; /* errno of a line that could not be printed */
    int64_t count;
    double loss;
    int64_t begun_ns, first_ns,
        last_ns;                      /* of the timed steps; of the first and the last reading of the devices since */
    double first_joules, last_joules; /* of all devices */
    double seconds[];                 /* of each timed step */
} Timing;

/* The speed of the steps of one phase; or of all, in whole cycles, because the steps of different phases take different
 * times. A phase that takes no images makes as many as a batch has; they do not count among the images of all phases. */
static Speed speed_of(const Timing *timing, int phase)
{
    const TrainJob *job = timing->job;
    int64_t cycle = job_cycle(job), group = phase != ALL_PHASES ? 1 : timing->count < cycle ? timing->count : cycle;
    double *speed = calloc((size_t)timing->count + 1, sizeof *speed), total = 0, images = 0;
    Speed result = {0};
    int64_t n = 0;
    for (int64_t i = 0; i + group <= timing->count; i += group) {
        double group_seconds = 0, group_images = 0;
        for (int64_t k = i; k < i + group; k++) {
            int64_t step = timing->warmup + k; /* of the run, from 0 */
            int of = job_phase_of(job, step);
            bool counts = phase == ALL_PHASES ? job_phase(job, of)->takes_batch : phase == of;
            if (phase == ALL_PHASES || phase == of) group_seconds += timing->seconds[k], result.steps++;
            if (counts) group_images += (double)job_step_samples(job, step);
        }
        if (!(group_seconds > 0)) continue;
        total += group_seconds;
        images += group_images;
        if (speed) speed[n] = group_images / group_seconds;
        n++;
    }
    if (n > 0) {
        result.mean = images / total;
        result.seconds = total / (double)result.steps;
        if (speed) result.scatter = series_scatter(speed, n);
    }
    free(speed);
    return result;
}

static void energy_see(Timing *timing, const Ledger *ledger)
{
    double joules = 0;
    int64_t at = 0;
    for (int r = 0; timing->job->backend->telemetry && r < ledger->processes; r++) {
        DeviceTelemetry telemetry;
        at = ledger_telemetry(ledger, r, &telemetry);
        joules += telemetry.gpu_joules;
    }
    if (is_absent(joules) || at <= timing->begun_ns) return;
    if (!timing->first_ns) timing->first_ns = at, timing->first_joules = joules;
    timing->last_ns = at;
    timing->last_joules = joules;
}

/* The mean power of all devices between two readings; 0: it is not known, or the timed steps took less than two seconds. */
static double watts_of(const Timing *timing)
{
    double seconds = (double)(timing->last_ns - timing->first_ns) * 1e-9;
    return seconds > 0 ? (timing->last_joules - timing->first_joules) / seconds : 0;
}

static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    Timing *timing = context;
    if (step == timing->warmup && !timing->quiet) printf("Done warm up\nStep\tImg/sec\ttotal_loss\n");
    if (step <= timing->warmup) timing->begun_ns = clock_ns();
    if (step > timing->warmup) {
        energy_see(timing, ledger);
        timing->seconds[timing->count++] = seconds;
        timing->loss = loss;
        if (!timing->quiet && (timing->count == 1 || timing->count % timing->interval == 0)) {
            int phase = job_phase_of(timing->job, step - 1);
            bool several = timing->job->program.model->phases;
            Speed speed = speed_of(timing, several ? phase : ALL_PHASES);
            printf("%" PRId64 "\timages/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f", timing->count, speed.mean,
                   speed.scatter.error, speed.scatter.jitter, loss);
            if (several) text_printf(stdout, "\t%s", job_phase(timing->job, phase)->name);
            putchar('\n');
        }
    }
    /* If the output cannot be written (as behind `| head`), end the run like other tools do. */
    if (fflush(stdout) == 0) return;
    timing->unwritten = errno;
    atomic_store(&ledger->run.stop_signal, SIGPIPE);
}

static Status timing_create(const Options *o, const TrainJob *job, Timing **made)
{
    size_t bytes = sizeof(Timing) + (size_t)o->batches * sizeof(double);
    Timing *timing = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (timing == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the times of %" PRId64 " steps: %s", o->batches, strerror(errno));
    *timing = (Timing){.bytes = bytes,
                       .job = job,
                       .warmup = o->warmup_batches,
                       .interval = o->log_interval,
                       .quiet = o->quiet || o->json};
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

/* An element for each phase of a model with several. */
static json_t *phases_json(const Timing *timing)
{
    json_t *all = json_array();
    for (int p = 0; p < program_phases(timing->job->program.model); p++) {
        Speed speed = speed_of(timing, p);
        json_array_append_new(all, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "phase", job_phase(timing->job, p)->name,
                                             "num_steps", (json_int_t)speed.steps, "images_per_sec", speed.mean,
                                             "uncertainty", speed.scatter.error, "jitter", speed.scatter.jitter,
                                             "average_wall_time", speed.seconds));
    }
    return all;
}

/* Takes `profile`, which may be NULL. */
static Status json_print(const Timing *timing, const Speed *speed, json_t *profile)
{
    const TrainJob *job = timing->job;
    json_t *root = speed_json(job, speed, timing->count, "data", source_info(job->train)->name);
    json_object_set_new(root, "last_average_loss", json_finite(timing->loss));
    double watts = watts_of(timing);
    if (watts > 0)
        json_object_update_new(root, json_pack("{s:f, s:f}", "watts", watts, "images_per_joule", speed->mean / watts));
    if (job->program.model->phases) json_object_set_new(root, "phases", phases_json(timing));
    if (profile) json_object_set_new(root, "profile", profile);
    return json_emit(root, JSON_COMPACT, stdout);
}

static void total_print(const Timing *timing, const Speed *speed)
{
    static const char rule[] = "----------------------------------------------------------------";
    const TrainJob *job = timing->job;
    puts(rule);
    for (int p = 0; job->program.model->phases && p < job->program.model->phase_count; p++) {
        Speed of = speed_of(timing, p);
        text_printf(stdout, "%s: %" PRId64 " steps, %.2f ms each, images/sec: %.1f +/- %.1f (jitter = %.1f)\n",
                    job_phase(job, p)->name, of.steps, 1e3 * of.seconds, of.mean, of.scatter.error, of.scatter.jitter);
    }
    double watts = watts_of(timing);
    if (watts > 0) printf("images/joule: %.3f at %.1f W\n", speed->mean / watts, watts);
    text_printf(stdout, "total images/sec: %.2f\n%s\n", speed->mean, rule);
}

static Status bench_run(const Options *o, JobFiles *files)
{
    Status st = OK;
    Timing *timing = NULL;
    TRY(timing_create(o, &files->job, &timing));
    files->job.on_step = step_seen;
    files->job.on_step_context = timing;
    files->job.quiet = true;
    if (!timing->quiet) {
        int64_t global = global_batch_of(&files->job.local_batches);
        const SourceInfo *data = source_info(files->job.train);
        const char *path =
            files->job.data_path && strcmp(files->job.data_path, data->name) != 0 ? files->job.data_path : NULL;
        text_printf(stdout,
                    "Model:       %s\nDataset:     %s (%s%s%s), %" PRId64
                    " images\nMode:        training\nBatch size:  %" PRId64 " global\n             %" PRId64
                    " per device\n",
                    files->job.program.model->name, data->name, data->format, path ? ", " : "", path ? path : "",
                    data->count, global, (global / files->job.local_batches.towers));
        text_printf(stdout,
                    "Num batches: %" PRId64
                    "\nDevices:     %d tower%s in %d process%s on %s, %d thread%s each\nData format: NHWC\n"
                    "Variables:   replicated\n"
                    "Columns:     timed step, mean images/s so far, +/- its standard error\n"
                    "             (jitter = scatter of single steps), loss\n==========\nRunning warm up\n",
                    o->batches, files->job.local_batches.towers, files->job.local_batches.towers == 1 ? "" : "s",
                    files->job.processes, files->job.processes == 1 ? "" : "es", files->job.backend->name,
                    files->job.device.threads, files->job.device.threads == 1 ? "" : "s");
        fflush(stdout);
    }
    if (!timing->quiet && timing->warmup == 0) printf("Done warm up\nStep\tImg/sec\ttotal_loss\n");
    st = train_timed(&files->job, &files->ending.signal);
    if (timing->unwritten && timing->unwritten != EPIPE)
        st = FAIL(ERR_IO, "cannot write to standard output: %s", strerror(timing->unwritten));
    TRY_OUT(st);
    Speed speed = speed_of(timing, ALL_PHASES);
    if (!o->json) total_print(timing, &speed);
    json_t *profile = NULL;
    if (o->profile) TRY_OUT(profile_run(files, false, o->json ? stderr : stdout, o->json ? &profile : NULL));
    if (o->json) TRY_OUT(json_print(timing, &speed, profile));
out:
    munmap(timing, timing->bytes);
    return st;
}

Status bench_command(const Options *o, JobFiles *files, FILE *to)
{
    const TrainJob *job = &files->job;
    TRY(pretrained_check(&job->program, job->initial_weights, job->reset_head, NULL));
    if (!o->inference) TRY(memory_check(job));
    if (o->dry_run) {
        recipe_gaps_print(o, to);
        would_fetch_print(files, to);
        return info_run(files, to);
    }
    if (!o->quiet) text_print(stderr, files->notes);
    if (o->inference) return bench_inference_run(o, files);
    return o->scaling ? scaling_run(o, files) : bench_run(o, files);
}
