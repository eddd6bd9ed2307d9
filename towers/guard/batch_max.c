/* The largest batch that fits; see batch_max.h. */
#include "towers/guard/batch_max.h"

#include "towers/replica/tower_process.h"

#include <sys/wait.h>

enum {
    FEW = 8,
    MORE = 24,            /* batch sizes between which memory is interpolated */
    STEP = 8,             /* results are multiples of it */
    TRIES = 8,            /* attempts to lower a calculated size until it really fits */
    RESERVE_SHARE = 32,   /* 1/32 of the free memory is left for code that libraries load later and unplanned use */
    QUEUED_PER_TOWER = 2, /* batches that a loader queues for each tower, plus two more */
    FEW_BYTES = 1 << 15   /* the gate's result, square sums, scalars, counters of kernels */
};

/* ---- memory for one batch size */

/* Memory outside the plans' arenas: optimizer states, averages, the 16-bit copy, statistics, the all-reduce, and on a CPU the
 * host's copy and queued images. */
size_t replica_rest_bytes(const ReplicaConfig *c, const Layout *layout, int32_t n)
{
    size_t params = layout->param_elements * sizeof(float), trained = layout->trained_elements * sizeof(float),
           running = layout->running_elements * sizeof(float), local = (size_t)c->local,
           of_optimizer = (size_t)optimizer_state_count(&c->optimizer);
    bool cpu = c->backend->on_host;
    size_t image = (size_t)c->program.canvas * (size_t)c->program.canvas * (size_t)c->program.data_channels;
    size_t queued = cpu ? (QUEUED_PER_TOWER * local + 2) * (size_t)n * image : 0;
    size_t sum = (cpu ? params : FEW_BYTES) + replica_sum_bytes(c, layout) + replica_upload_bytes(c, n) +
                 comm_library_bytes(c->backend, &c->sum, c->device.deterministic);
    return params * (c->ema ? 1 : 0) + trained * (of_optimizer + (c->accumulate ? local : 0)) + sum +
           replica_half_bytes(c, layout) +
           running * (3 * local + (c->ema ? local : 0) + (c->accumulate ? local : 0) + 2) + queued;
}

static Status program_add(const ReplicaConfig *c, int phase, bool training, int32_t n, const Layout *layout,
                          Device *device, size_t *arena)
{
    Program program = {0};
    ProgramConfig config = c->program;
    config.training = training;
    config.phase = phase;
    TRY(program_create(&config, n, layout, device, &program));
    for (int a = 0; a < ARENA_COUNT; a++)
        if (plan_bytes(program.plan, (Arena)a) > arena[a]) arena[a] = plan_bytes(program.plan, (Arena)a);
    program_destroy(&program);
    return OK;
}

static Status plans_measure(const ReplicaConfig *c, int32_t n, Device *device, size_t *bytes)
{
    Status st = OK;
    Layout *layout;
    size_t arena[ARENA_COUNT] = {0};
    TRY(program_layout(&c->program, n, &layout));
    for (int phase = 0; phase < program_phases(c->program.model); phase++)
        TRY_OUT(program_add(c, phase, true, n, layout, device, arena));
    for (const int32_t *size = c->eval_n; size && *size; size++)
        TRY_OUT(program_add(c, 0, false, *size, layout, device, arena));
    *bytes = replica_rest_bytes(c, layout, n);
    for (int a = 0; a < ARENA_COUNT; a++) *bytes += a == ARENA_RUNNING || a == ARENA_BATCH_STATISTICS ? 0 : arena[a];
out:
    layout_destroy(layout);
    return st;
}

/* ---- the search */

/* `deterministic`: any plan will do, so no kernel is timed. */
static Status measure_open(const ReplicaConfig *c, Device *device, BatchFit *fit)
{
    DeviceConfig config = c->device;
    config.deterministic = true;
    TRY(c->backend->open(&config, device));
    Status st = c->backend->memory
                    ? c->backend->memory(device, &fit->free_bytes, &fit->total)
                    : FAIL(ERR_UNSUPPORTED, "--batch-size max: the free memory of %s is unknown; give a number",
                           c->backend->name);
    if (st != OK) c->backend->close(device);
    return st;
}

static int32_t rounded(double n, int32_t most)
{
    if (n >= most) return most;
    if (n < 1) return 0;
    return n >= STEP ? (int32_t)n / STEP * STEP : (int32_t)n;
}

static Status search(const ReplicaConfig *c, Device *device, int sharers, int32_t most, BatchFit *fit)
{
    int32_t few = most < FEW ? 1 : FEW, more = most < FEW ? most : most < MORE ? most : MORE;
    size_t low = 0, high = 0, room = (fit->free_bytes - fit->free_bytes / RESERVE_SHARE) / (size_t)sharers;
    TRY(plans_measure(c, few, device, &low));
    if (more > few) TRY(plans_measure(c, more, device, &high));
    double slope = more > few ? ((double)high - (double)low) / (more - few) : (double)low;
    double fixed = (double)low - slope * few;
    fit->n = rounded(slope > 0 ? ((double)room - fixed) / slope : most, most);
    /* Lower a calculated size until its plan fits: a plan's size is exact, the line through two sizes is not. */
    for (int i = 0; i < TRIES && fit->n > 0; i++) {
        Status st = plans_measure(c, fit->n, device, &fit->bytes);
        if (st == OK && fit->bytes <= room) return OK;
        if (st != OK && st != ERR_UNSUPPORTED && st != ERR_MEMORY) return st;
        double less = st == OK ? (double)room / (double)fit->bytes : 0.75; /* unsupported: a tensor of 2^31 elements */
        fit->n = rounded(fit->n * less, fit->n > STEP ? fit->n - STEP : fit->n - 1);
    }
    fit->n = 0;
    return OK;
}

Status batch_fit(const ReplicaConfig *config, int sharers, int32_t most, BatchFit *fit)
{
    Device device = {0};
    *fit = (BatchFit){0};
    TRY(measure_open(config, &device, fit));
    Status st = search(config, &device, sharers, most, fit);
    config->backend->close(&device);
    return st;
}

/* ---- the search for a job, in a child process */

typedef struct FitAnswer {
    Status status;
    BatchFit fit;
    char message[512];
} FitAnswer;

static int sharers_of(const TrainJob *job)
{
    return job->backend->on_host ? job_node_processes(job) : 1;
}

static Status probe(const ReplicaConfig *config, BatchFit *fit)
{
    for (int tries = 1;; tries++) {
        Replica *replica = NULL;
        ReplicaConfig with = *config;
        with.train_n = (const int32_t[]){fit->n, 0};
        Status st = replica_create(&with, &replica);
        replica_destroy(replica);
        if (st != ERR_MEMORY) return st;
        if (tries == TRIES)
            return FAIL(ERR_MEMORY, "--batch-size max: a batch of %d does not fit either; give a number", fit->n);
        fit->n = rounded(fit->n * 0.9, fit->n - 1);
        if (!fit->n) return st;
    }
}

static Status question(const TrainJob *job, int32_t most, BatchFit *fit)
{
    Status st = OK;
    ReplicaConfig config;
    int32_t *sizes;
    /* The configuration of the last process: none has more towers. */
    Placement place = job_placement(job, job->processes - 1);
    TRY(process_config(job, &place, &config, &sizes));
    TRY_OUT(batch_fit(&config, sharers_of(job), most, fit));
    if (fit->n < 1)
        TRY_OUT(FAIL(ERR_MEMORY, "--batch-size max: a single sample needs %zu MiB, but only %zu of %zu MiB are free%s",
                     fit->bytes >> 20, fit->free_bytes >> 20, fit->total >> 20,
                     config.eval_n[0] ? "; a smaller --eval-batch-size may help" : ""));
    if (!job->backend->on_host) st = probe(&config, fit); /* no probe on a CPU: its memory is shared */
out:
    free(sizes);
    return st;
}

static void answer_write(const TrainJob *job, int32_t most, int to)
{
    FitAnswer answer = {0};
    answer.status = question(job, most, &answer.fit);
    if (answer.status != OK) snprintf(answer.message, sizeof answer.message, "%.500s", status_message());
    _exit(write(to, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
}

static bool answer_read(int from, pid_t child, FitAnswer *answer)
{
    ssize_t got;
    int ending = 0;
    while ((got = read(from, answer, sizeof *answer)) < 0 && errno == EINTR) continue;
    while (waitpid(child, &ending, 0) < 0 && errno == EINTR) continue;
    return got == (ssize_t)sizeof *answer;
}

Status batch_max_find(const TrainJob *job, int32_t most, BatchFit *fit)
{
    int ends[2];
    FitAnswer answer = {0};
    if (pipe(ends) != 0) return FAIL(ERR_MEMORY, "--batch-size max: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) answer_write(job, most, ends[1]);
    close(ends[1]);
    bool answered = child > 0 && answer_read(ends[0], child, &answer);
    close(ends[0]);
    if (!answered) return FAIL(ERR_MEMORY, "--batch-size max: the search process ended unexpectedly; give a number");
    *fit = answer.fit;
    return answer.status == OK ? OK : FAIL(answer.status, "%s", answer.message);
}

/* ---- advice after a failure */

Status batch_explain(const TrainJob *job, const ReplicaConfig *config)
{
    StatusText words;
    BatchFit fit = {0};
    size_t wanted = 0;
    Device device = {0};
    ReplicaConfig same = *config;
    int32_t n = config->train_n ? config->train_n[0] : 0;
    status_keep(&words);
    if (n < 1 || !config->backend->memory || measure_open(&same, &device, &fit) != OK)
        return status_restore(ERR_MEMORY, &words);
    Status st = plans_measure(&same, n, &device, &wanted);
    if (st == OK) st = search(&same, &device, sharers_of(job), n, &fit);
    config->backend->close(&device);
    if (st != OK) return status_restore(ERR_MEMORY, &words);
    if (fit.n < 1)
        return FAIL(ERR_MEMORY, "%.800s; a batch of %d needs %zu MiB in all, and no smaller one fits either",
                    words.message, n, wanted >> 20);
    return FAIL(ERR_MEMORY, "%.800s; a batch of %d needs %zu MiB in all; try --batch-size %d or --batch-size max",
                words.message, n, wanted >> 20, fit.n);
}
