/* Batch norm over the towers of several fake GPUs. They train like one tower with the whole batch, even if one has no
 * samples; give the same bits under every order of the streams, with or without graphs; and a warm step neither waits
 * nor allocates. A call that fails, or a rank that dies, in the middle of a layer ends all ranks. */
#include <sys/mman.h>

#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/guard/capsule.h"
#include "towers/replica/hooks.h"

static void sync_open(GpuRun *run, int towers)
{
    gpu_run_open(run, towers, towers);
    run->job.bn_stats = BN_STATS_SYNC;
    run->job.program.options.dropout = 0;
    run->job.max_steps = GPU_RUN_STEPS;
    run->job.test = run->data; /* gives a program to a tower without samples */
    run->job.eval_batch = 4;
}

static void must_live(GpuRun *run)
{
    Status st = gpu_run_live(run);
    for (int r = 0; r < run->job.processes; r++) {
        if (st != OK) fprintf(stderr, "rank %d: %s\n", r, run->seen->rank[r].message);
        if (run->seen->rank[r].alive) fail_msg("rank %d left objects behind", r);
    }
    assert_int_equal(st, OK);
}

/* ---- one tower with the whole batch */

static void (*starting)(int rank);

/* 64 samples are five batches of 12 and four samples more, for the first tower alone: step 6. */
static const int last_idle[] = {11, 1};

typedef struct Way {
    bool own; /* statistics are of each tower's batch */
    Dtype compute;
    bool graphs, ordered;
    int accumulate; /* 0: 1 */
} Way;

static void losses_of(int towers, const int *batches, Way way, double *losses)
{
    GpuRun run;
    sync_open(&run, towers);
    run.job.bn_stats = way.own ? BN_STATS_POOLED : BN_STATS_SYNC;
    run.job.graphs = way.graphs;
    run.job.program.compute = way.compute;
    run.job.comm.ordered = way.ordered;
    run.job.accumulate = way.accumulate ? way.accumulate : 1;
    run.on_start = starting;
    run.job.local_batches.batch = batches;
    must_live(&run);
    memcpy(losses, run.seen->loss, sizeof run.seen->loss);
    gpu_run_close(&run);
}

static double difference(const double *a, const double *b, int steps)
{
    double most = 0;
    for (int s = 1; s <= steps; s++) most = fmax(most, fabs(a[s] - b[s]));
    return most;
}

static void check_one_batch(int towers, const int *batches, Way way, int steps, double tolerance)
{
    double one[GPU_RUN_STEPS + 1], parts[GPU_RUN_STEPS + 1];
    int whole = 0;
    for (int t = 0; t < towers; t++) whole += batches[t];
    losses_of(1, &whole, way, one);
    losses_of(towers, batches, way, parts);
    double away = difference(one, parts, steps);
    if (!(away <= tolerance)) fail_msg("%d towers, %s: %g away", towers, dtype_name(way.compute), away);
}

/* Or the comparison would say nothing. */
static void check_own_differ(void)
{
    double parts[GPU_RUN_STEPS + 1], own[GPU_RUN_STEPS + 1];
    losses_of(2, last_idle, (Way){0}, parts);
    losses_of(2, last_idle, (Way){.own = true}, own);
    assert_true(difference(parts, own, 3) > 1e-3);
}

TEST_WITH(test_towers_are_one_batch, fake_as_new, NULL)
{
    LocalBatches local_batches = {2, last_idle};
    int64_t first;
    int32_t n;
    local_batch_of(&local_batches, 64, 5, 1, &first, &n);
    assert_int_equal(n, 0);
    starting = NULL;
    check_one_batch(3, (int[]){1, 4, 2}, (Way){0}, GPU_RUN_STEPS, 2e-5);
    check_one_batch(2, (int[]){5, 0}, (Way){0}, GPU_RUN_STEPS, 2e-5); /* a tower that never has samples */
    check_one_batch(2, last_idle, (Way){.graphs = true}, GPU_RUN_STEPS, 2e-5);
    check_one_batch(2, last_idle, (Way){.ordered = true, .accumulate = 2}, 4, 2e-5);
    check_one_batch(2, (int[]){4, 4}, (Way){.compute = DTYPE_BF16}, 2, 0.01);
    check_own_differ();
}

/* ---- order */

static GpuSchedule schedule;
static uint32_t seed;

static void start_scheduled(int rank)
{
    fake_gpu_schedule(schedule, seed + (uint32_t)rank);
}

TEST_WITH(test_same_bits_under_all_schedules, fake_as_new, NULL)
{
    double first[GPU_RUN_STEPS + 1], again[GPU_RUN_STEPS + 1];
    starting = start_scheduled;
    schedule = GPU_LAZY;
    losses_of(2, last_idle, (Way){0}, first);
    for (seed = 0; seed < 3; seed++) {
        schedule = seed < 1 ? GPU_EAGER : GPU_SHUFFLED;
        losses_of(2, last_idle, (Way){.graphs = seed % 2}, again);
        assert_memory_equal(first + 1, again + 1, GPU_RUN_STEPS * sizeof *first);
    }
}

/* ---- what a warm step asks of the driver */

#define UPLOAD "cudaEventSynchronize\ncudaMemcpyAsync\ncudaEventRecord\n" /* the event: a slot of a ring of 512 */
#define INPUTS "cudaEventSynchronize\n" UPLOAD UPLOAD UPLOAD UPLOAD       /* pixels, labels, crops, scale */
#define GRAPH "cudaGraphLaunch\n"
#define KERNEL "kernel\n"
#define GIVE                                                                                                           \
    "cudaPointerGetAttributes\ncudaEventRecord\ncudaStreamWaitEvent\nncclAllReduce\nncclCommGetAsyncError\n"           \
    "ncclCommGetAsyncError\ncudaEventRecord\n"
#define SUM "cudaEventRecord\ncudaStreamWaitEvent\n" /* where it lies: no copy */
#define NORM KERNEL GIVE SUM KERNEL GIVE SUM KERNEL KERNEL
#define NORM_DX KERNEL GIVE SUM KERNEL KERNEL
#define FORWARD GRAPH NORM GRAPH NORM GRAPH NORM GRAPH
#define BACKWARD GRAPH GRAPH NORM_DX GRAPH GRAPH NORM_DX GRAPH NORM_DX GRAPH /* three of them end a bucket */
#define REPORT "cudaMemcpyAsync\ncudaEventRecord\n"

static const char warm[] =
    UPLOAD INPUTS FORWARD BACKWARD GIVE GIVE GIVE GIVE SUM GRAPH REPORT; /* three buckets, and the extras */

enum { WARM = 7, ASKED = 1 << 15 };

static char *asked; /* [ASKED], shared with the ranks */

static void step_write_down(int64_t step)
{
    if (step == WARM) fake_gpu_log(asked, ASKED);
    if (step == WARM + 1) fake_gpu_log(NULL, 0);
}

/* Nothing in the list allocates or waits for the device; what lies between two batch norms is one launch. */
TEST_WITH(test_warm_step_call_by_call, fake_as_new, NULL)
{
    GpuRun run;
    asked = mmap(NULL, ASKED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(asked != MAP_FAILED);
    sync_open(&run, 2);
    run.job.graphs = true;
    run.job.max_steps = WARM + 4;
    run.on_step = step_write_down;
    must_live(&run);
    char *rest = asked;
    if (strncmp(asked, warm, strlen(warm)) != 0) fail_msg("asked for\n%s\nwanted:\n%s", asked, warm);
    for (rest += strlen(warm); *rest; rest = strchr(rest, '\n') + 1) /* until the step before the last is there */
        assert_true(!strncmp(rest, "cudaEventQuery\n", 15) || !strncmp(rest, "ncclCommGetAsyncError\n", 22));
    gpu_run_close(&run);
    munmap(asked, ASKED);
}

/* ---- failures */

static int64_t fail_at, *requests; /* requests: of rank 0, until it hears of a step; shared */

static void start_failing(int rank)
{
    if (rank == 1) fake_gpu_fail_request(fail_at);
}

static void requests_note(int64_t step)
{
    if (step <= GPU_RUN_STEPS) requests[step] = fake_gpu_requests();
}

/* Questions that have an answer all the same, and calls at the end. */
static bool may_fail(const char *call)
{
    static const char *const words[] = {"cudaPointerGetAttributes", "cudaFree", "Destroy", "Unregister"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(call, words[i])) return true;
    return !*call; /* there were fewer */
}

/* Request `number` of rank 1 fails: it says which, and rank 0 that rank 1 left; neither hangs or leaves anything behind. False if
 * it was one that may fail. */
static bool check_failure(int64_t number)
{
    GpuRun run;
    fail_at = number;
    sync_open(&run, 2);
    run.on_start = start_failing;
    gpu_run_live(&run);
    const char *failed = run.seen->rank[1].failed, *message = run.seen->rank[1].message;
    bool harmless = may_fail(failed);
    bool named = strstr(message, failed) ||
                 (strcmp(failed, "kernel") == 0 && (strstr(message, "kernel_") || strstr(message, "convert_")));
    for (int r = 0; r < 2; r++) {
        if (run.seen->rank[r].status == STATUS_COUNT) fail_msg("request %" PRId64 ": rank %d hung", number, r);
        if (run.seen->rank[r].alive) fail_msg("request %" PRId64 ": rank %d left objects", number, r);
    }
    if (!harmless && (run.seen->rank[0].status != ERR_COMM || run.seen->rank[1].status == OK || !named))
        fail_msg("request %" PRId64 ", %s: %d, %d '%s'", number, failed, (int)run.seen->rank[0].status,
                 (int)run.seen->rank[1].status, message);
    gpu_run_close(&run);
    return !harmless;
}

/* The requests of one step; of those every 11th, or all. */
TEST_WITH(test_failing_call_ends_the_run, fake_as_new, NULL)
{
    int64_t step = getenv("TOWERS_TEST_ALL_CALLS") ? 1 : 11;
    GpuRun run;
    requests = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(requests != MAP_FAILED);
    sync_open(&run, 2);
    run.on_step = requests_note; /* of rank 0, which makes as many as rank 1 */
    must_live(&run);
    gpu_run_close(&run);
    print_message("  %" PRId64 " requests\n", requests[4] - requests[3]);
    assert_in_range(requests[4] - requests[3], 100, 1000);
    int ended = 0;
    for (int64_t number = requests[3]; number < requests[4]; number += step) ended += check_failure(number);
    assert_true(ended > 2);
    munmap(requests, 4096);
}

#ifdef TOWERS_FAULTS
/* Rank 0 is in the sum of its first batch norm, or of the last one's gradient, when rank 1 dies. */
TEST_WITH(test_killed_rank_ends_the_run, fake_as_new, NULL)
{
    static const char *const faults[] = {"kill:tower=1,step=3,activity=forward",
                                         "kill:tower=1,step=5,activity=backward"};
    for (int i = 0; i < 2; i++) {
        GpuRun run;
        assert_int_equal(setenv("TOWERS_FAULT", faults[i], 1), 0);
        sync_open(&run, 2);
        run.job.graphs = true;
        gpu_run_live(&run);
        assert_int_equal(run.seen->rank[1].status, STATUS_COUNT);
        assert_int_equal(run.seen->rank[0].status, ERR_COMM);
        assert_non_null(strstr(run.seen->rank[0].message, "tower process 1 has left the run"));
        assert_int_equal(run.seen->rank[0].alive, 0);
        gpu_run_close(&run);
    }
    unsetenv("TOWERS_FAULT");
}

/* The towers run a step that is not finite again together; the one whose number was the first is named, and its capsule
 * has the sums that a replay without the others needs. */
TEST_WITH(test_first_nan_is_found_and_replayed, fake_and_scratch_as_new, scratch_drop)
{
    static const char fault[] = "nan:tower=1,step=3,layer=a.conv,index=5";
    char path[PATH_BYTES];
    GpuRun run;
    Capsule *capsule;
    Replica *replica;
    Finding found;
    assert_int_equal(setenv("TOWERS_FAULT", fault, 1), 0);
    sync_open(&run, 2);
    run.job.run_dir = scratch;
    assert_int_equal(gpu_run_live(&run), ERR_NUMERIC);
    unsetenv("TOWERS_FAULT");
    for (int r = 0; r < 2; r++)
        if (!strstr(run.seen->rank[r].message, "tower 1, step 3: ")) fail_msg("%s", run.seen->rank[r].message);
    scratch_path(path, "nan-step-3-tower-1");
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_true(capsule->sums.values[0] == 64); /* pixels behind the stem: 2 towers, 2 images, 4 x 4 */
    capsule->program.model = run.job.program.model;
    DeviceConfig device = {DEVICE_USUAL, .threads = 1, .deterministic = true};
    assert_int_equal(capsule_replica(capsule, run.job.backend, &device, &replica), OK);
    assert_int_equal(hooks_load_text(capsule->fault), OK);
    assert_int_equal(capsule_run(capsule, replica, NULL, NULL, &found), OK);
    assert_int_equal(found.place, FOUND_FORWARD);
    assert_string_equal(found.layer, "a.conv");
    assert_int_equal(found.index, 5);
    assert_int_equal(hooks_load_text(""), OK);
    replica_destroy(replica);
    capsule_close(capsule);
    assert_int_equal(fake_gpu_alive(stderr), 0);
    gpu_run_close(&run);
}
#endif
