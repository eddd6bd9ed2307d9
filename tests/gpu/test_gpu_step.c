/* A training step on the fake GPU: the same bits whether its streams run late, early or in random order, on one rank
 * and on several; and the driver calls of a warm step. */
#include <sys/mman.h>

#include "inception/models/models.h"
#include "kernels/cuda/cuda.h"
#include "nccl_sync/comm_ops.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/guard/digest.h"

static void must_live(GpuRun *run)
{
    if (gpu_run_live(run) == OK) return;
    for (int r = 0; r < run->job.processes; r++) fprintf(stderr, "rank %d: %s\n", r, run->seen->rank[r].message);
    fail_msg("the run failed");
}

/* Losses of a run under one schedule; true if all ranks ended well. */
static bool losses_of(int towers, int ranks, void (*on_start)(int rank), double *losses)
{
    GpuRun run;
    gpu_run_open(&run, towers, ranks);
    run.on_start = on_start;
    bool well = gpu_run_live(&run) == OK;
    for (int r = 0; r < ranks; r++) well &= run.seen->rank[r].alive == 0;
    if (!well) fprintf(stderr, "%d towers on %d ranks: %s\n", towers, ranks, run.seen->rank[0].message);
    memcpy(losses, run.seen->loss, sizeof run.seen->loss);
    gpu_run_close(&run);
    return well;
}

/* ---- order */

static GpuSchedule schedule;
static uint32_t seed;

static void start_scheduled(int rank)
{
    fake_gpu_schedule(schedule, seed + (uint32_t)rank);
}

static void check_schedules(int towers, int ranks)
{
    double first[GPU_RUN_STEPS + 1], again[GPU_RUN_STEPS + 1];
    schedule = GPU_LAZY;
    assert_true(losses_of(towers, ranks, start_scheduled, first));
    for (seed = 0; seed < 4; seed++) {
        schedule = seed ? GPU_SHUFFLED : GPU_EAGER;
        assert_true(losses_of(towers, ranks, start_scheduled, again));
        for (int s = 1; s <= 4; s++)
            if (memcmp(&first[s], &again[s], sizeof *first))
                fail_msg("%d towers on %d ranks, step %d: loss %.17g late and %.17g under schedule %u", towers, ranks,
                         s, first[s], again[s], seed);
    }
}

TEST_WITH(test_same_bits_under_all_schedules, fake_as_new, NULL)
{
    check_schedules(1, 1);
    check_schedules(3, 1);
    check_schedules(2, 2);
    check_schedules(3, 2);
}

/* The loss falls: what the reference computes is what the host code asked for. */
TEST_WITH(test_it_learns, fake_as_new, NULL)
{
    GpuRun run;
    gpu_run_open(&run, 1, 1);
    run.job.max_steps = 8;
    must_live(&run);
    assert_true(run.seen->loss[8] < run.seen->loss[1]);
    gpu_run_close(&run);
}

/* ---- graphs */

static void check_graphs(int towers, int ranks, Dtype compute)
{
    double losses[2][GPU_RUN_STEPS + 1];
    for (int graphs = 0; graphs < 2; graphs++) {
        GpuRun run;
        gpu_run_open(&run, towers, ranks);
        run.job.max_steps = GPU_RUN_STEPS;
        run.job.graphs = graphs;
        run.job.program.compute = compute;
        must_live(&run);
        if (ranks == 1 && graphs) assert_true(fake_gpu_count("cudaGraphLaunch") > 0);
        assert_int_equal(fake_gpu_count("spoilt capture"), 0);
        memcpy(losses[graphs], run.seen->loss, sizeof losses[graphs]);
        gpu_run_close(&run);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

TEST_WITH(test_graphs_give_the_same_bits, fake_as_new, NULL)
{
    check_graphs(1, 1, DTYPE_F32);
    check_graphs(2, 1, DTYPE_BF16);
    check_graphs(2, 2, DTYPE_F16);
}

/* ---- phases in turn: each captures launches of its own */

static void losses_of_phases(int towers, int ranks, bool graphs, double *losses)
{
    GpuRun run;
    gpu_run_open(&run, towers, ranks);
    run.on_start = start_scheduled;
    run.job.program.model = &model_wgan_gp;
    run.job.program.options.width = 2;
    run.job.program.options.penalty_weight = 10;
    run.job.repeats[0] = 1;
    run.job.max_steps = GPU_RUN_STEPS;
    run.job.graphs = graphs;
    must_live(&run);
    if (ranks == 1 && graphs) assert_true(fake_gpu_count("cudaGraphLaunch") > 0);
    assert_int_equal(fake_gpu_count("spoilt capture"), 0);
    memcpy(losses, run.seen->loss, sizeof run.seen->loss);
    gpu_run_close(&run);
}

static void check_phases(int towers, int ranks)
{
    double plain[GPU_RUN_STEPS + 1], other[GPU_RUN_STEPS + 1];
    schedule = GPU_LAZY;
    losses_of_phases(towers, ranks, false, plain);
    assert_true(isfinite(plain[GPU_RUN_STEPS - 1]) && plain[GPU_RUN_STEPS - 1] != plain[GPU_RUN_STEPS - 3]);
    assert_true(plain[GPU_RUN_STEPS] == plain[GPU_RUN_STEPS - 1]); /* the generator's step shows the critic's loss */
    for (seed = 0; seed < 2; seed++) {
        schedule = seed ? GPU_SHUFFLED : GPU_EAGER;
        losses_of_phases(towers, ranks, seed == 0, other);
        assert_memory_equal(plain, other, sizeof plain);
    }
}

TEST_WITH(test_phases, fake_as_new, NULL)
{
    check_phases(1, 1);
    check_phases(2, 1);
    check_phases(2, 2);
}

/* ---- what a warm step asks of the driver, call by call */

#define UPLOAD "cudaEventSynchronize\ncudaMemcpyAsync\ncudaEventRecord\n" /* the event: a slot of a ring of 512 */
#define UPLOADED "cudaEventSynchronize\n"                                 /* of large uploads from pinned memory */
#define INPUTS UPLOADED UPLOAD UPLOAD UPLOAD UPLOAD UPLOAD                /* pixels, labels, crops, counter, scale */
#define GRAPH "cudaGraphLaunch\n"
#define GIVE                                                                                                           \
    "cudaPointerGetAttributes\ncudaEventRecord\ncudaStreamWaitEvent\nncclAllReduce\nncclCommGetAsyncError\n"           \
    "ncclCommGetAsyncError\ncudaEventRecord\n"
#define SUM "cudaEventRecord\ncudaStreamWaitEvent\n" /* of all that was given, where it lies: no copy */
#define REPORT "cudaMemcpyAsync\ncudaEventRecord\n"

/* Forward, three buckets, update. */
static const char alone[] = UPLOAD INPUTS GRAPH GRAPH GRAPH GRAPH "cudaPointerGetAttributes\n" GRAPH REPORT;
static const char two_ranks[] = UPLOAD INPUTS GRAPH GRAPH GIVE GRAPH GIVE GRAPH GIVE GIVE SUM GRAPH REPORT;

enum { WARM = 7, ASKED = 1 << 14 }; /* recorded by then, and what is asked of a step is all of one step */

static char *asked; /* [ASKED], shared with the ranks */

static void step_write_down(int64_t step)
{
    if (step == WARM) fake_gpu_log(asked, ASKED);
    if (step == WARM + 1) fake_gpu_log(NULL, 0);
}

/* Then the host asks until the step before the last one is there: how often is up to the device. */
static bool is_asking(const char *line)
{
    static const char *const questions[] = {"cudaEventQuery\n", "ncclCommGetAsyncError\n"};
    while (*line) {
        const char *question = strncmp(line, questions[0], strlen(questions[0])) ? questions[1] : questions[0];
        if (strncmp(line, question, strlen(question)) != 0) return false;
        line += strlen(question);
    }
    return true;
}

static void check_asked(int ranks, const char *wanted)
{
    GpuRun run;
    gpu_run_open(&run, ranks, ranks);
    run.job.graphs = true;
    run.job.max_steps = WARM + 4;
    run.job.nan_policy = NAN_POLICY_SKIP; /* no other policy waits more */
    run.job.gate.skips_max = 10;
    run.on_step = step_write_down;
    *asked = 0;
    must_live(&run);
    size_t length = strlen(wanted);
    if (strncmp(asked, wanted, length) != 0 || !is_asking(asked + length))
        fail_msg("%d ranks, step %d asked for\n%s\nwanted:\n%s", ranks, WARM + 3, asked, wanted);
    gpu_run_close(&run);
}

/* Nothing in the lists allocates or waits, and launches of kernels are in graphs. */
TEST_WITH(test_warm_step_call_by_call, fake_as_new, NULL)
{
    asked = mmap(NULL, ASKED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(asked != MAP_FAILED);
    check_asked(1, alone);
    assert_int_equal(fake_gpu_count_like("ncclComm"), 0);
    check_asked(2, two_ranks);
    munmap(asked, ASKED);
}

/* ---- memory */

/* A number of memory.json. */
static size_t planned(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in %s", name, text);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* The memory that the all-reduce needs beside the gradients, with two GPUs; without what only broadcasts use. */
static size_t sum_bytes(Dtype reduce, bool ordered, size_t *gradients)
{
    GpuRun run;
    char path[PATH_BYTES], *text;
    size_t bytes;
    gpu_run_open(&run, 2, 2);
    run.job.run_dir = scratch;
    run.job.max_steps = 1;
    run.job.comm.reduce = reduce;
    run.job.comm.ordered = ordered;
    must_live(&run);
    gpu_run_close(&run);
    assert_int_equal(path_join(path, scratch, "memory.json"), OK);
    assert_int_equal(file_read(path, 1 << 16, &text, &bytes), OK);
    size_t sum = planned(text, "sum over towers");
    *gradients = planned(text, "gradients");
    /* rings: the run is deterministic; and messages to the other rank */
    assert_int_equal(planned(text, "NCCL's buffers, estimated"), (ordered ? 288 + 384 : 288) << 20);
    assert_int_equal(planned(text, "uploads"), 0); /* its batches are small */
    free(text);
    assert_true(sum > COMM_RELAY_BYTES);
    return sum - COMM_RELAY_BYTES;
}

/* In f32 no second buffer of their size: statistics and extras alone. */
TEST_WITH(test_memory_that_a_sum_takes, fake_and_scratch_as_new, scratch_drop)
{
    size_t gradients, plain = sum_bytes(DTYPE_F32, false, &gradients);
    assert_true(plain > 0 && plain < gradients / 8);
    assert_int_equal(sum_bytes(DTYPE_BF16, false, &gradients), plain + gradients / 2);
    size_t ordered = sum_bytes(DTYPE_F32, true, &gradients);
    assert_true(ordered > 3 * gradients / 2 && ordered < 3 * gradients / 2 + 2 * plain + 4096);
}

/* Buffers for uploads are as large as planned, and only uploads have them. */
TEST_WITH(test_memory_of_uploads, fake_as_new, NULL)
{
    enum { LARGE = 3 << 20, SMALL = 1 << 10 };
    static const struct {
        size_t bytes;
        PinFor use;
        bool more;
    } tries[] = {{SMALL, PIN_UPLOADS, false},
                 {LARGE, PIN_DOWNLOADS, false},
                 {LARGE, PIN_UPLOADS, true},
                 {LARGE, PIN_UPLOADS, false}};
    Device device = {0};
    size_t before, after, total;
    assert_int_equal(cuda_backend.open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        void *host = pages_alloc(tries[i].bytes);
        assert_non_null(host);
        assert_int_equal(cuda_backend.memory(&device, &before, &total), OK);
        cuda_backend.pin(&device, host, tries[i].bytes, tries[i].use);
        assert_int_equal(cuda_backend.memory(&device, &after, &total), OK);
        assert_int_equal(before - after, tries[i].more ? cuda_backend.upload_bytes(tries[i].bytes) : 0);
        cuda_backend.pin(&device, host, tries[i].bytes, PIN_NOT);
        free(host);
    }
    assert_int_equal(cuda_backend.upload_bytes(SMALL), 0);
    cuda_backend.close(&device);
}

/* Larger uploads than there are buffers for wait in the compute stream, and `uploaded` waits for both kinds. Buffers that
 * cannot grow stay. */
TEST_WITH(test_uploads_of_two_sizes, fake_as_new, NULL)
{
    enum { SIZES = 2, SMALL = 2 << 20, LARGE = 3 << 20 };
    static const size_t bytes[SIZES] = {LARGE, SMALL};
    Device device = {0};
    void *host[SIZES], *memory[SIZES];
    size_t left, total;
    assert_int_equal(cuda_backend.open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    for (int i = SIZES - 1; i >= 0; i--) {
        assert_int_equal(cuda_backend.alloc(&device, bytes[i], &memory[i]), OK);
        assert_non_null(host[i] = pages_alloc(bytes[i]));
        cuda_backend.pin(&device, host[i], bytes[i], PIN_UPLOADS);
        memset(host[i], 1, bytes[i]);
        assert_int_equal(cuda_backend.memory(&device, &left, &total), OK);
        fake_gpu_memory(total - left + LARGE); /* room for one operand, not for two buffers more */
    }
    assert_int_equal(left, 0);
    for (int i = 0; i < SIZES; i++) assert_int_equal(cuda_backend.upload(&device, memory[i], host[i], bytes[i]), OK);
    assert_int_equal(cuda_backend.uploaded(&device), OK);
    for (int i = 0; i < SIZES; i++) memset(host[i], 2, bytes[i]);
    for (int i = 0; i < SIZES; i++) {
        assert_int_equal(cuda_backend.download(&device, host[i], memory[i], bytes[i]), OK);
        assert_int_equal(cuda_backend.finish(&device, STREAM_COMPUTE), OK);
        assert_int_equal(((char *)host[i])[bytes[i] - 1], 1);
        cuda_backend.pin(&device, host[i], bytes[i], PIN_NOT);
        cuda_backend.release(&device, memory[i]);
        free(host[i]);
    }
    cuda_backend.close(&device);
}

/* ---- summaries: copied to pinned memory, counted by another thread, and all written at the end */

static int64_t copies_that_wait(int interval)
{
    GpuRun run;
    gpu_run_open(&run, 1, 1);
    run.job.run_dir = scratch;
    run.job.max_steps = 6;
    run.job.event_interval = interval;
    must_live(&run);
    gpu_run_close(&run);
    return fake_gpu_count("implicit synchronization");
}

TEST_WITH(test_summaries, fake_and_scratch_as_new, scratch_drop)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    int64_t without = copies_that_wait(1000);
    fake_gpu_counts_clear();
    assert_int_equal(copies_that_wait(2), without);
    assert_int_equal(path_join(path, scratch, "layers.jsonl"), OK);
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes), OK);
    for (int step = 1; step <= 6; step++) {
        char row[32];
        snprintf(row, sizeof row, "{\"step\":%d,", step);
        if ((strstr(text, row) != NULL) != (step % 2 == 0)) fail_msg("step %d: %s", step, text);
    }
    free(text);
}

/* ---- the L2 term that is shown: one launch a step, however many parameters decay */

static int64_t kernels_of(double weight_decay)
{
    GpuRun run;
    fake_gpu_counts_clear();
    gpu_run_open(&run, 1, 1);
    run.job.run_dir = scratch;
    run.job.weight_decay = weight_decay;
    must_live(&run);
    gpu_run_close(&run);
    return fake_gpu_count("kernel");
}

TEST_WITH(test_l2_in_one_launch, fake_and_scratch_as_new, scratch_drop)
{
    int64_t with = kernels_of(1e-4); /* of 4 steps; biases and norms do not decay, so there are several segments */
    assert_int_equal(with - kernels_of(0), 4);
}

/* ---- a step that is left out */

/* ---- digests */

/* Replicas are compared without memory on the host for them: p.scratch is NULL. */
TEST_WITH(test_digest_on_the_device, fake_as_new, NULL)
{
    GpuRun run;
    TowerProcess p = {0};
    ReplicaConfig config;
    int32_t *sizes;
    uint64_t before, again, after;
    float kept, other = 7;
    gpu_run_open(&run, 1, 1);
    p.job = &run.job;
    p.place.local_towers = 1;
    assert_int_equal(process_config(&run.job, &p.place, &config, &sizes), OK);
    assert_int_equal(replica_create(&config, &p.replica), OK);
    free(sizes);
    Device *device = &p.replica->device;
    const Layout *layout = p.replica->layout;
    const LayoutEntry *last = &layout->params[layout->param_count - 1];
    float *at = p.replica->arena[ARENA_PARAM] + last->first + last->count - 1;
    assert_int_equal(digest_replica(&p, &before), OK);
    assert_int_equal(device->backend->download(device, &kept, at, sizeof kept), OK);
    assert_int_equal(device->backend->finish(device, STREAM_COMPUTE), OK);
    assert_int_equal(device->backend->upload(device, at, &other, sizeof other), OK);
    assert_int_equal(digest_replica(&p, &after), OK);
    assert_int_equal(device->backend->upload(device, at, &kept, sizeof kept), OK);
    assert_int_equal(digest_replica(&p, &again), OK);
    assert_true(before != after);
    assert_true(before == again);
    replica_destroy(p.replica);
    gpu_run_close(&run);
}

#ifdef TOWERS_FAULTS
static void run_with_fault(GpuRun *run, const char *fault)
{
    assert_int_equal(setenv("TOWERS_FAULT", fault, 1), 0);
    gpu_run_open(run, 2, 2);
    run->job.graphs = true;
    run->job.max_steps = GPU_RUN_STEPS;
    run->job.nan_policy = NAN_POLICY_SKIP;
    run->job.gate.skips_max = 3;
}

/* The gate on the device keeps the weights, whenever the host hears of it, and it hears of the right step. */
TEST_WITH(test_skipped_step, fake_as_new, NULL)
{
    double loss[3][GPU_RUN_STEPS + 1];
    for (int k = 0; k < 3; k++) {
        GpuRun run;
        run_with_fault(&run, k == 2 ? "" : "nan:tower=1,step=5,where=grad");
        run.on_start = start_scheduled;
        schedule = k ? GPU_LAZY : GPU_EAGER;
        must_live(&run);
        memcpy(loss[k], run.seen->loss, sizeof loss[k]);
        if (k < 2 && !strstr(run.seen->note, "step 5 is not finite and is skipped (1 so far)"))
            fail_msg("%s", run.seen->note);
        gpu_run_close(&run);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(loss[1], loss[2], 5 * sizeof **loss);
    assert_true(isnan(loss[1][5]) && isfinite(loss[1][6]) &&
                loss[1][6] != loss[2][6]); /* of no sample; of fewer moves */
    unsetenv("TOWERS_FAULT");
}

static void message_of(const char *fault, bool ordered, char *message)
{
    GpuRun run;
    run_with_fault(&run, fault);
    run.job.nan_policy = NAN_POLICY_STOP;
    run.job.comm.ordered = ordered;
    assert_int_equal(gpu_run_live(&run), ERR_NUMERIC);
    snprintf(message, STATUS_MESSAGE_BYTES, "%s", run.seen->rank[0].message);
    gpu_run_close(&run);
    unsetenv("TOWERS_FAULT");
}

/* The sum lies where the towers' gradients were: who was at fault, and where, is reported as if it lay elsewhere. */
TEST_WITH(test_culprit_behind_a_sum_in_place, fake_as_new, NULL)
{
    static const char *const faults[][3] = {
        {"nan:tower=1,step=5,where=grad", "tower 1, step 5: the gradient is not finite", "gradient"},
        {"nan:tower=0,step=3,activity=backward,layer=a", "tower 0, step 3: the gradient is not finite", "layer a"},
        {"inf:tower=1,step=4,activity=backward,layer=wide,index=2", "tower 1, step 4: the gradient is not finite",
         "wide"},
        {"nan:tower=1,step=2,layer=b,index=7", "tower 1, step 2", "layer b"},
    };
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
        char place[STATUS_MESSAGE_BYTES], apart[STATUS_MESSAGE_BYTES];
        message_of(faults[k][0], false, place);
        message_of(faults[k][0], true, apart);
        assert_string_equal(place, apart);
        if (!strstr(place, faults[k][1]) || !strstr(place, faults[k][2])) fail_msg("%s:\n%s", faults[k][0], place);
    }
}

/* Rank 0 looks at weights and gradients for its summaries. The others must not be further than it is by then, or they
 * hear of a step that is left out one step later, and wait for a sum that rank 0, in the search, does not begin. */
TEST_WITH(test_skipped_step_before_a_summary, fake_and_scratch_as_new, scratch_drop)
{
    for (int step = 1; step <= 4; step++) {
        GpuRun run;
        char fault[64];
        snprintf(fault, sizeof fault, "nan:tower=1,step=%d,where=grad", step);
        run_with_fault(&run, fault);
        run.job.run_dir = scratch;
        run.job.event_interval = 4;
        run.job.comm.timeout_ms = 30000;
        must_live(&run);
        gpu_run_close(&run);
    }
    unsetenv("TOWERS_FAULT");
}

/* A run of two GPUs in f16 that leaves out step 4; its weights, averages included. */
static char *weights_of(const char *name, int64_t steps, bool resume, size_t *bytes)
{
    GpuRun run;
    char folder[PATH_BYTES], path[PATH_BYTES], *text;
    scratch_path(folder, name);
    assert_int_equal(directory_create(folder), OK);
    run_with_fault(&run, "nan:tower=1,step=4,where=loss");
    run.job.run_dir = folder;
    run.job.program.compute = DTYPE_F16;
    run.job.gate.ema_decay = 0.9;
    run.job.max_steps = steps;
    run.job.resume = resume;
    must_live(&run);
    gpu_run_close(&run);
    unsetenv("TOWERS_FAULT");
    assert_int_equal(path_join(path, folder, "last.safetensors"), OK);
    assert_int_equal(file_read(path, 1 << 24, &text, bytes), OK);
    return text;
}

/* A checkpoint waits for the gate's decision on all steps in flight: a run goes on from it as if it had never ended. */
TEST_WITH(test_resume_after_a_skipped_step, fake_and_scratch_as_new, scratch_drop)
{
    size_t bytes[3];
    char *whole = weights_of("whole", GPU_RUN_STEPS, false, &bytes[0]);
    for (int ends = 4; ends <= 5; ends++) {
        char name[16];
        snprintf(name, sizeof name, "ends%d", ends);
        free(weights_of(name, ends, false, &bytes[1]));
        char *again = weights_of(name, GPU_RUN_STEPS, true, &bytes[2]);
        assert_int_equal(bytes[0], bytes[2]);
        assert_memory_equal(whole, again, bytes[0]);
        free(again);
    }
    free(whole);
}

/* A bit that flips in the memory of one GPU is found by the comparison of the replicas. */
TEST_WITH(test_flipped_bit, fake_as_new, NULL)
{
    GpuRun run;
    run_with_fault(&run, "bitflip:tower=1,step=3");
    run.job.sdc_check = 1;
    run.job.sdc_policy = SDC_POLICY_STOP;
    assert_int_equal(gpu_run_live(&run), ERR_NUMERIC);
    const char *message = run.seen->rank[0].message;
    if (!strstr(message, "after step 3") || !strstr(message, "weights") || !strstr(message, "element 0"))
        fail_msg("%s", message);
    gpu_run_close(&run);
    unsetenv("TOWERS_FAULT");
}
#endif
