/* The cost of the ledger, the norms and the digests: steps with and without them, alternating within one run.
 *
 * In every other block of steps the sum of squares of a gradient (for the norms and the search for values that are not
 * finite) is not computed; the ratio of neighboring blocks is its cost, independent of other load. Replicas are
 * compared once in four blocks: the time by which that step is longer than its neighbors is the cost of a digest. The
 * ledger's clock calls are too cheap to be measured within a step and are timed separately.
 * Both wall-clock time and the processor time of tower 0's process are reported; the latter is not affected by other
 * programs.
 *
 *   bench_ledger MODEL BATCH TOWERS BLOCKS     prints a row of docs/results/cpu.md */
#include "inception/models/models.h"
#include "tests/support/local_batches.h"
#include "towers/record/statistics.h"
#include "towers/replica/job.h"
#include "towers/supervisor/train.h"

#include <sys/mman.h>

enum { BLOCK = 8, WARM_BLOCKS = 4, BLOCKS_MAX = 4096, DIGEST_EVERY = 4 * BLOCK, USUAL_INTERVAL = 500 };

/* ---- a device whose sums of squares come and go */

static Backend bare;
static const Backend *full;
static int64_t updates; /* of this process */

static bool block_is_bare(int64_t step)
{
    return step / BLOCK % 2 == 1;
}

static Status bare_open(const DeviceConfig *config, Device *device)
{
    TRY(full->open(config, device));
    device->backend = &bare;
    return OK;
}

static Status bare_square_sum(Device *device, const float *x, size_t count, double *sum)
{
    if (!block_is_bare(updates)) return full->square_sum(device, x, count, sum);
    *sum = 1;
    return OK;
}

static Status bare_optimizer(Device *device, const OptimizerUpdate *update)
{
    updates++;
    return full->optimizer_apply(device, update);
}

/* ---- times */

enum { WALL = 0, PROCESSOR, CLOCKS };
typedef struct Times {
    double seconds[CLOCKS][BLOCKS_MAX * BLOCK + 1]; /* of step i + 1 */
    double before;                                  /* processor time up to the last step */
} Times;

static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    Times *times = context;
    (void)ledger, (void)loss;
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    double now = (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
    times->seconds[WALL][step - 1] = seconds;
    times->seconds[PROCESSOR][step - 1] = now - times->before;
    times->before = now;
}

/* The median step of a block; a step with a digest is left out. */
static double block_time(const double *seconds, int block)
{
    double values[BLOCK];
    int count = 0;
    for (int i = 0; i < BLOCK; i++) {
        int64_t step = (int64_t)block * BLOCK + i + 1;
        if (step % DIGEST_EVERY) values[count++] = seconds[step - 1];
    }
    return series_median(values, count);
}

/* Percent that a full block takes longer than the bare one behind it: the middle half of all pairs, and its
 * interval. */
static void norms_cost(const double *seconds, int blocks, double *percent, double *half)
{
    static double cost[BLOCKS_MAX];
    int pairs = 0;
    for (int b = WARM_BLOCKS; b + 1 < blocks; b += 2)
        cost[pairs++] = 100 * (block_time(seconds, b) / block_time(seconds, b + 1) - 1);
    series_sort(cost, pairs);
    int first = pairs / 4, count = pairs - 2 * (pairs / 4);
    *percent = series_mean(cost + first, count);
    *half = 1.6 * student_quantile(0.975, count - 1) * sqrt(series_variance(cost + first, count) / count);
}

static double digest_seconds(const double *seconds, int blocks)
{
    static double extra[BLOCKS_MAX];
    int count = 0;
    for (int64_t step = (int64_t)WARM_BLOCKS * BLOCK; step < (int64_t)blocks * BLOCK; step += DIGEST_EVERY)
        extra[count++] = seconds[step - 1] - (seconds[step - 2] + seconds[step]) / 2;
    return series_median(extra, count);
}

static double ledger_seconds(void)
{
    enum { CALLS = 1000000 };
    Ledger *ledger;
    if (ledger_create(1, 1, &ledger) != OK) return NAN;
    int64_t before = clock_ns();
    for (int i = 0; i < CALLS; i++) ledger_activity(ledger, 0, i / 8, (Activity)(1 + i % 7));
    double seconds = (double)(clock_ns() - before) * 1e-9 / CALLS;
    ledger_destroy(ledger);
    return seconds;
}

/* ---- the run */

static TrainJob job_make(const Model *model, const Source *data, int towers, int32_t batch, int blocks, Times *times)
{
    TrainJob job = {
        .program = {.model = model,
                    .options = {.classes = model->classes,
                                .side = model->side,
                                .channels = model->channels,
                                .dropout = model->dropout,
                                .drop_path = model->drop_path,
                                .variant = ""},
                    .data_channels = model->channels,
                    .canvas = model->side,
                    .fuse_siblings = true,
                    .pool_behind_conv = true},
        .train = data,
        .backend = &bare,
        .local_batches = batches_equal(towers, batch),
        .processes = towers,
        .device = {DEVICE_USUAL, .threads = 1},
        .optimizer = {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
        .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 0.0001},
        .epochs = (int64_t)blocks * BLOCK,
        .max_steps = (int64_t)blocks * BLOCK,
        .accumulate = 1,
        .gate.bn_decay = 0.9,
        .gate.check = NAN_CHECK_ALL,
        .comm.timeout_ms = 600000,
        .sdc_check = DIGEST_EVERY,
        .data.workers = 1,
        .quiet = true,
        .on_step = step_seen,
        .on_step_context = times,
    };
    return job;
}

static void row_print(const char *name, int32_t batch, int towers, int blocks, const Times *times)
{
    double usual[CLOCKS], norms[CLOCKS], half[CLOCKS], digest = digest_seconds(times->seconds[PROCESSOR], blocks);
    for (int k = 0; k < CLOCKS; k++) {
        static double step[BLOCKS_MAX];
        for (int b = 0; b < blocks; b++) step[b] = block_time(times->seconds[k], b);
        usual[k] = series_median(step, blocks);
        norms_cost(times->seconds[k], blocks, &norms[k], &half[k]);
    }
    double digests = 100 * digest / USUAL_INTERVAL / usual[PROCESSOR],
           activities = 100 * 7 * ledger_seconds() / usual[PROCESSOR];
    printf("| %s, %d towers x %d | %.2f | %.2f | %+.2f +- %.2f | %+.2f +- %.2f | %.3f | %.3f | %+.2f |\n", name, towers,
           batch, usual[WALL] * 1e3, usual[PROCESSOR] * 1e3, norms[WALL], half[WALL], norms[PROCESSOR], half[PROCESSOR],
           digests, activities, norms[PROCESSOR] + digests + activities);
}

static Status bench(const char *name, int32_t batch, int towers, int blocks)
{
    const Model *model;
    Source *data;
    int signal_number;
    TRY(model_find(name, &model));
    TRY(backend_find("cpu", &full, NULL, 0));
    bare = *full;
    bare.open = bare_open;
    bare.square_sum = bare_square_sum;
    bare.optimizer_apply = bare_optimizer;
    TRY(source_synthetic(4ll * batch * towers, model->classes, model->side, model->side, model->channels, 1, &data));
    Times *times = mmap(NULL, sizeof *times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (times == MAP_FAILED) return FAIL(ERR_MEMORY, "times of the steps");
    TrainJob job = job_make(model, data, towers, batch, blocks, times);
    Status st = train_timed(&job, &signal_number);
    source_close(data);
    TRY(st);
    row_print(name, batch, towers, blocks, times);
    return OK;
}

int main(int argc, char **argv)
{
    int blocks = argc == 5 ? atoi(argv[4]) : 0;
    if (blocks < 16 || blocks > BLOCKS_MAX || atoi(argv[2]) < 1 || atoi(argv[3]) < 2) {
        fprintf(stderr, "usage: bench_ledger MODEL BATCH TOWERS BLOCKS (16 to %d, of %d steps)\n", BLOCKS_MAX, BLOCK);
        return 2;
    }
    Status st = bench(argv[1], atoi(argv[2]), atoi(argv[3]), blocks);
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}
