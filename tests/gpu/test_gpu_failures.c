/* Every call of the CUDA libraries fails once: the n-th of a run, for all n, from opening the device over plans, steps
 * and their capture to the end. Then the run must end in an error that names the call, or continue if the call was
 * only a query, part of the shutdown, or made a graph. Nothing may crash, hang or leak.
 *
 * Calls with the same callers behave alike: of those the first or the last is tested, by the parity of their number,
 * and of all callers every fourth, by their number too. The selection differs in every run, because a caller's number
 * depends on where the program was loaded. TOWERS_TEST_ALL_CALLS=1 tests all calls. */
#include <sys/wait.h>

#include "inception/job/job.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/unit.h"
#include "towers/guard/batch_max.h"

/* Questions that have an answer all the same, and calls at the end. */
static const char *const may_fail[] = {
    "cudaFree",
    "cudaFreeHost",
    "cudaEventDestroy",
    "cudaStreamDestroy",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaPointerGetAttributes",
    "cudaMemGetInfo",
    "cudaStreamBeginCapture", /* launches that cannot be captured run kernel by kernel */
    "cudaStreamEndCapture",
    "cudaGraphInstantiate",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudnnDestroy",
    "cudnnBackendDestroyDescriptor",
    "cudnnBackendFinalize",         /* a plan that is refused is no failure: the next one is tried */
    "cudnnBackendGetAttribute",     /* of notes and knobs, which an engine need not have */
    "cudnnBackendCreateDescriptor", /* of a candidate, which is passed over, as the log says */
    "cudnnBackendSetAttribute",     /* likewise */
    "cublasLtDestroy",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulAlgoGetHeuristic",
    "cudaDeviceSynchronize", /* before memory is freed */
    "ncclGetVersion",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommRegister",
    "ncclCommDeregister",
    "ncclCommFinalize",
    "ncclCommDestroy",
    "ncclCommAbort",
    "ncclCommGetAsyncError", /* while leaving */
    "ncclRedOpDestroy",
};

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < sizeof may_fail / sizeof *may_fail; i++)
        if (strcmp(name, may_fail[i]) == 0) return true;
    return false;
}

static int64_t fail_at;

static void start_failing(int rank)
{
    fake_gpu_reset();
    fake_gpu_fail_call(fail_at);
}

/* Launches of kernels are known by the function that makes them. */
static bool message_names(const char *message, const char *call)
{
    if (strcmp(call, "kernel") == 0) return strstr(message, "kernel_") || strstr(message, "convert_");
    return strstr(message, call) != NULL;
}

enum { STEPS = CAPTURE_WARM + 1 /* recorded in the last one */ };

static int mistakes;

static void complain(int64_t number, const char *call, const char *what)
{
    fprintf(stderr, "call %" PRId64 " (%s) failed: %s\n", number, call, what);
    mistakes++;
}

static void pair_open(GpuRun *run, bool deterministic)
{
    gpu_run_open(run, 2, 1); /* two towers, so that there is a sum */
    run->job.max_steps = STEPS;
    run->job.graphs = true;
    run->job.device.deterministic = deterministic;
}

/* One run in which call `number` fails; false if the run has fewer calls. `strict`: success must be allowed. */
static bool check_failure(int64_t number, bool deterministic, bool strict)
{
    GpuRun run;
    pair_open(&run, deterministic);
    run.on_start = start_failing;
    fail_at = number;
    Status st = gpu_run_live(&run);
    const char *failed = run.seen->rank[0].failed, *message = run.seen->rank[0].message;
    bool reached = *failed, harmless = is_listed(failed) || fake_gpu_failed_in_capture();
    if (run.seen->rank[0].alive) complain(number, failed, "objects are left behind");
    if (reached && st == OK && strict && !harmless) complain(number, failed, "nobody noticed");
    if (st != OK && !(reached && message_names(message, failed))) complain(number, failed, message);
    gpu_run_close(&run);
    return reached;
}

/* ---- which calls there are */

enum { CALLS = 1 << 16 };
static uint64_t stacks[CALLS];

static void start_survey(int rank)
{
    fake_gpu_reset();
    fake_gpu_survey(stacks, CALLS);
}

static int64_t survey(bool deterministic)
{
    GpuRun run;
    pair_open(&run, deterministic);
    run.on_start = start_survey;
    Status st = gpu_run_live(&run);
    if (st != OK) fail_msg("%s", run.seen->rank[0].message);
    gpu_run_close(&run);
    fake_gpu_survey(NULL, 0);
    assert_true(fake_gpu_calls() < CALLS);
    return fake_gpu_calls();
}

static bool is_taken(int64_t number, int64_t calls)
{
    bool before = false, after = false;
    if (getenv("TOWERS_TEST_ALL_CALLS")) return true;
    for (int64_t n = 1; n < number && !before; n++) before = stacks[n] == stacks[number];
    for (int64_t n = number + 1; n <= calls && !after; n++) after = stacks[n] == stacks[number];
    if (stacks[number] / 2 % 4) return false;
    return stacks[number] & 1 ? !before : !after;
}

static void check_calls(bool deterministic, bool strict)
{
    int64_t calls = survey(deterministic), taken = 0;
    for (int64_t n = 1; n <= calls; n++) {
        if (!is_taken(n, calls)) continue;
        check_failure(n, deterministic, strict);
        taken++;
    }
    print_message("  %" PRId64 " of %" PRId64 " calls\n", taken, calls);
    assert_true(taken > 50);
    assert_int_equal(mistakes, 0);
}

/* ---- devices that are not there: first, for a process asks for them once, and its children know its answer */

typedef struct Wish {
    int devices; /* of the machine */
    const char *flags[5];
    Status status;
    const char *words;
    const char *device, *broken; /* default cuda; the call that fails */
} Wish;

static Status wish_ask(const Wish *wish)
{
    char *argv[16] = {"towers", "train", "fashion_cnn", "--dataset", "synthetic", "--device", "cuda"};
    int argc = 7;
    if (wish->device) argv[argc - 1] = (char *)wish->device;
    Options o;
    JobFiles files = {0};
    for (int i = 0; wish->flags[i]; i++) argv[argc++] = (char *)wish->flags[i];
    fake_gpu_reset();
    fake_gpu_devices(wish->devices);
    if (wish->broken) fake_gpu_fail_named(wish->broken, 1);
    TRY(options_parse(argc, argv, NULL, &o));
    Status st = job_open(&o, 256, &files);
    job_close(&files);
    options_close(&o);
    return st;
}

/* fault: F40 */
TEST(test_devices_that_are_not_there)
{
    static const Wish wishes[] = {
        {0, {NULL}, ERR_DEVICE, "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"},
        {2, {"--gpus", "0,2", NULL}, ERR_ARG, "there is no GPU 2; 2 visible, numbered from 0"},
        {2, {"--gpus", "1,1", NULL}, ERR_ARG, "--gpus lists GPU 1 twice"},
        {2, {"--towers", "3", "--processes", "3", NULL}, ERR_DEVICE, "exceeds the number of GPUs (2)"},
        {2, {"--gpus", "1,0", NULL}, OK, ""},
        {2, {"--towers", "4", NULL}, OK, ""},
        {2, {NULL}, ERR_DEVICE, "or use --device cpu", .broken = "cudaGetDeviceCount"},
        {2,
         {NULL},
         ERR_DEVICE,
         "cuda device 0 does not answer: a failure of the fake",
         .broken = "cudaGetDeviceProperties"},
        {2, {NULL}, OK, "", "cpu", "cudaGetDeviceCount"}, /* which does not look for them */
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        int ending;
        pid_t child = fork(); /* a process asks for the number of devices once */
        assert_true(child >= 0);
        if (child == 0) {
            Status st = wish_ask(&wishes[i]);
            bool right = st == wishes[i].status && strstr(st == OK ? "" : status_message(), wishes[i].words);
            if (!right) fprintf(stderr, "wish %zu: %s: %s\n", i, status_name(st), status_message());
            _exit(right ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ending, 0), child);
        assert_int_equal(ending, 0);
    }
}

/* ---- memory */

static size_t memory_now;

static void start_with_memory(int rank)
{
    fake_gpu_reset();
    fake_gpu_memory(memory_now);
}

static Status run_with(int32_t batch, char *message)
{
    GpuRun run;
    gpu_run_open(&run, 1, 1);
    run.job.max_steps = 1;
    run.job.local_batches.batch = &batch;
    run.on_start = start_with_memory;
    Status st = gpu_run_live(&run);
    snprintf(message, STATUS_MESSAGE_BYTES, "%s", run.seen->rank[0].message);
    assert_int_equal(run.seen->rank[0].alive, 0);
    gpu_run_close(&run);
    return st;
}

/* The batch size that --batch-size max finds runs; a batch that does not fit gets a message with one that does, which runs too. */
/* fault: F38 */
TEST(test_memory)
{
    GpuRun run;
    BatchFit fit = {.n = 64};
    char message[STATUS_MESSAGE_BYTES];
    gpu_run_open(&run, 1, 1);
    for (memory_now = (size_t)1 << 20; fit.n > 48; memory_now -= memory_now / 8) { /* 64 do not fit by far */
        start_with_memory(0);
        if (batch_max_find(&run.job, 64, &fit) != OK) fail_msg("%zu bytes: %s", memory_now, status_message());
    }
    memory_now += memory_now / 7; /* as in the last round */
    gpu_run_close(&run);
    assert_true(fit.n >= 1 && fit.n <= 48);
    if (run_with(fit.n, message) != OK) fail_msg("%d: %s", fit.n, message);
    assert_int_equal(run_with(64, message), ERR_MEMORY);
    const char *fits = strstr(message, "try --batch-size ");
    if (!fits || !strstr(message, "more are needed") || !strstr(message, "MiB are free") ||
        !strstr(message, "a batch of 64 needs"))
        fail_msg("%s", message);
    int32_t advised = atoi(fits + strlen("try --batch-size "));
    assert_true(advised >= 1 && advised < 64);
    if (run_with(advised, message) != OK) fail_msg("%d: %s", advised, message);
}

static const char *starved;

static void start_starved(int rank)
{
    fake_gpu_reset();
    fake_gpu_fail_memory(starved);
}

/* Each library has codes of its own for a lack of memory: it is reported as one, whoever lacks it, with what to do. */
TEST(test_memory_of_libraries)
{
    static const char *const names[] = {"cudaMalloc",
                                        "cudaHostAlloc",
                                        "kernel",
                                        "cudnnCreate",
                                        "cudnnBackendCreateDescriptor",
                                        "cudnnBackendSetAttribute",
                                        "cudnnBackendFinalize",
                                        "cudnnBackendGetAttribute",
                                        "cudnnBackendExecute",
                                        "cublasLtCreate",
                                        "cublasLtMatmul",
                                        "cublasLtMatmulAlgoGetHeuristic"};
    for (size_t i = 0; i < 2 * (sizeof names / sizeof *names); i++) {
        GpuRun run;
        starved = names[i / 2];
        pair_open(&run, i % 2);
        run.on_start = start_starved;
        Status st = gpu_run_live(&run);
        bool others =
            i % 2 == 0 && strcmp(starved, "cublasLtMatmul") == 0; /* where candidates are timed, cuDNN's are left */
        const char *message = run.seen->rank[0].message;
        if (st != (others ? OK : ERR_MEMORY) || (st != OK && !strstr(message, ": use a smaller batch")))
            complain(0, starved, message);
        if (run.seen->rank[0].alive) complain(0, starved, "objects are left behind");
        gpu_run_close(&run);
    }
    assert_int_equal(mistakes, 0);
}

/* ---- calls that fail */

TEST(test_every_call)
{
    check_calls(true, true);
}

/* ---- a device that is lost: every call after the failed one fails, too */

static void start_losing(int rank)
{
    fake_gpu_reset();
    fake_gpu_lose_device(fail_at);
}

/* fault: F42 */
TEST(test_lost_device)
{
    enum { TIMES = 16 };
    int64_t calls = survey(false);
    for (int i = 1; i <= TIMES; i++) {
        GpuRun run;
        pair_open(&run, false);
        run.on_start = start_losing;
        fail_at = calls * i / (TIMES + 4); /* at the very end only those at the end are left */
        Status st = gpu_run_live(&run);
        const char *failed = run.seen->rank[0].failed, *message = run.seen->rank[0].message;
        if (st == OK) complain(fail_at, failed, "the run went on without a device");
        if (st != OK && !strstr(message, "a failure of the fake")) complain(fail_at, failed, message);
        if (run.seen->rank[0].alive) complain(fail_at, run.seen->rank[0].failed, "objects are left behind");
        gpu_run_close(&run);
    }
    assert_int_equal(mistakes, 0);
}
