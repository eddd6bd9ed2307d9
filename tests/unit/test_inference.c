/* Evaluation as it runs: convolutions that include the batch norms behind them. Networks compute the same as with batch
 * norms of their own, as close to double precision, and the joined weights follow the weights. */
#include "inception/models/models.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"
#include "towers/replica/replica.h"

enum { N = 2, CLASSES = 10 };

static uint8_t pixels[N * 96 * 96 * 3];
static int32_t labels[N];

/* Some numbers of normalization that are neither 0 nor 1; the other weights are those of a new network. */
static void weights_vary(Replica *r)
{
    float *param = r->arena[ARENA_PARAM];
    for (int i = 0; i < r->layout->param_count; i++) {
        const LayoutEntry *entry = &r->layout->params[i];
        bool scale = strstr(entry->name, "bn") && strstr(entry->name, "weight");
        for (size_t k = 0; entry->rank == 1 && k < entry->count; k++)
            param[entry->first + k] = (float)scale + 0.3f * (float)sin((double)(k + 7 * (size_t)i));
    }
    for (int i = 0; i < r->layout->running_count; i++) {
        const LayoutEntry *entry = &r->layout->running[i];
        bool variance = strstr(entry->name, "running_var");
        for (size_t k = 0; k < entry->count; k++)
            r->eval_running[entry->first + k] = (float)variance + 0.4f * (float)sin((double)(3 * k + (size_t)i));
    }
    replica_weights_changed(r);
}

static Replica *replica_of(const char *name)
{
    const Model *model;
    Replica *replica;
    ReplicaConfig config = {.device = {DEVICE_USUAL, .threads = 2}, .local = 1, .eval_n = (const int32_t[]){N, 0}};
    assert_int_equal(model_find(name, &model), OK);
    if (backend_find("cpu", &config.backend, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    config.program = (ProgramConfig){.model = model,
                                     .options = {CLASSES, model->min_side, model->channels, 0, false, ""},
                                     .data_channels = model->channels,
                                     .canvas = model->min_side,
                                     .fuse_siblings = true,
                                     .pool_behind_conv = true};
    if (replica_create(&config, &replica) != OK) fail_msg("%s", status_message());
    weights_vary(replica);
    return replica;
}

static int softmax_of(const Graph *g)
{
    int op = 0;
    while (graph_op_at(g, op)->kind != OP_SOFTMAX_LOSS) op++;
    return op;
}

static int kinds_of(const Graph *g, OpKind kind)
{
    int count = 0;
    for (int i = 0; i < graph_op_count(g); i++) count += graph_op_at(g, i)->kind == kind;
    return count;
}

/* Runs ops `first` and following up to the logits. */
static void logits_run(Replica *r, Program *program, int first, double logits[N * CLASSES])
{
    Batch batch = {.n = N, .canvas = r->config.program.canvas, .c = r->config.program.data_channels};
    int softmax = softmax_of(program->graph);
    batch.pixels = pixels;
    batch.labels = labels;
    assert_int_equal(replica_feed(r, program, &batch, 0, &(RandomKey){0}, 0), OK);
    assert_int_equal(plan_run(program->plan, first, softmax), OK);
    Tensor t = plan_tensor(program->plan, graph_op_at(program->graph, softmax)->in[0]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < CLASSES; k++) logits[i * CLASSES + k] = (double)((float *)t.data)[i * t.pitch + k];
}

/* The same weights in the program whose batch norms are ops of their own. */
static void logits_apart(Replica *r, double logits[N * CLASSES])
{
    Program program;
    void *arena[ARENA_COUNT];
    const Backend *cpu = r->device.backend;
    assert_int_equal(program_graph(&r->config.program, N, &program), OK);
    assert_int_equal(plan_create(program.graph, r->layout, &r->device, NULL, &program.plan), OK);
    for (int a = 0; a < ARENA_COUNT; a++) {
        assert_int_equal(cpu->alloc(&r->device, plan_bytes(program.plan, (Arena)a) + 64, &arena[a]), OK);
        plan_bind(program.plan, (Arena)a, arena[a]);
    }
    plan_bind(program.plan, ARENA_PARAM, r->arena[ARENA_PARAM]);
    plan_bind(program.plan, ARENA_RUNNING, r->eval_running);
    logits_run(r, &program, 0, logits);
    for (int a = 0; a < ARENA_COUNT; a++) cpu->release(&r->device, arena[a]);
    program_destroy(&program);
}

static void logits_exact(Replica *r, double logits[N * CLASSES])
{
    Program program;
    assert_int_equal(program_graph(&r->config.program, N, &program), OK);
    const Graph *g = program.graph;
    Interpreter it = interpreter_create(g);
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        bool param = info->role == ROLE_PARAM;
        if (!param && info->role != ROLE_RUNNING) continue;
        const LayoutEntry *entry = param ? layout_param(r->layout, info->name) : layout_running(r->layout, info->name);
        const float *from = (param ? (float *)r->arena[ARENA_PARAM] : r->eval_running) + entry->first;
        for (size_t k = 0; k < entry->count; k++) interpreter_data(&it, (Value){id})[k] = (double)from[k];
    }
    double *image = interpreter_data(&it, program.pixels);
    for (int64_t i = 0; i < shape_count(graph_shape(g, program.pixels)); i++) image[i] = pixels[i];
    interpreter_run(&it);
    memcpy(logits, interpreter_data(&it, graph_op_at(g, softmax_of(g))->in[0]), N * CLASSES * sizeof *logits);
    interpreter_destroy(&it);
    program_destroy(&program);
}

static double distance(const double *a, const double *b)
{
    double apart = 0, size = 0;
    for (int i = 0; i < N * CLASSES; i++) apart += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
    return sqrt(apart / size);
}

/* `left`: batch norms behind a pooling that was moved. */
static void network_is_as_exact(const char *name, int left)
{
    const double rounding = 0x1p-23;
    double joined[N * CLASSES], apart[N * CLASSES], exact[N * CLASSES];
    Replica *r = replica_of(name);
    const Graph *g = r->eval[0].graph;
    assert_true(r->eval[0].fold_end > 0);
    assert_int_equal(kinds_of(g, OP_NORM_FOLD), r->eval[0].fold_end);
    assert_int_equal(kinds_of(g, OP_BATCHNORM_APPLY), left);
    logits_run(r, &r->eval[0], 0, joined);
    logits_apart(r, apart);
    logits_exact(r, exact);
    if (distance(joined, exact) > 2 * distance(apart, exact) + rounding)
        fail_msg("%s: %g from double precision, with batch norms apart %g", name, distance(joined, exact),
                 distance(apart, exact));
    replica_destroy(r);
}

TEST(networks_are_as_exact)
{
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    network_is_as_exact("inception_mini", 3);
    network_is_as_exact("inception_v3", 9);
    network_is_as_exact("googlenet", 0);
    network_is_as_exact("resnet18", 0);
    network_is_as_exact("mobilenet_v3_large", 0);
    network_is_as_exact("efficientnet_b0", 0);
    network_is_as_exact("efficientnet_lite0", 0);
}

/* Joined weights are made when weights have changed, and not otherwise. */
TEST(weights_are_joined_once)
{
    double first[N * CLASSES], then[N * CLASSES];
    Replica *r = replica_of("inception_mini");
    Program *program = &r->eval[0];
    float *param = r->arena[ARENA_PARAM];
    assert_int_equal(replica_fold(r), OK);
    logits_run(r, program, program->fold_end, first);
    const LayoutEntry *scale = layout_param(r->layout, "Conv2d_1a_3x3.bn.weight");
    assert_non_null(scale);
    param[scale->first] += 1;
    assert_int_equal(replica_fold(r), OK);
    logits_run(r, program, program->fold_end, then);
    assert_memory_equal(first, then, sizeof first);
    replica_weights_changed(r);
    assert_int_equal(replica_fold(r), OK);
    logits_run(r, program, program->fold_end, then);
    assert_true(distance(then, first) > 1e-4);
    logits_run(r, program, 0, first);
    assert_memory_equal(first, then, sizeof first);
    replica_destroy(r);
}

/* A NaN in a network is not hidden by a ReLU. */
TEST(nan_reaches_the_logits)
{
    double logits[N * CLASSES];
    Replica *r = replica_of("inception_v3");
    const LayoutEntry *shift = layout_param(r->layout, "Conv2d_1a_3x3.bn.bias");
    assert_non_null(shift);
    ((float *)r->arena[ARENA_PARAM])[shift->first] = NAN;
    logits_run(r, &r->eval[0], 0, logits);
    for (int i = 0; i < N * CLASSES; i++) assert_true(isnan(logits[i]));
    replica_destroy(r);
}
