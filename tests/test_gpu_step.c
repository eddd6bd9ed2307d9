/* A training step on the fake GPU: the same bits whether its streams run late, early or by the dice, on one rank and on
 * several; and what a step asks of the driver once it has warmed up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/fake_cuda/gpu_run.h"

static int fake_as_new(void **state)
{
    (void)state;
    fake_gpu_reset();
    return 0;
}

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

static void test_same_bits_under_all_schedules(void **state)
{
    (void)state;
    check_schedules(1, 1);
    check_schedules(3, 1);
    check_schedules(2, 2);
    check_schedules(3, 2);
}

/* The loss falls: what the reference computes is what the host code asked for. */
static void test_it_learns(void **state)
{
    (void)state;
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
        memcpy(losses[graphs], run.seen->loss, sizeof losses[graphs]);
        gpu_run_close(&run);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

static void test_graphs_give_the_same_bits(void **state)
{
    (void)state;
    check_graphs(1, 1, DTYPE_F32);
    check_graphs(2, 1, DTYPE_BF16);
    check_graphs(2, 2, DTYPE_F16);
}

/* ---- what a step asks of the driver */

typedef struct Allowed {
    const char *name;
    int most; /* in two steps of one tower */
} Allowed;

/* The host only asks whether results have come: docs/decisions/0007-gpu-host.md. */
static const Allowed waits[] = {
    {"cudaStreamSynchronize", 0}, {"implicit synchronization", 0}, {"wait for an event", 0}};
static const char *const never[] = {"cudaMalloc",       "cudaFree",           "cudaHostAlloc",
                                    "cudaHostRegister", "ncclMemAlloc",       "cudaEventCreate",
                                    "cudaStreamCreate", "cudnnCreate",        "cublasLtCreate",
                                    "ncclCommRegister", "cublasLtMatmulAlgo", "cudaDeviceSynchronize",
                                    "cudaMemGetInfo",   "cublasLtMatrix",     "cudaGraphInstantiate"};

static int64_t steps_counts[64];

static void counts_keep(int64_t step)
{
    if (step == 2) fake_gpu_counts_clear();
    if (step != 4) return;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) steps_counts[i] = fake_gpu_count(waits[i].name);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) steps_counts[16 + i] = fake_gpu_count_like(never[i]);
}

static void test_warm_steps_neither_allocate_nor_wait(void **state)
{
    (void)state;
    GpuRun run;
    gpu_run_open(&run, 1, 1);
    run.on_step = counts_keep;
    must_live(&run);
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        if (steps_counts[i] > waits[i].most)
            fail_msg("%lld of '%s' in two steps, at most %d", (long long)steps_counts[i], waits[i].name, waits[i].most);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (steps_counts[16 + i]) fail_msg("%lld of %s... in two steps", (long long)steps_counts[16 + i], never[i]);
    gpu_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_it_learns, fake_as_new),
        cmocka_unit_test_setup(test_same_bits_under_all_schedules, fake_as_new),
        cmocka_unit_test_setup(test_graphs_give_the_same_bits, fake_as_new),
        cmocka_unit_test_setup(test_warm_steps_neither_allocate_nor_wait, fake_as_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
