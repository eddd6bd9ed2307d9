/* The choice of a convolution's plan on the fake GPU: the rounding that f32 allows, and the choice without memory for
 * timing. */

#include "kernels/base/progress.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/libraries/cudnn_plan.h"
#include "kernels/cuda/plan_cache.h"
#include "tests/gpu/cudnn_refusals.h"
#include "tests/gpu/fake_cuda/fake_gpu.h"
#include "tests/support/reference.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/graph/layers.h"
#include "towers/graph/plan.h"

static Device device;

/* Nobody's plan cache but this test's. */
static int open_with(void **state, DeviceConfig config)
{
    const Backend *backend;
    fake_gpu_reset();
    config.threads = 1;
    return scratch_make(state) == 0 && setenv("XDG_CACHE_HOME", scratch, 1) == 0 &&
                   backend_find("cuda", &backend, NULL, 0) == OK && backend->open(&config, &device) == OK
               ? 0
               : -1;
}

static int device_open(void **state)
{
    return open_with(state, (DeviceConfig){0});
}

static int device_open_tf32(void **state)
{
    return open_with(state, (DeviceConfig){.tf32 = true});
}

static int device_open_deterministic(void **state)
{
    return open_with(state, (DeviceConfig){.deterministic = true});
}

static int device_close(void **state)
{
    device.backend->close(&device);
    int alive = fake_gpu_alive(stderr);
    return scratch_drop(state) == 0 ? alive : -1;
}

/* ---- one convolution: y = x * w, 3x3 */

enum {
    N = 2,
    C = 16,
    K = 8,
    SIDE = 5,
    X_COUNT = N * SIDE * SIDE * C,
    W_COUNT = K * 9 * C,
    Y_COUNT = N * SIDE * SIDE * K
};

typedef struct Conv {
    OpCall call;
    void *memory[4];
    float x[X_COUNT], w[W_COUNT], y[Y_COUNT];
} Conv;

static Tensor packed(Shape shape, void *memory)
{
    return (Tensor){memory, shape, DTYPE_F32, shape.c};
}

static void conv_create(Conv *c)
{
    static const Window window = {3, 3, 1, 1, 1, 1, false};
    const Shape x = {N, C, SIDE, SIDE}, w = {K, C, 3, 3}, y = {N, K, SIDE, SIDE};
    memset(c, 0, sizeof *c);
    for (int i = 0; i < X_COUNT; i++) c->x[i] = (float)sin(i * 0.7);
    for (int i = 0; i < W_COUNT; i++) c->w[i] = (float)cos(i * 1.3);
    assert_int_equal(device.backend->alloc(&device, sizeof c->x, &c->memory[0]), OK);
    assert_int_equal(device.backend->alloc(&device, sizeof c->w, &c->memory[1]), OK);
    assert_int_equal(device.backend->alloc(&device, sizeof c->y, &c->memory[2]), OK);
    assert_int_equal(device.backend->upload(&device, c->memory[0], c->x, sizeof c->x), OK);
    assert_int_equal(device.backend->upload(&device, c->memory[1], c->w, sizeof c->w), OK);
    c->call = (OpCall){.kind = OP_CONV,
                       .name = "conv",
                       .in_count = 2,
                       .out_count = 1,
                       .in = {packed(x, c->memory[0]), packed(w, c->memory[1])},
                       .out = {packed(y, c->memory[2])}};
    c->call.attr.conv.window = window;
}

static Status conv_prepare(Conv *c)
{
    return device.backend->kernels[OP_CONV]->prepare(&device, &c->call);
}

static void conv_run(Conv *c)
{
    assert_int_equal(device.backend->alloc(&device, c->call.workspace_bytes, &c->memory[3]), OK);
    c->call.workspace = c->memory[3];
    if (device.backend->kernels[OP_CONV]->launch(&device, &c->call) != OK) fail_msg("%s", status_message());
    assert_int_equal(device.backend->download(&device, c->y, c->memory[2], sizeof c->y), OK);
    assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
}

static void conv_destroy(Conv *c)
{
    device.backend->kernels[OP_CONV]->discard(&device, &c->call);
    for (int i = 0; i < 4; i++)
        if (c->memory[i]) device.backend->release(&device, c->memory[i]);
}

/* The largest difference from the sum in double precision, relative to the largest result. */
static double conv_error(const Conv *c)
{
    RefTensor in[OP_MAX_IN] = {ref_create(c->call.in[0].shape), ref_create(c->call.in[1].shape)},
              out[OP_MAX_OUT] = {ref_create(c->call.out[0].shape)};
    double worst = 0, largest = 0;
    for (int i = 0; i < X_COUNT; i++) in[0].data[i] = (double)c->x[i];
    for (int i = 0; i < W_COUNT; i++) in[1].data[i] = (double)c->w[i];
    reference_run(OP_CONV, &c->call.attr, in, out);
    for (int i = 0; i < Y_COUNT; i++) {
        worst = fmax(worst, fabs((double)c->y[i] - out[0].data[i]));
        largest = fmax(largest, fabs(out[0].data[i]));
    }
    for (int k = 0; k < 2; k++) ref_destroy(&in[k]);
    ref_destroy(&out[0]);
    return worst / largest;
}

static double error_of_a_run(void)
{
    Conv c;
    conv_create(&c);
    if (conv_prepare(&c) != OK) fail_msg("%s", status_message());
    conv_run(&c);
    double error = conv_error(&c);
    conv_destroy(&c);
    return error;
}

/* ---- precision: TF32 keeps 11 bits, 5e-4 at worst; f32 24 */

TEST_WITH(test_f32_is_f32, device_open, device_close)
{
    assert_true(error_of_a_run() < 1e-6);
    assert_true(error_of_a_run() < 1e-6); /* the plan of the cache */
}

TEST_WITH(test_f32_is_f32_deterministic, device_open_deterministic, device_close)
{
    test_f32_is_f32(state);
}

TEST_WITH(test_tf32_is_not_f16, device_open_tf32, device_close)
{
    double error = error_of_a_run();
    assert_true(error > 1e-5 && error < 1e-3);
}

/* A plan that a looser run has left in the cache is not made under stricter rules. */
TEST_WITH(test_cached_plan_breaks_a_rule, device_open, device_close)
{
    char task[256];
    const Shape x = {N, C, SIDE, SIDE}, w = {K, C, 3, 3};
    snprintf(task, sizeof task, "forward f32 x %s w %s stride 1x1 pad 1x1", shape_text(x), shape_text(w));
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, "engine 1 knobs 25=7", 1), OK);
    assert_true(error_of_a_run() < 1e-6);
    assert_string_not_equal(plan_cache_find(cuda_device(&device)->plans, task), "engine 1 knobs 25=7");
}

static CudnnGraph *forward_graph(void)
{
    const CudnnSpec spec = {.x = {N, C, SIDE, SIDE},
                            .w = {K, C, 3, 3},
                            .y = {N, K, SIDE, SIDE},
                            .dtype = DTYPE_F16,
                            .window = {3, 3, 1, 1, 1, 1, false}};
    CudnnGraph *graph;
    assert_int_equal(cudnn_graph_create(cuda_device(&device)->cudnn, &spec, &graph), OK);
    return graph;
}

/* Every plan is made again from its name, however many knobs its engine has, and from nothing else: a disk that was full may have
 * left a piece of a name, and the next line behind it. */
TEST_WITH(test_plans_by_name, device_open, device_close)
{
    enum { ENGINES = 8 };
    char damaged[CUDNN_PLAN_BYTES + 8];
    const CudnnRules rules = {.tensor_cores = true};
    CudnnPlan *plans[ENGINES], *again;
    CudnnGraph *graph = forward_graph();
    int found;
    assert_int_equal(cudnn_plans(graph, &rules, ENGINES, plans, &found), OK);
    assert_true(found > 3);
    for (int i = 0; i < found; i++) {
        if (cudnn_plan_named(graph, &rules, cudnn_plan_text(plans[i]), &again) != OK)
            fail_msg("'%s': %s", cudnn_plan_text(plans[i]), status_message());
        assert_string_equal(cudnn_plan_text(again), cudnn_plan_text(plans[i]));
        cudnn_plan_destroy(again);
        snprintf(damaged, sizeof damaged, "%sfilter", cudnn_plan_text(plans[i]));
        assert_int_equal(cudnn_plan_named(graph, &rules, damaged, &again), ERR_UNSUPPORTED);
        if (strrchr(damaged, '=')) *strrchr(damaged, '=') = 0;
        assert_true(cudnn_plan_named(graph, &rules, damaged, &again) != OK);
        cudnn_plan_destroy(plans[i]);
    }
    cudnn_graph_destroy(graph);
}

/* A plan by its name, if the nth question about it stays without an answer: NULL, or exactly that plan. */
TEST_WITH(test_plans_of_which_not_all_is_known, device_open, device_close)
{
    enum { QUESTIONS = 40, LOOSE = 0 /* an engine of the fake that is not deterministic */ };
    const CudnnRules rules = {.tensor_cores = true};
    CudnnPlan *plan, *again;
    CudnnGraph *graph = forward_graph();
    char loose[64];
    int found, whole = 0;
    assert_int_equal(cudnn_plans(graph, &rules, 1, &plan, &found), OK);
    snprintf(loose, sizeof loose, "engine %d knobs", LOOSE);
    for (int nth = 1; nth <= QUESTIONS; nth++) {
        for (int k = 0; k < 2; k++) {
            fake_gpu_fail_named("cudnnBackendGetAttribute", nth);
            Status st = cudnn_plan_named(graph, &rules, k ? loose : cudnn_plan_text(plan), &again);
            if (st == OK && (k || strcmp(cudnn_plan_text(again), cudnn_plan_text(plan)) != 0))
                fail_msg("question %d about '%s': '%s'", nth, k ? loose : cudnn_plan_text(plan),
                         cudnn_plan_text(again));
            whole += st == OK;
            if (st == OK) cudnn_plan_destroy(again);
        }
    }
    fake_gpu_fail_named(NULL, 0);
    assert_in_range(whole, 1, QUESTIONS - 1); /* some failed, and those after the last question did not */
    cudnn_plan_destroy(plan);
    cudnn_graph_destroy(graph);
}

/* ---- refusals */

/* The fake refuses what the library refuses (test_cudnn_plans asks that for the same). */
TEST_WITH(test_refusals, device_open, device_close)
{
    assert_refusals("{}");
}

/* An engine that the library names and then fails to make a plan of is passed over, and reported; that it has no kernel for
 * this device is an answer. */
TEST_WITH(test_refused_engine_is_passed_over, device_open_deterministic, device_close)
{
    static const cudnnStatus_t codes[] = {
        CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,       CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
        CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER};
    Conv c;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bool answer = CUDNN_STATUS_CATEGORY(codes[i]) == CUDNN_STATUS_NOT_SUPPORTED;
        device.refused = (PlanRefusals){0};
        for (int engine = 4; engine < 7; engine++) fake_gpu_engine_refused(engine, engine == 5 ? 0 : (int)codes[i]);
        conv_create(&c);
        if (conv_prepare(&c) != OK) fail_msg("%s: %s", cudnnGetErrorString(codes[i]), status_message());
        assert_int_equal(device.refused.count, !answer);
        assert_int_equal(strstr(device.refused.first, "cudnnBackendFinalize") != NULL, !answer);
        conv_run(&c);
        assert_true(conv_error(&c) < 1e-6);
        conv_destroy(&c);
        for (int engine = 0; engine < 8; engine++) fake_gpu_engine_refused(engine, (int)codes[i]);
        device.refused = (PlanRefusals){0};
        conv_create(&c);
        assert_int_equal(conv_prepare(&c), ERR_UNSUPPORTED); /* nothing is left */
        assert_int_equal(strstr(status_message(), "cudnnBackendFinalize") != NULL, !answer);
        conv_destroy(&c);
        fake_gpu_engine_refused(-1, 0);
    }
}

/* ---- versions */

/* An older cuDNN of this generation computes everything; one of another is refused at once. */
TEST_WITH(test_older_library, device_open, device_close)
{
    Device other;
    DeviceConfig config = {.threads = 1};
    fake_gpu_cudnn_version(90100);
    assert_true(error_of_a_run() < 1e-6);
    fake_gpu_cudnn_version(8907);
    assert_fails(device.backend->open(&config, &other), ERR_UNSUPPORTED, "8907");
}

static OpCall relu_call(void)
{
    OpCall call = {.kind = OP_RELU, .name = "relu", .in_count = 1, .out_count = 1};
    call.in[0] = call.out[0] = packed((Shape){N, C, SIDE, SIDE}, (void *)256);
    return call;
}

/* Plans and times take minutes, before any op is prepared: each shows that the process lives. */
TEST_WITH(test_signs_of_life_of_a_search, device_open, device_close)
{
    const CudnnRules rules = {.tensor_cores = true};
    CudnnPlan *plan;
    CudnnGraph *graph = forward_graph();
    OpCall relu = relu_call();
    ProgressSlot slot = {0};
    int found;
    progress_to(&slot);
    assert_int_equal(cudnn_plans(graph, &rules, 1, &plan, &found), OK);
    assert_string_equal(slot.what, "a plan of cuDNN");
    assert_true(device.backend->op_time(&device, &relu) >= 0);
    assert_string_equal(slot.what, "the timing of a kernel");
    progress_to(NULL);
    cudnn_plan_destroy(plan);
    cudnn_graph_destroy(graph);
}

/* A device measures how long an op takes, and remembers it; one that is to be the same in every run does not. */
TEST_WITH(test_time_of_an_op, device_open, device_close)
{
    OpCall call = relu_call();
    fake_gpu_launch_time(700, 50);
    double first = device.backend->op_time(&device, &call);
    assert_true(first >= 700 && first < 800);
    int64_t runs = fake_gpu_count("kernel");
    assert_true(runs > 0 && fabs(device.backend->op_time(&device, &call) - first) < 0.01);
    assert_int_equal(fake_gpu_count("kernel"), runs);
    device.config.deterministic = true;
    assert_true(device.backend->op_time(&device, &call) < 0);
}

/* ---- timing */

static int chosen_engine(void)
{
    int engine = -1;
    char task[256];
    const Shape x = {N, C, SIDE, SIDE}, w = {K, C, 3, 3};
    snprintf(task, sizeof task, "forward f32 x %s w %s stride 1x1 pad 1x1", shape_text(x), shape_text(w));
    const char *plan = plan_cache_find(cuda_device(&device)->plans, task);
    if (plan && sscanf(plan, "engine %d", &engine) != 1) fail_msg("'%s' is no plan", plan);
    return engine;
}

/* Engines 4, 5, 6 and 7 of the fake do without tensor cores, and the bits of 7 differ from run to run. The fastest of the
 * others is taken, and a hopeless one is not run on. */
TEST_WITH(test_fastest_is_taken, device_open, device_close)
{
    fake_gpu_engine(4, 1000, false);
    fake_gpu_engine(5, 5000, false);
    fake_gpu_engine(6, 900, false);
    fake_gpu_engine(7, 100, false);
    assert_true(error_of_a_run() < 1e-6);
    assert_int_equal(chosen_engine(), 6);
    assert_int_equal(fake_gpu_count("engine 7"), 0);
    assert_int_equal(fake_gpu_count("engine 5"), 2);   /* once to load it, once to see that it is slow */
    assert_in_range(fake_gpu_count("engine 4"), 4, 5); /* and to be compared with the winner */
}

/* One that ran when it was timed, but fails when it is run again, loses: the fastest, or the one that should confirm it. */
TEST_WITH(test_failure_after_timing, device_open, device_close)
{
    enum { TIMED = 4 + 2 + 4 };
    for (int again = 1; again <= 2; again++) {
        if (again == 2) assert_int_equal(device_close(state) | device_open(state), 0);
        fake_gpu_engine(4, 1000, false);
        fake_gpu_engine(5, 5000, false);
        fake_gpu_engine(6, 900, false);
        fake_gpu_fail_named("cudnnBackendExecute", TIMED + again);
        assert_true(error_of_a_run() < 1e-6);
        assert_string_equal(fake_gpu_failed(), "cudnnBackendExecute");
        assert_int_equal(chosen_engine(), again == 1 ? 4 : 6);
        assert_int_equal(device.unconfirmed, 0);
    }
}

/* Where nothing confirms anything, the run goes on with what the library names first of what runs, and reports it. */
TEST_WITH(test_nothing_is_confirmed, device_open, device_close)
{
    for (int refused = 0; refused <= 1; refused++) {
        Conv c;
        if (refused) assert_int_equal(device_close(state) | device_open(state), 0);
        conv_create(&c);
        fake_gpu_engines(6 + refused); /* of which those from 4 are of f32 */
        fake_gpu_engine(4, 10, false);
        fake_gpu_engine(5, 900, true);
        fake_gpu_engine(6, 10, false);
        if (refused) fake_gpu_fail_named("cudnnBackendExecute", 1);
        if (conv_prepare(&c) != OK) fail_msg("%s", status_message());
        assert_int_equal(device.unconfirmed, 1);
        assert_int_equal(chosen_engine(), 4 + refused);
        conv_destroy(&c);
    }
}

/* The gradient of weights is f32: a plan that writes it in 16 bits takes the time of the cast, too. */
TEST_WITH(test_cast_is_timed, device_open, device_close)
{
    const Shape x = {N, C, SIDE, SIDE}, w = {K, C, 1, 1}, y = {N, K, SIDE, SIDE};
    OpCall call = {.kind = OP_CONV_DW, .name = "point", .in_count = 2, .out_count = 1};
    void *somewhere = (void *)256;
    const OpKernel *kernel = device.backend->kernels[call.kind];
    call.attr.conv.window = (Window){1, 1, 1, 1, 0, 0, false};
    call.in[0] = (Tensor){somewhere, x, DTYPE_F16, C};
    call.in[1] = (Tensor){somewhere, y, DTYPE_F16, K};
    call.out[0] = packed(w, somewhere);
    for (int64_t cast = 0; cast < 200; cast += 100) {
        char task[256];
        snprintf(task, sizeof task, "filter f16 x %s w %s stride 1x1 pad 0x0", shape_text(x), shape_text(w));
        assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, "no plan", -1), OK);
        fake_gpu_launch_time(cast, 50);
        if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
        assert_memory_equal(plan_cache_find(cuda_device(&device)->plans, task), cast ? "product" : "engine ", 7);
        kernel->discard(&device, &call);
    }
}

/* A folded bias: a plan that adds it is taken where a product with a pass behind it is slower, is found again by its name, and serves
 * no convolution without a bias. */
TEST_WITH(test_bias_is_timed, device_open, device_close)
{
    const Shape x = {N, C, SIDE, SIDE}, w = {K, C, 1, 1}, y = {N, K, SIDE, SIDE};
    OpCall call = {.kind = OP_CONV, .name = "point", .in_count = 3, .out_count = 1, .kept_in = 6};
    void *somewhere = (void *)256;
    const OpKernel *kernel = device.backend->kernels[call.kind];
    call.attr.conv.window = (Window){1, 1, 1, 1, 0, 0, false};
    call.attr.conv.relu = true;
    call.in[0] = (Tensor){somewhere, x, DTYPE_BF16, C};
    call.in[1] = packed(w, somewhere);
    call.in[2] = packed((Shape){1, K, 1, 1}, somewhere);
    call.out[0] = (Tensor){somewhere, y, DTYPE_BF16, K};
    char task[256];
    snprintf(task, sizeof task, "forward bf16 x %s w %s stride 1x1 pad 0x0 bias relu", shape_text(x), shape_text(w));
    for (int64_t pass = 0; pass < 200; pass += 100) {
        assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, "no plan", -1), OK);
        for (int engine = 0; engine < 8; engine++) fake_gpu_engine(engine, 90, false);
        fake_gpu_launch_time(pass, 50);
        if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
        assert_memory_equal(plan_cache_find(cuda_device(&device)->plans, task), pass ? "ends engine " : "product", 7);
        kernel->discard(&device, &call);
    }
    int64_t runs = fake_gpu_count("cudnnBackendExecute");
    if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
    assert_int_equal(fake_gpu_count("cudnnBackendExecute"), runs);
    KernelChoice choice = {0};
    kernel->explain(&device, &call, &choice);
    assert_memory_equal(choice.name, "ends engine ", 12);
    kernel->discard(&device, &call);
    char plan[CUDNN_PLAN_BYTES];
    snprintf(plan, sizeof plan, "%s", plan_cache_find(cuda_device(&device)->plans, task));
    *strstr(task, " bias relu") = 0;
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, plan, 1), OK);
    call.in_count = 2, call.in[2] = (Tensor){0}, call.attr.conv.relu = false;
    if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
    kernel->explain(&device, &call, &choice);
    assert_memory_not_equal(choice.name, "ends ", 5);
    kernel->discard(&device, &call);
}

/* Whatever the library says to a graph with a bias, it has plans for the convolution alone, with a pass behind them. */
TEST_WITH(test_graph_with_a_bias_is_refused, device_open_deterministic, device_close)
{
    const OpKernel *kernel = device.backend->kernels[OP_CONV];
    for (int refused = 0; refused <= 1; refused++) {
        Conv c;
        KernelChoice choice = {0};
        conv_create(&c);
        c.call.in_count = 3, c.call.kept_in = 6;
        c.call.in[2] = packed((Shape){1, K, 1, 1}, c.memory[0]);
        if (refused)
            fake_gpu_fail_named("cudnnBackendFinalize", 5); /* four operands, then the value between the operations */
        if (conv_prepare(&c) != OK) fail_msg("%s", status_message());
        kernel->explain(&device, &c.call, &choice);
        assert_memory_equal(choice.name, refused ? "engine " : "ends en", 7);
        assert_int_equal(device.refused.count, refused);
        conv_destroy(&c);
    }
}

/* Products of 16-bit operands are summed in 32 bits, also where a sum is divided between blocks. */
TEST_WITH(test_products_are_summed_in_f32, device_open, device_close)
{
    enum { INS = 2048, OUTS = 8 };
    static uint16_t third[8 * INS], y[8 * OUTS];
    static float weight[OUTS * INS];
    void *memory[4] = {NULL};
    OpCall call = {.kind = OP_DENSE, .name = "fc", .in_count = 2, .out_count = 1};
    for (int i = 0; i < 8 * INS; i++) third[i] = 0x3555; /* 0.3333 */
    for (int i = 0; i < OUTS * INS; i++) weight[i] = 1;
    assert_int_equal(device.backend->alloc(&device, sizeof third, &memory[0]), OK);
    assert_int_equal(device.backend->upload(&device, memory[0], third, sizeof third), OK);
    assert_int_equal(device.backend->alloc(&device, sizeof weight, &memory[1]), OK);
    assert_int_equal(device.backend->upload(&device, memory[1], weight, sizeof weight), OK);
    assert_int_equal(device.backend->alloc(&device, sizeof y, &memory[2]), OK);
    call.in[0] = (Tensor){memory[0], {8, INS, 1, 1}, DTYPE_F16, INS};
    call.in[1] = (Tensor){memory[1], {OUTS, INS, 1, 1}, DTYPE_F32, INS};
    call.out[0] = (Tensor){memory[2], {8, OUTS, 1, 1}, DTYPE_F16, OUTS};
    const OpKernel *kernel = device.backend->kernels[OP_DENSE];
    if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
    assert_int_equal(device.backend->alloc(&device, call.workspace_bytes + 1, &memory[3]), OK);
    call.workspace = memory[3];
    if (kernel->launch(&device, &call) != OK) fail_msg("%s", status_message());
    assert_int_equal(device.backend->download(&device, y, memory[2], sizeof y), OK);
    assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
    double sum = INS * dtype_load(DTYPE_F16, third, 0);
    for (int i = 0; i < 8 * OUTS; i++) assert_true(fabs(dtype_load(DTYPE_F16, y, i) / sum - 1) < 1e-3);
    kernel->discard(&device, &call);
    for (int k = 0; k < 4; k++) device.backend->release(&device, memory[k]);
}

/* A fast engine that computes rubbish is found out by the others. */
TEST_WITH(test_wrong_result_is_not_taken, device_open, device_close)
{
    fake_gpu_engine(4, 1000, false);
    fake_gpu_engine(5, 100, true);
    fake_gpu_engine(6, 900, false);
    assert_true(error_of_a_run() < 1e-6);
    assert_int_equal(chosen_engine(), 6);
}

/* ---- plans of small networks */

typedef struct NetPlan {
    Graph *graph;
    Layout *layout;
    Plan *plan;
    void *arena[ARENA_COUNT];
} NetPlan;

/* Gradients, and a plan in memory of the device. */
static void net_train(NetPlan *p, Value x)
{
    static const Shape one = {1, 1, 1, 1};
    Graph *g = p->graph;
    Value labels = graph_input(g, "labels", (Shape){N, 1, 1, 1}, DTYPE_I32),
          dloss = graph_input(g, "dloss", one, DTYPE_F32);
    Value loss = softmax_loss(g, dense(g, x, "fc", 4, false, (Init){INIT_NORMAL, 0.1f}), labels, 0, NULL, NULL);
    graph_train(g, loss, dloss, NULL);
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    assert_int_equal(layout_create(g, &p->layout), OK);
    if (plan_create(g, p->layout, &device, NULL, &p->plan) != OK) fail_msg("%s", status_message());
    for (int a = 0; a < ARENA_COUNT; a++) {
        assert_int_equal(device.backend->alloc(&device, plan_bytes(p->plan, (Arena)a), &p->arena[a]), OK);
        plan_bind(p->plan, (Arena)a, p->arena[a]);
    }
}

/* An image of 3 channels and a convolution of it; `pooled`: somebody else reads it, too. */
static void image_net_create(NetPlan *p, Dtype compute, bool pooled)
{
    static const float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {0.25f, 0.25f, 0.25f};
    GraphOptions options = {.training = true, .compute = compute};
    assert_int_equal(graph_create(&options, &p->graph), OK);
    Graph *g = p->graph;
    Value pixels = graph_input(g, "pixels", (Shape){N, 3, SIDE, SIDE}, DTYPE_U8),
          x = image(g, pixels, (Value){0}, 3, SIDE, mean, std);
    if (pooled) graph_result(g, global_avg_pool(g, x), "colors");
    net_train(p, conv_bn_relu(g, x, (ConvUnit){"stem", 8, 3, 3, SAME}));
}

static void net_destroy(NetPlan *p)
{
    for (int a = 0; a < ARENA_COUNT; a++) device.backend->release(&device, p->arena[a]);
    plan_destroy(p->plan);
    layout_destroy(p->layout);
    graph_destroy(p->graph);
}

/* Kernels of ours beside cuDNN's that the first op of this kind launches. */
static int64_t kernels_of(const NetPlan *p, OpKind kind, int64_t pitch)
{
    for (int i = 0; i < plan_op_count(p->plan); i++) {
        const OpCall *call = plan_call(p->plan, i);
        if (call->kind != kind) continue;
        if (pitch) assert_int_equal(kind == OP_IMAGE ? call->out[0].pitch : call->in[0].pitch, pitch);
        fake_gpu_counts_clear();
        assert_int_equal(plan_run(p->plan, i, i + 1), OK);
        return fake_gpu_count("kernel");
    }
    fail_msg("no %s", op_name(kind));
    return 0;
}

/* The rows of an image are written as wide as the convolutions want them, which then do not copy it; others take it as it is. */
TEST_WITH(test_rows_of_an_image, device_open_deterministic, device_close)
{
    for (int k = 0; k < 4; k++) {
        NetPlan p = {0};
        bool pooled = k & 1;
        Dtype compute = k & 2 ? DTYPE_F16 : DTYPE_F32;
        int64_t pitch = pooled ? 3 : compute == DTYPE_F16 ? 8 : 4;
        image_net_create(&p, compute, pooled);
        assert_int_equal(kernels_of(&p, OP_IMAGE, pitch), 1);
        assert_int_equal(kernels_of(&p, OP_CONV, pitch), 1 + pooled);    /* the weights; the image */
        assert_int_equal(kernels_of(&p, OP_CONV_DW, pitch), 1 + pooled); /* the result; the image */
        net_destroy(&p);
    }
}

/* ---- no memory */

/* Room for the operands that are timed, not for the buffer that is overwritten between the runs. */
/* 3 channels become 8 in the workspace, and these are too many to be counted with 32 bits, though the image is not. */
TEST_WITH(test_padded_operand_is_too_large, device_open, device_close)
{
    static char memory[16];
    OpCall call = {.kind = OP_CONV, .name = "conv", .in_count = 2, .out_count = 1};
    call.in[0] = (Tensor){memory, {1024, 3, 600, 600}, DTYPE_F16, 3};
    call.in[1] = (Tensor){memory, {8, 3, 1, 1}, DTYPE_F32, 3};
    call.out[0] = (Tensor){memory, {1024, 8, 300, 300}, DTYPE_F16, 8};
    call.attr.conv.window = (Window){.kh = 1, .kw = 1, .stride_h = 2, .stride_w = 2};
    assert_fails(device.backend->kernels[OP_CONV]->prepare(&device, &call), ERR_UNSUPPORTED,
                 "has 2^31 elements or more");
}

TEST_WITH(test_no_memory_for_timing, device_open, device_close)
{
    Conv c;
    size_t free_bytes, total;
    conv_create(&c);
    assert_int_equal(device.backend->memory(&device, &free_bytes, &total), OK);
    for (size_t room = 0; room < (size_t)1 << 18; room += 1 << 12) { /* twice the cache of the fake is 128 KiB */
        fake_gpu_memory(total - free_bytes + room);
        if (conv_prepare(&c) != OK) fail_msg("%zu bytes free: %s", room, status_message());
        assert_true(c.call.workspace_bytes < 1 << 16);
        fake_gpu_memory(total);
        if (room == 0 || room == 1 << 16) conv_run(&c);
        if (c.memory[3]) assert_true(conv_error(&c) < 1e-6);
        if (c.memory[3]) device.backend->release(&device, c.memory[3]);
        c.memory[3] = NULL;
        device.backend->kernels[OP_CONV]->discard(&device, &c.call);
    }
    for (int i = 0; i < 3; i++) device.backend->release(&device, c.memory[i]);
}
