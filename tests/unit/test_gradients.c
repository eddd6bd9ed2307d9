/* Every gradient rule against central differences, in double precision, with the reference as the device.
 *
 * First gradients: loss = sum of y * a fixed random cotangent. Second: the sum of the squares of the first gradients,
 * differentiated for all operands and the cotangent. Kinds without a rule must give an error with their name. At the
 * end whole small networks, among them the gradient penalty of WGAN-GP (Gulrajani et al., arXiv:1704.00028). */

#include "tests/support/interpret.h"
#include "tests/support/unit.h"
#include "towers/graph/layers.h"

enum { MAX_WRT = 12 };

static const Shape scalar = {1, 1, 1, 1};

/* ---- differences */

/* Values nobody writes: "one..." is 1, "positive..." lies in [0.5, 1.5), integers count 0, 1, 2, the rest in
 * [-1, 1). */
static void fill_sources(Interpreter *it)
{
    for (int id = 1; id <= it->count; id++) {
        const ValueInfo *info = graph_value(it->graph, (Value){id});
        int64_t count = shape_count(info->shape);
        double *data = it->values[id].data;
        bool positive = strncmp(info->name, "positive", 8) == 0;
        if (info->op >= 0 || info->role == ROLE_PACK) continue;
        fill_uniform(data, count, (uint64_t)id, positive ? 0.5 : -1, positive ? 1.5 : 1);
        for (int64_t i = 0; i < count; i++) {
            if (info->dtype == DTYPE_I32) data[i] = (double)(i % 3);
            if (strncmp(info->name, "one", 3) == 0) data[i] = 1;
        }
    }
}

static double loss_at(Interpreter *it, Value loss, double *element, double value)
{
    double old = *element;
    *element = value;
    interpreter_run(it);
    *element = old;
    return *interpreter_data(it, loss);
}

/* Largest |gradient - difference|, relative to the largest difference, over the elements of `x`. `analytic`
 * NULL: zero. */
static double worst_difference(Interpreter *it, Value loss, Value x, const double *analytic)
{
    const double h = 1e-5;
    int64_t count = shape_count(graph_shape(it->graph, x));
    double worst = 0, size = 1e-3;
    for (int64_t i = 0; i < count; i++) {
        double *element = interpreter_data(it, x) + i, at = *element;
        double slope = (loss_at(it, loss, element, at + h) - loss_at(it, loss, element, at - h)) / (2 * h);
        worst = fmax(worst, fabs(slope - (analytic ? analytic[i] : 0)));
        size = fmax(size, fabs(slope));
        if (isnan(slope) || (analytic && isnan(analytic[i]))) return INFINITY;
    }
    return worst / size;
}

/* Compares d loss / d wrt[k] with grads[k] for all k; a value that is absent stands for zero. */
static void check_differences(const char *what, const Graph *g, Value loss, const Value *wrt, const Value *grads,
                              int count)
{
    Interpreter it = interpreter_create(g);
    fill_sources(&it);
    for (int k = 0; k < count; k++) {
        double *copy = NULL;
        RefTensor kept = ref_create(graph_shape(g, wrt[k]));
        interpreter_run(&it);
        if (grads[k].id) {
            assert_true(shape_equal(graph_shape(g, grads[k]), kept.shape));
            copy = memcpy(kept.data, interpreter_data(&it, grads[k]), (size_t)shape_count(kept.shape) * sizeof(double));
        }
        double worst = worst_difference(&it, loss, wrt[k], copy);
        ref_destroy(&kept);
        if (!(worst <= 1e-6))
            fail_msg("%s: gradient of '%s' (%d) is off by %.3g", what, graph_value(g, wrt[k])->name, k, worst);
    }
    interpreter_destroy(&it);
}

static Graph *new_graph(void)
{
    Graph *g = NULL;
    const GraphOptions options = {.training = true, .compute = DTYPE_F32};
    if (graph_create(&options, &g) != OK) fail_msg("%s", status_message());
    return g;
}

static void check_graph(const char *what, Graph *g)
{
    if (graph_finish(g) != OK) fail_msg("%s: %s\n%s", what, status_message(), status_trace());
}

static Value total_of_product(Graph *g, Value a, Value b)
{
    return total(g, mul(g, a, b));
}

/* ---- one op at a time */

typedef struct Row {
    const char *name;
    OpKind kind;
    OpAttr attr;
    Shape in[OP_MAX_IN];   /* n == 0: absent */
    Shape asked;           /* n == 0: follows from the inputs */
    bool positive;         /* operands in [0.5, 1.5) */
    const char *no_second; /* NULL: has a second gradient; else the kind that says it has none */
} Row;

#define CONV_WINDOW(...)                                                                                               \
    {                                                                                                                  \
        .conv = {.window = {__VA_ARGS__} }                                                                             \
    }
#define CONV_RELU(...)                                                                                                 \
    {                                                                                                                  \
        .conv = {.window = {__VA_ARGS__}, .relu = true }                                                               \
    }
#define POOL_WINDOW(pad, ...)                                                                                          \
    {                                                                                                                  \
        .pool = { {__VA_ARGS__}, pad }                                                                                 \
    }
#define NOTHING                                                                                                        \
    {                                                                                                                  \
        .add = { false }                                                                                               \
    }

static const Row rows[] = {
    // clang-format off
    {"same",        OP_CONV,    CONV_WINDOW(3, 3, 1, 1, 1, 1), {{2, 3, 4, 5}, {2, 3, 3, 3}}},
    {"bias",        OP_CONV,    CONV_WINDOW(3, 2, 2, 1, 0, 1), {{2, 2, 5, 4}, {3, 2, 3, 2}, {1, 3, 1, 1}}},
    {"bias, relu",  OP_CONV,    CONV_RELU(3, 3, 2, 2, 0, 0),   {{1, 2, 6, 6}, {3, 2, 3, 3}, {1, 3, 1, 1}}},
    {"1x1",         OP_CONV,    CONV_WINDOW(1, 1, 1, 1, 0, 0), {{2, 4, 2, 3}, {3, 4, 1, 1}}},
    {"plain",       OP_CONV_DX, CONV_WINDOW(3, 3, 2, 2, 1, 1), {{2, 2, 3, 3}, {2, 3, 3, 3}}, {2, 3, 5, 5}},
    {"acc",         OP_CONV_DX, CONV_WINDOW(1, 1, 1, 1, 0, 0), {{2, 2, 3, 3}, {2, 3, 1, 1}, {2, 3, 3, 3}}, {2, 3, 3, 3}},
    {"plain",       OP_CONV_DW, CONV_WINDOW(3, 2, 1, 2, 1, 0), {{2, 2, 4, 4}, {2, 3, 4, 2}}, {3, 2, 3, 2}},
    {"uneven",      OP_CONV,    CONV_WINDOW(3, 3, 2, 2, 0, 1, false, 1, -1), {{1, 2, 6, 5}, {2, 2, 3, 3}}},
    {"dilated",     OP_CONV_DX, CONV_WINDOW(3, 2, 1, 2, 1, 0, false, 1, 1, 1, 2), {{1, 2, 6, 2}, {2, 3, 3, 2}}, {1, 3, 7, 5}},
    {"dilated",     OP_CONV_DW, CONV_WINDOW(2, 3, 1, 1, 0, 0, false, 1, 0, 1, 0), {{2, 2, 4, 4}, {2, 3, 3, 2}}, {3, 2, 2, 3}},
    {"bias",        OP_DENSE,   {.dense = {false}}, {{3, 2, 2, 2}, {4, 2, 2, 2}, {1, 4, 1, 1}}},
    {"bias, relu",  OP_DENSE,   {.dense = {true}},  {{3, 5, 1, 1}, {4, 5, 1, 1}, {1, 4, 1, 1}}},
    {"plain",       OP_DENSE_DX, NOTHING, {{3, 4, 1, 1}, {4, 2, 2, 1}}, {3, 2, 2, 1}},
    {"plain",       OP_DENSE_DW, NOTHING, {{3, 2, 2, 1}, {3, 4, 1, 1}}, {4, 2, 2, 1}},
    {"plain",       OP_CHANNEL_SUM, NOTHING, {{2, 3, 2, 2}}},
    {"plain",       OP_CHANNEL_SPREAD, NOTHING, {{1, 3, 1, 1}}, {2, 3, 2, 2}},
    {"beta",        OP_BATCHNORM, {.norm = {1e-3f, false}}, {{3, 2, 2, 2}, {1, 2, 1, 1}}, .no_second = "batchnorm_dx"},
    {"gamma, relu", OP_BATCHNORM, {.norm = {1e-3f, true}}, {{3, 2, 2, 2}, {1, 2, 1, 1}, {1, 2, 1, 1}}, .no_second = "batchnorm_dx"},
    {"channels",    OP_LAYERNORM, {.norm = {1e-3f, false}}, {{2, 5, 2, 2}, {1, 5, 1, 1}, {1, 5, 1, 1}}, .no_second = "layernorm_dx"},
    {"plain",       OP_RELU,    NOTHING, {{2, 3, 2, 2}}},
    {"plain",       OP_RELU_DX, NOTHING, {{2, 3, 2, 2}, {2, 3, 2, 2}}},
    {"plain",       OP_LEAKY_RELU, {.leaky = {0.2f}}, {{2, 3, 2, 2}}},
    {"falling",     OP_LEAKY_RELU, {.leaky = {-0.5f}}, {{2, 3, 2, 2}}},
    {"plain",       OP_LEAKY_RELU_DX, {.leaky = {0.2f}}, {{2, 3, 2, 2}, {2, 3, 2, 2}}},
#define UNARY(KIND, name, formula) {"plain", OP_##KIND, NOTHING, {{2, 3, 2, 2}}},
#define UNARY_GRAD(KIND, name, formula, slope) {"plain", OP_##KIND, NOTHING, {{2, 3, 2, 2}}, .no_second = #name "_dx"},
#include "kernels/ops.def"
    {"plain",       OP_DROPOUT, {.dropout = {0.5f, 1}}, {{2, 3, 2, 2}, {1, 4, 1, 1}}},
    {"plain",       OP_STOCHASTIC_DEPTH, {.dropout = {0.5f, 1}}, {{5, 3, 2, 1}, {1, 4, 1, 1}}},
    {"overlapping", OP_MAX_POOL, POOL_WINDOW(false, 3, 3, 2, 2, 0, 0), {{2, 2, 5, 5}}, .no_second = "max_pool_dx"},
    {"padding",     OP_MAX_POOL, POOL_WINDOW(false, 3, 3, 1, 1, 1, 1), {{1, 2, 4, 4}}, .no_second = "max_pool_dx"},
    {"counted",     OP_AVG_POOL, POOL_WINDOW(true, 3, 3, 1, 1, 1, 1), {{2, 2, 3, 4}}},
    {"not counted", OP_AVG_POOL, POOL_WINDOW(false, 3, 3, 2, 2, 1, 1), {{2, 2, 5, 5}}},
    {"plain",       OP_AVG_POOL_DX, POOL_WINDOW(false, 2, 2, 2, 2, 0, 0), {{2, 2, 2, 2}}, {2, 2, 4, 4}},
    {"acc",         OP_AVG_POOL_DX, POOL_WINDOW(true, 3, 3, 1, 1, 1, 1), {{2, 2, 3, 3}, {2, 2, 3, 3}}, {2, 2, 3, 3}},
    {"adaptive",    OP_AVG_POOL, {.pool.adaptive = true}, {{2, 2, 7, 5}}, {2, 2, 4, 4}},
    {"adaptive",    OP_AVG_POOL_DX, {.pool.adaptive = true}, {{2, 2, 4, 4}, {2, 2, 5, 7}}, {2, 2, 5, 7}},
    {"three",       OP_CONCAT,  NOTHING, {{2, 1, 2, 2}, {2, 3, 2, 2}, {2, 2, 2, 2}}},
    {"all",         OP_SLICE,   {.slice = {0}}, {{2, 3, 2, 2}}, {2, 3, 2, 2}},
    {"plain",       OP_RESHAPE, NOTHING, {{2, 3, 2, 2}}, {2, 12, 1, 1}},
    {"shuffle",     OP_SHUFFLE, {.shuffle = {2}}, {{2, 6, 2, 3}}},
    {"pad",         OP_PAD,     {.pad = {1, 2, 0, 1}}, {{2, 3, 2, 3}}},
    {"crop",        OP_PAD,     {.pad = {-1, 1, 2, -1}}, {{2, 3, 3, 2}}},
    {"three",       OP_ADD,     {.add = {false}}, {{2, 3, 2, 2}, {2, 3, 2, 2}, {2, 3, 2, 2}}},
    {"two, relu",   OP_ADD,     {.add = {true}}, {{2, 3, 2, 2}, {2, 3, 2, 2}}},
    {"plain",       OP_MUL,     NOTHING, {{2, 3, 2, 2}, {2, 3, 2, 2}}},
    {"channels of samples", OP_MUL, NOTHING, {{2, 3, 2, 2}, {2, 3, 1, 1}}},
    {"channels",    OP_MUL,     NOTHING, {{2, 3, 2, 2}, {1, 3, 1, 1}}},
    {"plain",       OP_AFFINE,  {.affine = {-1.5f, 0.5f}}, {{2, 3, 2, 2}}},
    {"shift alone", OP_AFFINE,  {.affine = {1, 2}}, {{2, 3, 2, 2}}},
    {"square",      OP_POWER,   {.power = {2}}, {{2, 3, 2, 2}}},
    {"root",        OP_POWER,   {.power = {0.5f}}, {{2, 3, 2, 2}}, .positive = true},
    {"inverse",     OP_POWER,   {.power = {-1}}, {{2, 3, 2, 2}}, .positive = true},
    {"to samples",  OP_SUM_TO,  NOTHING, {{2, 3, 2, 2}}, {2, 1, 1, 1}},
    {"to channels", OP_SUM_TO,  NOTHING, {{2, 3, 2, 2}}, {1, 3, 1, 1}},
    {"to an image", OP_SPREAD_TO, NOTHING, {{2, 1, 1, 1}}, {2, 3, 2, 2}},
    {"over rows",   OP_SPREAD_TO, NOTHING, {{2, 3, 1, 2}}, {2, 3, 4, 2}},
    {"plain",       OP_SOFTMAX_LOSS, {.loss = {0}}, {{4, 5, 1, 1}, {4, 1, 1, 1}}, .no_second = "softmax_loss_dx"},
    {"smoothed",    OP_SOFTMAX_LOSS, {.loss = {0.1f}}, {{4, 5, 1, 1}, {4, 1, 1, 1}}, .no_second = "softmax_loss_dx"},
    {"targets",     OP_SOFTMAX_LOSS, {.loss = {0}}, {{4, 5, 1, 1}, {4, 1, 1, 1}, {4, 5, 1, 1}}, .no_second = "softmax_loss_dx"},
    {"targets",     OP_SIGMOID_LOSS, {.loss = {0}}, {{4, 5, 1, 1}, {4, 1, 1, 1}, {4, 5, 1, 1}}, .no_second = "sigmoid_loss_dx"},
    {"weights",     OP_SIGMOID_LOSS, {.loss = {0, true}}, {{4, 5, 1, 1}, {4, 1, 1, 1}, {4, 5, 1, 1}, {1, 5, 1, 1}}, .no_second = "sigmoid_loss_dx"},
    // clang-format on
};

/* Kinds whose first gradient does not exist. */
static const Row without_rule[] = {
    {"image", OP_IMAGE, {.image = {{0}, {1, 1, 1, 1}}}, {{2, 3, 4, 4}}, {2, 3, 4, 4}},
    {"norm",
     OP_BATCHNORM_DX,
     {.norm = {1e-3f, false}},
     {{2, 3, 2, 2}, {2, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}},
    {"norm", OP_BATCHNORM_APPLY, {.norm = {1e-3f, false}}, {{2, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}},
    {"layer norm", OP_LAYERNORM_DX, {.norm = {1e-3f, false}}, {{2, 5, 2, 2}, {2, 5, 2, 2}, {1, 5, 1, 1}}},
    {"fold", OP_NORM_FOLD, {.norm = {1e-3f, false}}, {{4, 3, 2, 2}, {1, 4, 1, 1}, {1, 4, 1, 1}, {1, 4, 1, 1}}},
    {"pool", OP_MAX_POOL_DX, POOL_WINDOW(false, 2, 2, 2, 2, 0, 0), {{2, 2, 2, 2}, {2, 2, 2, 2}}, {2, 2, 4, 4}},
    {"normalized pool",
     OP_MAX_POOL_NORM,
     {.pool = {.window = {2, 2, 2, 2, 0, 0}, .epsilon = 1e-3f}},
     {{2, 2, 4, 4}, {1, 2, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1}}},
    {"normalized pool, dx",
     OP_MAX_POOL_NORM_DX,
     {.pool = {.window = {2, 2, 2, 2, 0, 0}, .epsilon = 1e-3f}},
     {{2, 2, 2, 2}, {2, 2, 2, 2}, {2, 2, 4, 4}, {1, 2, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1}}},
    {"random", OP_RANDOM, {.random = {false, 1}}, {{1, 4, 1, 1}}, {2, 3, 2, 2}},
    {"loss", OP_SOFTMAX_LOSS_DX, {.loss = {0}}, {{4, 5, 1, 1}, {4, 1, 1, 1}, {1, 1, 1, 1}}},
    {"loss", OP_SIGMOID_LOSS_DX, {.loss = {0}}, {{4, 5, 1, 1}, {4, 1, 1, 1}, {1, 1, 1, 1}, {4, 5, 1, 1}}},
#define UNARY_GRAD(KIND, name, formula, slope) {"slope", OP_##KIND##_DX, NOTHING, {{2, 3, 2, 2}, {2, 3, 2, 2}}},
#include "kernels/ops.def"
};

static Dtype operand_dtype(OpKind kind, int k)
{
    if (kind == OP_IMAGE) return DTYPE_U8;
    if ((kind == OP_MAX_POOL_DX || kind == OP_MAX_POOL_NORM_DX) && k == 1) return DTYPE_U8;
    bool integers = ((kind == OP_DROPOUT || kind == OP_STOCHASTIC_DEPTH) && k == 1) || kind == OP_RANDOM ||
                    ((kind == OP_SOFTMAX_LOSS || kind == OP_SOFTMAX_LOSS_DX || kind == OP_SIGMOID_LOSS ||
                      kind == OP_SIGMOID_LOSS_DX) &&
                     k == 1);
    return integers ? DTYPE_I32 : DTYPE_F32;
}

typedef struct Built {
    Graph *g;
    Value y, cotangent, one, loss;
    Value wrt[MAX_WRT];
    int count; /* of the float operands */
} Built;

static Built build_row(const Row *row)
{
    Built b = {.g = new_graph()};
    Value in[OP_MAX_IN] = {{0}};
    int given = 0;
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (!row->in[k].n) continue;
        char name[32];
        snprintf(name, sizeof name, "%s%d", row->positive ? "positive" : "in", k);
        Dtype dtype = operand_dtype(row->kind, k);
        in[k] = graph_input(b.g, name, row->in[k], dtype);
        given = k + 1;
        bool loss = row->kind == OP_SOFTMAX_LOSS || row->kind == OP_SIGMOID_LOSS;
        bool targets = loss && k >= 2; /* and weights: have no gradient */
        if (dtype == DTYPE_F32 && !targets) b.wrt[b.count++] = in[k];
    }
    b.y = graph_op(b.g, row->kind, op_name(row->kind), in, given, &row->attr, row->asked.n ? &row->asked : NULL);
    if (!b.count) b.wrt[b.count++] = in[0];
    b.cotangent = graph_input(b.g, "cotangent", graph_shape(b.g, b.y), DTYPE_F32);
    b.one = graph_input(b.g, "one", scalar, DTYPE_F32);
    b.loss = total_of_product(b.g, b.y, b.cotangent);
    return b;
}

TEST(test_first_gradients)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char what[128];
        snprintf(what, sizeof what, "%s '%s'", op_name(rows[i].kind), rows[i].name);
        Value grads[MAX_WRT] = {{0}};
        Built b = build_row(&rows[i]);
        check_graph(what, b.g);
        graph_grad(b.g, b.loss, b.one, b.wrt, b.count, grads);
        check_graph(what, b.g);
        check_differences(what, b.g, b.loss, b.wrt, grads, b.count);
        graph_destroy(b.g);
    }
}

/* The sum of the squares of the first gradients of a row, and its gradients for operands and cotangent. */
static Value build_second(Built *b, Value *second)
{
    Value first[MAX_WRT] = {{0}}, squares[MAX_WRT];
    int terms = 0;
    b->wrt[b->count++] = b->cotangent;
    graph_grad(b->g, b->loss, b->one, b->wrt, b->count, first);
    for (int k = 0; k < b->count; k++)
        if (first[k].id) squares[terms++] = total_of_product(b->g, first[k], first[k]);
    Value loss = graph_op(b->g, OP_ADD, "squares", squares, terms, NULL, NULL);
    graph_grad(b->g, loss, b->one, b->wrt, b->count, second);
    return loss;
}

TEST(test_second_gradients)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char what[128];
        snprintf(what, sizeof what, "second gradient of %s '%s'", op_name(rows[i].kind), rows[i].name);
        if (rows[i].no_second) continue;
        Value second[MAX_WRT] = {{0}};
        Built b = build_row(&rows[i]);
        Value loss = build_second(&b, second);
        check_graph(what, b.g);
        check_differences(what, b.g, loss, b.wrt, second, b.count);
        graph_destroy(b.g);
    }
}

static void check_refusal(const char *what, Graph *g, const char *kind)
{
    Status st = graph_finish(g);
    if (st == OK) fail_msg("%s: differentiated without a rule", what);
    if (!strstr(status_message(), kind)) fail_msg("%s: does not name %s: '%s'", what, kind, status_message());
    assert_int_equal(st, ERR_UNSUPPORTED);
}

TEST(test_missing_second_gradients_are_named)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].no_second) continue;
        Value second[MAX_WRT] = {{0}};
        Built b = build_row(&rows[i]);
        (void)build_second(&b, second);
        check_refusal(op_name(rows[i].kind), b.g, rows[i].no_second);
        graph_destroy(b.g);
    }
}

TEST(test_missing_first_gradients_are_named)
{
    for (size_t i = 0; i < sizeof without_rule / sizeof *without_rule; i++) {
        const char *kind = op_name(without_rule[i].kind);
        Value grads[MAX_WRT] = {{0}};
        Built b = build_row(&without_rule[i]);
        check_graph(kind, b.g);
        graph_grad(b.g, b.loss, b.one, b.wrt, b.count, grads);
        check_refusal(kind, b.g, kind);
        graph_destroy(b.g);
    }
}

TEST(test_every_kind_has_a_row)
{
    bool seen[OP_COUNT] = {true};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) seen[rows[i].kind] = true;
    for (size_t i = 0; i < sizeof without_rule / sizeof *without_rule; i++) seen[without_rule[i].kind] = true;
    for (int kind = 0; kind < OP_COUNT; kind++)
        if (!seen[kind]) fail_msg("%s has no row", op_name((OpKind)kind));
}

/* ---- networks */

static const Init small = {INIT_UNIFORM, 0.5f};

static void check_network(const char *what, Graph *g, Value loss, const Value *wrt, int count)
{
    Value grads[MAX_WRT] = {{0}}, one = graph_input(g, "one", scalar, DTYPE_F32);
    graph_grad(g, loss, one, wrt, count, grads);
    check_graph(what, g);
    for (int k = 0; k < count; k++)
        if (!grads[k].id) fail_msg("%s: no gradient of '%s'", what, graph_value(g, wrt[k])->name);
    check_differences(what, g, loss, wrt, grads, count);
    graph_destroy(g);
}

static Value class_loss(Graph *g, Value logits)
{
    Value labels = graph_input(g, "labels", (Shape){graph_shape(g, logits).n, 1, 1, 1}, DTYPE_I32);
    return softmax_loss(g, logits, labels, 0.1f, NULL, NULL);
}

static int all_params(const Graph *g, Value *params)
{
    int count = 0;
    for (int id = 1; id <= graph_value_count(g); id++)
        if (graph_value(g, (Value){id})->role == ROLE_PARAM && count < MAX_WRT) params[count++] = (Value){id};
    return count;
}

/* One input under four branches, a concat, batch norm: contributions of several readers, slices of the concat. */
TEST(test_inception_block)
{
    Graph *g = new_graph();
    Value params[MAX_WRT], x = graph_input(g, "x", (Shape){2, 3, 5, 5}, DTYPE_F32);
    Value stem = conv_bias(g, x, "stem", 4, 3, SAME, false, small);
    Value a = conv_bias(g, stem, "a", 2, 1, SAME, true, small);
    Value b = conv_bias(g, stem, "b", 3, 3, SAME, false, small);
    Value c = conv_bias(g, avg_pool(g, stem, 3, SAME), "c", 2, 1, SAME, false, small);
    Value d = max_pool(g, stem, 3, SAME);
    Value y = leaky_relu(g, CONCAT(g, a, b, c, d), 0.1f);
    Value loss = class_loss(g, dense(g, global_avg_pool(g, y), "fc", 4, false, small));
    int count = all_params(g, params);
    check_network("inception block", g, loss, params, count);
}

TEST(test_conv_bn_relu_pool)
{
    Graph *g = new_graph();
    Value params[MAX_WRT], x = graph_input(g, "x", (Shape){3, 2, 6, 6}, DTYPE_F32);
    Value y = conv_bn_relu(g, x, (ConvUnit){"unit", 3, 3, 3, SAME});
    Value loss = class_loss(g, dense(g, max_pool(g, y, 3, HALVE), "fc", 4, false, small));
    int count = all_params(g, params);
    check_network("conv, batch norm, relu, max pool", g, loss, params, count);
}

/* A batch norm with fixed mean and variance passes its gradient on to the trained layer in front of it. */
TEST(test_frozen_norm)
{
    for (int no_gamma = 0; no_gamma < 2; no_gamma++) {
        Graph *g = NULL;
        const GraphOptions options = {.training = true, .compute = DTYPE_F32, .freeze = "*.bn.*"};
        assert_int_equal(graph_create(&options, &g), OK);
        layer_style(g, (LayerStyle){.bn_no_gamma = no_gamma});
        Value x = graph_input(g, "x", (Shape){3, 2, 6, 6}, DTYPE_F32);
        Value y = conv_bn_relu(g, x, (ConvUnit){"positive", 3, 3, 3, SAME});
        Value loss = class_loss(g, dense(g, max_pool(g, y, 3, HALVE), "fc", 4, false, small));
        Value trained[] = {graph_find(g, "positive.conv.weight"), graph_find(g, "fc.weight"), x};
        check_network("conv, frozen batch norm, relu, max pool", g, loss, trained, 3);
    }
}

/* A ReLU whose only reader is a pooling, and one with a second reader: the mask may move only in the first case. */
TEST(test_relu_before_pool)
{
    for (int second_reader = 0; second_reader < 2; second_reader++) {
        Graph *g = new_graph();
        Value params[MAX_WRT], x = graph_input(g, "x", (Shape){2, 2, 6, 6}, DTYPE_F32);
        Value y = conv_bias(g, x, "conv", 3, 3, SAME, true, small);
        Value pooled = max_pool(g, y, 2, HALVE);
        if (second_reader) pooled = CONCAT(g, pooled, avg_pool_window(g, y, (Window){2, 2, 2, 2}, true));
        Value loss = class_loss(g, dense(g, pooled, "fc", 4, false, small));
        int count = all_params(g, params);
        check_network(second_reader ? "relu with two readers" : "relu before pool", g, loss, params, count);
    }
}

/* y = relu(x + 0.2 conv(x)): a value read by its own successor, a sum that ends in a ReLU. */
TEST(test_residual_block)
{
    Graph *g = new_graph();
    Value params[MAX_WRT], x = graph_input(g, "x", (Shape){2, 3, 4, 4}, DTYPE_F32);
    Value stem = conv_bias(g, x, "stem", 3, 1, SAME, false, small);
    Value branch = affine(g, conv_bias(g, relu(g, stem), "branch", 3, 3, SAME, true, small), 0.2f, 0);
    Value y = add_relu(g, stem, branch);
    Value loss = class_loss(g, dense(g, y, "fc", 4, false, small));
    int count = all_params(g, params);
    check_network("residual block", g, loss, params, count);
}

/* A loss over two slices of one value, first .. first + c each. */
static Value slices_loss(Graph *g, Value x, const int32_t firsts[2], const int32_t channels[2])
{
    Value parts[2], y = mul(g, x, x);
    for (int k = 0; k < 2; k++) {
        Shape s = {2, channels[k], 2, 2};
        OpAttr attr = {.slice = {firsts[k]}};
        Value part = graph_op(g, OP_SLICE, "part", &y, 1, &attr, &s);
        parts[k] = total_of_product(g, part, graph_input(g, k ? "v" : "u", s, DTYPE_F32));
    }
    return add(g, parts[0], parts[1]);
}

/* Slices have a gradient, whatever their order, whatever lies between them and what they have in common. */
TEST(test_slices)
{
    static const int32_t firsts[6][2] = {{0, 2}, {3, 0}, {1, 4}, {0, 1}, {1, 1}, {0, 2}};
    static const int32_t channels[6][2] = {{2, 3}, {2, 2}, {2, 1}, {2, 4}, {2, 4}, {5, 2}};
    for (int round = 0; round < 6; round++) {
        Graph *g = new_graph();
        Value x = graph_input(g, "x", (Shape){2, 5, 2, 2}, DTYPE_F32);
        check_network("slices", g, slices_loss(g, x, firsts[round], channels[round]), &x, 1);
    }
}

/* Channels that no slice reads have the gradient 0, whatever they are. */
TEST(test_slices_beside_infinity)
{
    Graph *g = new_graph();
    Value grad, x = graph_input(g, "x", (Shape){2, 5, 2, 3}, DTYPE_F32);
    Value part = slice(g, x, 1, 3);
    Value loss = total_of_product(g, part, graph_input(g, "v", graph_shape(g, part), DTYPE_F32));
    graph_grad(g, loss, graph_input(g, "one", scalar, DTYPE_F32), &x, 1, &grad);
    check_graph("slices", g);
    Interpreter it = interpreter_create(g);
    fill_sources(&it);
    int64_t count = shape_count(graph_shape(g, x));
    for (int64_t i = 0; i < count; i++)
        if (i % 5 == 0 || i % 5 == 4) interpreter_data(&it, x)[i] = i % 5 ? (double)NAN : (double)INFINITY;
    interpreter_run(&it);
    for (int64_t i = 0; i < count; i++) {
        double found = interpreter_data(&it, grad)[i];
        assert_true(i % 5 == 0 || i % 5 == 4 ? found == 0 : isfinite(found));
    }
    interpreter_destroy(&it);
    graph_destroy(g);
}

/* f(x) f(y) with one set of weights: a parameter with two readers. */
TEST(test_shared_weights)
{
    Graph *g = new_graph();
    Value w = graph_param(g, "w", (Shape){2, 2, 3, 3}, small, true);
    OpAttr attr = CONV_WINDOW(3, 3, 1, 1, 1, 1);
    Value x = graph_input(g, "x", (Shape){2, 2, 4, 4}, DTYPE_F32), once[2] = {x, w};
    Value y = graph_op(g, OP_CONV, "once", once, 2, &attr, NULL), twice[2] = {y, w};
    Value z = graph_op(g, OP_CONV, "twice", twice, 2, &attr, NULL);
    Value wrt[2] = {w, x};
    check_network("shared weights", g, total_of_product(g, y, z), wrt, 2);
}

/* Two convolutions with leaky ReLU and a dense score per sample. */
static Value critic(Graph *g, Value x, const Value *p)
{
    OpAttr window = CONV_WINDOW(3, 3, 2, 2, 1, 1);
    for (int layer = 0; layer < 2; layer++) {
        Value in[3] = {x, p[2 * layer], p[2 * layer + 1]};
        x = leaky_relu(g, graph_op(g, OP_CONV, "conv", in, 3, &window, NULL), 0.2f);
    }
    Value in[2] = {x, p[4]};
    return graph_op(g, OP_DENSE, "score", in, 2, NULL, NULL);
}

/* (||d score / d x_hat||_2 - 1)^2, summed over the samples. */
static Value gradient_penalty(Graph *g, Value x_hat, const Value *p)
{
    Shape samples = {graph_shape(g, x_hat).n, 1, 1, 1};
    OpAttr root = {.power = {0.5f}};
    Value score = critic(g, x_hat, p), dx, ones = graph_input(g, "ones", samples, DTYPE_F32);
    graph_grad(g, score, ones, &x_hat, 1, &dx);
    Value square = mul(g, dx, dx);
    Value sum = graph_op(g, OP_SUM_TO, "sum", &square, 1, NULL, &samples);
    Value distance = affine(g, graph_op(g, OP_POWER, "norm", &sum, 1, &root, NULL), 1, -1);
    return total_of_product(g, distance, distance);
}

TEST(test_wgan_gp)
{
    Graph *g = new_graph();
    static const Shape shapes[5] = {{4, 2, 3, 3}, {1, 4, 1, 1}, {3, 4, 3, 3}, {1, 3, 1, 1}, {1, 3, 2, 2}};
    static const char *const names[5] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "score.weight"};
    Value p[5], fake = graph_input(g, "fake", (Shape){2, 2, 8, 8}, DTYPE_F32);
    Value x_hat = graph_input(g, "x_hat", (Shape){2, 2, 8, 8}, DTYPE_F32);
    for (int k = 0; k < 5; k++) p[k] = graph_param(g, names[k], shapes[k], small, true);
    Value penalty = gradient_penalty(g, x_hat, p);
    Value loss = add(g, total(g, critic(g, fake, p)), affine(g, penalty, 10, 0));
    check_network("WGAN-GP", g, loss, p, 5);
}
