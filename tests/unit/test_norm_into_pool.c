/* Batch norms in max pools: what the pass writes, what it leaves unchanged, and that no number changes, in the
 * double-precision interpreter and as a plan on the CPU backend, whose kernels of fused ops compute the same as a
 * GPU's. */
#include "inception/models/models.h"
#include "tests/support/graph_text.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"
#include "towers/graph/program.h"

/* ---- a device that knows times: 10 of all ops but the fused ones */

static double forward_time, gradient_time;

static double timed(Device *device, const OpCall *call)
{
    return call->kind == OP_MAX_POOL_NORM ? forward_time : call->kind == OP_MAX_POOL_NORM_DX ? gradient_time : 10;
}

typedef struct Net {
    Graph *g;
    Value loss;
    int forward_end;
    NormPools pools;
} Net;

static void join_pools(Net *net, double forward, double gradient)
{
    static const Backend backend = {.name = "timed", .op_time = timed};
    Device device = {.backend = &backend};
    forward_time = forward, gradient_time = gradient;
    if (pass_norm_into_pool(net->g, &device, &net->forward_end, &net->pools) != OK) fail_msg("%s", status_message());
    assert_sound(net->g);
}

/* ---- what the pass writes */

static Value conv_plain(Graph *g, Value x, const char *name, int32_t out, bool with_relu)
{
    char weight[32];
    snprintf(weight, sizeof weight, "%s.w", name);
    OpAttr attr = {.conv = {.window = {1, 1, 1, 1, 0, 0}, .relu = with_relu}};
    Init uniform = {.kind = INIT_UNIFORM, .a = 1};
    Value in[2] = {x, graph_param(g, weight, (Shape){out, graph_shape(g, x).c, 1, 1}, uniform, true)};
    return graph_op(g, OP_CONV, name, in, 2, &attr, NULL);
}

/* A unit, a pool of it, and their training. */
static Net pooled_unit(bool with_relu)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    Value y = batch_norm(g, conv_plain(g, new_input(g, "x", 2, 3, 7, 7), "b", 8, false), "n", with_relu);
    y = max_pool(g, y, 3, HALVE);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &y, 1, NULL, &scalar);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_int_equal(graph_finish(g), OK);
    return net;
}

#define POOLED_UNIT                                                                                                    \
    " eps 0.001 relu -> 2x8x7x7 f32 (n.bn) [feeds n.bn.running_mean] [feeds n.bn.running_var]\n"                       \
    "%2 = max_pool_norm(%0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x3x3 f32 (max_pool)\n"           \
    "%3 = sum_to(%2) -> 1x1x1x1 f32 (loss)\n"                                                                          \
    "%4 = spread_to(dloss) -> 2x8x3x3 f32 (loss.dx)\n"                                                                 \
    "%5 = max_pool_norm_dx(%4, %2.1, %0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x7x7 f32 "          \
    "(n.bn.dx) [grad of n.bn.bias] [grad of n.bn.weight]\n"                                                            \
    "%6 = conv_dw(x, %5) 1x1 -> 8x3x1x1 f32 (b.dw) [grad of b.w]\n"

TEST(norm_moves_into_its_pool)
{
    Net net = pooled_unit(true);
    join_pools(&net, 10, 10);
    assert_ops(net.g, 1,
               "%1 = batchnorm(%0, n.bn.bias, n.bn.weight) eps 0.001 relu -> 2x8x7x7 f32 (n.bn) "
               "[feeds n.bn.running_mean] [feeds n.bn.running_var]\n"
               "%2 = max_pool_norm(%0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x3x3 f32 (max_pool)\n"
               "%3 = sum_to(%2) -> 1x1x1x1 f32 (loss)\n"
               "%4 = spread_to(dloss) -> 2x8x3x3 f32 (loss.dx)\n"
               "%5 = max_pool_norm_dx(%4, %2.1, %0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x7x7 f32 "
               "(n.bn.dx) [grad of n.bn.bias] [grad of n.bn.weight]\n"
               "%6 = conv_dw(x, %5) 1x1 -> 8x3x1x1 f32 (b.dw) [grad of b.w]\n");
    assert_int_equal(net.pools.inputs, 1);
    assert_int_equal(net.pools.gradients, 1);
    assert_int_equal(net.forward_end, 4);
    graph_destroy(net.g);
}

/* Forward, the batch norm stays for its statistics. Where a time is not known, the fused op is taken. */
TEST(slower_pools_are_not_taken)
{
    static const struct {
        double forward, gradient;
        int inputs, gradients;
    } rows[] = {{10, 20, 1, 1}, {11, 10, 0, 1}, {10, 21, 1, 0}, {-1, -1, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Net net = pooled_unit(true);
        join_pools(&net, rows[i].forward, rows[i].gradient);
        assert_int_equal(net.pools.inputs, rows[i].inputs);
        assert_int_equal(net.pools.gradients, rows[i].gradients);
        graph_destroy(net.g);
    }
}

TEST(pools_without_relu_stay)
{
    Net net = pooled_unit(false);
    join_pools(&net, -1, -1);
    assert_int_equal(net.pools.inputs + net.pools.gradients, 0);
    graph_destroy(net.g);
}

TEST(a_failed_graph_is_refused)
{
    Net net = {.g = new_graph(true, DTYPE_F32), .pools = {.inputs = 1}};
    Device device = {0};
    graph_fail(net.g, ERR_SHAPE, "on purpose");
    assert_int_equal(pass_norm_into_pool(net.g, &device, &net.forward_end, &net.pools), ERR_SHAPE);
    assert_int_equal(net.pools.inputs, 0);
    graph_destroy(net.g);
}

/* ---- no number changes: in double precision */

/* Branches with siblings, a pool moved behind its convolution, maxima of a unit and of what others read, too. */
static Net net_make(bool recompute, bool join)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    int changed;
    Value x = CHAIN(g, new_input(g, "x", 2, 3, 9, 9), {"stem0", 5, 1, 1});
    x = CHAIN(g, max_pool(g, x, 3, SAME), {"stem1", 6, 3, 3, SAME}, {"stem2", 8, 3, 3, HALVE});
    Value b0 = CHAIN(g, x, {"b0", 4, 1, 1});
    Value b1 = CHAIN(g, x, {"b1_1", 4, 1, 1}, {"b1_2", 6, 3, 3}, {"b1_3", 5, 1, 3});
    Value fork = CHAIN(g, x, {"b2_1", 4, 1, 1});
    Value b2 = CHAIN(g, fork, {"b2_2", 3, 1, 3}), b3 = CHAIN(g, fork, {"b2_3", 3, 3, 1});
    Value b4 = avg_pool(g, x, 3, SAME);
    b4 = CHAIN(g, b4, {"b4", 3, 1, 1});
    Value y = CONCAT(g, b0, b1, b2, b3, b4, max_pool(g, x, 3, SAME));
    y = CHAIN(g, conv_bias(g, y, "d", 4, 3, SAME, true, (Init){INIT_UNIFORM, 1}), {"e", 4, 3, 3});
    Value square = mul(g, y, y);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &square, 1, NULL, &scalar);
    assert_int_equal(pass_pool_behind_conv(g, &net.loss, 1, &changed), OK);
    assert_int_equal(pass_sibling_convs(g, &net.loss, 1, &changed), OK);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    if (recompute) assert_int_equal(pass_recompute(g, net.forward_end, &changed), OK);
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    if (join) join_pools(&net, -1, -1);
    return net;
}

static Interpreter net_run(const Net *net)
{
    Interpreter it = interpreter_create(net->g);
    for (int32_t id = 1; id <= graph_value_count(net->g); id++) {
        const ValueInfo *info = graph_value(net->g, (Value){id});
        if (info->role != ROLE_INPUT && info->role != ROLE_PARAM) continue;
        uint64_t seed = 5381;
        for (const char *c = info->name; *c; c++) seed = seed * 33 + (unsigned char)*c;
        fill_uniform(interpreter_data(&it, (Value){id}), shape_count(info->shape), seed, -1, 1);
    }
    interpreter_run(&it);
    return it;
}

/* The value of this role that belongs to what has this name. */
static Value value_of(const Graph *g, Role role, const char *name)
{
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role == role && !strcmp(graph_value(g, info->of)->name, name)) return (Value){id};
    }
    fail_msg("nothing belongs to %s", name);
    return (Value){0};
}

/* Every gradient and every batch statistic. */
static int compare(const Net *plain, Interpreter *a, const Net *fused, Interpreter *b)
{
    int compared = 0;
    for (int32_t id = 1; id <= graph_value_count(plain->g); id++) {
        const ValueInfo *info = graph_value(plain->g, (Value){id});
        if (info->role != ROLE_GRAD && info->role != ROLE_BATCH_STATISTIC) continue;
        Value other = value_of(fused->g, info->role, graph_value(plain->g, info->of)->name);
        const double *x = interpreter_data(a, (Value){id}), *y = interpreter_data(b, other);
        int64_t count = shape_count(info->shape);
        double size = 0, error = 0;
        for (int64_t i = 0; i < count; i++) {
            size += x[i] * x[i];
            error = fmax(error, fabs(x[i] - y[i]));
        }
        if (!(error <= 1e-9 * sqrt(size / (double)count) + 1e-12)) fail_msg("%s: off by %g", info->name, error);
        compared++;
    }
    return compared;
}

/* Of the three maxima one alone reads its batch norm. */
TEST(numbers_stay)
{
    for (int recompute = 0; recompute < 2; recompute++) {
        Net plain = net_make(recompute, false), fused = net_make(recompute, true);
        assert_int_equal(fused.pools.inputs, 1);
        assert_int_equal(fused.pools.gradients, 1);
        Interpreter a = net_run(&plain), b = net_run(&fused);
        assert_int_equal(compare(&plain, &a, &fused, &b), 2 * 12 + 9 + 2 * 12 + 2);
        interpreter_destroy(&a);
        interpreter_destroy(&b);
        graph_destroy(plain.g);
        graph_destroy(fused.g);
    }
}

/* ---- and in a plan, on the CPU's kernels */

enum { SAMPLES = 4 };

typedef struct Trained {
    float loss;
    float *grads, *stats; /* owned */
    size_t grad_count, statistics_count;
    NormPools pools;
    int unmade; /* batch norms without a result */
} Trained;

static void upload(const Program *p, Device *device, Value v, const void *from, size_t bytes)
{
    if (v.id) assert_int_equal(device->backend->upload(device, plan_tensor(p->plan, v).data, from, bytes), OK);
}

static float *fetch(Device *device, const void *from, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    assert_non_null(floats);
    assert_int_equal(device->backend->download(device, floats, from, count * sizeof *floats), OK);
    return floats;
}

/* All ops, and the gradients, each taken as soon as it is said to be final. The sum over towers is made where they lie:
 * from then on nothing else is there. */
static float *run_and_take(const Program *p, const Layout *layout, Device *device, float *grads)
{
    int ran = 0;
    size_t start = 0;
    float *taken = calloc(layout->param_elements, sizeof *taken);
    assert_non_null(taken);
    for (int i = 0; i <= layout->param_count; i++) {
        bool last = i == layout->param_count;
        size_t end = last ? layout->param_elements : layout_param_end(layout, i);
        int ready = last ? plan_op_count(p->plan) : plan_ready_after(p->plan, end);
        if (ready > ran && plan_run(p->plan, ran, ready) != OK) fail_msg("%s", status_message());
        if (ready > ran) ran = ready;
        assert_int_equal(device->backend->download(device, taken + start, grads + start, (end - start) * sizeof *grads),
                         OK);
        assert_int_equal(device->backend->fill(device, grads + start, 1e3f, end - start), OK);
        start = end;
    }
    return taken;
}

static void program_run(Program *p, const Layout *layout, Device *device, Trained *result)
{
    static uint8_t pixels[SAMPLES * 28 * 28 * 3];
    static const int32_t labels[SAMPLES] = {3, 1, 4, 9}, crops[SAMPLES * IMAGE_RECORD], counter[4] = {1, 2, 3, 0};
    void *arena[ARENA_COUNT];
    float one = 1;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int a = 0; a < ARENA_COUNT; a++) {
        assert_int_equal(device->backend->alloc(device, plan_bytes(p->plan, (Arena)a) + 64, &arena[a]), OK);
        plan_bind(p->plan, (Arena)a, arena[a]);
    }
    layout_init_params(layout, 7, arena[ARENA_PARAM]);
    layout_init_running(layout, arena[ARENA_RUNNING]);
    upload(p, device, p->pixels, pixels, (size_t)shape_count(graph_shape(p->graph, p->pixels)));
    upload(p, device, p->labels, labels, sizeof labels);
    upload(p, device, p->augment, crops, sizeof crops);
    upload(p, device, p->counter, counter, sizeof counter);
    upload(p, device, p->dloss, &one, sizeof one);
    *result = (Trained){.grad_count = layout->param_elements, .statistics_count = layout->running_elements};
    result->grads = run_and_take(p, layout, device, arena[ARENA_GRAD]);
    result->loss = *(float *)plan_tensor(p->plan, p->loss).data;
    result->stats = fetch(device, arena[ARENA_BATCH_STATISTICS], result->statistics_count);
    for (int a = 0; a < ARENA_COUNT; a++) device->backend->release(device, arena[a]);
}

static Trained train(const char *name, int32_t channels, bool join)
{
    const Backend *cpu;
    const Model *model;
    DeviceConfig threads = {DEVICE_USUAL, .threads = 1, .allow_reference = true};
    Device device = {0};
    Program graph, program;
    Layout *layout;
    Trained result;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(cpu->open(&threads, &device), OK);
    Backend joining = *cpu;
    joining.op_time = timed;
    forward_time = gradient_time = -1;
    device.backend = &joining;
    assert_int_equal(model_find(name, &model), OK);
    ProgramConfig config = {
        .model = model,
        .options = {.classes = 10, .side = 28, .channels = channels, .dropout = 0.2f, .variant = ""},
        .data_channels = channels,
        .canvas = 28,
        .training = true,
        .norm_into_pool = join};
    assert_int_equal(program_graph(&config, SAMPLES, &graph), OK);
    assert_int_equal(layout_create(graph.graph, &layout), OK);
    if (program_create(&config, SAMPLES, layout, &device, &program) != OK) fail_msg("%s", status_message());
    program_run(&program, layout, &device, &result);
    result.pools = program.pools;
    for (int i = 0; i < plan_op_count(program.plan); i++) {
        const OpCall *call = plan_call(program.plan, i);
        result.unmade += call->kind == OP_BATCHNORM && !call->out[0].data;
    }
    program_destroy(&program);
    program_destroy(&graph);
    layout_destroy(layout);
    cpu->close(&device);
    return result;
}

static void trained_free(Trained *t)
{
    free(t->grads);
    free(t->stats);
}

TEST(plans_agree)
{
    Trained plain = train("resnet18", 3, false), fused = train("resnet18", 3, true);
    assert_int_equal(plain.pools.inputs + plain.pools.gradients, 0);
    assert_int_equal(fused.pools.inputs, 1);
    assert_int_equal(fused.pools.gradients, 1);
    assert_int_equal(plain.unmade, 0);
    assert_int_equal(fused.unmade, 1);
    assert_true(plain.loss == fused.loss);
    assert_memory_equal(plain.stats, fused.stats, plain.statistics_count * sizeof(float));
    assert_memory_equal(plain.grads, fused.grads, plain.grad_count * sizeof(float));
    trained_free(&plain);
    trained_free(&fused);
}
